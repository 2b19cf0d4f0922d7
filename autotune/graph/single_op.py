"""Single workloads as ONNX models of one layer with constant weights, for timing on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from search_space.operators.windows import both_sides, normalise_padding
from search_space.workloads import Workload

Array = NDArray[Any]
OPSET, IR_VERSION = 17, 8
_BLOCKED_DOMAIN = "com.microsoft.nchwc"
_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


class UnsupportedOperator(ValueError):
    """A workload that no single ONNX layer computes."""


@dataclass(frozen=True)
class SingleOp:
    """A model of one layer.

    Attributes:
        model: serialised ModelProto.
        feeds: inputs that are not constant, by name.
        output_shape: shape of the model's only output, `y`.
        restore: the model's output → the workload's layout.
    """

    model: bytes
    feeds: Mapping[str, Array]
    output_shape: tuple[int, ...]
    restore: Callable[[Array], Array]


def single_op(workload: Workload, arrays: Sequence[Array]) -> SingleOp:
    """Builds a workload's model in ONNX's usual layout: NCHW activations, OIHW weights.

    Args:
        workload: workload to build.
        arrays: its inputs, in its own layout (NHWC, HWIO).

    Raises:
        UnsupportedOperator: no ONNX layer computes the workload.
    """
    if workload.dtypes != {"float32"}:
        got = ", ".join(sorted(workload.dtypes))
        raise UnsupportedOperator(f"`dtype` must be float32 for the reference, but got {got}")
    if workload.operator not in _BUILDERS:
        raise UnsupportedOperator(f"`operator` must be one of {', '.join(_BUILDERS)}, but got {workload.operator!r}")
    return _BUILDERS[workload.operator](workload, arrays)


def blocked_op(workload: Workload, arrays: Sequence[Array], block: int = 16) -> SingleOp:
    """Builds a convolution in ONNX Runtime's blocked layout for networks, without conversions.

    This is the cost of the layer within a network, which shares the conversions. The operator is internal to ONNX
    Runtime.

    Args:
        workload: a conv2d or depthwise_conv2d.
        arrays: its inputs, in its own layout.
        block: channels in a block: 16 with AVX-512, else 8.

    Raises:
        UnsupportedOperator: the workload is not a convolution, or its channels do not fill blocks.
    """
    if workload.operator not in ("conv2d", "depthwise_conv2d") or workload.args["dtype"] != "float32":
        raise UnsupportedOperator(
            f"`operator` must be a float32 convolution for a blocked layout, but got {workload.key}"
        )
    data, weight = _nchw(arrays[0]), _oihw(workload, arrays[1])
    out_channels, in_channels = weight.shape[:2]
    groups = _groups(workload)
    plain_input = groups == 1 and in_channels < block
    fits = out_channels % block == 0 and (plain_input or groups in (1, out_channels))
    if not fits or (groups == 1 and not plain_input and in_channels % block):
        raise UnsupportedOperator(
            f"channels must be multiples of {block} for a blocked layout, but got {weight.shape[:2]}"
        )
    rows = weight.reshape(out_channels // block, block, *weight.shape[1:])  # (O/b, b, I, H, W)
    if plain_input or groups > 1:
        packed = rows.transpose(0, 2, 3, 4, 1)
    else:
        packed = rows.reshape(*rows.shape[:2], in_channels // block, block, *weight.shape[2:]).transpose(
            0, 2, 4, 5, 3, 1
        )
    packed = np.ascontiguousarray(packed).reshape(weight.shape)
    feed = data if plain_input else _to_blocks(data, block)
    nodes = [
        helper.make_node("Conv", _names(arrays), ["y"], domain=_BLOCKED_DOMAIN, **_conv_attributes(workload, weight))
    ]
    if _activation(workload):
        raise UnsupportedOperator("`activation` must be None for a blocked layout")
    return _assemble(
        nodes,
        {"x": feed},
        {"w": packed, **_bias(arrays)},
        _nchw_shape(workload),
        lambda y: _nhwc(_from_blocks(y, block)),
        domain=_BLOCKED_DOMAIN,
    )


def with_weights_drawn(workload: Workload, arrays: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """Replaces every constant in `arrays` by random values of the same mean and spread."""
    return [
        _redrawn(array, rng) if spec.constant else array for array, spec in zip(arrays, workload.inputs, strict=True)
    ]


def _redrawn(array: Array, rng: np.random.Generator) -> Array:
    draws = rng.random(array.shape, dtype=np.float32)  # uniform on [0, 1): its deviation is 12 ** -0.5
    return np.asarray((draws - 0.5) * (array.std() * 12**0.5) + array.mean(), dtype=array.dtype)


def _conv2d(workload: Workload, arrays: Sequence[Array]) -> SingleOp:
    weight = _oihw(workload, arrays[1])
    nodes = [helper.make_node("Conv", _names(arrays), ["y"], **_conv_attributes(workload, weight))]
    feeds, fixed = {"x": _nchw(arrays[0])}, {"w": weight, **_bias(arrays)}
    return _assemble(_add_activation(nodes, workload), feeds, fixed, _nchw_shape(workload), _nhwc)


def _conv2d_transpose(workload: Workload, arrays: Sequence[Array]) -> SingleOp:
    weight = np.ascontiguousarray(arrays[1].transpose(2, 3, 0, 1))
    attributes = {**_conv_attributes(workload, weight), "output_padding": workload.args["output_padding"]}
    nodes = [helper.make_node("ConvTranspose", _names(arrays), ["y"], **attributes)]
    feeds, fixed = {"x": _nchw(arrays[0])}, {"w": weight, **_bias(arrays)}
    return _assemble(_add_activation(nodes, workload), feeds, fixed, _nchw_shape(workload), _nhwc)


def _product(workload: Workload, arrays: Sequence[Array]) -> SingleOp:
    kind = "Gemm" if len(arrays) > 2 else "MatMul"
    nodes = [helper.make_node(kind, _names(arrays), ["y"])]
    feeds, fixed = {"x": arrays[0]}, _bias(arrays)
    (fixed if workload.inputs[1].constant else feeds)["w"] = arrays[1]
    return _assemble(_add_activation(nodes, workload), feeds, fixed, workload.output.shape, _same)


def _softmax(workload: Workload, arrays: Sequence[Array]) -> SingleOp:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    return _assemble(nodes, {"x": arrays[0]}, {}, workload.output.shape, _same)


def _layer_norm(workload: Workload, arrays: Sequence[Array]) -> SingleOp:
    scale = arrays[1] if len(arrays) > 1 else np.ones(arrays[0].shape[-1:], np.float32)
    fixed = {"w": scale, **_bias(arrays)}
    epsilon = float(workload.args.get("epsilon", 1e-5))
    nodes = [helper.make_node("LayerNormalization", ["x", *fixed], ["y"], axis=-1, epsilon=epsilon)]
    return _assemble(nodes, {"x": arrays[0]}, fixed, workload.output.shape, _same)


_BUILDERS: dict[str, Callable[[Workload, Sequence[Array]], SingleOp]] = {
    "conv2d": _conv2d,
    "depthwise_conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "matmul": _product,
    "batch_matmul": _product,
    "dense": _product,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
}


def _assemble(
    nodes: Sequence[NodeProto],
    feeds: Mapping[str, Array],
    fixed: Mapping[str, Array],
    shape: tuple[int, ...],
    restore: Callable[[Array], Array],
    domain: str = "",
) -> SingleOp:
    feeds = {name: np.ascontiguousarray(array) for name, array in feeds.items()}
    graph = helper.make_graph(
        nodes,
        "layer",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in fixed.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return SingleOp(model.SerializeToString(), feeds, tuple(shape), restore)


def _conv_attributes(workload: Workload, weight: Array) -> dict[str, Any]:
    sides = both_sides(normalise_padding(2, workload.args.get("padding", 0)))
    return {
        "kernel_shape": weight.shape[2:],
        "strides": pair(workload.args.get("stride", 1)),
        "dilations": pair(workload.args.get("dilation", 1)),
        "pads": (*(before for before, _ in sides), *(after for _, after in sides)),
        "group": _groups(workload),
    }


def _add_activation(nodes: list[NodeProto], workload: Workload) -> list[NodeProto]:
    activation = _activation(workload)
    if not activation:
        return nodes
    if activation not in _ACTIVATIONS:
        raise UnsupportedOperator(f"`activation` must be one of {', '.join(_ACTIVATIONS)}, but got {activation!r}")
    nodes[-1].output[0] = "z"
    return [*nodes, helper.make_node(_ACTIVATIONS[activation], ["z"], ["y"])]


def _activation(workload: Workload) -> str | None:
    activation: str | None = workload.args.get("activation")
    return activation


def pair(value: Any) -> tuple[int, int]:
    """Expands one number for height and width to both."""
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


def _groups(workload: Workload) -> int:
    return int(workload.args["channels"] if workload.operator == "depthwise_conv2d" else workload.args.get("groups", 1))


def _names(arrays: Sequence[Array]) -> list[str]:
    return ["x", "w", "b"][: len(arrays)]


def _bias(arrays: Sequence[Array]) -> dict[str, Array]:
    return {"b": arrays[2]} if len(arrays) > 2 else {}


def _oihw(workload: Workload, weight: Array) -> Array:
    if workload.operator == "depthwise_conv2d":
        return np.ascontiguousarray(weight.transpose(2, 0, 1)[:, None])
    return np.ascontiguousarray(weight.transpose(3, 2, 0, 1))


def _nchw(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def _nhwc(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def _nchw_shape(workload: Workload) -> tuple[int, ...]:
    batch, height, width, channels = workload.output.shape
    return batch, channels, height, width


def _to_blocks(data: Array, block: int) -> Array:
    """Packs NCHW data as `[N, C/block, H, W, block]`, under its old shape."""
    batch, channels, height, width = data.shape
    split = data.reshape(batch, channels // block, block, height, width)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2)).reshape(data.shape)


def _from_blocks(data: Array, block: int) -> Array:
    batch, channels, height, width = data.shape
    split = data.reshape(batch, channels // block, height, width, block)
    return np.ascontiguousarray(split.transpose(0, 1, 4, 2, 3)).reshape(data.shape)


def _same(array: Array) -> Array:
    return array
