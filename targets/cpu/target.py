"""The CPU target: emits, compiles and loads loop programs on this host or for another x86-64 or AArch64 processor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from search_space.hardware import Hardware
from search_space.ir.stmt import LoopProgram
from search_space.ir.verify import verify
from search_space.lower.borders import trim_borders
from search_space.lower.counted import end_at_counts
from search_space.lower.peeling import peel_last_iterations
from search_space.lower.selected import select_iterations
from search_space.lower.unseen import without_unseen
from targets.base import FASTEST_CORE, BuildError, Module, NetworkPlan, Packer, RunError, Target
from targets.cpu.argument_reduction import definitions
from targets.cpu.emit import emit_program
from targets.cpu.figures import to_json
from targets.cpu.host import make_hardware, make_limits, probe_host
from targets.cpu.kernel import CpuKernel
from targets.cpu.library_calls import emit_sgemm  # noqa: F401  (registers the emitter)
from targets.cpu.machine_code import innermost_loops, spilling, table
from targets.cpu.processors import TRIPLES, target_triple
from targets.cpu.runtime import ZEROS, initialise
from targets.cpu.tensor_intrinsics import emit_vnni  # noqa: F401  (registers the emitters)
from targets.cpu.tile_intrinsics import request_text, request_tiles, uses_tiles
from targets.native import NativeKernel, NativePacker
from targets.network_library import SharedObject, shared_object

MOST_SAVES = 0.125
"""Vectors written to the stack for each product, beyond which a loop is not worth timing once another one was timed.

Of 3,430 random programs of 60 tasks 14 exceeded it. They took 1.75 to 11 times as long as the best of their task, 3.3
times in the median. Reads from the stack do not count: a depthwise kernel that keeps its weights there may be the best.
"""


class CpuTarget(Target):
    """Code for one CPU.

    Args:
        cpu: an LLVM processor name; this host's by default.
        features: LLVM feature string; this host's by default.
        name: key of the target in `targets.registry`.
        architecture: architecture of the processor, a name of `processors.TRIPLES`; empty: this host's. Code for
            another one is built here and runs elsewhere.

    Raises:
        ValueError: a processor that LLVM does not know.
    """

    peers = ("onnxruntime", "openvino", "openvino-as-installed")
    loops = True
    open_sizes = True
    states = True

    def __init__(
        self, cpu: str | None = None, features: str | None = None, name: str = "cpu", architecture: str = ""
    ) -> None:
        initialise()
        if architecture:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        self.name = name
        self.cpu = cpu or llvm.get_host_cpu_name()
        self.features = features if features is not None else "" if cpu else llvm.get_host_cpu_features().flatten()
        self.limits = make_limits(self.cpu, self.features, is_host=cpu is None, architecture=architecture)
        self.machine = llvm.Target.from_triple(target_triple(architecture)).create_target_machine(
            cpu=self.cpu, features=self.features, opt=2, reloc="pic", codemodel="default"
        )

    @cached_property
    def hardware(self) -> Hardware:
        """The processor's limits; this host is probed for them the first time, which no building and running needs."""
        return make_hardware(self.name, self.limits)

    @property
    def identity(self) -> Mapping[str, Any]:
        return {
            "llvm": list(llvm.llvm_version_info),
            "triple": self.machine.triple,
            "cpu": self.cpu,
            "features": self.features,
            "emitted": [self.limits.vector_bytes, self.limits.caches[2], *sorted(self.limits.features)],
        }

    @property
    def cache_bytes(self) -> int:
        return self.limits.caches[-1]

    def fastest(self, threads: int) -> float:
        return FASTEST_CORE * threads

    def figures(self) -> dict[str, Any] | None:
        return to_json(probe_host(self.limits)) if self.limits.is_host else None

    def header(self) -> str:
        return f'target datalayout = "{self.machine.target_data}"\ntarget triple = "{self.machine.triple}"\n'

    def attributes(self) -> str:
        bits = self.limits.vector_bytes * 8
        widths = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" ' if bits > 128 else ""
        return f'nounwind {widths}"target-cpu"="{self.cpu}"'

    def llvm_ir(self, program: LoopProgram, name: str = "kernel") -> tuple[str, int, int]:
        """Emits the module's LLVM text; also returns the shared and per-thread bytes of workspace."""
        features = frozenset(self.limits.features)
        cached = self.limits.caches[2] // 2  # beside what the output is made of
        panel = self.limits.caches[1] // 2  # beside the one that is read
        shortened = select_iterations(end_at_counts(without_unseen(trim_borders(program))))
        main = emit_program(peel_last_iterations(shortened), name, self.attributes(), features, cached, panel)
        parts = [main.text]
        for i, prologue in enumerate(program.prologues):
            parts.append(
                emit_program(peel_last_iterations(prologue), f"{name}_pack{i}", self.attributes(), features).text
            )
        lines = list(dict.fromkeys(line for part in parts for line in part.splitlines() if line.startswith("declare")))
        rest = ["\n".join(x for x in part.splitlines() if not x.startswith("declare")) for part in parts]
        lines, functions = definitions(lines, features, self.attributes())
        text = "\n".join([self.header(), ZEROS, *lines, *functions, *rest])
        if uses_tiles(text):
            text += request_text(name)
        return text, main.shared_bytes, main.scratch_bytes

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        verify(program, open_sizes=True)
        text, shared, scratch = self.llvm_ir(program, name)
        try:
            module = llvm.parse_assembly(text)
            code = self.machine.emit_object(module)
        except RuntimeError as error:
            raise BuildError(f"LLVM must accept the emitted code, but said: {error}") from error
        share, saves = spilling(innermost_loops(code, self.machine.triple), program)
        return Module.of(
            program,
            name,
            self.name,
            code,
            {
                "shared_bytes": shared,
                "scratch_bytes": scratch,
                "cpu": self.cpu,
                "triple": self.machine.triple,
                "spilled": round(share, 4),
                "saves_a_product": round(saves, 4),
            },
            text,
        )

    def load(self, module: Module) -> CpuKernel:
        """Loads a module, ready to run in this process.

        Raises:
            RunError: it is for another architecture than this host's.
        """
        if uses_tiles(module.llvm_ir):
            request_tiles()
        theirs = str(module.metadata.get("triple", "")).partition("-")[0]
        ours = llvm.get_process_triple().partition("-")[0]
        if theirs and theirs != ours:
            raise RunError(f"a module must be for {ours} to run here, but got one for {theirs}")
        return CpuKernel(module, self.limits.cores)

    def refusal(self, module: Module) -> str:
        saves = float(module.metadata.get("saves_a_product", 0.0))
        if saves <= MOST_SAVES:
            return ""
        return (
            f"the innermost loop must write at most {MOST_SAVES:g} vectors to the stack for each product to be timed, "
            f"but writes {saves:g}"
        )

    def spills(self, program: LoopProgram, name: str = "kernel") -> tuple[float, Module]:
        module = self.build(program, name)
        return float(module.metadata["spilled"]), module

    @property
    def tools(self) -> Mapping[str, Any]:
        found = {name: shutil.which(name) for name in ("cc", "gcc", "clang", "ld")}
        facts = {name: os.stat(path) for name, path in found.items() if path is not None}
        return {name: [os.path.realpath(str(found[name])), of.st_size, of.st_mtime_ns] for name, of in facts.items()}

    @property
    def stages(self) -> Mapping[str, Callable[[Module], str]]:
        def resources(module: Module) -> str:
            return table(module.object_code, self.machine.triple)

        return {"llvm": lambda module: module.llvm_ir, "resources": resources, "assembly": self.assembly}

    def assembly(self, module: Module) -> str:
        return str(self.machine.emit_assembly(llvm.parse_assembly(module.llvm_ir)))

    def library(self, files: Mapping[str, bytes]) -> SharedObject | None:
        """Loads the shared object among a network's files; None if it is missing."""
        return next((shared_object(data) for name, data in files.items() if name.endswith(".so")), None)

    def packer(self, module: Module, library: object = None) -> Packer:
        """Runs the module's prologues on this host."""
        if isinstance(library, SharedObject):
            return NativePacker(module, partial(NativeKernel, module, library.address, self.limits.cores, timer=0))
        return NativePacker(module, partial(self.load, module))

    def link(self, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
        from targets.cpu.network import link

        return link(self, plan, folder)

    def export(self, module: Module, folder: Path, name: str) -> list[str]:
        """Writes `name`.o, .so and .h to `folder`; the files' names. See `targets.cpu.export`."""
        from targets.cpu.export import export

        return export(self, module, folder, name)


@cache
def get_target(spec: str = "cpu") -> CpuTarget:
    """Returns the target `cpu` (this host), `cpu:NAME` with an LLVM processor name, or `cpu:aarch64[:NAME]`.

    Raises:
        ValueError: a processor that LLVM does not know.
    """
    _, _, cpu = spec.partition(":")
    architecture, _, other = cpu.partition(":")
    if architecture in TRIPLES:
        return CpuTarget(other or "generic", name=spec, architecture=architecture)
    return CpuTarget(cpu or None, name=spec)
