"""The end of a layer: a bias added, an activation applied, in one element-wise stage."""

from __future__ import annotations

from typing import Any

from search_space import te
from search_space.ir.expr import Expr
from search_space.operators.arithmetic import accumulator
from search_space.operators.base import Args, Array
from search_space.operators.checks import choice, flag
from search_space.operators.functions import ACTIVATIONS, names_for
from search_space.operators.naming import over


def epilogue_arguments(bias: Any, activation: Any, dtype: str = "float32") -> dict[str, Any]:
    """Checks `bias` and `activation`."""
    bias = flag("bias", bias)
    if activation is not None:
        where = f" for dtype={dtype}" if dtype == "int8" else ""
        activation = choice("activation", activation, names_for(ACTIVATIONS, accumulator(dtype)), where)
    return {"bias": bias, "activation": activation}


def with_epilogue(args: Args, inputs: list[te.Tensor], layer: te.Tensor) -> list[te.Tensor]:
    """Adds the epilogue to a layer, whose last axis the bias runs along; returns the inputs and the output."""
    if not args["bias"] and args["activation"] is None:
        return [*inputs, layer]
    bias = te.placeholder(layer.shape[-1:], layer.dtype, "bias", constant=True) if args["bias"] else None
    names = [a.name for a in layer.op.axis]

    def end(*index: Any) -> Expr:
        value = layer[index]
        if bias is not None:
            value = value + bias[index[-1]]
        return value if args["activation"] is None else ACTIVATIONS[args["activation"]].expression(value)

    stage = te.compute(layer.shape, over(names, end), name="epilogue")
    return [*inputs, *([bias] if bias is not None else []), stage]


def apply_epilogue(args: Args, layer: Array, *bias: Array) -> Array:
    """Applies the epilogue to arrays: `layer` (..., channels), and `bias` (channels,) if there is one."""
    for values in bias:
        layer = layer + values
    return layer if args["activation"] is None else ACTIVATIONS[args["activation"]].reference(layer)
