"""Knobs of a template: splits, orders, annotations and plain values, each of them a number or a choice.

A *number* is a decision variable: the schedule is lowered once for all its values. A *choice* changes the loop tree, so
that each of its values is a sketch. Orders and annotations are choices; splits are numbers. A plain value can be used
either way: `.var` is the number, `.val` the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

from search_space import te
from search_space.ir.expr import Expr, ceildiv, product
from search_space.schedule.facade import Schedule
from search_space.sketch.tables import DecisionGroup, divisors
from search_space.sketch.tables import ceildiv as ceil_of

if TYPE_CHECKING:
    from search_space.template.config import Config

MAX_ROWS = 1 << 16
"""Greatest number of rows of sizes of a split."""
POLICIES = ("factors", "power2", "verbose")
ANNOTATIONS = ("none", "unroll", "vec", "try_unroll", "try_vec", "try_unroll_vec")
ORDERS = ("identity", "all")
Row = tuple[int, ...]


class Knob:
    """A value from a list.

    Args:
        config: configuration that it belongs to.
        name: name of the knob.
        values: values to choose from.
    """

    def __init__(self, config: Config, name: str, values: Sequence[Any]) -> None:
        self._config, self.name, self.values = config, name, tuple(values)

    @property
    def val(self) -> Any:
        """The value, as a choice: each one is a sketch of its own."""
        return self.values[self._config.choose(self.name, [str(v) for v in self.values])]

    @property
    def var(self) -> Expr | int:
        """The value, as a number in the schedule: an expression, whose value is unknown to Python code.

        Raises:
            ValueError: values that are not whole numbers.
        """
        if self._config.is_choice(self.name):
            return int(self.val)
        wrong = [v for v in self.values if isinstance(v, bool) or not isinstance(v, int)]
        if wrong:
            raise ValueError(f"`var` must be of a knob of whole numbers, but got {self.name}={wrong[0]!r}")
        rows = [(v,) for v in self.values]
        (value,) = self._config.decide(DecisionGroup.of(self.name, (self.name,), rows))
        return value


class SplitKnob:
    """The split of a loop into a nest, a row of sizes.

    Attributes:
        rows: sizes of the inner loops, outermost first; the outermost loop runs over the quotient.
        size: sizes of all loops, the outermost first, as numbers: expressions if there is more than one row.
    """

    def __init__(self, config: Config, name: str, extent: int, rows: Sequence[Row], tail: str) -> None:
        self._config, self.name, self.extent, self.rows, self.tail = config, name, extent, tuple(rows), tail

    @property
    def val(self) -> Row:
        """Sizes of all loops, as a choice: each row is a sketch of its own."""
        row = self.rows[self._config.choose(self.name, ["x".join(map(str, row)) for row in self.rows])]
        return (_outer(self.extent, row), *row)

    @property
    def size(self) -> tuple[Expr | int, ...]:
        """Sizes of all loops, outermost first, as numbers."""
        if self._config.is_choice(self.name):
            return self.val
        inner = self._inner()
        outer = ceildiv(self.extent, product(inner))
        return (outer.value if outer.is_const else outer, *inner)

    def apply(self, s: Schedule, tensor: Any, axis: Any) -> tuple[te.IterVar, ...]:
        """Splits a loop of a stage; returns the new loops, outermost first.

        Raises:
            ScheduleError: the loop cannot be split in this way.
        """
        name = _name(axis)
        inner = self.size[1:]
        if not inner:
            return (te.IterVar(name, self.extent),)
        return s[tensor].split(name, factors=inner, tail=self.tail)

    def _inner(self) -> tuple[Expr | int, ...]:
        width = len(self.rows[0])
        if not width:
            return ()
        columns = [f"{self.name}:{place + 1}" for place in range(width)]
        return self._config.decide(DecisionGroup.of(self.name, columns, self.rows))


class OrderKnob:
    """The order of loops, a choice.

    Attributes:
        orders: permutations of the positions of the loops.
    """

    def __init__(self, config: Config, name: str, orders: Sequence[Row]) -> None:
        self._config, self.name, self.orders = config, name, tuple(orders)

    @property
    def val(self) -> Row:
        """The permutation."""
        return self.orders[self._config.choose(self.name, ["".join(map(str, order)) for order in self.orders])]

    def apply(self, s: Schedule, tensor: Any, axes: Sequence[Any]) -> list[Any]:
        """Puts the loops of a stage in order; returns the ordered loops."""
        order = self.val
        if len(order) != len(axes):
            raise ValueError(f"`axes` must be the {len(order)} loops of {self.name}, but got {len(axes)}")
        done = [axes[place] for place in order]
        if len(done) > 1:
            s[tensor].reorder(*done)
        return done


class AnnotateKnob:
    """The kinds of loops, a choice.

    Attributes:
        kinds: kind of each loop, "" for a plain loop, for each choice.
    """

    def __init__(self, config: Config, name: str, kinds: Sequence[tuple[str, ...]]) -> None:
        self._config, self.name, self.kinds = config, name, tuple(kinds)

    @property
    def val(self) -> tuple[str, ...]:
        """The kind of each loop."""
        labels = ["+".join(f"{kind}{place}" for place, kind in enumerate(k) if kind) or "none" for k in self.kinds]
        return self.kinds[self._config.choose(self.name, labels)]

    def apply(self, s: Schedule, tensor: Any, axes: Sequence[Any]) -> None:
        """Annotates the loops of a stage."""
        kinds = self.val
        if len(kinds) != len(axes):
            raise ValueError(f"`axes` must be the {len(kinds)} loops of {self.name}, but got {len(axes)}")
        view = s[tensor]
        for axis, kind in zip(axes, kinds, strict=True):
            if kind:
                {"unroll": view.unroll, "vectorize": view.vectorize, "parallel": view.parallel}[kind](axis)


def split_rows(
    name: str,
    extent: int,
    outputs: int,
    policy: str,
    tail: str,
    max_factor: int | None,
    filter: Callable[[Row], bool] | None,
) -> list[Row]:
    """Lists the inner sizes of every way to cut an axis.

    Args:
        name: name of the knob, for messages.
        extent: extent of the axis.
        outputs: number of loops.
        policy: allowed inner sizes: `factors` of the extent, powers of 2, or (verbose) every number.
        tail: `exact` keeps rows that divide the extent.
        max_factor: greatest size of an inner loop.
        filter: test for rows of sizes, the outermost first.

    Raises:
        ValueError: no row is left, or more than 65,536.
    """
    most = min(extent, max_factor or extent)
    each = {
        "factors": [d for d in divisors(extent) if d <= most],
        "power2": [1 << k for k in range(most.bit_length()) if 1 << k <= most],
        "verbose": list(range(1, most + 1)),
    }[policy]
    rows: list[Row] = []

    def grow(row: Row, product: int) -> None:
        if len(row) == outputs - 1:
            fits = tail != "exact" or extent % product == 0
            if fits and (filter is None or filter((_outer(extent, row), *row))):
                rows.append(row)
            return
        for size in each:
            if size * product > extent or len(rows) > MAX_ROWS:
                break
            if policy != "factors" or extent % (size * product) == 0:
                grow((*row, size), product * size)

    grow((), 1)
    if not rows or len(rows) > MAX_ROWS:
        raise ValueError(
            f"`{name}` must have 1 to {MAX_ROWS} ways to split {extent} (see max_factor and filter), "
            f"but got {'more' if rows else 'none'}"
        )
    return rows


def list_orders(name: str, axes: Sequence[Any], policy: str, candidate: Sequence[Sequence[Any]] | None) -> list[Row]:
    """Lists permutations of the positions of loops; candidates may name the loops or their positions.

    Raises:
        ValueError: an unknown policy, or a candidate that is no permutation.
    """
    names = [_name(axis) for axis in axes]
    if candidate is None:
        if policy not in ORDERS:
            raise ValueError(f"`policy` of {name} must be one of {', '.join(ORDERS)}, but got policy={policy!r}")
        return list(permutations(range(len(names)))) if policy == "all" else [tuple(range(len(names)))]
    places = {name_: index for index, name_ in enumerate(names)}
    orders = [
        tuple(item if isinstance(item, int) else places.get(_name(item), -1) for item in row) for row in candidate
    ]
    wrong = [index for index, order in enumerate(orders) if sorted(order) != list(range(len(names)))]
    if wrong or not orders:
        got = [item if isinstance(item, int) else _name(item) for item in candidate[wrong[0]]] if wrong else "none"
        raise ValueError(f"`candidate` of {name} must be orders of all {len(names)} loops, but got {got}")
    return orders


def loop_kinds(name: str, count: int, policy: str) -> list[tuple[str, ...]]:
    """Lists the kinds of `count` loops for each choice of a policy, the plainest first.

    Raises:
        ValueError: an unknown policy.
    """
    if policy not in ANNOTATIONS:
        raise ValueError(f"`policy` of {name} must be one of {', '.join(ANNOTATIONS)}, but got policy={policy!r}")
    plain = ("",) * count

    def list_unrolled(loops: int) -> list[tuple[str, ...]]:
        return [("",) * (loops - k) + ("unroll",) * k for k in range(loops + 1)]

    last = [(*kinds, "vectorize") for kinds in list_unrolled(count - 1)] if count else []
    return {
        "none": [plain],
        "unroll": [("unroll",) * count],
        "vec": [(*plain[1:], "vectorize")] if count else [plain],
        "try_unroll": list_unrolled(count),
        "try_vec": [plain, *last[:1]],
        "try_unroll_vec": [*list_unrolled(count), *last],
    }[policy]


def _outer(extent: int, row: Row) -> int:
    whole = 1
    for size in row:
        whole *= size
    return ceil_of(extent, whole)


def _name(axis: Any) -> str:
    return axis if isinstance(axis, str) else str(axis.name)
