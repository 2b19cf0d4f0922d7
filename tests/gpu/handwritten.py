"""Schedules written by hand for GPUs, which lowering and targets are tested with."""

from __future__ import annotations

from dataclasses import dataclass

from search_space import te
from search_space.ir.expr import maximum
from search_space.schedule.facade import Schedule


@dataclass(frozen=True)
class Tiles:
    """Tiles of a matrix product: virtual threads, threads and register tile of the rows and of the columns, depth."""

    rows: tuple[int, int, int] = (2, 8, 4)
    columns: tuple[int, int, int] = (2, 8, 4)
    depth: int = 8
    unroll: int = 2
    vector: int = 4


def matmul_tensors(m: int, n: int, k: int, relu: bool = True) -> list[te.Tensor]:
    """a, b and max(a b, 0), or a b."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), "r")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="product")
    if not relu:
        return [a, b, product]
    return [a, b, te.compute((m, n), lambda i, j: maximum(product[i, j], 0.0), name="out")]


def matmul(m: int, n: int, k: int, tiles: Tiles = Tiles()) -> Schedule:
    """Tiles of both factors are copied to shared memory by all threads; sums stay in registers."""
    *_, out = matmul_tensors(m, n, k)
    product = out.op.inputs[0]
    s = te.create_schedule(out.op)
    s[product].set_scope("local")
    i, j = out.op.axis
    i0, i1, i2, i3 = s[out].split(i, factors=tiles.rows, tail="guard")
    j0, j1, j2, j3 = s[out].split(j, factors=tiles.columns, tail="guard")
    s[out].reorder(i0, j0, i1, j1, i2, j2, i3, j3)
    block = s[out].fuse(i0, j0)
    for loop, kind in ((block, "blockIdx.x"), (i2, "threadIdx.y"), (j2, "threadIdx.x")):
        s[out].bind(loop, te.thread_axis(kind))
    for loop in (i1, j1):
        s[out].vthread(loop)
    s[out].unroll(i3)
    s[out].vectorize(j3)
    s[product].compute_at(s[out], j2)
    (r,) = product.op.reduce_axis
    r0, r1, r2 = s[product].split(r, factors=(tiles.depth // tiles.unroll, tiles.unroll), tail="guard")
    i, j = product.op.axis
    s[product].reorder(r0, r1, r2, i, j)
    for loop in (r2, i, j):
        s[product].unroll(loop)
    threads = tiles.rows[1], tiles.columns[1]
    for source in product.op.inputs:
        copy = s.cache_read(source, "shared", [product])
        s[copy].compute_at(s[product], r0)
        fused = s[copy].fuse(*copy.op.axis)
        _, y, x, v = s[copy].split(fused, factors=(*threads, tiles.vector), tail="guard")
        s[copy].bind(y, te.thread_axis("threadIdx.y"))
        s[copy].bind(x, te.thread_axis("threadIdx.x"))
        s[copy].vectorize(v)
    return s
