"""An operator with what follows it in the same kernel, any element-wise definition on its output; and with a
transposition in front of it, whose result is not written out but read where it lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from search_space import te, te_json
from search_space.ir.expr import Expr
from search_space.operators import estimates, evaluation, winograd
from search_space.operators.base import FLOOR, LIBRARY, Args, Array, Operator, Precision
from search_space.operators.naming import over
from search_space.schedule.state import operations, rename_loads


def fused(anchor: Mapping[str, Any], epilogue: Mapping[str, Any], axes: Sequence[int] = ()) -> dict[str, Any]:
    """An operator of the library and its epilogue.

    Every algorithm of the operator is one of the whole.

    Args:
        anchor: `operator` and `args`, as `Workload.to_json` gives them.
        epilogue: a definition (`search_space.te_json`) whose first input stands for the anchor's output, and whose
            own output has its shape.
        axes: of the transposition that makes the anchor's first input of what is given; none: that is given itself.
    """
    checked, order = _checked_anchor(anchor), _checked_axes(axes)
    definition = te_json.to_json(te_json.from_json(epilogue))
    args = {"anchor": checked, "epilogue": definition, "axes": order}
    data, *_, layer = _anchor(args, None)
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


def _anchor(args: Args, algorithm: str | None) -> list[te.Tensor]:
    from search_space.operators import find

    operator = find(args["anchor"]["operator"])
    checked = operator.arguments(args["anchor"]["args"])
    return operator.tensors(checked, algorithm or operator.algorithms(checked)[0])


def _tensors(args: Args, algorithm: str | None = None) -> list[te.Tensor]:
    """Inputs of the anchor, further inputs of the epilogue, output."""
    *inputs, layer = _anchor(args, algorithm)
    if args["axes"]:
        inputs[0], layer = _read_through(inputs[0], layer, args["axes"])
    first, *more, output = te_json.from_json(args["epilogue"])
    return [*inputs, *more, _grafted(output, first, layer)]


def _read_through(data: te.Tensor, layer: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """What is given, and the anchor's output of it transposed by `axes`."""
    shape = tuple(data.shape[axes.index(axis)] for axis in range(len(axes)))
    given = te.placeholder(shape, data.dtype, data.name)

    def body(*index: te.IterVar) -> Expr:
        return given[tuple(index[axes.index(axis)] for axis in range(len(axes)))]

    names = tuple(f"i{axis}" for axis in range(len(axes)))
    return given, _grafted(layer, data, te.compute(data.shape, over(names, body), name="transposed"))


def _grafted(output: te.Tensor, first: te.Tensor, layer: te.Tensor) -> te.Tensor:
    """The definition of `output` with `layer` in the place of `first`."""
    made: dict[te.Tensor, te.Tensor] = {first: layer}
    for op in operations([output]):
        if op.body is not None:
            inputs = tuple(made.get(tensor, tensor) for tensor in op.inputs)
            made[te.Tensor(op)] = te.Tensor(replace(op, body=rename_loads(op.body, made), inputs=inputs))
    return made[output]


class _Algorithms(Mapping[str, Any]):
    """Algorithm → definition, for whatever algorithms the anchor has."""

    def __getitem__(self, algorithm: str) -> Any:
        return lambda args: _tensors(args, algorithm)

    def __iter__(self) -> Any:
        from search_space.operators import OPERATORS

        return iter(dict.fromkeys(a for o in OPERATORS.values() if o.name != "fused" for a in o.definitions))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _available(args: Args, algorithm: str) -> bool:
    from search_space.operators import find

    operator = find(args["anchor"]["operator"])
    # Winograd's transforms read vectors along the channels, libraries matrices as they are given.
    if args["axes"] and algorithm in (*winograd.TILES, LIBRARY):
        return False
    return algorithm in operator.algorithms(operator.arguments(args["anchor"]["args"]))


def _describe(args: Args) -> str:
    """The anchor, the names of the stages that follow, and a digest of them."""
    from search_space.operators import find

    operator = find(args["anchor"]["operator"])
    stages = "+".join(stage["name"] for stage in args["epilogue"]["stages"])
    digest = hashlib.sha256(te_json.text(args["epilogue"]).encode()).hexdigest()[:16]
    described = operator.describe(operator.arguments(args["anchor"]["args"]))
    through = f",axes={'x'.join(map(str, args['axes']))}" if args["axes"] else ""
    return f"{operator.name}({described})+{stages},sha256={digest}{through}"


def _reference(args: Args, *arrays: Array) -> Array:
    return evaluation.evaluate(_tensors(args), arrays)


def _scale(args: Args) -> float:
    """Such that `Workload.tolerance` allows for the errors of the expressions and of the anchor's algorithms."""
    from search_space.operators import find

    found = _tensors(args)
    step = estimates.STEP.get(found[-1].dtype, 1.0)
    operator = find(args["anchor"]["operator"])
    checked, precision = operator.arguments(args["anchor"]["args"]), operator.precision
    anchor = step * precision.scale(checked) * (precision.floor(checked) + precision.terms(checked))
    return max(estimates.rounding_error(found), anchor) / (step * (FLOOR + estimates.longest_chain(found)))


FUSED = Operator(
    "fused",
    fused,
    _Algorithms(),
    _reference,
    lambda args: estimates.count_flops(_tensors(args)),
    Precision(
        lambda args: estimates.longest_chain(_tensors(args)),
        _scale,
        whole=lambda args: estimates.whole_steps(_tensors(args)),
    ),
    lambda args: estimates.input_bounds(_tensors(args)),
    available=_available,
    describe=_describe,
)
