"""The C target: kernels as portable C99, for this host or any machine of a C compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from platform import machine
from typing import Any

from search_space.hardware import CpuRates, Hardware
from search_space.ir.stmt import LoopProgram
from search_space.ir.verify import verify
from targets.base import FASTEST_CORE, Kernel, Module, NetworkPlan, Packer, RunError, Target
from targets.c.compiler import Compiler, is_here
from targets.c.kernel import CKernel
from targets.c.source import Source, make_source
from targets.native import NativePacker

CLOCK_HZ = 2e9
BANDWIDTH = 8e9
CACHES = (32 << 10, 256 << 10, 2 << 20)
"""Figures of the modest processor that the estimate assumes, as the one that will run the text is unknown."""
_VECTORS = (("__AVX512F__", 64, 32), ("__AVX__", 32, 16), ("__aarch64__", 16, 32))
"""Macros of compilers, with the bytes and the number of the vector registers that they stand for; the first counts."""


class CTarget(Target):
    """Code for one thread of the machine that a compiler compiles for.

    Args:
        compiler: compiler of the kernels.
        name: key of the target in `targets.registry`.
    """

    def __init__(self, compiler: Compiler, name: str = "c") -> None:
        self.compiler, self.name = compiler, name

    ray_resource = "autotune_cpu"  # kernels of both run on the same cores

    @cached_property
    def hardware(self) -> Hardware:
        """A modest processor of one core, with the vectors that the compiler may use; 128 bits where it has none."""
        macros = frozenset() if self.compiler.missing else self.compiler.macros
        vector, registers = next(((b, n) for macro, b, n in _VECTORS if macro in macros), (16, 16))
        rates = CpuRates(fma=1.0, loads=1.0, issue=4.0, one=(32.0, 8.0, 4.0), each=(32.0, 8.0, 4.0))
        peak = CLOCK_HZ * rates.fma * 2 * (vector // 4)
        return Hardware(self.name, 1, vector, registers, *CACHES, peak, BANDWIDTH, clock_hz=CLOCK_HZ, rates=rates)

    def fastest(self, threads: int) -> float:
        return FASTEST_CORE * threads

    def unavailable(self) -> str:
        if self.compiler.missing:
            return self.compiler.missing
        return "" if is_here(self.compiler.machine) else f"kernels for {self.compiler.machine} must run elsewhere"

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        verify(program)
        source, compiler = make_source(program, name), self.compiler
        code = compiler.library(source.library) if compiler.links else compiler.object(source.text)
        return Module.of(
            program,
            name,
            self.name,
            code,
            {
                "shared_bytes": source.workspace_bytes,
                "scratch_bytes": 0,
                "functions": source.to_json(),
                "flags": list(compiler.flags),
                "compiler": compiler.version,
                "machine": compiler.machine,
            },
        )

    def load(self, module: Module) -> Kernel:
        """Loads a module, ready to run in this process.

        Raises:
            RunError: it is for another machine than this host.
        """
        theirs = str(module.metadata["machine"])
        if not is_here(theirs):
            raise RunError(f"a module must be for {machine()} to run here, but got one for {theirs}")
        return CKernel(module)

    @property
    def stages(self) -> Mapping[str, Callable[[Module], str]]:
        return {"c": lambda module: Source.of(module).text, "assembly": self.assembly}

    def assembly(self, module: Module) -> str:
        return self.compiler.assembly(Source.of(module).text)

    def packer(self, module: Module, library: object = None) -> Packer:
        """Runs the prologues here, compiled by this host's compiler where the module's is for another machine."""
        return NativePacker(module, partial(self._here, module))

    def _here(self, module: Module) -> CKernel:
        if is_here(str(module.metadata["machine"])):
            return CKernel(module)
        library = Compiler().library(Source.of(module).library)
        return CKernel(replace(module, object_code=library))

    def link(self, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
        from targets.c.network import link

        return link(self.compiler, plan, folder)

    def export(self, module: Module, folder: Path, name: str) -> list[str]:
        """Writes `name`.c and `name`.h to `folder`; the files' names. See `targets.c.export`."""
        from targets.c.export import export

        return export(module, folder, name)


@cache
def get_target(spec: str = "c") -> CTarget:
    """Returns the target `c` (this host's `cc`), or `c:COMPILER` with options of the machine.

    For example `c:arm-none-eabi-gcc -mcpu=cortex-m7`.

    Raises:
        ValueError: an invalid name of a compiler, or an option that is not of the machine.
    """
    return CTarget(Compiler.of(spec.partition(":")[2]), spec)
