"""Conversion of sparse tensors in ONNX models to dense ones, which all readers of models support."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.file import read_array
from autotune.graph.ir import Array, TensorType
from autotune.graph.limits import Budget


def make_dense(graph: onnx.GraphProto, budget: Budget | None = None) -> None:
    """Replaces the sparse tensors of a graph, and of the graphs in its nodes, by dense ones.

    Args:
        graph: graph to change.
        budget: budget of their bytes in total; None: a new one.

    Raises:
        UnsupportedModelError: tensors have too many bytes, or indices out of bounds.
    """
    budget = budget or Budget()
    for sparse in graph.sparse_initializer:
        graph.initializer.append(numpy_helper.from_array(_dense(sparse, budget), sparse.values.name))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for item in node.attribute:
            for inner in (*([item.g] if item.HasField("g") else []), *item.graphs):
                make_dense(inner, budget)
            if item.name == "sparse_value" and node.op_type == "Constant":
                value = numpy_helper.from_array(_dense(item.sparse_tensor, budget), node.output[0])
                item.CopyFrom(onnx.helper.make_attribute("value", value))


def _dense(sparse: onnx.SparseTensorProto, budget: Budget) -> Array:
    """Converts a sparse tensor, whose indices are flat numbers (n,) or positions (n, axes)."""
    name, shape = sparse.values.name, tuple(sparse.dims)
    values, indices = read_array(sparse.values), read_array(sparse.indices)
    budget.take(f"the sparse tensor {name!r}", TensorType(shape, str(values.dtype)))
    flat, columns = indices.ndim == 1, indices.reshape(len(indices), -1)
    extents = np.array([math.prod(shape)] if flat else shape)
    if columns.shape != (len(values), len(extents)) or not ((columns >= 0) & (columns < extents)).all():
        raise UnsupportedModelError(
            f"a sparse tensor must have an index within {list(shape)} for each value, but got {name!r} with others"
        )
    dense = np.zeros(shape, values.dtype)
    if flat:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(columns.T)] = values
    return dense
