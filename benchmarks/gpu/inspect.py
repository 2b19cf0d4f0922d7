"""Inspection of GPU kernels' machine code without a GPU: `python -m benchmarks.gpu.inspect [--rows NAME,...]`.

For each workload, the first candidate of a search on the roofline alone is built and disassembled. The table shows the
main loop's instructions and the share of the peak that they allow (`machine_code`). Takes NVRTC and `nvdisasm` (the
wheel nvidia-cuda-nvdisasm).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from autotune.tuner.scorer import ModelScorer
from autotune.tuner.search.base import Candidate
from autotune.tuner.search.evolution import Evolution
from benchmarks.gpu import rows
from benchmarks.gpu.machine_code import MATH, TENSOR, Bound, MissingDisassembler, bound, disassemble, disassembler
from costmodel.models.lightgbm_model import LightGBMModel
from search_space import workloads
from search_space.ir.expr import dtype_bytes
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets.base import Module
from targets.cuda.program import DeviceKernel
from targets.cuda.target import CudaTarget, get_target

GENERATIONS = 12


def _rows() -> dict[str, Callable[[], Workload]]:
    found = {row.name: row.make for row in rows.ROWS}
    return found | {
        "matmul_8192x8192x8192_fp32": lambda: workloads.matmul(8192, 8192, 8192, constant_b=False),
        "depthwise_56x56x128_3x3": lambda: workloads.depthwise_conv2d(
            height=56, width=56, channels=128, kernel=3, padding=1
        ),
        "relu_4096x4096": lambda: workloads.elementwise(function="relu", shape=(4096, 4096)),
    }


ROWS = _rows()
DEFAULT_ROWS = (
    "matmul_1024x1024x1024_fp32",
    "matmul_8192x8192x8192_fp32",
    "conv_1x56x56x64_256_1x1",
    "conv_1x56x56x64_64_3x3",
    "conv_16x56x56x64_64_3x3",
    "conv_1x7x7x512_512_3x3",
    "conv_16x7x7x512_512_3x3",
    "conv_1x56x56x256_128_1x1_s2",
    "matmul_4096x4096x4096_fp16",
    "matmul_16x4096x4096_fp16",
    "depthwise_56x56x128_3x3",
    "softmax_8192x1024",
    "layer_norm_8192x1024",
    "sum_4096x16384",
    "relu_4096x4096",
)


@dataclass(frozen=True)
class KernelInspection:
    """One kernel of a workload's candidate: its resources, the number of blocks that fit, and the bound of its code."""

    kernel: DeviceKernel
    registers: int
    shared: int
    spill_bytes: int
    resident: int
    bound: Bound


def first(space: SearchSpace, seed: int) -> Candidate:
    """Returns the candidate that an evolutionary search on the roofline finds best."""
    scorer = ModelScorer(space, LightGBMModel(seed=seed), np.random.default_rng([seed, 1]), noise=0.0)
    found = Evolution(space, scorer, np.random.default_rng(seed), generations=GENERATIONS).ask(16)
    return found[int(np.argmax(scorer.score(found)))]


def inspect_kernels(
    target: CudaTarget, space: SearchSpace, candidate: Candidate, program: str
) -> Iterator[KernelInspection]:
    """Builds and disassembles the kernels of a candidate."""
    lowered = space.program(candidate)
    module, device = target.build(lowered), target.device_program(lowered)
    functions = disassemble(module.object_code, program)
    for kernel, resources in zip(device.kernels, list_launches(module), strict=True):
        registers = -(-resources["registers"] // 8) * 8 * kernel.threads
        limits = target.limits
        fits = [limits.blocks_sm, limits.threads_sm // kernel.threads, limits.registers_sm // registers]
        fits.append(limits.shared_sm // (resources["shared_bytes"] + 1024))
        yield KernelInspection(
            kernel,
            resources["registers"],
            resources["shared_bytes"],
            resources["spill_bytes"],
            min(fits),
            bound(functions[kernel.name], kernel, target.hardware),
        )


def list_launches(module: Module) -> list[dict[str, int]]:
    """Returns the module's facts about its kernels' launches."""
    found: list[dict[str, int]] = module.metadata["launches"]["kernels"]
    return found


def line(name: str, workload: Workload, inspections: Sequence[KernelInspection], target: CudaTarget) -> str:
    """Formats a row of the table, about the largest kernel and the bound of all."""
    most = max(inspections, key=lambda each: each.bound.seconds)
    code, kernel = most.bound, most.kernel
    seconds = sum(each.bound.seconds for each in inspections)
    tensor = code.share(*TENSOR) > 0
    moved = count_bytes(workload) / target.hardware.bandwidth
    rate = dict(target.limits.tensor_flops)["float16"] if tensor else target.hardware.peak_flops
    ideal, of = max((workload.flops / rate, "tensor cores" if tensor else "fp32"), (moved, "bandwidth"))
    block = "x".join(str(n) for n in kernel.block if n > 1) or "1"
    loads = code.share("LDS", "LDSM")
    math = code.share(*MATH)
    loop = "none" if code.passes == 1.0 else f"{code.loop.total()}: {math:.0%} math, {loads:.0%} shared"
    spilled = f", {most.spill_bytes} B spilled" if most.spill_bytes else ""
    return (
        f"| {name} | {kernel.blocks} x {block}, {most.registers} registers{spilled}, {most.shared / 1024:.0f} KiB, "
        f"{most.resident} on an SM | {loop} | {code.by} | {seconds * 1e6:.1f} us | "
        f"{min(1.0, ideal / seconds):.0%} of {of} |"
    )


def count_bytes(workload: Workload) -> int:
    """Counts bytes of inputs and output, each moved once."""
    return sum(prod(spec.shape) * dtype_bytes(spec.dtype) for spec in (*workload.inputs, workload.output))


HEAD = (
    "| workload | largest kernel: blocks x threads | main loop, instructions | bound by | at least | at most |\n"
    "| --- | --- | --- | --- | ---: | ---: |\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.inspect", description=__doc__)
    parser.add_argument("--rows", help="comma-separated names; default: the table of docs/cuda.md")
    parser.add_argument("--arch", default="sm_90", help="architecture that is compiled for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", type=Path, help="folder for each row's CUDA text")
    options = parser.parse_args(arguments)
    wanted = options.rows.split(",") if options.rows else list(DEFAULT_ROWS)
    if unknown := [name for name in wanted if name not in ROWS]:
        sys.stderr.write(f"`--rows` must be among {', '.join(ROWS)}, but got {unknown[0]!r}\n")
        return 2
    try:
        target = get_target(f"cuda:{options.arch}")
        program = disassembler()
    except (MissingDisassembler, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(HEAD)
    for name in wanted:
        workload = ROWS[name]()
        space = generate(workload, target.hardware)
        candidate = first(space, options.seed)
        found = list(inspect_kernels(target, space, candidate, program))
        sys.stdout.write(line(name, workload, found, target) + "\n")
        sys.stdout.flush()
        if options.text is not None:
            options.text.mkdir(parents=True, exist_ok=True)
            sketch = space.sketches[candidate.sketch]
            source = target.build(space.program(candidate)).metadata["source"]
            head = f"// {sketch.name} {sketch.values(candidate.choices)}\n"
            (options.text / f"{name}.cu").write_text(head + source)
    return 0


if __name__ == "__main__":
    sys.exit(main())
