"""A convolution on a CPU: a tile of outputs is accumulated in registers; weights are packed as they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from search_space import te
from search_space.ir.expr import lift, product
from search_space.schedule.facade import Schedule
from search_space.template.base import ScheduledTensors, template
from search_space.template.config import Config
from search_space.workloads import Workload

MAX_TILE = 28
MAX_VECTORS = 8
MAX_UNROLLED = 400


@template("conv2d.cpu", operator="conv2d")
def conv2d_cpu(cfg: Config, workload: Workload) -> ScheduledTensors:
    """Schedules the direct algorithm of `conv2d` in float32: ungrouped, with any window, padding and activation.

    Knobs: the tile of the output (`tile_h`, `tile_w`, in vectors `tile_k`); the number of output channels in a block
    (`tile_k`, too); unrolling along the input channels (`tile_rc`); the orders of the outer loops (`order`) and of the
    reduction (`order_r`); and the place of padding (`pad`: whole first, or for each block of rows).
    """
    if workload.args["dtype"] != "float32" or workload.args["groups"] != 1:
        got = f"dtype={workload.args['dtype']}, groups={workload.args['groups']}"
        raise ValueError(f"template conv2d.cpu must be given a float32 convolution of one group, but got {got}")
    tensors = workload.tensors("direct")
    weight, out = tensors[1], tensors[-1]
    s = te.create_schedule(out.op)
    lanes = cfg.hardware.float_lanes
    _, height, width, channels = out.shape

    # the output: blocks of rows and channels in parallel, a tile of registers inside
    cfg.define_split("tile_h", height, 3, "verbose", tail="clamp", max_factor=MAX_TILE, filter=_little_waste(height))
    cfg.define_split("tile_w", width, 2, "verbose", tail="clamp", max_factor=MAX_TILE, filter=_little_waste(width))
    vectors = -(-channels // lanes)
    rows = [
        (blocks, tile, lanes) for tile in range(1, min(vectors, MAX_VECTORS) + 1) for blocks in _divisors(vectors, tile)
    ]
    cfg.define_split("tile_k", channels, 4, tail="guard", candidate=rows)
    accumulator = _accumulator(s, out)
    n, h, w, k = s[out].op.axis
    h0, h1, h2 = cfg["tile_h"].apply(s, out, h)
    w0, w1 = cfg["tile_w"].apply(s, out, w)
    k0, k1, k2, k3 = cfg["tile_k"].apply(s, out, k)
    cfg.define_reorder("order", [h1, w0, k1], candidate=[[h1, w0, k1], [k1, h1, w0]])
    s[out].reorder(n, h0, k0, h1, w0, k1, h2, w1, k2, k3)
    outer = cfg["order"].apply(s, out, [h1, w0, k1])
    parallel = s[out].fuse(n, h0, k0)
    s[out].parallel(parallel)
    for loop in (h2, w1, k2):
        s[out].unroll(loop)
    s[out].vectorize(k3)

    # the sum: a tile of vectors stays in registers over the whole reduction
    s[accumulator].compute_at(s[out], outer[-1])
    *spatial, k = s[accumulator].op.axis
    rh, rw, rc = s[accumulator].op.reduce_axis
    cfg.define_split("tile_rc", rc, 2, max_factor=16)
    rc0, rc1 = cfg["tile_rc"].apply(s, accumulator, rc)
    v, lane = s[accumulator].split(k, factor=lanes, tail="exact")
    cfg.define_reorder("order_r", [rh, rw, rc0], candidate=[[rh, rw, rc0], [rc0, rh, rw]])
    s[accumulator].reorder(rh, rw, rc0, rc1, *spatial, v, lane)
    reduced = cfg["order_r"].apply(s, accumulator, [rh, rw, rc0])
    for loop in (rc1, *spatial, v):
        s[accumulator].unroll(loop)
    s[accumulator].vectorize(lane)

    # weights in blocks of the channels of a tile, inside them as the reduction runs
    _, unrolled = cfg["tile_rc"].size
    block = lift(cfg["tile_k"].size[2]) * lanes
    places = {rh.name: (0, 0), rw.name: (1, 0), rc0.name: (2, 0)}
    order = [(3, 0), *(places[loop.name] for loop in reduced), (2, 1), (3, 1)]
    s.pack(weight, factors=[(), (), (unrolled,), (block,)], order=order)

    tile = [cfg["tile_h"].size[2], cfg["tile_w"].size[1], cfg["tile_k"].size[2]]
    registers = product(tile) + tile[-1] + 1  # sums, a row of weights, one broadcast pixel
    cfg.require("registers", registers, cfg.hardware.vector_registers)
    cfg.require("unrolled operations", product([*tile, unrolled]), MAX_UNROLLED)
    if "pad" in {stage.name for stage in s.state.stages}:
        _pad(cfg, s, out, parallel, lanes)
    return s, tensors


def _accumulator(s: Schedule, out: te.Tensor) -> Any:
    """Returns the stage that sums up: the convolution itself, or a copy of it in registers if it is the output."""
    if out.op.reducer is not None:
        return s.cache_write(out, "local")
    (name,) = (stage.name for stage in s.state.stages if stage.reducer is not None)
    for stage in s.state.stages[:-1]:
        if stage.reducer is None and stage.name != "pad":
            s[stage.name].compute_inline()
    s[name].set_scope("local")
    return name


def _pad(cfg: Config, s: Schedule, out: te.Tensor, parallel: Any, lanes: int) -> None:
    cfg.define_knob("pad", ["whole", "block"])
    view = s["pad"]
    _, h, w, c = view.op.axis
    at_block = cfg["pad"].val == "block"
    if at_block:
        view.compute_at(s[out], parallel)
    row = view.fuse(w, c)
    _, inner = view.split(row, factor=lanes, tail="guard")
    view.vectorize(inner)
    if not at_block:
        view.parallel(h)


def _little_waste(extent: int, most: float = 1.25) -> Callable[[tuple[int, ...]], bool]:
    """Makes a filter for rows whose clamped tiles compute at most a quarter of the axis twice."""

    def keeps(sizes: tuple[int, ...]) -> bool:
        tile = sizes[-1]
        tiles = -(-extent // tile)
        whole = tiles * tile <= most * extent
        if len(sizes) == 2:
            return whole
        return whole and sizes[1] in _divisors(tiles, 1)

    return keeps


def _divisors(count: int, step: int) -> list[int]:
    """Lists divisors of the number of tiles of `step` in `count`; none if the last tile is mostly empty."""
    tiles = -(-count // step)
    return [d for d in range(1, tiles + 1) if tiles % d == 0] if tiles * step <= 1.25 * count else []
