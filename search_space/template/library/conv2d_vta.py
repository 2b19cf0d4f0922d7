"""A convolution on VTA, a simulated accelerator whose memories programs fill; after TVM's template for it."""

from __future__ import annotations

from collections.abc import Callable

from search_space import te
from search_space.intrinsics import available
from search_space.ir.expr import lift
from search_space.template.base import ScheduledTensors, template
from search_space.template.config import Config
from search_space.workloads import Workload

THREADS = 2


@template("conv2d.vta", operator="conv2d_blocked")
def conv2d_vta(cfg: Config, workload: Workload) -> ScheduledTensors:
    """Schedules `conv2d_blocked` with padding, shift, bias and clipping.

    Knobs, with the names of TVM's template: the tile of rows, columns and blocks of output channels (`tile_h`,
    `tile_w`, `tile_co`), the part of the input channels that arrives at a time (`tile_ci`), virtual threads along rows
    or along channels (`h_nthread`, `oc_nthread`), and the order of the outer loops (`order`). Limits are the bytes of
    the memories, which lowering finds, and two threads together.
    """
    if cfg.hardware.kind != "accelerator":
        raise ValueError(f"template conv2d.vta must be given an accelerator, but got target={cfg.hardware.name}")
    tensors = workload.tensors("direct")
    data, weight, out = tensors[0], tensors[1], tensors[-1]
    s = te.create_schedule(out.op)
    conv = "conv"
    (intrinsic,) = (i for i in available(cfg.hardware) if i.name.startswith("gemm_tile"))

    # tiles of the output, and threads that share them
    cfg.define_knob("h_nthread", [1, THREADS])
    cfg.define_knob("oc_nthread", [1, THREADS])
    _, k, h, w, _, _ = s[out].op.axis
    _, blocks, height, width, _, _ = out.shape
    cfg.define_split("tile_co", blocks, 2, "verbose", tail="clamp", filter=_even(blocks))
    cfg.define_split("tile_h", height, 2, "verbose", tail="clamp", filter=_even(height))
    cfg.define_split("tile_w", width, 2, "verbose", tail="clamp", filter=_even(width))
    threads = cfg["oc_nthread"].var, cfg["h_nthread"].var
    k0, kt, k1 = s[out].split(k, factors=[threads[0], cfg["tile_co"].size[1]], tail="clamp")
    h0, ht, h1 = s[out].split(h, factors=[threads[1], cfg["tile_h"].size[1]], tail="clamp")
    w0, w1 = cfg["tile_w"].apply(s, out, w)
    cfg.define_reorder("order", [k0, h0, w0], candidate=[[k0, h0, w0], [h0, w0, k0]])
    s[out].reorder(k0, h0, w0, kt, ht, k1, h1, w1)
    outer = cfg["order"].apply(s, out, [k0, h0, w0])
    s[out].vthread(kt)
    s[out].vthread(ht)
    cfg.require("virtual threads", lift(threads[0]) * threads[1], THREADS)

    # sums on chip, over a part of the input channels at a time
    s[conv].set_scope("accumulator")
    s[conv].compute_at(s[out], ht)
    n, k, h, w, b, o = s[conv].op.axis
    rc, rh, rw, ri = s[conv].op.reduce_axis
    cfg.define_split("tile_ci", rc, 2)
    part, within = cfg["tile_ci"].apply(s, conv, rc)
    s[conv].reorder(part, within, rh, rw, n, k, h, w, b, o, ri)
    s[conv].tensorize(b, intrinsic)

    # operands arrive for each part; padding is written on the way in
    source = "pad" if "pad" in {stage.name for stage in s.state.stages} else data
    inputs = s.cache_read(source, "input", conv)
    weights = s.cache_read(weight, "weight", conv)
    s[inputs].compute_at(s[conv], part)
    s[weights].compute_at(s[conv], part)
    if source == "pad":
        s["pad"].compute_inline()
    if workload.args["bias"]:
        biases = s.cache_read(tensors[2], "accumulator", out)
        s[biases].compute_at(s[out], outer[0])
    return s, tensors


def _even(extent: int, most: float = 1.25) -> Callable[[tuple[int, ...]], bool]:
    """Makes a filter for tiles that compute at most a quarter of the axis twice."""
    return lambda sizes: sizes[0] * sizes[1] <= most * extent
