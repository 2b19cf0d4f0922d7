"""Shares of an adjoint, in a form that schedules well: zeros in place of conditions, and a stage for each phase.

A product that counts only where an index is inside a tensor is a product with that tensor padded by zeros, as in a
convolution. If the element's index is read as a quotient and a remainder alone, as behind a stride, each remainder is a
phase with a plain product of its own, and the phases are interleaved in the end.

As in convolutions with padding, a product of such a zero and an infinite or NaN factor is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_space import te
from search_space.gradient.derivatives import Guards
from search_space.gradient.gather import Solution
from search_space.gradient.strided import sum_products
from search_space.ir.access import check_reads
from search_space.ir.expr import (
    FLOATS,
    Expr,
    const,
    load,
    logical_and,
    select,
    substitute,
    transform,
    var,
    variables,
    walk,
)
from search_space.ir.intervals import Bounds
from search_space.ir.polynomial import poly, poly_add
from search_space.ir.simplify import Simplifier
from search_space.tags import Tag
from search_space.tensor import IterVar, Tensor


@dataclass(frozen=True)
class Phase:
    """The remainder of an index that is split, after an offset is added.

    Attributes:
        name: name of the remainder.
        step: divisor.
        offset: number that is added to the index first.
        limit: number of remainders that are computed; the adjoint is 0 for the others.
    """

    name: str
    step: int
    offset: int
    limit: int

    def split(self, index: IterVar) -> tuple[Expr, Expr]:
        """Returns the remainder of an index, and its quotient counted from the first one."""
        moved = index + self.offset
        return moved % self.step, moved // self.step - self.offset // self.step

    def count(self, extent: int) -> int:
        """Returns the number of quotients of an index with an extent."""
        return (extent - 1 + self.offset) // self.step - self.offset // self.step + 1


@dataclass(frozen=True)
class Share:
    """A part of a tensor's adjoint.

    Attributes:
        element: names of the element's indices, with their extents; of a split dimension, those of the quotient.
        phases: quotient → its remainder, for split dimensions.
        conditions: conditions of the share, in the order of their tests; elsewhere it is 0.
        value: its value, in the element's indices and the axes of the sum.
        axes: axes that it is summed over, with their extents.
    """

    element: Mapping[str, int]
    phases: Mapping[str, Phase]
    conditions: Guards
    value: Expr
    axes: Mapping[str, int]

    @property
    def group(self) -> tuple[object, ...]:
        """Key of shares that one stage can add up."""
        return tuple(self.axes.items()), tuple(self.phases.items()), tuple(self.element.items())

    def at(self, indices: Mapping[str, IterVar]) -> Expr:
        """Returns the value at an element, 0 where the conditions do not hold; `indices` are by name."""
        moved = {name: index.expr for name, index in indices.items()}
        value = substitute(self.value, moved)
        for condition in reversed(self.conditions):
            value = select(substitute(condition, moved), value, const(0.0, value.dtype))
        return value


def make_share(element: Mapping[str, int], solution: Solution, guards: Guards, value: Expr) -> Share:
    """Makes the share of a read.

    Args:
        element: names and extents of the element's indices.
        solution: axes of the stage at which it reads the element.
        guards: conditions on the stage's axes, in the order of their tests.
        value: value in the stage's axes.
    """
    plain = _without_repetition(Share(element, {}, solution.test(guards), solution.locate(value), solution.free))
    factors = list(_factors(value))
    if len(plain.axes) < len(solution.free) or not solution.free or len(factors) < 2:
        return plain
    if not guards and (products := sum_products(element, solution, value)) is not None:
        return Share(element, {}, (), products, {})
    split, phases, replaced = _split(element, [*solution.values.values(), *solution.conditions])
    phases = {name: _limit(phase, factors, solution, replaced) for name, phase in phases.items()}
    ranges = {**split, **{phase.name: phase.limit for phase in phases.values()}, **solution.free}
    simplify = Simplifier({name: const(extent) for name, extent in ranges.items()})

    def locate(e: Expr) -> Expr:
        values = {axis: simplify(_replace(at, replaced)) for axis, at in solution.values.items()}
        return simplify(substitute(e, values))

    padded = dict(_padded_factors(factors, solution, locate, ranges))
    zeros = {axis for axes, _ in padded.values() for axis in axes}
    if zeros != solution.outside.keys():
        return plain
    moved = transform(value, lambda node: padded[node][1] if node in padded else None)
    # Tests of the solution have become zeros; those of the stage itself remain.
    tests = [simplify(_replace(condition, replaced)) for condition in solution.conditions]
    tests += [locate(guard) for guard in guards]
    conditions = tuple(test for test in dict.fromkeys(tests) if not test.is_const or not test.value)
    share = Share(split, phases, conditions, locate(moved), solution.free)
    body = select(logical_and(*conditions), share.value, 0.0) if conditions else share.value
    if not _reads_inside("share", body, ranges):  # a further test of the solution is needed
        return plain
    order = [*(phase.name for phase in phases.values()), *solution.free, *split]
    return replace(share, value=_copy_groups(share.value, {name: ranges[name] for name in order}, conditions))


def _limit(phase: Phase, factors: Sequence[Expr], solution: Solution, parts: Mapping[Expr, Expr]) -> Phase:
    """Leaves out remainders that lie outside of a factor, as where windows are narrower than their stride."""
    for factor in factors:
        for index, extent in zip(factor.args[1:], factor.args[0].shape, strict=True) if factor.op == "load" else ():
            axis = index.args[0] if index.op == "var" else None
            if axis not in solution.outside or solution.outside[axis] != extent:
                continue
            if _replace(solution.values[axis], parts) is var(phase.name) and extent < phase.limit:
                phase = replace(phase, limit=extent)
    return phase


def _copy_groups(value: Expr, ranges: Mapping[str, int], conditions: Guards) -> Expr:
    """Replaces factors of a product that are read by group by a copy in the order in which its loops read it.

    Such a factor has the remainder of an index in one dimension and its quotient in another, as the weights of a
    grouped convolution. Neighbouring vector lanes would read elements far apart.

    Args:
        value: product.
        ranges: extents of the indices, the innermost last.
        conditions: conditions under which the product is read.
    """
    copies: dict[Expr, Expr] = {}
    for factor in _factors(value):
        if factor.op != "load" or not any(node.op in ("floordiv", "mod") for node in walk(factor)):
            continue
        names = [name for name in ranges if name in variables(factor)]
        tensor: Tensor = factor.args[0]
        if len(names) > 1 and math.prod(ranges[name] for name in names) == math.prod(tensor.shape):
            extents = {name: ranges[name] for name in names}
            if copied := _copy_factor(factor, tensor, extents, conditions):
                copies[factor] = load(copied, map(var, names), factor.dtype)
    return transform(value, copies.get)


def _copy_factor(factor: Expr, tensor: Tensor, extents: Mapping[str, int], conditions: Guards) -> Tensor | None:
    """Makes a copy of a tensor, element by element as a factor reads it; zeros around the tensor are part of it.

    A copy whose reads need the conditions is 0 where they do not hold. Returns None if they need further indices.
    """
    body = factor
    if tensor.op.tag is Tag.PAD and tensor.op.body is not None and tensor.op.reducer is None:
        at = dict(zip([axis.name for axis in tensor.op.axis], factor.args[1:], strict=True))
        body = substitute(tensor.op.body, at)
    name = f"{tensor.name}_by_group"
    tests = [test for test in conditions if variables(test) <= extents.keys()]
    if not _reads_inside(name, body, extents):
        body = select(logical_and(*tests), body, const(0.0, body.dtype)) if tests else body
        if not tests or not _reads_inside(name, body, extents):
            return None

    def element(*indices: IterVar) -> Expr:
        return substitute(body, {name: index.expr for name, index in zip(extents, indices, strict=True)})

    return te.compute(list(extents.values()), element, name=name, tag=Tag.PAD)


def _reads_inside(name: str, body: Expr, extents: Mapping[str, int]) -> bool:
    """Tells whether each read of a definition is inside its tensor."""
    try:
        check_reads(name, body, extents)
    except ValueError:
        return False
    return True


def _without_repetition(share: Share) -> Share:
    """Multiplies by the extents of axes that a share does not mention, in place of a sum of equal values."""
    mentioned = frozenset().union(variables(share.value), *(variables(test) for test in share.conditions))
    axes = {name: extent for name, extent in share.axes.items() if name in mentioned}
    count = math.prod(extent for name, extent in share.axes.items() if name not in mentioned)
    if count == 1:
        return share
    return replace(share, axes=axes, value=share.value * const(float(count), share.value.dtype))


def _factors(e: Expr) -> Iterator[Expr]:
    """Lists the factors of a product."""
    if e.op == "mul" and e.dtype in FLOATS:
        for operand in e.args:
            yield from _factors(operand)
    else:
        yield e


def _replace(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    return transform(e, values.get)


def _split(
    element: Mapping[str, int], expressions: Sequence[Expr]
) -> tuple[dict[str, int], dict[str, Phase], dict[Expr, Expr]]:
    """Splits indices that are read as quotient and remainder by one number alone.

    Returns:
        The indices with their extents, the phases of those that are split, and what replaces quotients and remainders.
    """
    extents, replaced = dict(element), dict[Expr, Expr]()
    phases: dict[str, Phase] = {}
    for name, extent in element.items():
        splits = {split for e in expressions for node in walk(e) if (split := _find_split(node, name)) is not None}
        if len(splits) != 1:
            continue
        ((top, step, offset),) = splits
        phase = Phase(f"{name}_phase", step, offset, step)
        parts = {top // step: var(name) + offset // step, top % step: var(phase.name)}
        bare = [_replace(e, dict.fromkeys(parts, const(0))) for e in expressions]
        if any(name in variables(e) for e in bare) or any(_spreads(e, top // step) for e in expressions):
            continue
        extents[name], phases[name] = phase.count(extent), phase
        replaced |= parts
    return extents, phases, replaced


def _spreads(e: Expr, quotient: Expr) -> bool:
    """Tells whether neighbouring quotients are read apart, as groups of channels are: vectors run over remainders."""
    return any(quotient in monomial and abs(factor) > 1 for monomial, factor in poly(e).items())


def _find_split(node: Expr, name: str) -> tuple[Expr, int, int] | None:
    """Returns dividend, divisor and offset of a quotient or remainder of an index to which an offset is added."""
    if node.op not in ("floordiv", "mod") or not node.args[1].is_const:
        return None
    offset = poly_add(poly(node.args[0]), poly(var(name)), -1)
    if any(offset):  # other variables
        return None
    number = int(offset.get((), 0))
    return None if number < 0 else (node.args[0], int(node.args[1].value), number)


def _padded_factors(
    factors: Sequence[Expr], solution: Solution, locate: Callable[[Expr], Expr], ranges: Mapping[str, int]
) -> Iterator[tuple[Expr, tuple[list[str], Expr]]]:
    """Pads factors by zeros along axes that the solution leaves outside of their ranges.

    Yields:
        A read, the axes that its zeros stand for, and the read of the padded tensor in the stage's axes.
    """
    bounds, left = Bounds(ranges), dict(solution.outside)
    for factor in dict.fromkeys(factors):
        if factor.op != "load" or factors.count(factor) > 1:
            continue
        tensor: Tensor = factor.args[0]
        sides = {}
        for dimension, (index, extent) in enumerate(zip(factor.args[1:], tensor.shape, strict=True)):
            axis = index.args[0] if index.op == "var" else None
            if axis in left and left[axis] == extent:
                low, high = bounds(locate(index))
                sides[dimension] = axis, min(low, 0), max(high, extent - 1)
                del left[axis]
        if sides and all(low == 0 and high < tensor.shape[dimension] for dimension, (_, low, high) in sides.items()):
            yield factor, ([axis for axis, _, _ in sides.values()], factor)
        elif sides:
            padding = pad(tensor, {dimension: (low, high) for dimension, (_, low, high) in sides.items()})
            shifted = [
                index - sides[dimension][1] if dimension in sides else index
                for dimension, index in enumerate(factor.args[1:])
            ]
            yield factor, ([axis for axis, _, _ in sides.values()], load(padding, shifted, tensor.dtype))


def pad(tensor: Tensor, sides: Mapping[int, tuple[int, int]]) -> Tensor:
    """Makes a copy of a tensor with zeros around it: from its least to its greatest index of each dimension."""
    shape = [
        sides[dimension][1] - sides[dimension][0] + 1 if dimension in sides else extent
        for dimension, extent in enumerate(tensor.shape)
    ]

    def element(*indices: IterVar) -> Expr:
        at, conditions = [], []
        for dimension, index in enumerate(indices):
            low, high = sides.get(dimension, (0, tensor.shape[dimension] - 1))
            inner = index + low
            at.append(inner)
            conditions += [inner >= 0] if low < 0 else []
            conditions += [inner < tensor.shape[dimension]] if high >= tensor.shape[dimension] else []
        return te.if_then_else(te.all(*conditions), tensor[tuple(at)], 0.0) if conditions else tensor[tuple(at)]

    return te.compute(shape, element, name=f"{tensor.name}_around", tag=Tag.PAD)
