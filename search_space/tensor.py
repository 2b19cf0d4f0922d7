"""Tensors, and the operations that define them over axes: the nouns of the language `search_space.te`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from search_space.ir.access import check_reads
from search_space.ir.expr import Expr, load, make, var
from search_space.ir.sizes import find_sizes
from search_space.tags import Tag

Extent = Any
"""A number of iterations or elements: an int, or an expression of sizes (`te.var`)."""


@dataclass(frozen=True, eq=False)
class IterVar:
    """An axis: a variable that runs over `range(extent)`, spatial or reduced, or a thread tag to bind loops to."""

    name: str
    extent: Extent
    kind: str = "spatial"  # spatial, reduce, thread

    @property
    def expr(self) -> Expr:
        return var(self.name)

    def __add__(self, other: Any) -> Expr:
        return make("add", self.expr, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expr:
        return make("sub", self.expr, other)

    def __rsub__(self, other: Any) -> Expr:
        return make("sub", other, self.expr)

    def __mul__(self, other: Any) -> Expr:
        return make("mul", self.expr, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Expr:
        return make("floordiv", self.expr, other)

    def __mod__(self, other: Any) -> Expr:
        return make("mod", self.expr, other)

    def __lt__(self, other: Any) -> Expr:
        return make("lt", self.expr, other)

    def __le__(self, other: Any) -> Expr:
        return make("le", self.expr, other)

    def __ge__(self, other: Any) -> Expr:
        return make("le", other, self.expr)

    def __gt__(self, other: Any) -> Expr:
        return make("lt", other, self.expr)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Operation:
    """The definition behind a tensor: a placeholder (no body) or a computation over its axes.

    Raises:
        ValueError: it reads outside of a tensor, or a variable other than its axes; two sizes of one name.
        TypeError: it reads at an index that is no integer.
    """

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()
    body: Expr | None = None
    reducer: str | None = None
    constant: bool = False
    tag: Tag = Tag.NONE
    inputs: tuple[Tensor, ...] = field(default=())
    mean: float | None = None

    def __post_init__(self) -> None:
        if self.body is not None:
            check_reads(self.name, self.body, {a.name: a.extent for a in (*self.axis, *self.reduce_axis)})

    @property
    def size_expressions(self) -> tuple[Expr, ...]:
        """The expressions of it that mention sizes."""
        every = (*self.shape, *(a.extent for a in (*self.axis, *self.reduce_axis)), self.body)
        return tuple(e for e in every if isinstance(e, Expr) and find_sizes([e]))

    def output(self, index: int = 0) -> Tensor:
        return Tensor(self)


@dataclass(frozen=True)
class Tensor:
    """A multi-dimensional value; indexing it inside a `compute` reads an element."""

    op: Operation

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def shape(self) -> tuple[Extent, ...]:
        return self.op.shape

    @property
    def dtype(self) -> str:
        return self.op.dtype

    def __getitem__(self, indices: Any) -> Expr:
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != len(self.shape):
            raise ValueError(
                f"`{self.name}` must be indexed with {len(self.shape)} indices, but got {len(indices)} indices"
            )
        return load(self, indices, self.dtype)

    def __call__(self, *indices: Any) -> Expr:
        return self[indices]


@dataclass(frozen=True, eq=False)
class Reduction:
    """`reducer` over `axes` of `value`; only the outermost node of a compute may be one."""

    reducer: str
    value: Expr
    axes: tuple[IterVar, ...]
