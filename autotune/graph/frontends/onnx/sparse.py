"""Sparse tensors of ONNX models as dense ones, which all that reads models knows."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

from autotune.graph.errors import ModelError
from autotune.graph.frontends.onnx.file import array_of
from autotune.graph.ir import Array, TensorType
from autotune.graph.limits import Budget


def make_dense(graph: onnx.GraphProto, budget: Budget | None = None) -> None:
    """Puts dense tensors in place of a graph's sparse ones, and of those in the graphs within its nodes.

    Args:
        graph: is changed.
        budget: of the bytes that they take together; by default one of its own.

    Raises:
        ModelError: tensors of too many bytes, or with indices that are not within them.
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
    """Elements of a sparse tensor, whose indices are numbers in the flat tensor (n,) or places in it (n, axes)."""
    name, shape = sparse.values.name, tuple(sparse.dims)
    values, places = array_of(sparse.values), array_of(sparse.indices)
    budget.take(f"the sparse tensor {name!r}", TensorType(shape, str(values.dtype)))
    flat, columns = places.ndim == 1, places.reshape(len(places), -1)
    extents = np.array([math.prod(shape)] if flat else shape)
    if columns.shape != (len(values), len(extents)) or not ((columns >= 0) & (columns < extents)).all():
        raise ModelError(
            f"a sparse tensor must have an index within {list(shape)} for each value, but got {name!r} with others"
        )
    found = np.zeros(shape, values.dtype)
    if flat:
        found.reshape(-1)[places] = values
    else:
        found[tuple(columns.T)] = values
    return found
