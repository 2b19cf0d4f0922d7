"""Tasks of a network: its distinct convolutions and dense layers, and how often each occurs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from autotune.graph.onnx_model import ModelError, constants, shapes
from autotune.task import Task
from search_space import workloads
from search_space.workloads import Workload

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Node:
    """A node with what is known of its operands."""

    op: str
    name: str
    attributes: Mapping[str, Any]
    shapes: tuple[Shape, ...]
    constant: tuple[bool, ...]

    @property
    def has_bias(self) -> bool:
        return len(self.shapes) > 2

    def require(self, holds: bool, rule: str, value: object) -> None:
        """Raises a ModelError that states the rule and the value unless it holds."""
        if not holds:
            raise ModelError(f"{self.op} node {self.name!r} {rule}, but got {value}")


def extract(model: onnx.ModelProto) -> list[Task]:
    """The distinct Conv, Gemm and MatMul nodes of a model, in the order of their first occurrence.

    Names say window, input size, channels and stride: `conv3x3_56x56_64_64_s1`. A task's weight is the number
    of nodes that compute it.

    A Conv of one channel a group becomes a depthwise convolution. A product of two activations with leading
    batch dimensions (attention scores) is left out. Nothing is fused: what follows a layer is no part of
    its task.

    Args:
        model: as `load_model` gives it, shapes inferred.

    Raises:
        ModelError: a layer whose shape is unknown or which no workload describes.
    """
    known, fixed = shapes(model), constants(model)
    found: dict[str, tuple[str, Workload, int]] = {}
    for node in model.graph.node:
        reader = _READERS.get(node.op_type)
        if reader is None or node.domain not in ("", "ai.onnx"):
            continue
        named = reader(_operands(node, known, fixed))
        if named is not None:
            name, workload = named
            count = found[workload.key][2] if workload.key in found else 0
            found[workload.key] = (name, workload, count + 1)
    return _uniquely_named([Task(*entry) for entry in found.values()])


def _operands(node: onnx.NodeProto, known: Mapping[str, Shape], fixed: set[str]) -> _Node:
    inputs = [name for name in node.input if name]
    missing = [name for name in inputs if name not in known]
    title = node.name or node.output[0]
    if missing:
        raise ModelError(
            f"inputs of {node.op_type} node {title!r} must have a shape that can be inferred, but got {missing[0]}=?"
        )
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    return _Node(
        node.op_type,
        title,
        attributes,
        tuple(known[name] for name in inputs),
        tuple(name in fixed for name in inputs),
    )


def _conv(node: _Node) -> tuple[str, Workload]:
    data, weight = node.shapes[:2]
    node.require(len(data) == 4, "must be two-dimensional, (N, C, H, W)", f"input shape={data}")
    batch, channels, height, width = data
    out_channels, _, *kernel = weight
    groups = int(node.attributes.get("group", 1))
    stride = tuple(node.attributes.get("strides", (1, 1)))
    dilation = tuple(node.attributes.get("dilations", (1, 1)))
    padding = _padding(node, (height, width), tuple(kernel), stride, dilation)
    common: dict[str, Any] = {
        "batch": batch,
        "height": height,
        "width": width,
        "kernel": _pair(tuple(kernel)),
    }
    common |= {"stride": _pair(stride), "padding": _pair(padding), "dilation": _pair(dilation)}
    common |= {"bias": node.has_bias}
    depthwise = groups == channels == out_channels and groups > 1
    if depthwise:
        workload = workloads.depthwise_conv2d(channels=channels, **common)
    else:
        workload = workloads.conv2d(
            in_channels=channels,
            out_channels=out_channels,
            groups=groups,
            **common,
        )
    size = f"{_by(kernel)}_{height}x{width}"
    name = f"depthwise{size}_{channels}" if depthwise else f"conv{size}_{channels}_{out_channels}"
    name += f"_s{_short(stride)}"
    same = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
    parts = [
        f"_p{_short(padding)}" if padding != same else "",
        f"_d{_short(dilation)}" if dilation != (1, 1) else "",
        f"_g{groups}" if groups > 1 and not depthwise else "",
    ]
    return name + "".join(parts), workload


def _padding(node: _Node, size: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> Shape:
    """Padding of height and width, the same before and after."""
    kind = node.attributes.get("auto_pad", b"NOTSET")
    if kind in (b"SAME_UPPER", b"SAME_LOWER"):
        total = [
            max(0, (math.ceil(n / s) - 1) * s + d * (k - 1) + 1 - n)
            for n, k, s, d in zip(size, kernel, stride, dilation, strict=True)
        ]
        node.require(
            all(t % 2 == 0 for t in total),
            "must be padded alike before and after",
            f"auto_pad={kind.decode()}, total={total}",
        )
        return tuple(t // 2 for t in total)
    pads = (0, 0, 0, 0) if kind == b"VALID" else tuple(node.attributes.get("pads", (0, 0, 0, 0)))
    node.require(pads[:2] == pads[2:], "must be padded alike before and after", f"pads={list(pads)}")
    return pads[:2]


def _gemm(node: _Node) -> tuple[str, Workload]:
    node.require(not node.attributes.get("transA", 0), "must not transpose its first operand", "transA=1")
    for factor in ("alpha", "beta"):
        value = node.attributes.get(factor, 1.0)
        node.require(value == 1.0, f"must have {factor}=1", f"{factor}={value}")
    (rows, depth), weight = node.shapes[:2]
    columns = weight[0] if node.attributes.get("transB", 0) else weight[1]
    if node.has_bias:
        node.require(
            node.shapes[2] in ((columns,), (1, columns)),
            f"must add {columns} values a row",
            f"shape={node.shapes[2]}",
        )
    return _product(node, rows, depth, columns)


def _matmul(node: _Node) -> tuple[str, Workload] | None:
    left, right = node.shapes[:2]
    if len(left) < 2 or len(right) != 2:
        return None
    return _product(node, math.prod(left[:-1]), left[-1], right[1])


def _product(node: _Node, rows: int, depth: int, columns: int) -> tuple[str, Workload]:
    if node.constant[1]:
        bias = node.has_bias
        return f"dense_{rows}_{depth}_{columns}", workloads.dense(rows, depth, columns, bias=bias)
    return f"matmul_{rows}_{columns}_{depth}", workloads.matmul(rows, columns, depth, constant_b=False)


_READERS: dict[str, Callable[[_Node], tuple[str, Workload] | None]] = {
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
}


def _uniquely_named(tasks: list[Task]) -> list[Task]:
    """Appends `_2`, `_3`, ... where tasks differ in what their name does not say, such as a bias."""
    seen: dict[str, int] = {}
    named = []
    for task in tasks:
        seen[task.name] = seen.get(task.name, 0) + 1
        suffix = f"_{seen[task.name]}" if seen[task.name] > 1 else ""
        named.append(Task(task.name + suffix, task.workload, task.weight))
    return named


def _pair(values: Shape) -> tuple[int, int]:
    first, second = values
    return first, second


def _short(pair: Shape) -> str:
    return str(pair[0]) if pair[0] == pair[1] else _by(pair)


def _by(pair: Shape | list[int]) -> str:
    return "x".join(map(str, pair))
