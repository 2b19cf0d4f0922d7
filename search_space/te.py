"""Tensor expressions, as Halide and TVM write them: the computation, without a schedule."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from search_space.ir import expr as ir
from search_space.ir.expr import Expr, const, eq, lift, logical_and, select
from search_space.ir.sizes import find_sizes, span
from search_space.ir.stmt import THREAD_TAGS
from search_space.schedule.facade import Schedule
from search_space.schedule.intrinsics import TensorIntrin
from search_space.tags import Tag
from search_space.tensor import Extent, IterVar, Operation, Reduction, Tensor

if TYPE_CHECKING:
    from search_space.gradient.reverse import gradient as gradient

__all__ = [
    "IterVar",
    "Operation",
    "Reduction",
    "Tensor",
    "all",
    "compute",
    "const",
    "create_schedule",
    "decl_tensor_intrin",
    "eq",
    "floor_divide",
    "floor_mod",
    "fmod",
    "gradient",
    "if_then_else",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "sum",
    "thread_axis",
    "var",
]

REDUCERS = ("sum", "max", "min", "prod")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
GREATEST = 1 << 31
"""Bound that sizes are below."""


def var(name: str, low: int, high: int) -> Expr:
    """Creates an undecided size: kernels take it with their arrays, any from `low` to `high`, both inclusive.

    It may be used in shapes, extents of reduce axes and bodies, alone or in arithmetic, such as `(n + 1) // 2`.

    Raises:
        ValueError: a name that is no identifier, or a range without a size of at least 1.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"`name` of a size must be letters, digits and _, but got name={name!r}")
    if not 1 <= int(low) <= int(high) < GREATEST:
        raise ValueError(f"`low` and `high` must be 1 <= low <= high < 2**31, but got low={low}, high={high}")
    return ir.size(name, int(low), int(high))


def placeholder(
    shape: Sequence[Extent],
    dtype: str = "float32",
    name: str = "placeholder",
    constant: bool = False,
    mean: float | None = None,
) -> Tensor:
    """Creates an input. `constant` marks weights, whose layout may be changed for free before the first call.

    Estimates take `mean` as the mean of a constant's elements, if they are numbers of iterations.

    Raises:
        ValueError: an unknown dtype, a shape that is not positive, a constant whose shape holds a size, or a mean that
            is negative or not finite.
    """
    _check_dtype(dtype)
    if mean is not None and (
        not isinstance(mean, (int, float)) or isinstance(mean, bool) or not 0 <= mean < float("inf")
    ):
        raise ValueError(f"`mean` of {name} must be a finite number of at least 0, but got mean={mean!r}")
    if constant and (sizes := find_sizes(shape)):
        raise ValueError(f"`shape` of the constant {name} must be numbers, but got the size {', '.join(sizes)}")
    return Tensor(Operation(name, _check_shape(shape, name), dtype, constant=constant, mean=mean))


def reduce_axis(domain: tuple[int, Extent], name: str = "k") -> IterVar:
    """Creates an axis to reduce over, by a sum for example; `domain` is (0, extent) as TVM writes it."""
    low, high = domain
    if low != 0 or span(high)[0] < 1:
        raise ValueError(f"`domain` must be (0, extent) with extent >= 1, but got domain={tuple(domain)}")
    return IterVar(name, _extent(high), "reduce")


def thread_axis(tag: str) -> IterVar:
    """Creates a hardware thread dimension (`blockIdx.x`, `threadIdx.y`, ...) or `vthread`, to bind a loop to."""
    tags = (*THREAD_TAGS, "vthread")
    if tag not in tags:
        raise ValueError(f"`tag` must be one of {', '.join(tags)}, but got tag={tag!r}")
    return IterVar(tag, 0, "thread")


def compute(
    shape: Sequence[Extent],
    function: Callable[..., Any],
    name: str = "compute",
    tag: Tag | str = Tag.NONE,
    dtype: str | None = None,
) -> Tensor:
    """Creates a tensor whose element at (i, j, ...) is `function(i, j, ...)`.

    Args:
        shape: one extent or more.
        function: body as a function of one index per dimension.
        name: name of the tensor.
        tag: role of the stage for sketch rules.
        dtype: type of the elements; by default that of the body.

    Raises:
        ValueError: a shape that is not positive, an unknown tag, a function of another number of indices, or one
            that reads outside of a tensor where no condition of `if_then_else` rules that out.
        TypeError: operands of different dtypes, or an index that is no integer.
    """
    shape = _check_shape(shape, name)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_POSITIONAL]
    variadic = any(p.kind == p.VAR_POSITIONAL for p in inspect.signature(function).parameters.values())
    if variadic:
        names += [f"i{d}" for d in range(len(names), len(shape))]
    if len(names) != len(shape):
        raise ValueError(f"`function` must take {len(shape)} indices for shape={shape}, but takes {len(names)}")
    probe = function(*(IterVar(n, e) for n, e in zip(names, shape, strict=True)))
    reserved = {a.name for a in probe.axes} if isinstance(probe, Reduction) else set()
    # A size and an axis of one name would be one variable: the size keeps the name, as a reduce axis does.
    mentioned = probe.value if isinstance(probe, Reduction) else probe
    extents = [a.extent for a in probe.axes] if isinstance(probe, Reduction) else []
    reserved |= find_sizes([mentioned, *shape, *extents]).keys()
    names = [n if n not in reserved else f"{n}_" for n in names]
    axis = tuple(IterVar(n, e) for n, e in zip(names, shape, strict=True))
    value = function(*axis) if reserved & {n.rstrip("_") for n in names} else probe
    if isinstance(value, Reduction):
        _check_reduction(value)
        body, reducer, reduced = value.value, value.reducer, value.axes
    else:
        body, reducer, reduced = lift(value, dtype or "float32"), None, ()
    if dtype is not None:
        body = body.astype(dtype)
    inputs = tuple(dict.fromkeys(n.args[0] for n in ir.walk(body) if n.op == "load"))
    return Tensor(Operation(name, shape, body.dtype, axis, reduced, body, reducer, tag=Tag(tag), inputs=inputs))


def _check_reduction(value: Reduction) -> None:
    names = [a.name for a in value.axes]
    if len(set(names)) != len(names):
        raise ValueError(f"`axis` must be reduce axes of distinct names, but got axis={names}")
    if value.value.dtype == ir.BOOL and value.reducer in ("sum", "prod"):
        raise TypeError(
            f"`{value.reducer}` must be taken of numbers (use astype, max or min), but got {value.value}: bool"
        )


def _reduction(reducer: str) -> Callable[..., Reduction]:
    def reduce(value: Any, axis: IterVar | Sequence[IterVar]) -> Reduction:
        axes = (axis,) if isinstance(axis, IterVar) else tuple(axis)
        for a in axes:
            if not isinstance(a, IterVar) or a.kind != "reduce":
                raise ValueError(f"`axis` must be made by reduce_axis, but got axis={a}")
        return Reduction(reducer, lift(value, "float32"), axes)

    reduce.__name__ = reducer
    reduce.__doc__ = f"The {reducer} of `value` over `axis`."
    return reduce


sum = _reduction("sum")
max = _reduction("max")
min = _reduction("min")
prod = _reduction("prod")


def if_then_else(condition: Any, then: Any, otherwise: Any) -> Expr:
    """Returns `then` where `condition`, else `otherwise`; the branch not taken is not read, so padding may use it."""
    return select(condition, then, otherwise)


def all(*conditions: Any) -> Expr:
    """Tells whether every condition holds."""
    return logical_and(*conditions)


def __getattr__(name: str) -> Callable[[Any], Expr]:
    """Returns an element-wise math function of an expression, such as `te.exp`: any name of `ir.MATH`.

    `gradient` is written in this language, and imported on first use.
    """
    if name == "gradient":
        function: Callable[[Any], Expr] = import_module("search_space.gradient.reverse").gradient
        return function
    if name not in ir.MATH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(ir.call, name)


def maximum(a: Any, b: Any) -> Expr:
    """Returns the larger of two values."""
    return ir.maximum(a, b)


def minimum(a: Any, b: Any) -> Expr:
    """Returns the smaller of two values."""
    return ir.minimum(a, b)


def fmod(a: Any, b: Any) -> Expr:
    """Returns the remainder of floats as C's `fmod`, exact: with the sign of `a`; NaN for infinite `a` or `b` 0."""
    return ir.make("fmod", a, b)


def floor_mod(a: Any, b: Any) -> Expr:
    """Returns the remainder with the sign of `b`: exact but for its own rounding, as in NumPy; see `fmod`."""
    left, right = _operands(a, b)
    if left.dtype not in ir.FLOATS:
        return left % right
    rest = fmod(left, right)
    return select(_crosses(rest, right), rest + right, rest)


def floor_divide(a: Any, b: Any) -> Expr:
    """Returns the quotient rounded down; for floats the one that goes with `floor_mod`: 1 // 0.1 is 9, as in NumPy."""
    left, right = _operands(a, b)
    if left.dtype not in ir.FLOATS:
        return left // right
    rest, quotient = fmod(left, right), left / right
    # An integer but for rounding errors.
    near = (left - rest) / right
    near = select(_crosses(rest, right), near - 1, near)
    down = ir.call("floor", near)
    whole = select(near - down > 0.5, down + 1, down)
    whole = select(eq(near, 0), quotient * 0, whole)  # zero with the sign of the quotient
    return select(eq(right, 0), quotient, whole)


def _operands(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Converts both operands to expressions; a number takes the dtype of the other."""
    dtype = next((x.dtype for x in (a, b) if isinstance(x, Expr)), "float32")
    return lift(a, dtype), lift(b, dtype)


def _crosses(rest: Expr, b: Expr) -> Expr:
    """Tells whether a remainder has another sign than the divisor, so that rounding down is not rounding to zero."""
    return logical_and(ir.make("ne", rest, 0), ir.make("ne", b < 0, rest < 0))


def create_schedule(ops: Operation | Sequence[Operation]) -> Schedule:
    """Creates a schedule of everything that `ops` depend on, each stage at the root with its axes as loops."""
    return Schedule.of(ops)


def decl_tensor_intrin(op: Operation, name: str) -> TensorIntrin:
    """Declares a hardware instruction: `op` is its computation on one tile; targets emit it by its name."""
    return TensorIntrin(name, op)


def _check_dtype(dtype: str) -> None:
    if dtype not in ir.DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(ir.DTYPES)}, but got dtype={dtype!r}")


def _extent(value: Any) -> Extent:
    """Converts an extent to a number, or to an expression of sizes."""
    if not isinstance(value, Expr):
        return int(value)
    if value.is_const:
        return int(value.value)
    if value.dtype != ir.INT or not ir.variables(value) <= find_sizes([value]).keys():
        raise TypeError(f"an extent must be a number or of sizes, but got {value}")
    return value


def _check_shape(shape: Sequence[Extent], name: str) -> tuple[Extent, ...]:
    try:
        out = tuple(_extent(s) for s in shape)
    except TypeError:
        raise ValueError(f"`shape` of {name} must be a sequence of integers, but got shape={shape!r}") from None
    if any(span(s)[0] < 1 for s in out):
        raise ValueError(f"`shape` of {name} must be positive in every dimension, but got shape={out}")
    return out
