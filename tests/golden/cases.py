"""Small workloads, a machine and one candidate of each: the same on every host."""

from __future__ import annotations

import numpy as np

from search_space import workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import LoopProgram
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload

HARDWARE = Hardware(
    "fixed",
    cores=2,
    vector_bytes=64,
    vector_registers=32,
    l1_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=32 << 20,
    peak_flops=2e11,
    bandwidth=4e10,
    features=("avx512bf16", "avx512f", "avx512vnni"),
)
ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" "target-cpu"="skylake-avx512"'

_CONV = workloads.conv2d(
    height=6, width=6, in_channels=4, out_channels=20, kernel=3, padding=1, bias=True, activation="relu"
)
CASES: dict[str, tuple[Workload, str]] = {
    "conv2d": (_CONV, "direct:h.1>w.0>k.1/rh>rw>rc/pad_at_h.1"),
    "conv2d_im2col": (_CONV, "im2col:n_h_w.1>k.1/rh>rw>rc/pad_at_n_h_w.1"),
    "conv2d_winograd": (_CONV, "winograd2:block/pad_inline"),
    "conv2d_winograd_dot": (
        workloads.conv2d(height=6, width=6, in_channels=4, out_channels=20, kernel=3, padding=1, dtype="bfloat16"),
        "winograd2_dot:block/pad_inline",
    ),
    "conv2d_groups_dot": (
        workloads.conv2d(
            height=6, width=6, in_channels=16, out_channels=16, kernel=3, padding=1, groups=4, dtype="bfloat16"
        ),
        "direct:h.1>w.0>k.1/rh>rw>rc/pad_at_h.1",
    ),
    "depthwise": (
        workloads.depthwise_conv2d(height=7, width=7, channels=20, kernel=3, stride=2, padding=1),
        "direct:c.1>h.1>w.0/rw>rh/pad_inline",
    ),
    "matmul_odd": (workloads.matmul(5, 33, 7), "direct:i.1>j.1/r"),
    "matmul_int8_vnni": (workloads.matmul(4, 32, 8, dtype="int8"), "direct:j.1>i.1/r"),
    "softmax": (workloads.softmax(3, 40), "direct:rows"),
    "layer_norm": (workloads.layer_norm(2, 40), "direct:rows"),
}
"""Workload and sketch, by file."""


def find_sketch(workload: Workload, name: str) -> Sketch:
    """The sketch of that name."""
    found = {sketch.name: sketch for sketch in generate(workload, HARDWARE).sketches}
    assert name in found, f"`name` must be one of {', '.join(found)}, but got name={name!r}"
    return found[name]


def candidate(sketch: Sketch) -> dict[str, int]:
    """The legal candidate in the middle of all of them, in the order of the tables: no random numbers in it."""
    lengths = tuple(len(group.table) for group in sketch.groups)
    everyone = np.stack(np.unravel_index(np.arange(sketch.size), lengths), axis=1).astype(np.int32)
    legal = everyone[sketch.legal(everyone)]
    return sketch.values(legal[len(legal) // 2])


def program(workload: Workload, sketch: Sketch) -> LoopProgram:
    """The loops of that candidate."""
    return make_program(workload, sketch.algorithm, sketch.steps.substitute(candidate(sketch)))
