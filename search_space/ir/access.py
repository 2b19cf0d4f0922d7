"""A check that the reads of a definition lie inside its tensors, for all values of its axes that satisfy the guards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from search_space.ir.expr import BOOL, FLOATS, INT, Expr, cast, const, lift, make, var, variables, walk
from search_space.ir.intervals import DTYPE_RANGES, Bounds, Span
from search_space.ir.points import values_where
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import extents_from_low, find_sizes, from_low, span

Ranges = tuple[tuple[str, int], ...]
Guards = frozenset[Expr]

MOST_PATHS = 32
"""Greatest number of paths to one read whose guards are told apart; of more, only the common guards count."""
MOST_CACHED = 4096
"""Size of the caches of verdicts: the same definitions of a workload are built again and again."""


def check_reads(name: str, body: Expr, extents: Mapping[str, int | Expr]) -> None:
    """Checks every read of a definition against the shape of the tensor that it reads.

    Args:
        name: name of the definition, for messages.
        body: loads of tensors, which have a `name` and a `shape`, at expressions in the axes.
        extents: extents of the axes; each runs over `range(extent)`. If they have sizes, all sizes are checked.

    Raises:
        ValueError: a read outside of its tensor that no condition around it rules out, or a variable that is no axis.
        TypeError: an index that is no integer.
    """
    shapes = [extent for node in walk(body) if node.op == "load" for extent in node.args[0].shape]
    sizes = find_sizes([body, *extents.values(), *shapes])
    if not variables(body) <= extents.keys() | sizes.keys():
        unknown = ", ".join(sorted(variables(body) - extents.keys() - sizes.keys()))
        raise ValueError(
            f"`body` of {name} must be over the axes of its stage ({', '.join(extents)}), but got {unknown}"
        )
    if sizes:
        _check_sized(name, body, extents, sizes)
        return
    numbers = {axis: span(extent)[0] for axis, extent in extents.items()}
    bounds = Bounds(numbers)
    doubtful = [
        (node, dim)
        for node in walk(body)
        if node.op == "load"
        for dim, (index, extent) in enumerate(zip(node.args[1:], node.args[0].shape, strict=True))
        if not _quickly_inside(index, extent, bounds, name, node)
    ]
    if doubtful:
        guards = _collect_guards(body, {node for node, _ in doubtful})
        ranges = tuple(numbers.items())
        for node, dim in doubtful:
            _check(name, node, dim, guards[node.serial], ranges)


def _check_sized(name: str, body: Expr, extents: Mapping[str, int | Expr], sizes: Mapping[str, Span]) -> None:
    """Checks reads for all values of the sizes, which count as further axes, so that extents are numbers again.

    An axis of `n` iterations runs to the greatest `n`, under the condition that it is below `n`.
    """
    simplify = Simplifier({axis: lift(extent) for axis, extent in extents.items()})
    ranges = {axis: span(extent)[1] for axis, extent in extents.items()} | extents_from_low(sizes)
    bounds = Bounds(ranges)
    below = frozenset(
        from_low(make("lt", var(axis), extent), sizes) for axis, extent in extents.items() if isinstance(extent, Expr)
    )
    loads = [node for node in walk(body) if node.op == "load"]
    guards = _collect_guards(body, set(loads)) if loads else {}
    for node in loads:
        for dim, (index, extent) in enumerate(zip(node.args[1:], node.args[0].shape, strict=True)):
            low, high = _quick_bounds(from_low(index, sizes), bounds, name, node)
            within = index.dtype == INT and (low, high) != DTYPE_RANGES[INT]
            if within and simplify.nonnegative(index) and simplify.at_most_zero(index - extent + 1):
                continue
            at = cast(index, INT)
            here, gap = from_low(at, sizes), from_low(at - extent, sizes)
            for path in guards[node.serial]:
                known = frozenset(from_low(g, sizes) for g in path if _reads(index) or not _reads(g)) | below
                if _inside_for_all(here, gap, known, tuple(ranges.items())):
                    continue
                where = " where its conditions hold" if path else ""
                raise ValueError(
                    f"`{node.args[0].name}` must be read within its shape {_shape(node.args[0].shape)} for all sizes, "
                    f"but {name} reads its axis {dim} at {index}, which runs from {low} to {high}{where}"
                )


def _shape(shape: Sequence[int | Expr]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


@lru_cache(MOST_CACHED)
def _inside_for_all(index: Expr, gap: Expr, guards: Guards, ranges: Ranges) -> bool:
    """Tells whether an index is at least 0, and below an extent (`gap` is the difference), where the guards hold."""
    bounds = Bounds(dict(ranges), guards)
    if bounds.impossible or (bounds(index)[0] >= 0 and bounds(gap)[1] < 0):
        return True
    lows, highs = values_where(index, guards, dict(ranges)), values_where(gap, guards, dict(ranges))
    if lows is None or highs is None:
        return False
    return all(low >= 0 for low, _ in lows) and all(high < 0 for _, high in highs)


def _quickly_inside(index: Expr, extent: int, bounds: Bounds, name: str, load: Expr) -> bool:
    """Tells whether an index stays inside for all values of the axes."""
    low, high = _quick_bounds(index, bounds, name, load)
    return low >= 0 and high < extent


def _quick_bounds(index: Expr, bounds: Bounds, name: str, load: Expr) -> Span:
    """Bounds an index over all values of the axes."""
    if index.dtype in FLOATS or index.dtype == "bool":
        raise TypeError(f"`{load.args[0].name}` must be indexed with integers, but {name} has {index}: {index.dtype}")
    return bounds(index)


def _check(name: str, load: Expr, position: int, paths: Iterable[Guards], ranges: Ranges) -> None:
    index, tensor = load.args[1 + position], load.args[0]
    extent = tensor.shape[position]
    of_data = _reads(index)
    for path in paths:
        guards = frozenset(guard for guard in path if of_data or not _reads(guard))
        outside = _outside(index, extent, guards, ranges)
        if outside is None:
            continue
        low, high = outside
        where = " where its conditions hold" if guards else ""
        if outside == DTYPE_RANGES[index.dtype]:
            where += "; te.minimum and te.maximum, or a condition on the index itself, keep it inside"
        raise ValueError(
            f"`{tensor.name}` must be read within its shape {tensor.shape}, "
            f"but {name} reads its axis {position} at {index}, which runs from {low} to {high}{where}"
        )


def _reads(e: Expr) -> bool:
    return any(node.op == "load" for node in walk(e))


@lru_cache(MOST_CACHED)
def _outside(index: Expr, extent: int, guards: Guards, ranges: Ranges) -> Span | None:
    """Returns the range of an index that leaves `range(extent)` where the guards hold; None if it stays inside."""
    bounds = Bounds(dict(ranges), guards)
    low, high = bounds(index)
    if (low >= 0 and high < extent) or bounds.impossible:
        return None
    exact = values_where(index, guards, dict(ranges))
    if exact is None:
        return low, high
    found = [span for span in exact if span[0] < 0 or span[1] >= extent]
    return (min(low for low, _ in exact), max(high for _, high in exact)) if found else None


def _collect_guards(body: Expr, targets: set[Expr]) -> dict[int, list[Guards]]:
    """Collects the guards of nodes, by serial: a set for each path to a node; supersets of another set are dropped.

    Only the branches of a `select` are guarded: all other operands are evaluated together with their parent.
    """
    nodes = list(walk(body))
    above = {node.serial for node in nodes if node in targets}
    for node in nodes:  # operands first
        if any(operand.serial in above for operand in node.operands):
            above.add(node.serial)
    paths: dict[int, list[Guards]] = {body.serial: [frozenset()]}
    for node in reversed(nodes):
        for operand, conditions in _conditions_on(node):
            if operand.serial in above:
                more = [path | conditions for path in paths[node.serial]]
                paths[operand.serial] = _fewest([*paths.get(operand.serial, ()), *more])
    return paths


def _conditions_on(node: Expr) -> Iterator[tuple[Expr, Guards]]:
    if node.op != "select":
        yield from ((operand, frozenset()) for operand in node.operands)
        return
    test, then, other = node.args
    yield test, frozenset()
    yield then, frozenset(conjuncts(test, True))
    yield other, frozenset(conjuncts(test, False))


def conjuncts(test: Expr, holds: bool = True) -> Iterator[Expr]:
    """Lists conditions that all hold where `test` holds, or where it does not hold."""
    if test.op == ("and" if holds else "or"):
        for operand in test.args:
            yield from conjuncts(operand, holds)
    elif holds:
        yield test
    elif test.op in ("lt", "le") and test.args[0].dtype not in FLOATS:
        yield make("le" if test.op == "lt" else "lt", test.args[1], test.args[0])
    elif test.op == "ne":
        yield make("eq", *test.args)
    else:
        yield make("eq", test, const(False, BOOL))


def _fewest(paths: Sequence[Guards]) -> list[Guards]:
    """Drops paths whose guards include all of another; returns the common guards alone if too many paths remain."""
    minimal: list[Guards] = []
    for path in sorted(dict.fromkeys(paths), key=len):
        if not any(other <= path for other in minimal):
            minimal.append(path)
    return minimal if len(minimal) <= MOST_PATHS else [frozenset.intersection(*minimal)]
