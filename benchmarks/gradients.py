"""Gradients of operators: their definitions, what PyTorch saves for them, and the rows of the operators' table.

A gradient has a kind and its arguments, as plain data: peers find the operation of PyTorch by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rows import Row, convolution
from search_space import te, workloads
from search_space.gradient.replacing import list_placeholders, replace_stages
from search_space.ir.expr import Expr
from search_space.workloads import Workload

Array = NDArray[Any]
WINDOW: Mapping[str, tuple[int, int]] = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)}
"""Window of the poolings."""


def differentiate_operator(forward: Mapping[str, Any], of: str) -> list[te.Tensor]:
    """Differentiates a workload by the input of a name; weights change with each step, and are no constants."""
    workload = Workload.from_json(forward)
    place = [spec.name for spec in workload.inputs].index(of)
    *inputs, output = workload.tensors_to_differentiate(place)
    variables = [te.placeholder(tensor.shape, tensor.dtype, tensor.name) for tensor in inputs]
    output = replace_stages(output, {old.op: new for old, new in zip(inputs, variables, strict=True)})
    (wanted,) = [tensor for tensor in variables if tensor.name == of]
    seed = te.placeholder(output.shape, output.dtype, "seed")
    (gradient,) = te.gradient(output, [wanted], seed)
    read = list_placeholders(gradient)
    return [*(tensor for tensor in (*variables, seed) if tensor.op in read), gradient]


def softmax(rows: int, length: int) -> list[te.Tensor]:
    """Defines the gradient of rows' softmax from its values, as PyTorch's decomposition does."""
    value, seed = (te.placeholder((rows, length), name=name) for name in ("value", "seed"))
    r = te.reduce_axis((0, length), "r")
    total = te.compute((rows,), lambda i: te.sum(value[i, r] * seed[i, r], axis=r), name="total")

    def element(i: Expr, j: Expr) -> Expr:
        return value[i, j] * (seed[i, j] - total[i])

    return [value, seed, te.compute((rows, length), element, name="d_data")]


def _normalise(x: te.Tensor, mean: te.Tensor, scale: te.Tensor, at: tuple[Any, ...], statistic: Any) -> Expr:
    """Reads an element of data that is normalised by saved statistics."""
    element: Expr = (x[at] - mean[statistic]) * scale[statistic]
    return element


def layer_norm_data(rows: int, length: int) -> list[te.Tensor]:
    """Defines the gradient of normalised rows by their data, from saved means and scales."""
    x, seed = (te.placeholder((rows, length), name=name) for name in ("data", "seed"))
    mean, scale = (te.placeholder((rows,), name=name) for name in ("mean", "scale"))
    gamma = te.placeholder((length,), name="gamma")
    r, q = te.reduce_axis((0, length), "r"), te.reduce_axis((0, length), "q")
    total = te.compute((rows,), lambda i: te.sum(seed[i, r] * gamma[r], axis=r), name="total")

    def product(i: Expr) -> Any:
        return te.sum(seed[i, q] * gamma[q] * _normalise(x, mean, scale, (i, q), i), axis=q)

    products = te.compute((rows,), product, name="products")

    def element(i: Expr, j: Expr) -> Expr:
        shift = total[i] + _normalise(x, mean, scale, (i, j), i) * products[i]
        return scale[i] * (seed[i, j] * gamma[j] - shift * (1 / length))

    return [x, seed, mean, scale, gamma, te.compute((rows, length), element, name="d_data")]


def layer_norm_scale(rows: int, length: int) -> list[te.Tensor]:
    """Defines the gradient of normalised rows by the scale of each column, from saved means and scales."""
    x, seed = (te.placeholder((rows, length), name=name) for name in ("data", "seed"))
    mean, scale = (te.placeholder((rows,), name=name) for name in ("mean", "scale"))
    r = te.reduce_axis((0, rows), "r")

    def product(j: Expr) -> Any:
        return te.sum(seed[r, j] * _normalise(x, mean, scale, (r, j), r), axis=r)

    return [x, seed, mean, scale, te.compute((length,), product, name="d_gamma")]


def batch_norm(batch: int, size: int, channels: int) -> list[te.Tensor]:
    """Defines the gradient of normalised images (batch, size, size, channels) by their data, from saved statistics."""
    shape = (batch, size, size, channels)
    x, seed = (te.placeholder(shape, name=name) for name in ("data", "seed"))
    mean, scale, gamma = (te.placeholder((channels,), name=name) for name in ("mean", "scale", "gamma"))

    def sum_images(name: str, element: Callable[..., Expr]) -> te.Tensor:
        axes = [te.reduce_axis((0, extent), f"{name}_{axis}") for axis, extent in zip("nhw", shape, strict=False)]
        return te.compute((channels,), lambda c: te.sum(element(*axes, c), axis=axes), name=name)

    def normalise(*at: Any) -> Expr:
        return _normalise(x, mean, scale, at, at[-1])

    total = sum_images("total", lambda *at: seed[at])
    products = sum_images("products", lambda *at: seed[at] * normalise(*at))
    share = 1 / (batch * size * size)

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        shift = (total[c] + normalise(n, h, w, c) * products[c]) * share
        return scale[c] * gamma[c] * (seed[n, h, w, c] - shift)

    return [x, seed, mean, scale, gamma, te.compute(shape, element, name="d_data")]


def max_pool_indices(batch: int, size: int, channels: int) -> list[te.Tensor]:
    """Defines the gradient of maxima of windows from their indices, as `torch.compile` has it."""
    from autotune.graph.ops import find
    from autotune.graph.types import TensorType

    shape = (batch, size // WINDOW["stride"][0], size // WINDOW["stride"][1], channels)
    types = [TensorType(shape, "float32"), TensorType(shape, "int32")]
    return find("maxima_gradient").tensors({**WINDOW, "extent": (size, size)}, types)


def max_pool_data(batch: int, size: int, channels: int) -> list[te.Tensor]:
    """Defines the gradient of maxima of windows from data and maxima, as `autotune.compile_training` has it."""
    data, output = _pooling(batch, size, channels).tensors()
    value, seed = (te.placeholder(output.shape, name=name) for name in ("value", "seed"))
    (gradient,) = te.gradient(output, [data], seed)
    return [data, value, seed, replace_stages(gradient, {output.op: value})]


def _pooling(batch: int, size: int, channels: int) -> Workload:
    window = {name: WINDOW[name] for name in ("kernel", "stride", "padding")}
    return workloads.max_pool2d(batch, size, size, channels, **window)  # type: ignore[arg-type]


KINDS: Mapping[str, Callable[..., list[te.Tensor]]] = {
    "operator": differentiate_operator,
    "softmax": softmax,
    "layer_norm_data": layer_norm_data,
    "layer_norm_scale": layer_norm_scale,
    "batch_norm": batch_norm,
    "max_pool_indices": max_pool_indices,
    "max_pool_data": max_pool_data,
}
"""Kind of a gradient → the function that makes its inputs and itself."""


def save_forward_values(gradient: Mapping[str, Any], arrays: Sequence[Array]) -> list[Array]:
    """Replaces random arrays by values that a forward pass saves, where only these make sense: maxima and indices."""
    kind, args = gradient["kind"], gradient["args"]
    if kind == "max_pool_data":
        images = _draw_images(args)
        return [images, _pooling(**args).reference(images), arrays[-1]]
    if kind == "max_pool_indices":
        return [arrays[0], _find_maxima(_draw_images(args), arrays[0].shape)]
    return list(arrays)


def _draw_images(args: Mapping[str, int]) -> Array:
    """Draws images (batch, size, size, channels) of different elements: equal maxima share a gradient or do not."""
    shape = args["batch"], args["size"], args["size"], args["channels"]
    count = math.prod(shape)
    return np.asarray(np.random.default_rng(0).permutation(count) / count, np.float32).reshape(shape)


def _find_maxima(images: Array, shape: tuple[int, ...]) -> Array:
    """Finds the flat index of the maximum of each window of images: int32 of `shape`, (n, h, w, c)."""
    (kernel, _), (stride, _), (padding, _) = (WINDOW[name] for name in ("kernel", "stride", "padding"))
    size = images.shape[1]
    sides = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    padded = np.pad(images, sides, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
    row, column = np.divmod(windows.reshape(*shape, -1).argmax(-1), kernel)
    row += np.arange(shape[1])[:, None, None] * stride - padding
    column += np.arange(shape[2])[:, None] * stride - padding
    return np.asarray(row * size + column, np.int32)


def _row(name: str, group: str, title: str, kind: str, args: Mapping[str, Any], forward: Workload | None = None) -> Row:
    def make() -> Workload:
        return Workload.of(KINDS[kind](**args))

    gradient = {"kind": kind, "args": dict(args)}
    return Row(name, group, title, make, {"gradient": gradient}, None if forward is None else lambda: forward)


def _operator(name: str, title: str, of: str, forward: Workload) -> Row:
    """Makes the row of an operator's gradient; its rate counts the operations of the operator itself."""
    args = {"forward": forward.to_json(), "of": of}
    return _row(f"d_{of}_{name}", f"{of} gradient", f"d {of}: {title}", "operator", args, forward)


def _conv(of: str, size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Row:
    forward = convolution(size, inputs, outputs, kernel, stride, batch=BATCH, groups=groups)
    suffix = (f" s{stride}" if stride > 1 else "") + (f" g{groups}" if groups > 1 else "")
    name = f"conv{kernel}x{kernel}_{size}_{inputs}_{outputs}" + suffix.replace(" ", "_")
    return _operator(name, f"conv {kernel}x{kernel}{suffix} {BATCH}x{size}² {inputs}→{outputs}", of, forward)


def _depthwise(of: str, size: int, channels: int, stride: int = 1) -> Row:
    forward = workloads.depthwise_conv2d(BATCH, size, size, channels, 3, stride, 1)
    suffix = f" s{stride}" if stride > 1 else ""
    name = f"depthwise3x3_{size}_{channels}" + suffix.replace(" ", "_")
    return _operator(name, f"depthwise 3x3{suffix} {BATCH}x{size}² {channels}", of, forward)


def _dense(of: str, rows: int, inputs: int, outputs: int) -> Row:
    forward = workloads.dense(rows, inputs, outputs)
    return _operator(f"dense_{rows}_{inputs}_{outputs}", f"dense {rows}x{inputs}x{outputs}", of, forward)


def _conv_transpose(of: str, size: int, inputs: int, outputs: int) -> Row:
    forward = workloads.conv2d_transpose(BATCH, size, size, inputs, outputs, 2, 2)
    title = f"transposed conv 2x2 s2 {BATCH}x{size}² {inputs}→{outputs}"
    return _operator(f"transposed2x2_{size}_{inputs}_{outputs}", title, of, forward)


def _rows(kind: str, title: str, *sizes: int) -> Row:
    names = ("rows", "length") if len(sizes) == 2 else ("batch", "size", "channels")
    args = dict(zip(names, sizes, strict=True))
    shape = "x".join(map(str, sizes)) if len(sizes) == 2 else f"{sizes[0]}x{sizes[1]}² {sizes[2]}"
    name = f"d_{kind}_{'_'.join(map(str, sizes))}"
    return _row(name, "gradient of rows and images", f"{title} {shape}", kind, args)


BATCH = 8
"""Images of a convolution."""
GRADIENT_ROWS = (
    _dense("weight", 512, 768, 3072),
    _dense("weight", 4096, 128, 128),
    _conv("weight", 56, 64, 64),
    _conv("weight", 14, 256, 256),
    _conv("weight", 28, 128, 128, stride=2),
    _conv("weight", 28, 512, 128, kernel=1),
    _conv("weight", 14, 256, 512, kernel=1, stride=2),
    _conv("weight", 14, 512, 512, groups=32),
    _depthwise("weight", 28, 192),
    _depthwise("weight", 56, 144, stride=2),
    _conv_transpose("weight", 28, 128, 64),
    _dense("data", 512, 768, 3072),
    _conv("data", 56, 64, 64),
    _conv("data", 14, 256, 256),
    _conv("data", 28, 128, 128, stride=2),
    _conv("data", 14, 256, 512, kernel=1, stride=2),
    _conv("data", 14, 512, 512, groups=32),
    _conv("data", 28, 128, 128, stride=2, groups=4),
    _depthwise("data", 28, 192),
    _depthwise("data", 56, 144, stride=2),
    _conv_transpose("data", 28, 128, 64),
    _rows("softmax", "d softmax", 1024, 1024),
    _rows("softmax", "d softmax", 4728, 197),
    _rows("layer_norm_data", "d data: layer norm", 1576, 384),
    _rows("layer_norm_scale", "d scale: layer norm", 1576, 384),
    _rows("batch_norm", "d data: batch norm", BATCH, 28, 128),
    _rows("max_pool_indices", "d max pool from indices", BATCH, 112, 64),
    _rows("max_pool_data", "d max pool from data", BATCH, 112, 64),
)
"""Gradients of layers of networks, of a batch: products over the batch, convolutions and their kinds, and the rest."""
