"""Small loop programs built by hand, with symbolic factors, and the hardware they are described for."""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, ceildiv, const, lift, load, minimum, var
from search_space.ir.stmt import Allocate, Buffer, For, LoopProgram, Stmt, Store, seq

HARDWARE = Hardware("test", 2, 64, 32, 32 << 10, 1 << 20, 32 << 20, 2.4e11, 4e10)
MATMUL_COLUMNS = ("rows", "vectors", "unroll")
LANES = 16


def buffer(name: str, *shape: Expr | int, scope: str = "global") -> Buffer:
    return Buffer(name, tuple(lift(s) for s in shape), "float32", scope)


def nest(body: Stmt, *loops: tuple[str, Expr | int, str]) -> Stmt:
    """`body` under loops (variable, extent, kind), outermost first."""
    for name, extent, kind in reversed(loops):
        body = For(name, lift(extent), kind, body)
    return body


def matmul(m: int = 64, n: int = 64, k: int = 64, parallel: str = "parallel") -> LoopProgram:
    """A register-tiled product: `rows` x `vectors` accumulators, `unroll` steps of the sum in one body."""
    rows, vectors, unroll = (var(c) for c in MATMUL_COLUMNS)
    width = vectors * LANES
    a, b, c = buffer("a", m, k), buffer("b", k, n), buffer("c", m, n)
    tile = buffer("tile", rows, width, scope="local")
    i, j0, j1, k0, k1 = (var(v) for v in ("i", "j0", "j1", "k0", "k1"))
    row = minimum(var("io") * rows, const(m) - rows) + i
    column = var("jo") * width + j0 * LANES + j1
    step = k0 * unroll + k1
    place = (i, j0 * LANES + j1)
    inner = (("i", rows, "unroll"), ("j0", vectors, "unroll"), ("j1", LANES, "vectorize"))
    fill = nest(Store("tile", place, const(0.0, "float32")), *inner)
    product = load("a", (row, step), "float32") * load("b", (step, column), "float32")
    update = Store("tile", place, product, "sum")
    accumulate = nest(update, ("k0", const(k) // unroll, "serial"), ("k1", unroll, "unroll"), *inner)
    write = nest(Store("c", (row, column), load("tile", place, "float32")), *inner)
    body = nest(
        Allocate(tile, seq(fill, accumulate, write)),
        ("io", ceildiv(m, rows), parallel),
        ("jo", ceildiv(n, width), "serial"),
    )
    return LoopProgram("matmul", (a, b, c), body, ("c",))


def copy(indices: tuple[Expr, ...], source: Buffer, *loops: tuple[str, Expr | int, str]) -> LoopProgram:
    """`out[...] = source[indices]` under loops, one dimension of `out` a loop."""
    out = buffer("out", *(extent for _, extent, _ in loops))
    store = Store("out", tuple(var(v) for v, _, _ in loops), load(source.name, indices, "float32"))
    return LoopProgram("copy", (source, out), nest(store, *loops), ("out",))
