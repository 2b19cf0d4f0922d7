"""A convolution for a matrix accelerator scheduled by hand: the classic steps, and the instructions that they become.

The accelerator (a simulated VTA) has memories that programs fill: `cache_read` copies operands in, `set_scope` keeps
sums in the accumulator. `tensorize` makes a tile's product one instruction, and two virtual threads with buffers of
their own let one load while the other computes.
"""

from __future__ import annotations

import numpy as np

import autotune
from search_space import te, workloads
from search_space.schedule.facade import Schedule
from search_space.schedule.intrinsics import get_intrinsic
from targets import registry

CONV = workloads.conv2d_blocked(height=14, width=14, in_channels=64, out_channels=64, kernel=3, padding=1, relu=True)
ROWS, BLOCKS = 7, 2  # the tile of a virtual thread: 7 rows of 14 pixels, 2 blocks of 16 output channels


def schedule(threads: int = 2) -> tuple[Schedule, list[te.Tensor]]:
    """Schedules the convolution with padding, shift, bias and clipping; returns the schedule and its tensors."""
    tensors = CONV.tensors("direct")
    _, weight, bias, out = tensors
    s = te.create_schedule(out.op)
    conv, pad = "conv", "pad"  # stages of the definition, by name

    # the output in tiles: blocks of channels outside, rows inside, two virtual threads that share the rows
    _, k, h, _, _, _ = s[out].op.axis
    ko, ki = s[out].split(k, factor=BLOCKS)
    ho, ht, hi = s[out].split(h, factors=[threads, ROWS], tail="exact" if ROWS * threads == 14 else "clamp")
    s[out].reorder(ko, ho, ht, ki, hi)
    s[out].vthread(ht)

    # sums on chip, over a part of the input channels at a time
    s[conv].set_scope("accumulator")
    s[conv].compute_at(s[out], ht)
    n, k, h, w, b, o = s[conv].op.axis
    rc, rh, rw, ri = s[conv].op.reduce_axis
    part, within = s[conv].split(rc, factor=2)
    s[conv].reorder(part, within, rh, rw, n, k, h, w, b, o, ri)
    s[conv].tensorize(b, get_intrinsic("gemm_tile:1x16x16"))

    # operands arrive for each part; padding is written on the way in
    inputs = s.cache_read(pad, "input", conv)
    weights = s.cache_read(weight, "weight", conv)
    s[inputs].compute_at(s[conv], part)
    s[weights].compute_at(s[conv], part)
    s[pad].compute_inline()
    biases = s.cache_read(bias, "accumulator", out)
    s[biases].compute_at(s[out], ht)
    return s, tensors


def main() -> None:
    """Prints the schedule, the loops and the instructions; runs, checks and times both numbers of threads."""
    target = registry.get("vta")
    for threads in (1, 2):
        s, tensors = schedule(threads)
        kernel = autotune.build(s, tensors, target="vta")
        if threads == 2:
            print(s.trace, autotune.lower(s, tensors), target.assembly(kernel.module), sep="\n\n", end="\n\n")
        inputs = CONV.make_inputs(seed=0)
        bound = kernel.bind(inputs)
        np.testing.assert_array_equal(bound.run(), CONV.reference(*inputs))
        told = bound.metrics()
        print(
            f"{threads} virtual thread{'s' * (threads > 1)}: {told['cycles']:,} cycles, "
            f"GEMM busy {told['gemm_utilisation']:.0%}, memory port {told['port_utilisation']:.0%}"
        )


if __name__ == "__main__":
    main()
