"""Reverse mode over the stages of a definition: the gradients of a tensor are tensor expressions like any other.

The adjoint of a stage is the derivative of the result by its elements. Each read in a stage's body adds a share to the
adjoint of the tensor that it reads: a gather, since `search_space.gradient.gather` solves the read's indices for the
places that read an element. So a gradient is a program of the same space: sums over axes of products and selections.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from search_space import te
from search_space.dtypes import FLOATS, NARROW
from search_space.gradient.copies import Copy, find_copy
from search_space.gradient.derivatives import Guards, ReadDerivative, differentiate
from search_space.gradient.gather import NotAffine, list_cases, solve_reads
from search_space.gradient.shares import Share, make_share
from search_space.ir.access import conjuncts
from search_space.ir.expr import Expr, cast, const, eq, logical_and, make, select, substitute, walk
from search_space.ir.sizes import find_sizes
from search_space.schedule.state import operations
from search_space.tags import Tag
from search_space.tensor import IterVar, Operation, Reduction, Tensor


def gradient(output: Tensor, inputs: Sequence[Tensor], seed: Tensor | None = None) -> list[Tensor]:
    """Differentiates a tensor by others, in reverse mode.

    The definitions of `output` and of its intermediate stages become stages of the gradients where their values are
    needed. A placeholder in point of a stage that is stored keeps it from being computed again.

    Args:
        output: tensor to differentiate.
        inputs: tensors that it depends on: placeholders or stages.
        seed: derivative of the result by each element of `output`, of its shape and dtype; None: 1, for an output of
            one element.

    Returns:
        Tensors, one for each input, of its shape and dtype: sums over elements of `seed` times their derivatives.

    Raises:
        ValueError: there is no gradient: an input that is not floating-point or that the output does not depend on, an
            index that cannot be inverted, a size that is open, or a seed that does not fit.
    """
    _check(output, inputs, seed)
    order = list(operations([output]))
    shares: dict[Operation, list[Share]] = {}
    adjoints: dict[Operation, Tensor] = {}
    targets = {tensor.op for tensor in inputs}
    between = _between(order, targets)
    for op in reversed(order):
        if op not in between:
            continue
        if op is output.op:
            adjoint: Tensor | None = seed
        elif op in shares:
            adjoint = adjoints[op] = _sum_shares(op, shares[op])
        else:
            continue
        if op.body is None:
            continue
        for target, share in _shares(op, adjoint, between, targets):
            shares.setdefault(target, []).append(share)
    results = []
    for tensor in inputs:
        if tensor.op is output.op:
            results.append(seed if seed is not None else _constant(tensor, 1.0))
        elif tensor.op in adjoints:
            results.append(adjoints[tensor.op])
        else:
            raise ValueError(
                f"`output` must depend on {tensor.name} through floating-point values, but {output.name} does not"
            )
    return results


def _check(output: Tensor, inputs: Sequence[Tensor], seed: Tensor | None) -> None:
    for tensor in (output, *inputs):
        if tensor.dtype not in FLOATS:
            raise ValueError(f"`{tensor.name}` must be floating-point to have a gradient, but got dtype={tensor.dtype}")
    sized = [op for op in operations([output]) if op.size_expressions]
    if sized:
        sizes = ", ".join(find_sizes(sized[0].size_expressions))
        raise ValueError(f"`output` must have no open sizes to be differentiated, but {sized[0].name} has {sizes}")
    if seed is None and math.prod(output.shape) != 1:
        raise ValueError(
            f"`seed` must be a tensor for an output of more than one element, but got seed=None, shape={output.shape}"
        )
    if seed is not None and (seed.shape, seed.dtype) != (output.shape, output.dtype):
        raise ValueError(
            f"`seed` must be {output.dtype}{list(output.shape)} like {output.name}, "
            f"but got {seed.dtype}{list(seed.shape)}"
        )


def _between(order: Sequence[Operation], targets: set[Operation]) -> set[Operation]:
    """Returns the stages that depend on one of the targets, which is among them."""
    between: set[Operation] = set()
    for op in order:
        if op in targets or any(tensor.op in between for tensor in op.inputs):
            between.add(op)
    return between


def _shares(
    op: Operation, adjoint: Tensor | None, between: set[Operation], targets: set[Operation]
) -> list[tuple[Operation, Share]]:
    """Lists the shares that a stage adds to the adjoints of tensors that it reads.

    A share of a copy, such as a padded tensor, goes to the tensor that is copied: the copy has no adjoint of its own.

    Raises:
        ValueError: a read at indices that cannot be inverted.
    """
    assert op.body is not None
    point = tuple(axis.expr for axis in op.axis)
    inner = tuple(axis.expr for axis in op.reduce_axis)
    body = op.body
    seed: Expr = const(1.0, op.dtype) if adjoint is None else adjoint[point]
    axes = {axis.name: axis.extent for axis in (*op.axis, *op.reduce_axis)}
    guards: Guards = ()
    value: Expr | None = None
    if op.reducer in ("max", "min"):
        element, extremum = _stored_elements(op)
        chosen = _is_extremum(element((*point, *inner)), extremum[point])
        guards = (chosen,)
        seed = seed / _count_extrema(op, element, extremum)[point]
    elif op.reducer == "prod":
        seed = seed * _product_of_others(op)[(*point, *inner)]
    elif op.reducer is None and body.op in ("call", "div", "fmod"):
        value = Tensor(op)[point]
    shares = []
    for read in differentiate(body, seed, value):
        target = read.load.args[0].op
        if target not in between:
            continue
        try:
            copy = None if target in targets else find_copy(target)
            if copy is not None and copy.source.op in between:
                with suppress(NotAffine):
                    shares += [(copy.source.op, share) for share in _solve(op, read, axes, guards, copy)]
                    continue
            shares += [(target, share) for share in _solve(op, read, axes, guards)]
        except NotAffine as error:
            raise ValueError(
                f"`{target.name}` must be read at affine indices to be differentiated, "
                f"but {op.name} reads it at {', '.join(map(str, read.load.args[1:]))} ({error})"
            ) from None
    return shares


def _solve(
    op: Operation, read: ReadDerivative, axes: dict[str, int], guards: Guards, copy: Copy | None = None
) -> list[Share]:
    """Solves the indices of a read, for each choice of sides in them; those of a copy for elements of its source.

    Raises:
        NotAffine: indices that cannot be inverted.
    """
    target: Tensor = read.load.args[0] if copy is None else copy.source
    element = _new_names("x", len(target.shape), axes)
    shares = []
    extents = dict(zip(element, target.shape, strict=True))
    sides = None if copy is None else copy.locate(tuple(extents))
    for indices, chosen in list_cases(read.load.args[1:]):
        for inner, value in read.terms.items():
            tests = [part for guard in (*chosen, *guards, *inner) for part in conjuncts(guard)]
            solution = solve_reads(indices, axes, extents, tests, sides)
            shares.append(make_share(extents, solution, tuple(tests), value))
    return shares


def _new_names(prefix: str, count: int, others: dict[str, int]) -> tuple[str, ...]:
    names = (f"{prefix}{number}" for number in itertools.count())
    return tuple(itertools.islice((name for name in names if name not in others), count))


def _sum_shares(op: Operation, shares: Sequence[Share]) -> Tensor:
    """Adds up the shares of a tensor's adjoint; those over the same axes in one stage."""
    name = f"d_{op.name}"
    kind = "float32" if op.dtype in NARROW else op.dtype
    shares = [replace(share, value=cast(share.value, kind)) for share in shares]
    plain = [share for share in shares if not share.axes]
    summed: dict[object, list[Share]] = {}
    for share in shares:
        if share.axes:
            summed.setdefault(share.group, []).append(share)
    if not plain and len(summed) == 1 and kind == op.dtype:
        return _sum(next(iter(summed.values())), op.shape, name)
    parts = [_sum(group, op.shape, f"{name}_{number}") for number, group in enumerate(summed.values())]

    def element(*indices: IterVar) -> Expr:
        values = [share.at(dict(zip(share.element, indices, strict=True))) for share in plain]
        return _add_up([*values, *(part[indices] for part in parts)])

    return te.compute(op.shape, element, name=name, dtype=op.dtype)


def _sum(shares: Sequence[Share], shape: Sequence[int], name: str) -> Tensor:
    """Makes the stage that sums shares over their common axes, and the one that interleaves their phases."""
    first = shares[0]
    axes = [te.reduce_axis((0, extent), axis) for axis, extent in first.axes.items()]
    names = [*(phase.name for phase in first.phases.values()), *first.element]

    def element(*indices: IterVar) -> Reduction:
        return te.sum(_add_up([share.at(dict(zip(names, indices, strict=True))) for share in shares]), axis=axes)

    if not first.phases:
        return te.compute(shape, element, name=name)
    extents = [*(phase.limit for phase in first.phases.values()), *first.element.values()]
    phases = te.compute(extents, element, name=f"{name}_phases")

    def interleave(*indices: IterVar) -> Expr:
        at = dict(zip(first.element, indices, strict=True))
        parts = {name: phase.split(at[name]) for name, phase in first.phases.items()}
        quotients = [parts[name][1] if name in parts else index for name, index in at.items()]
        value = phases[(*(remainder for remainder, _ in parts.values()), *quotients)]
        tests = [parts[name][0] < phase.limit for name, phase in first.phases.items() if phase.limit < phase.step]
        return select(logical_and(*tests), value, const(0.0, value.dtype)) if tests else value

    return te.compute(shape, interleave, name=name)


def _add_up(values: Sequence[Expr]) -> Expr:
    out = values[0]
    for value in values[1:]:
        out = out + value
    return out


def _constant(like: Tensor, value: float) -> Tensor:
    return te.compute(like.shape, lambda *indices: const(value, like.dtype), name=f"d_{like.name}")


def _is_extremum(element: Expr, extremum: Expr) -> Expr:
    """Tests whether an element is the extremum: equal to it, or NaN where it is NaN."""
    both_nan = logical_and(make("ne", element, element), make("ne", extremum, extremum))
    return make("or", eq(element, extremum), both_nan)


def _stored_elements(op: Operation) -> tuple[Callable[[Sequence[Expr]], Expr], Tensor]:
    """Returns a function that reads an element of a reduction at values of its axes, and the reduction's result.

    Elements that are computed are stored first: computed twice, they might be rounded in two ways, and none would equal
    the extremum.
    """
    assert op.body is not None
    axes = (*op.axis, *op.reduce_axis)
    body = op.body
    if not any(node.dtype in FLOATS and node.op not in ("load", "const", "select", "cast") for node in walk(body)):
        return lambda at: substitute(body, dict(zip([axis.name for axis in axes], at, strict=True))), Tensor(op)

    def compute(*indices: IterVar) -> Expr:
        return substitute(body, {axis.name: index.expr for axis, index in zip(axes, indices, strict=True)})

    stored = te.compute([axis.extent for axis in axes], compute, name=f"{op.name}_elements", tag=Tag.TRANSFORM)
    assert op.reducer is not None
    return lambda at: stored[tuple(at)], _reduce(op, op.reducer, lambda at: stored[tuple(at)], f"{op.name}_again")


def _reduce(op: Operation, reducer: str, element: Callable[[Sequence[Expr]], Expr], name: str) -> Tensor:
    """Makes a stage like a reduction: over the same axes, by a reducer of elements."""
    axes = [te.reduce_axis((0, axis.extent), axis.name) for axis in op.reduce_axis]

    def reduction(*indices: IterVar) -> Reduction:
        point = (*(index.expr for index in indices), *(axis.expr for axis in axes))
        return Reduction(reducer, element(point), tuple(axes))

    return te.compute(op.shape, reduction, name=name, dtype=op.dtype)


def _count_extrema(op: Operation, element: Callable[[Sequence[Expr]], Expr], extremum: Tensor) -> Tensor:
    """Counts the elements of a reduction that equal its result: they share its adjoint, as in PyTorch's `max()`."""
    one, none = const(1.0, op.dtype), const(0.0, op.dtype)

    def choose(point: Sequence[Expr]) -> Expr:
        return select(_is_extremum(element(point), extremum[tuple(point[: len(op.axis)])]), one, none)

    return _reduce(op, "sum", choose, f"{op.name}_count")


def _product_of_others(op: Operation) -> Tensor:
    """Multiplies all elements of a reduction but one, for each of them; exact where elements are 0."""
    assert op.body is not None
    axes = [te.reduce_axis((0, axis.extent), f"{axis.name}_other") for axis in op.reduce_axis]
    shape = (*op.shape, *(axis.extent for axis in op.reduce_axis))

    body = op.body
    assert body is not None

    def others(*indices: IterVar) -> Reduction:
        rank = len(op.axis)
        moved = {axis.name: index.expr for axis, index in zip(op.axis, indices[:rank], strict=True)}
        moved |= {old.name: axis.expr for old, axis in zip(op.reduce_axis, axes, strict=True)}
        same = logical_and(*(eq(axis.expr, index.expr) for axis, index in zip(axes, indices[rank:], strict=True)))
        return te.prod(select(same, const(1.0, op.dtype), substitute(body, moved)), axis=axes)

    return te.compute(shape, others, name=f"{op.name}_others", dtype=op.dtype)
