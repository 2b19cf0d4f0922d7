"""Sums of products by an equation, as transpositions, reductions and matrix products."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autotune.graph.calls import Call
from autotune.graph.frontends.onnx.importer.reductions import reduce_over
from autotune.graph.frontends.onnx.importer.registry import imports
from autotune.graph.frontends.onnx.shapes import is_equation
from search_space.ir.expr import FLOATS

Labels = tuple[str, ...]
"""A letter for each axis; axes of an ellipsis have numbers, counted from its last axis."""


@dataclass(frozen=True)
class _Operand:
    """A value without axes of extent 1 and with distinct labels."""

    value: str
    labels: Labels


@imports("Einsum")
def einsum(call: Call) -> str:
    """Multiplies two operands at a time, from the left; axes of one operand alone are summed first."""
    shapes = [call.type(index).shape for index in range(len(call.inputs))]
    terms, output = _parse(call, shapes)
    extents = _extents(call, terms, shapes)
    call.require(
        all(label in extents for label in output),
        "must have an output whose letters are among those of its inputs",
        f"equation={_equation(call)!r}",
    )
    dtype = call.type(0).dtype
    values = [call.value(index) for index in range(len(terms))]
    if dtype in FLOATS and dtype != "float32":  # sums of narrow floats are wide
        values = [call.add("cast", [value], dtype="float32") for value in values]
    waiting = [_operand(call, value, labels) for value, labels in zip(values, terms, strict=True)]
    left = _reduce_axes(call, waiting.pop(0), {*output, *(label for other in waiting for label in other.labels)})
    while waiting:
        right = waiting.pop(0)
        wanted = {*output, *(label for other in waiting for label in other.labels)}
        right = _reduce_axes(call, right, wanted | set(left.labels))
        left = _reduce_axes(call, left, wanted | set(right.labels))
        left = _product(call, left, right, [*output, *sorted(wanted - set(output))])
    value = _transpose_to(call, left, [label for label in output if label in left.labels])
    final = tuple(extents[label] for label in output)
    return call.cast(call.reshape(value, final), dtype)


def _equation(call: Call) -> str:
    return bytes(call.attrs["equation"]).decode()


def _parse(call: Call, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Labels], Labels]:
    """Parses the labels of inputs and output; without an arrow the output has the ellipsis and the unique letters."""
    equation = _equation(call).replace(" ", "")
    call.require(is_equation(equation), "must have an equation of letters", f"equation={equation!r}")
    inputs, arrow, right = equation.partition("->")
    parts = inputs.split(",")
    call.require(len(parts) == len(shapes), f"must have {len(parts)} inputs", f"{len(shapes)}")
    terms = []
    for part, shape in zip(parts, shapes, strict=True):
        letters = len(part.replace("...", ""))
        fits = len(shape) >= letters if "..." in part else len(shape) == letters
        call.require(fits, f"must have an input for {part!r}", f"shape={list(shape)}")
        terms.append(_labels(part, len(shape) - letters))
    around = max((label for labels in terms for label in labels if label.isdigit()), key=int, default="-1")
    if not arrow:
        once = sorted(c for c in set(inputs) if c.isalpha() and inputs.count(c) == 1)
        right = "..." + "".join(once)
    output = _labels(right, int(around) + 1)
    call.require(len(set(output)) == len(output), "must have distinct letters in its output", f"equation={equation!r}")
    return terms, output


def _labels(part: str, around: int) -> Labels:
    before, dots, after = part.partition("...")
    return (*before, *(str(a) for a in reversed(range(around)) if dots), *after)


def _extents(call: Call, terms: Sequence[Labels], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Returns the extent of each label; extent 1 is compatible with any."""
    extents: dict[str, int] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            previous = extents.get(label, 1)
            call.require(
                1 in (previous, extent) or previous == extent,
                f"must have one extent for {label!r}",
                f"{previous} and {extent}",
            )
            extents[label] = max(previous, extent)
    return extents


def _operand(call: Call, value: str, labels: Labels) -> _Operand:
    """Removes axes of extent 1, and takes the diagonal of axes that share a label."""
    shape = call.shape(value)
    many = [axis for axis, extent in enumerate(shape) if extent > 1]
    if len(many) < len(shape):
        value = call.add("reshape", [value], shape=tuple(shape[axis] for axis in many))
    labels = tuple(labels[axis] for axis in many)
    while len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        first = labels.index(twice)
        second = labels.index(twice, first + 1)
        rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
        turned = call.add("transpose", [value], axes=(*rest, first, second))
        *outer, extent, _ = call.shape(turned)
        flat = call.add("reshape", [turned], shape=(*outer, extent * extent))
        step = (*[1] * len(rest), extent + 1)
        value = call.add("slice", [flat], begin=(0,) * len(step), size=(*outer, extent), step=step)
        labels = (*(labels[axis] for axis in rest), twice)
    return _Operand(value, labels)


def _reduce_axes(call: Call, operand: _Operand, remaining: Collection[str]) -> _Operand:
    """Sums over the axes that are not wanted."""
    axes = [axis for axis, label in enumerate(operand.labels) if label not in remaining]
    labels = tuple(label for label in operand.labels if label in remaining)
    return _Operand(reduce_over(call, operand.value, axes, "sum", False), labels)


def _transpose_to(call: Call, operand: _Operand, labels: Sequence[str]) -> str:
    """Transposes a value to an order of labels."""
    axes = tuple(operand.labels.index(label) for label in labels)
    return operand.value if axes == tuple(range(len(axes))) else call.add("transpose", [operand.value], axes=axes)


def _product(call: Call, left: _Operand, right: _Operand, order: Sequence[str]) -> _Operand:
    """Multiplies two operands and sums over shared labels that are not in `order`, the labels that are read later."""
    both = [label for label in left.labels if label in right.labels]
    summed = [label for label in both if label not in order]
    if _must_swap(call, left, right, order):
        left, right = right, left
    batch = [label for label in order if label in both]
    rows, columns = ([label for label in order if label in one.labels and label not in both] for one in (left, right))
    extents = dict(zip(left.labels, call.shape(left.value), strict=True))
    extents |= dict(zip(right.labels, call.shape(right.value), strict=True))
    several = bool(summed) and bool(rows or columns or not batch)
    if not several or call.context.builder.type(left.value).dtype != "float32":
        return _elementwise(call, left, right, [*batch, *rows, *columns], summed, extents)
    b, m, n, k = (math.prod(extents[label] for label in group) for group in (batch, rows, columns, summed))
    sides = [
        _transpose_to(call, left, [*batch, *rows, *summed]),
        _transpose_to(call, right, [*batch, *summed, *columns]),
    ]
    around = (b,) if batch else ()
    shapes = [(*around, m, k), (*around, k, n)]
    sides = list(map(call.reshape, sides, shapes))
    out = call.add("batch_matmul" if batch else "matmul", sides)
    labels = (*batch, *rows, *columns)
    final = tuple(extents[label] for label in labels)
    return _Operand(call.reshape(out, final), labels)


def _must_swap(call: Call, left: _Operand, right: _Operand, order: Sequence[str]) -> bool:
    """Tells whether to exchange the factors: constants go right; otherwise the factor with the output's last labels."""
    constants = [call.context.builder.array(one.value) is not None for one in (left, right)]
    if constants[0] != constants[1]:
        return constants[0]
    positions = [
        [order.index(a) for a in one.labels if a in order and a not in other.labels]
        for one, other in ((left, right), (right, left))
    ]
    return bool(positions[0] and positions[1]) and min(positions[1]) < min(positions[0])


def _elementwise(
    call: Call, left: _Operand, right: _Operand, outer: list[str], sum_labels: list[str], extents: dict[str, int]
) -> _Operand:
    """Multiplies elements, then sums."""
    labels = [*outer, *sum_labels]
    sides = []
    for one in (left, right):
        value = _transpose_to(call, one, [label for label in labels if label in one.labels])
        shape = tuple(extents[label] if label in one.labels else 1 for label in labels)
        sides.append(call.reshape(value, shape))
    out = call.add("multiply", sides)
    return _reduce_axes(call, _Operand(out, tuple(labels)), outer)
