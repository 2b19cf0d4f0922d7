"""Packed constants: index maps into the packed layout, and the program that fills it before the first call."""

from __future__ import annotations

from collections.abc import Sequence

from search_space.ir.expr import BOOL, Expr, ceildiv, const, load, make, product, select, var
from search_space.ir.simplify import Simplifier
from search_space.ir.stmt import Buffer, For, LoopProgram, Stmt, Store
from search_space.schedule.state import Input


def source_buffer(source: Input) -> Buffer:
    """The buffer of an input as the caller hands it over."""
    return Buffer(source.name, tuple(const(s) for s in source.shape), source.dtype, "global", source.constant)


def packed_buffer(source: Input, simplify: Simplifier) -> Buffer:
    """The packed buffer; dimensions that are not divided are rounded up."""
    assert source.layout is not None
    shape = []
    for dim, part in source.layout.order:
        factors = source.layout.factors[dim]
        extent = ceildiv(const(source.shape[dim]), product(factors)) if part == 0 else factors[part - 1]
        shape.append(simplify(extent))
    return Buffer(f"{source.name}.packed", tuple(shape), source.dtype, "global", True)


def packed_indices(source: Input, indices: Sequence[Expr], simplify: Simplifier) -> tuple[Expr, ...]:
    """Where element `indices` of the source lies in the packed buffer."""
    assert source.layout is not None
    out = []
    for dim, part in source.layout.order:
        factors = source.layout.factors[dim]
        value = simplify(indices[dim])
        inner = product(factors[part:])
        value = simplify.floordiv(value, inner) if factors[part:] else value
        if part:
            value = simplify.mod(value, factors[part - 1])
        out.append(value)
    return tuple(out)


def pack_program(source: Input, simplify: Simplifier) -> LoopProgram:
    """`packed[...] = source[...]`, zero in the padding."""
    assert source.layout is not None
    target, origin = packed_buffer(source, simplify), source_buffer(source)
    loops = [f"{source.name}.p{i}" for i in range(len(target.shape))]
    place = {part: var(loop) for part, loop in zip(source.layout.order, loops, strict=True)}
    ranges = dict(zip(loops, target.shape, strict=True))
    inner_simplify = Simplifier(ranges)
    indices = []
    for dim, factors in enumerate(source.layout.factors):
        value = place[dim, 0]
        for part, factor in enumerate(factors, 1):
            value = value * factor + place[dim, part]
        indices.append(inner_simplify(value))
    inside: Expr = const(True, BOOL)
    for index, size in zip(indices, source.shape, strict=True):
        inside = make("and", inside, inner_simplify(index < size))
    value = select(inside, load(source.name, indices, source.dtype), const(0, source.dtype))
    body: Stmt = Store(target.name, tuple(var(loop) for loop in loops), value)
    for loop, extent in zip(reversed(loops), reversed(target.shape), strict=True):
        body = For(loop, extent, "serial", body)
    return LoopProgram(f"pack_{source.name}", (origin, target), body, (target.name,))
