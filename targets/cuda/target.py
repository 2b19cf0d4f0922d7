"""The CUDA target: loop programs become cubins with no GPU at hand; loading them takes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from search_space.hardware import GpuLimits, Hardware
from search_space.ir.stmt import LoopProgram
from targets.base import BuildError, Kernel, Module, NetworkPlan, Target
from targets.buffers import buffer_bytes
from targets.cuda.emit import dynamic_shared_bytes
from targets.cuda.hardware import DEFAULT_ARCH, GPUS
from targets.cuda.kernels import device_program
from targets.cuda.nvrtc import Resources, compile_cubin, compile_ptx, version
from targets.cuda.program import ALIGNMENT, DeviceKernel, DeviceProgram, TensorMap
from targets.cuda.program_text import emit_program


class CudaTarget(Target):
    """Code for one architecture of NVIDIA GPUs.

    Args:
        arch: architecture by NVRTC's name.
        name: name of the target in records.
    """

    alignment = ALIGNMENT
    spacing = 256
    splits_windows = False
    ray_resource = "GPU"

    def __init__(self, arch: str = DEFAULT_ARCH, name: str = "cuda") -> None:
        self.name, self.arch = name, arch
        assert self.hardware.gpu is not None
        self.limits: GpuLimits = self.hardware.gpu

    @property
    def hardware(self) -> Hardware:
        return GPUS[self.arch]

    def device_program(self, program: LoopProgram, name: str = "kernel") -> DeviceProgram:
        """Splits a program into kernels with barriers, from which text is written and which the emulator runs.

        Raises:
            BuildError: a program that this GPU cannot run.
        """
        return device_program(program, self.limits, name)

    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        device_code = self.device_program(program, name)
        text = emit_program(device_code)
        compiled = compile_cubin(text, self.arch)
        return Module.of(
            program,
            name,
            self.name,
            compiled.cubin,
            {
                "arch": self.arch,
                "nvrtc": version(),
                "source": text,
                "notes": list(compiled.notes),
                "launches": launches(device_code, compiled.resources),
                "prologues": [launches(p, compiled.resources) for p in device_code.prologues],
            },
        )

    def load(self, module: Module) -> Kernel:
        """Loads a module on the first GPU of this machine.

        Raises:
            RunError: the machine has no GPU, or the GPU does not take the module.
        """
        from targets.cuda.kernel import CudaKernel

        return CudaKernel(module)

    def unavailable(self) -> str:
        from targets.cuda.driver import device_arch, missing_device, runs_on

        if why := missing_device():
            return why
        theirs = device_arch()
        if runs_on(self.arch, theirs):
            return ""
        return f"target {self.name} must run on a GPU that takes code for {self.arch}, but this machine's is {theirs}"

    @property
    def stages(self) -> Mapping[str, Callable[[Module], str]]:
        return {
            "cuda": lambda module: str(module.metadata["source"]),
            "resources": resources_table,
            "assembly": self.assembly,
        }

    def assembly(self, module: Module) -> str:
        """Returns the PTX of the kernels."""
        return compile_ptx(module.metadata["source"], module.metadata["arch"])

    def link(self, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
        from targets.cuda.network import link

        return link(self, self.arch, plan, folder)

    def export(self, module: Module, folder: Path, name: str) -> list[str]:
        """Writes `name`.cubin, .cu and .json, which says how to launch; the files' names."""
        from targets.cuda.export import export

        return export(module, folder, name)


def launches(program: DeviceProgram, resources: dict[str, Resources]) -> dict[str, Any]:
    """Describes the launches of a program as plain data.

    Raises:
        BuildError: the assembler's report says nothing of a kernel.
    """
    if missing := [kernel.name for kernel in program.kernels if kernel.name not in resources]:
        raise BuildError(f"NVRTC must report on every kernel, but said nothing of {missing[0]}")
    return {
        "kernels": [_launch(kernel, resources[kernel.name]) for kernel in program.kernels],
        "workspace": [[buffer.name, buffer_bytes(buffer)] for buffer in program.workspace],
    }


def _launch(kernel: DeviceKernel, resources: Resources) -> dict[str, Any]:
    dynamic = dynamic_shared_bytes(kernel)
    facts, names = asdict(resources), [b.name for b in kernel.params]
    facts["shared_bytes"] += dynamic
    return {
        "name": kernel.name,
        "grid": list(kernel.grid),
        "block": list(kernel.block),
        "arguments": names,
        "tensor_maps": [_describe_map(each, names.index(each.buffer)) for each in kernel.maps],
        "dynamic_shared_bytes": dynamic,
        "barriers": kernel.barriers,
        **facts,
    }


def _describe_map(each: TensorMap, argument: int) -> dict[str, Any]:
    """Describes a tensor map as plain data; `argument` is the number of the array among the launch's."""
    facts = {"dtype": each.dtype, "shape": list(each.shape), "strides": list(each.strides), "box": list(each.box)}
    return {"argument": argument, **facts, "swizzle": each.swizzle}


def resources_table(module: Module) -> str:
    """Formats the resources of each kernel, a line each."""
    lines = [f"# compiled for {module.metadata['arch']} by NVRTC {module.metadata['nvrtc']}"]
    programs = [*module.metadata["prologues"], module.metadata["launches"]]
    for kernel in (k for p in programs for k in p["kernels"]):
        grid, block = ("x".join(map(str, kernel[key])) for key in ("grid", "block"))
        lines.append(
            f"{kernel['name']}: grid {grid}, block {block}, {kernel['registers']} registers, "
            f"{kernel['shared_bytes']} bytes of shared memory, {kernel['spill_bytes']} bytes spilled"
        )
    return "\n".join([*lines, *module.metadata["notes"]])


@cache
def get_target(spec: str = "cuda") -> CudaTarget:
    """Returns the target `cuda` (an H200) or `cuda:ARCH`, such as `cuda:sm_90`.

    Raises:
        ValueError: an architecture that is not known here.
    """
    _, _, arch = spec.partition(":")
    if arch and arch not in GPUS:
        raise ValueError(f"`target` cuda must be followed by one of {', '.join(GPUS)}, but got {spec}")
    return CudaTarget(arch or DEFAULT_ARCH, spec)
