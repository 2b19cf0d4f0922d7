"""An operator with fused neighbours in one kernel: an epilogue, any element-wise definition on its output; a prologue,
any element-wise definition of its first input; and a transposition before that. The transposition's result is not
stored: the kernel reads its source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from search_space import te, te_json
from search_space.dtypes import NARROW
from search_space.ir.expr import Expr, load, transform
from search_space.operators import estimates, evaluation, strassen, winograd
from search_space.operators.base import FLOOR, LIBRARY, Args, Array, Operator, Precision
from search_space.operators.naming import over
from search_space.schedule.state import operations, rename_loads
from search_space.tags import Tag


def fused(
    anchor: Mapping[str, Any],
    epilogue: Mapping[str, Any],
    axes: Sequence[int] = (),
    stored: Sequence[str] = (),
    prologue: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Computes an operator of the library with its epilogue and its prologue.

    Every algorithm of the operator is an algorithm of the fused one.

    Args:
        anchor: `operator` and `args`, as `Workload.to_json` gives them.
        epilogue: definition (`search_space.te_json`) whose first input is the anchor's output, and whose own output has
            its shape.
        axes: axes of the transposition of the first input; (): it is not transposed.
        stored: 16-bit float in which each input of the anchor is stored, and from which it is widened when it is read;
            an empty text: the anchor's own type. (): all have the anchor's types.
        prologue: definition whose output is the anchor's first input, and whose own first input has the same shape; its
            inputs replace that input.
    """
    checked, order, dtypes = _checked_anchor(anchor), _checked_axes(axes), tuple(stored)
    definition = te_json.to_json(te_json.from_json(epilogue))
    front = None if prologue is None else te_json.to_json(te_json.from_json(prologue))
    args: dict[str, Any] = {"anchor": checked, "epilogue": definition, "axes": order, "prologue": front}
    args["stored"] = dtypes if any(dtypes) else ()
    data, *more, layer = _layer(args)
    _check_stored(dtypes, [data, *more])
    if front is not None:
        _check_prologue(te_json.from_json(front), data, dtypes)
    output = te_json.from_json(definition)
    if order and sorted(order) != list(range(len(data.shape))):
        raise ValueError(
            f"`axes` must name each of the {len(data.shape)} dimensions of the anchor's {data.name} once, "
            f"but got axes={list(order)}"
        )
    if (output[0].shape, output[0].dtype) != (layer.shape, layer.dtype):
        raise ValueError(
            f"`epilogue` must first read the anchor's {layer.dtype}{list(layer.shape)}, "
            f"but got {output[0].dtype}{list(output[0].shape)}"
        )
    if output[-1].shape != layer.shape:
        raise ValueError(
            f"`epilogue` must keep the anchor's shape {list(layer.shape)}, but got {list(output[-1].shape)}"
        )
    return args


def _checked_anchor(anchor: Any) -> dict[str, Any]:
    from search_space.operators import find

    if not isinstance(anchor, Mapping) or set(anchor) != {"operator", "args"}:
        raise ValueError(f"`anchor` must have the keys operator and args, but got anchor={anchor!r}")
    if anchor["operator"] in ("fused", "definitions"):
        raise ValueError(f"`anchor` must be one operator by its name, but got {anchor['operator']}")
    args = find(anchor["operator"]).arguments(anchor["args"])
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in args.items()}
    return {"operator": anchor["operator"], "args": plain}


def _checked_axes(axes: Any) -> tuple[int, ...]:
    if not isinstance(axes, Sequence) or not all(type(axis) is int for axis in axes):
        raise ValueError(f"`axes` must be a list of dimensions, but got axes={axes!r}")
    return tuple(axes)


def _check_stored(dtypes: Sequence[str], inputs: Sequence[te.Tensor]) -> None:
    if dtypes and len(dtypes) != len(inputs):
        raise ValueError(f"`stored` must have a dtype for each of {len(inputs)} inputs, but got {list(dtypes)}")
    for dtype, tensor in zip(dtypes, inputs, strict=False):
        if dtype and (dtype not in NARROW or tensor.dtype != "float32"):
            raise ValueError(
                f"`stored` must be {' or '.join(NARROW)} for inputs that the anchor takes in float32, "
                f"but got {dtype!r} for {tensor.name}, {tensor.dtype}"
            )


def _check_prologue(prologue: Sequence[te.Tensor], data: te.Tensor, dtypes: Sequence[str]) -> None:
    first, result = prologue[0], prologue[-1]
    if (result.shape, result.dtype) != (data.shape, data.dtype):
        raise ValueError(
            f"`prologue` must make the anchor's {data.dtype}{list(data.shape)} {data.name}, "
            f"but got {result.dtype}{list(result.shape)}"
        )
    if first.shape != data.shape:
        raise ValueError(f"`prologue` must first read {list(data.shape)}, but got {list(first.shape)}")
    if dtypes and dtypes[0]:
        raise ValueError(f"`stored` must be empty for what a prologue makes, but got {dtypes[0]!r} for {data.name}")


def _anchor(args: Args) -> tuple[Operator[Any], Args]:
    """Returns the anchor's operator and its arguments."""
    from search_space.operators import find

    operator = find(args["anchor"]["operator"])
    return operator, operator.arguments(args["anchor"]["args"])


def _layer(args: Args, algorithm: str | None = None) -> list[te.Tensor]:
    """Returns the inputs of the anchor, and its output."""
    operator, checked = _anchor(args)
    return operator.tensors(checked, algorithm or operator.algorithms(checked)[0])


def _tensors(args: Args, algorithm: str | None = None) -> list[te.Tensor]:
    """Returns the anchor's inputs, the prologue's in place of the first; the epilogue's further inputs; the output."""
    *inputs, layer = _layer(args, algorithm)
    front: list[te.Tensor] = []
    if args["prologue"]:
        data, *front, front_output = te_json.from_json(args["prologue"])
        # Names that no stage of an epilogue has, since kernels are identified by their output's name.
        front_output = _graft(front_output, data, data, prefix="front.")
        # Like padding, it may be stored whole, computed a tile at a time, or where it is read.
        layer = _graft(layer, inputs[0], te.Tensor(replace(front_output.op, tag=Tag.PAD)))
        inputs[0] = data
    if args["axes"]:
        inputs[0], layer = _read_through(inputs[0], layer, args["axes"])
    for place, dtype in enumerate(args["stored"]):
        if dtype:
            inputs[place], layer = _widen_input(inputs[place], layer, dtype)
    first, *more, output = te_json.from_json(args["epilogue"])
    return [inputs[0], *front, *inputs[1:], *more, _graft(output, first, layer)]


def _read_through(data: te.Tensor, layer: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Returns the source, and the anchor's output for the source transposed by `axes`."""
    shape = tuple(data.shape[axes.index(axis)] for axis in range(len(axes)))
    source = te.placeholder(shape, data.dtype, data.name)

    def body(*index: te.IterVar) -> Expr:
        return source[tuple(index[axes.index(axis)] for axis in range(len(axes)))]

    names = tuple(f"i{axis}" for axis in range(len(axes)))
    return source, _graft(layer, data, te.compute(data.shape, over(names, body), name="transposed"))


def _widen_input(data: te.Tensor, layer: te.Tensor, dtype: str) -> tuple[te.Tensor, te.Tensor]:
    """Returns an input stored in `dtype`, and the anchor's output from it; each read widens the element."""
    source = te.placeholder(data.shape, dtype, data.name, data.op.constant)

    def visit(node: Expr) -> Expr | None:
        if node.op != "load" or node.args[0] != data:
            return None
        return load(source, [transform(index, visit) for index in node.args[1:]], dtype).astype(data.dtype)

    return source, _graft(layer, data, source, lambda body: transform(body, visit))


def _graft(
    output: te.Tensor,
    first: te.Tensor,
    layer: te.Tensor,
    change: Callable[[Expr], Expr] = lambda body: body,
    prefix: str = "",
) -> te.Tensor:
    """Replaces `first` by `layer` in the definition of `output`; bodies are changed before and names get the prefix."""
    copies: dict[te.Tensor, te.Tensor] = {first: layer}
    for op in operations([output]):
        if op.body is not None:
            inputs = tuple(copies.get(tensor, tensor) for tensor in op.inputs)
            body = rename_loads(change(op.body), copies)
            copies[te.Tensor(op)] = te.Tensor(replace(op, name=prefix + op.name, body=body, inputs=inputs))
    return copies[output]


class _Algorithms(Mapping[str, Any]):
    """Mapping of algorithms to definitions, for all algorithms of the anchor."""

    def __getitem__(self, algorithm: str) -> Any:
        return lambda args: _tensors(args, algorithm)

    def __iter__(self) -> Any:
        from search_space.operators import OPERATORS

        return iter(dict.fromkeys(a for o in OPERATORS.values() if o.name != "fused" for a in o.definitions))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _available(args: Args, algorithm: str) -> bool:
    operator, checked = _anchor(args)
    # Transforms read vectors along the channels, and libraries read matrices as they are in memory.
    if args["axes"] and algorithm in (*winograd.TILES, strassen.STRASSEN, LIBRARY):
        return False
    if algorithm == LIBRARY and (args["stored"] or args["prologue"]):
        return False
    return algorithm in operator.algorithms(checked)


def _describe(args: Args) -> str:
    """Describes the arguments: the anchor, the names of the following stages, and their digest."""
    operator, checked = _anchor(args)
    stages = "+".join(stage["name"] for stage in args["epilogue"]["stages"])
    digest = _digest(args["epilogue"])
    through = f",axes={'x'.join(map(str, args['axes']))}" if args["axes"] else ""
    stored = f",stored={'x'.join(args['stored'])}" if args["stored"] else ""
    front = ""
    if args["prologue"]:
        front = "+".join(stage["name"] for stage in args["prologue"]["stages"])
        front = f",front={front},sha256={_digest(args['prologue'])}"
    return f"{operator.name}({operator.describe(checked)})+{stages},sha256={digest}{through}{stored}{front}"


def _digest(definition: Mapping[str, Any]) -> str:
    return hashlib.sha256(te_json.text(definition).encode()).hexdigest()[:16]


def _reference(args: Args, *arrays: Array) -> Array:
    return evaluation.evaluate(_tensors(args), arrays)


def _scale(args: Args) -> float:
    """Returns the scale with which `Workload.tolerance` allows for errors of the expressions and of the anchor."""
    tensors = _tensors(args)
    step = estimates.STEP.get(tensors[-1].dtype, 1.0)
    operator, checked = _anchor(args)
    precision = operator.precision
    # In steps of the anchor's output: those of the fused output are coarser if it is rounded.
    own = estimates.STEP.get(_layer(args)[-1].dtype, step)
    anchor = own * precision.scale(checked) * (precision.floor(checked) + precision.terms(checked))
    return max(estimates.rounding_error(tensors), anchor) / (step * (FLOOR + estimates.longest_chain(tensors)))


def _rounding(args: Args, algorithm: str) -> float:
    """Returns the rounding error of the anchor's algorithm; later functions are assumed to have slopes of at most 1."""
    operator, checked = _anchor(args)
    return operator.precision.rounding(checked, algorithm)


def _draw_integers(args: Args, shape: tuple[int, ...], rng: np.random.Generator) -> Array | None:
    operator, checked = _anchor(args)
    return operator.draw_integers(checked, shape, rng)


FUSED = Operator(
    "fused",
    fused,
    _Algorithms(),
    _reference,
    lambda args: estimates.count_flops(_tensors(args)),
    Precision(
        lambda args: estimates.longest_chain(_tensors(args)),
        _scale,
        integer_error=lambda args: estimates.whole_steps(_tensors(args)),
        rounding=_rounding,
    ),
    lambda args: estimates.input_bounds(_tensors(args)),
    available=_available,
    describe=_describe,
    draw_integers=_draw_integers,
)
