"""Constants computed before the first call: packed or derived, each by a program of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_space.ir.expr import (
    BOOL,
    Expr,
    ceildiv,
    const,
    lift,
    load,
    make,
    product,
    select,
    substitute,
    transform,
    var,
    variables,
    walk,
)
from search_space.ir.simplify import Simplifier
from search_space.ir.stmt import Buffer, For, LoopProgram, Stmt, Store
from search_space.schedule.state import Derivation, Input, Layout

MAX_UNROLL = 16
"""Greatest extent of a loop that is unrolled because conditions of a derived constant test its index."""


def is_made(source: Input) -> bool:
    """Tells whether a prologue computes this constant."""
    return source.layout is not None or source.derivation is not None


def packed_layout(source: Input) -> Layout:
    """Returns the packed layout; a derived constant that is not packed keeps the order of its axes."""
    dims = range(len(source.shape))
    return source.layout or Layout(tuple(() for _ in dims), tuple((d, 0) for d in dims))


def source_buffer(source: Input) -> Buffer:
    """Returns the buffer of an input as the caller passes it."""
    shape = tuple(lift(s) for s in source.shape)
    return Buffer(source.name, shape, source.dtype, "global", source.constant, mean=source.mean)


def packed_buffer(source: Input, simplify: Simplifier) -> Buffer:
    """Returns the packed buffer; dimensions that are not divided are rounded up."""
    shape, layout = [], packed_layout(source)
    for dim, part in layout.order:
        factors = layout.factors[dim]
        # Part 0 counts the blocks: where the factors do not divide the extent, the last one is padded.
        extent = ceildiv(const(source.shape[dim]), product(factors)) if part == 0 else factors[part - 1]
        shape.append(simplify(extent))
    return Buffer(f"{source.name}.packed", tuple(shape), source.dtype, "global", True)


def packed_indices(source: Input, indices: Sequence[Expr], simplify: Simplifier) -> tuple[Expr, ...]:
    """Computes the indices in the packed buffer of the source's element `indices`."""
    out, layout = [], packed_layout(source)
    for dim, part in layout.order:
        factors = layout.factors[dim]
        value = simplify(indices[dim])
        inner = product(factors[part:])
        # The simplifier knows the loops' ranges: in tiles that match the packing the division leaves the loop's own
        # variable, and the kernel walks the buffer without dividing.
        value = simplify.floordiv(value, inner) if factors[part:] else value
        if part:
            value = simplify.mod(value, factors[part - 1])
        out.append(value)
    return tuple(out)


def pack_program(source: Input, inputs: Mapping[str, Input], simplify: Simplifier) -> LoopProgram:
    """Builds the program `packed[...] = source[...]`, or of a derived constant; zero in the padding.

    Args:
        source: a constant that is packed, derived or both.
        inputs: inputs that it may be derived from, by name.
        simplify: simplifier that knows the decision variables in the layout.
    """
    layout, target = packed_layout(source), packed_buffer(source, simplify)
    loops = [f"{source.name}.p{i}" for i in range(len(target.shape))]
    part_loops = {part: var(loop) for part, loop in zip(layout.order, loops, strict=True)}
    ranges = dict(zip(loops, target.shape, strict=True))
    # A simplifier of its own: this program's loops differ from those of the kernel whose decisions `simplify` knows.
    inner_simplify = Simplifier(ranges, findings=simplify.findings)
    indices = []
    for dim, factors in enumerate(layout.factors):
        value = part_loops[dim, 0]
        for part, factor in enumerate(factors, 1):
            value = value * factor + part_loops[dim, part]
        indices.append(inner_simplify(value))
    inside: Expr = const(True, BOOL)
    for index, size in zip(indices, source.shape, strict=True):
        inside = make("and", inside, inner_simplify(index < size))
    element, unrolled = load(source.name, indices, source.dtype), []
    if source.derivation is not None:
        element = _derive_element(source.derivation, indices, inner_simplify)
        # A derived constant such as Winograd's weights is a choice by position in the tile: unrolled, each copy is the
        # few operations of its own position. Long axes stay loops, or the text would grow without bound; so do those
        # that are only compared with a bound.
        asked = [n.args[0] for n in walk(element) if n.op == "select" and n.args[0].op == "eq"]
        conditions = {v for condition in asked for v in variables(condition)}
        short = [loop for loop in loops if ranges[loop].is_const and ranges[loop].value <= MAX_UNROLL]
        unrolled = [loop for loop in short if loop in conditions]
    value = select(inside, element, const(0, source.dtype))
    body: Stmt = Store(target.name, tuple(var(loop) for loop in loops), value)
    # Unrolled loops go innermost, so that the code of a position is not repeated for each pass of a serial loop inside.
    for loop in (*reversed(unrolled), *(loop for loop in reversed(loops) if loop not in unrolled)):
        body = For(loop, ranges[loop], "unroll" if loop in unrolled else "serial", body)
    origins = (source.name,) if source.derivation is None else source.derivation.sources
    params = tuple(source_buffer(inputs[name]) for name in origins)
    return LoopProgram(f"pack_{source.name}", (*params, target), body, (target.name,))


def _derive_element(derivation: Derivation, indices: Sequence[Expr], simplify: Simplifier) -> Expr:
    """Returns the element of a derived constant at `indices`."""
    body = substitute(derivation.body, dict(zip(derivation.axes, indices, strict=True)))

    def visit(node: Expr) -> Expr | None:
        if node.op == "load":
            return load(node.args[0], [simplify(i) for i in node.args[1:]], node.dtype)
        return None

    return transform(body, visit)
