"""Reductions of two operands, each in several orders of the operands' dimensions.

A dimension is a text: an axis (`k`), a sum of axes, as under a window (`h+y`), or an axis read backwards (`-y`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_space import te
from search_space.workloads import Workload


@dataclass(frozen=True)
class OrderRow:
    """One expression of the comparison.

    Attributes:
        name: name in `--rows`.
        extents: elements along each axis.
        output: axes of the output; the others are summed over.
        orders: operands' dimensions by label, dimensions and operands separated by blanks and a comma.
        distance: whether it adds up distances of elements, not products.
    """

    name: str
    extents: Mapping[str, int]
    output: str
    orders: dict[str, str]
    distance: bool = field(default=False, kw_only=True)

    @property
    def ends(self) -> tuple[str, ...]:
        """Labels of the first and of the last order, once each: those that TVM tunes as well."""
        return tuple(dict.fromkeys((next(iter(self.orders)), next(reversed(self.orders)))))

    def operands(self, label: str) -> tuple[tuple[str, ...], ...]:
        """Returns the dimensions of each operand in an order."""
        return tuple(tuple(operand.split()) for operand in self.orders[label].split(","))

    def workload(self, label: str) -> Workload:
        """Makes the workload of an order."""
        return Workload.of(self.tensors(label))

    def tensors(self, label: str, language: Any = te) -> list[Any]:
        """Defines an order: both operands and the output.

        Args:
            label: label of the order.
            language: module of tensor expressions, ours or TVM's, which has the same functions.
        """
        reduced = {
            axis: language.reduce_axis((0, n), axis) for axis, n in self.extents.items() if axis not in self.output
        }
        left, right = self.operands(label)
        a, b = (language.placeholder(self.shape(dims), name=name) for dims, name in ((left, "a"), (right, "b")))

        def element(*own: Any) -> Any:
            axes = {**dict(zip(self.output, own, strict=True)), **reduced}
            x, y = a[self._indices(left, axes)], b[self._indices(right, axes)]
            return language.sum(language.abs(x - y) if self.distance else x * y, axis=list(reduced.values()))

        shape = tuple(self.extents[axis] for axis in self.output)
        return [a, b, language.compute(shape, element, name="c")]

    def shape(self, dims: tuple[str, ...]) -> tuple[int, ...]:
        """Returns the shape of an operand; a sum of axes has an element for each of its values."""
        sums = [[self.extents[axis] for axis in dim.strip("-").split("+")] for dim in dims]
        return tuple(sum(extents) - len(extents) + 1 for extents in sums)

    def _indices(self, dims: tuple[str, ...], axes: Mapping[str, Any]) -> tuple[Any, ...]:
        indices = []
        for dim in dims:
            first, *others = (axes[axis] for axis in dim.strip("-").split("+"))
            index = self.extents[dim[1:]] - 1 - first if dim.startswith("-") else sum(others, first)
            indices.append(index)
        return tuple(indices)


PRODUCT = {"NN": "i k, k j", "NT": "i k, j k", "TN": "k i, k j", "TT": "k i, j k"}
"""Orders of a product of matrices; the first is the one that vectors read as it is."""
WINDOW = {"n": 2, "h": 28, "w": 28, "c": 64, "y": 3, "x": 3, "o": 64}

ROWS = (
    OrderRow("product", {"i": 512, "j": 512, "k": 512}, "ij", PRODUCT),
    OrderRow("few rows", {"i": 8, "j": 1024, "k": 1024}, "ij", {"NN": "i k, k j", "NT": "i k, j k"}),
    OrderRow(
        "batched product",
        {"b": 8, "i": 128, "j": 128, "k": 64},
        "bij",
        {"NN": "b i k, b k j", "NT": "b i k, b j k", "TN": "b k i, b k j", "columns of heads": "i b k, j b k"},
    ),
    OrderRow("distances", {"i": 256, "j": 256, "k": 256}, "ij", PRODUCT, distance=True),
    OrderRow(
        "data gradient",
        WINDOW,
        "nhwc",
        {"y x o c": "n h+y w+x o, -y -x o c", "y x c o": "n h+y w+x o, -y -x c o", "c y x o": "n h+y w+x o, c -y -x o"},
    ),
    OrderRow(
        "weight gradient",
        WINDOW,
        "yxco",
        {
            "n h w c": "n h+y w+x c, n h w o",
            "n c h w": "n c h+y w+x, n o h w",
            "channels first": "c n h+y w+x, n h w o",
        },
    ),
    OrderRow(
        "long weight gradient",
        {**WINDOW, "n": 16, "h": 56, "w": 56},
        "yxco",
        {"n h w c": "n h+y w+x c, n h w o"},
    ),
    OrderRow("long product", {"i": 128, "j": 128, "k": 16384}, "ij", PRODUCT),
)
"""Expressions of the comparison."""
