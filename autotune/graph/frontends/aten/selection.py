"""Elements at constant or computed indices, and constant tensors."""

from __future__ import annotations

import math

import numpy as np
from torch.fx import Node

from autotune.graph.frontends.aten.registry import AtenCall, converts
from autotune.graph.frontends.onnx.importer import gather_scatter, selection
from autotune.graph.frontends.onnx.importer.selection import take_places
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import BOOL


@converts("embedding.default")
def embedding(call: AtenCall) -> str:
    """Gathers rows of a table."""
    call.require_inside(call["indices"], call.type(0).shape[0])
    return selection.gather(call.shared("Gather", call.inputs[:2], axis=0))


@converts("index_select.default")
def index_select(call: AtenCall) -> str:
    """Gathers indices of an axis."""
    call.require_inside(call["index"], call.type(0).shape[call.axis()])
    return selection.gather(call.shared("Gather", [call.inputs[0], call.inputs[2]], axis=call.axis()))


@converts("gather.default")
def gather(call: AtenCall) -> str:
    """Computes out[i, j] = x[index[i, j], j] for axis 0; the index may be smaller than x on other axes."""
    shape, wanted, axis = call.type(0).shape, call.type(2).shape, call.axis()
    call.require_inside(call["index"], shape[axis])
    same = all(n == m for a, (n, m) in enumerate(zip(shape, wanted, strict=True)) if a != axis)
    call.require(same, f"must have an index that fits {list(shape)} but for axis {axis}", list(wanted))
    return gather_scatter.gather_elements(call.shared("GatherElements", [call.inputs[0], call.inputs[2]], axis=axis))


@converts("scatter.value")
def scatter_number(call: AtenCall) -> str:
    """Writes a number at one index along an axis, for all indices of the other axes."""
    value, axis, index = call.operand(0, call.compute_dtype), call.axis(), call.value(2)
    shape = call.shape(value)
    wanted = tuple(1 if a == axis else n for a, n in enumerate(shape))
    call.require(call.shape(index) == wanted, f"must have an index of {list(wanted)}", list(call.shape(index)))
    call.require_inside(call["index"], shape[axis])
    numbers = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    places = call.constant(numbers.astype(numpy_dtype(call.context.builder.type(index).dtype)))
    return call.add("where", [call.add("equal", [index, places]), call.operand(3, call.compute_dtype), value])


@converts("index.Tensor", "_unsafe_index.Tensor")
def index_axes(call: AtenCall) -> str:
    """Indexes adjacent axes by indices that broadcast against each other, or one axis."""
    value, shape = call.value(0), call.type(0).shape
    index_nodes = {axis: node for axis, node in enumerate(call["indices"]) if isinstance(node, Node)}
    axes = list(index_nodes)
    call.require(axes == list(range(axes[0], axes[-1] + 1)), "must index axes that stand together", f"axes={axes}")
    arrays = {axis: call.context.arrays.get(node.name) for axis, node in index_nodes.items()}
    masks = [axis for axis, node in index_nodes.items() if node.meta["val"].dtype.itemsize == 1]
    call.require(not masks, "must index by numbers", "truth values")
    if call.op == "index.Tensor":
        for axis, node in index_nodes.items():
            call.require_inside(node, shape[axis], negative=True)
    if len(axes) == 1:
        (axis,) = axes
        array = arrays[axis]
        if array is None:
            return call.add("gather", [value, call.context.value(index_nodes[axis].name)], axis=axis)
        return take_places(call, value, np.where(array < 0, array + shape[axis], array), axis)
    if all(array is not None for array in arrays.values()) and (apart := _gather_each_axis(call, value, arrays)):
        return apart
    return _together(call, value, index_nodes)


def _gather_each_axis(call: AtenCall, value: str, indices: dict[int, np.ndarray | None]) -> str:
    """Gathers axis by axis if each index varies along an axis of its own, as row and column indices do."""
    wanted = len(indices)
    final = np.broadcast_shapes(*(array.shape for array in indices.values() if array is not None))
    if len(final) != wanted:
        return ""
    for place, (axis, array) in enumerate(indices.items()):
        assert array is not None
        full = (1,) * (wanted - array.ndim) + array.shape
        if any(n != 1 for p, n in enumerate(full) if p != place) or full[place] != final[place]:
            return ""
        extent = call.shape(value)[axis]
        flat = array.reshape(-1)
        value = take_places(call, value, np.where(flat < 0, flat + extent, flat), axis)
    return value


def _together(call: AtenCall, value: str, indices: dict[int, Node]) -> str:
    """Gathers by flat indices of several axes merged into one."""
    shape, axes = call.shape(value), list(indices)
    rows = ""
    for axis in axes:
        index = call.cast(call.context.value(indices[axis].name), "int32")
        negative = call.add("less", [index, call.number(0, "int32")])
        wrapped = call.add("add", [index, call.number(shape[axis], "int32")])
        index = call.add("where", [negative, wrapped, index])
        if rows:
            rows = call.add("multiply", [rows, call.number(shape[axis], "int32")])
        rows = call.add("add", [rows, index]) if rows else index
    merged = (*shape[: axes[0]], math.prod(shape[a] for a in axes), *shape[axes[-1] + 1 :])
    return call.add("gather", [call.reshape(value, merged), rows], axis=axes[0])


@converts("full_like.default", "new_full.default", "zeros_like.default", "ones_like.default", "fill.Scalar")
@converts("new_zeros.default", "new_ones.default", "scalar_tensor.default")
def fill(call: AtenCall) -> str:
    """Fills a tensor with one number."""
    name = call.op.partition(".")[0]
    number = call.arguments.get("fill_value", call.arguments.get("value", 1 if "ones" in name else 0))
    kind = call.result
    array = np.full((1,) * len(kind.shape), number).astype(numpy_dtype(kind.dtype))
    full = np.broadcast_to(array, kind.shape)
    call.context.arrays[call.title] = full
    return call.context.builder.constant(full, call.title)


@converts("tril.default", "triu.default")
def triangle(call: AtenCall) -> str:
    """Zeroes the elements on one side of a diagonal."""
    shape, side = call.type(0).shape, np.tril if call.op.startswith("tril") else np.triu
    kept = call.constant(side(np.ones(shape[-2:], bool), int(call["diagonal"])))
    if call.type(0).dtype == BOOL:
        return call.add("logical_and", [call.value(0), kept])
    return call.add("where", [kept, call.operand(0, call.compute_dtype), call.number(0, call.compute_dtype)])


@converts("select_scatter.default", "slice_scatter.default")
def replace_indices(call: AtenCall) -> str:
    """Replaces adjacent indices of an axis by other elements."""
    value, axis = call.value(0), call.axis()
    extent = call.shape(value)[axis]
    more = call.value(1)
    if call.op.startswith("select"):
        chosen = range(call["index"] % extent, call["index"] % extent + 1)
        more = call.reshape(more, tuple(1 if a == axis else n for a, n in enumerate(call.shape(value))))
    else:
        chosen = range(extent)[slice(call["start"], call["end"], call["step"])]
    call.require(chosen.step == 1, "must be places side by side", f"step={chosen.step}")
    shape = call.shape(value)
    ends = []
    for begin, end in ((0, chosen.start), (chosen.stop, extent)):
        if end > begin:
            at = tuple(begin if a == axis else 0 for a in range(len(shape)))
            size = tuple(end - begin if a == axis else n for a, n in enumerate(shape))
            ends.append(call.add("slice", [value], begin=at, size=size))
        else:
            ends.append("")
    parts = [part for part in (ends[0], more, ends[1]) if part]
    return parts[0] if len(parts) == 1 else call.add("concat", parts, axis=axis)
