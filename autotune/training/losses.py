"""Losses by name, as nodes of a graph; for modules of PyTorch, its own functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from autotune.graph.errors import GraphError
from autotune.graph.ir import GraphBuilder
from autotune.graph.types import TensorType

TARGETS = "targets"
"""Input of a training graph that a loss compares outputs with."""

NO_CLASS = -100
"""Target without a class: it has no loss, and does not count in the mean."""

AddLoss = Callable[[GraphBuilder, str], str]
"""Function of a builder and the output's name that adds a loss (1,), which reads `TARGETS`."""


def target_type(loss: str, output: TensorType) -> TensorType:
    """Returns the type of a loss's targets.

    Raises:
        GraphError: the output does not fit.
    """
    if loss == "mse":
        return output
    if len(output.shape) != 2:
        raise GraphError(f"the output of a model must be (rows, classes) for cross_entropy, but got {output}")
    return TensorType(output.shape[:1], "int64")


def _mean(builder: GraphBuilder, value: str) -> str:
    count = builder.type(value).size
    flat = builder.add("reshape", [value], shape=(1, count))
    total = builder.add("reduce", [flat], axes=(1,), reducer="sum")
    return builder.add("multiply", [total, builder.constant(np.asarray([1 / count], np.float32), "share")])


def _mean_squared_error(builder: GraphBuilder, output: str) -> str:
    difference = builder.add("subtract", [output, TARGETS])
    return _mean(builder, builder.add("multiply", [difference, difference]))


def _cross_entropy(builder: GraphBuilder, output: str) -> str:
    rows, classes = builder.type(output).shape
    logarithms = builder.add("log_softmax", [output])
    column = builder.add("reshape", [TARGETS], shape=(rows, 1))
    numbers = builder.constant(np.arange(classes, dtype=np.int64).reshape(1, classes), "classes")
    zero = builder.constant(np.asarray(0, np.float32), "zero")
    chosen = builder.add("where", [builder.add("equal", [column, numbers]), logarithms, zero])
    flat = builder.add("reshape", [chosen], shape=(1, rows * classes))
    total = builder.add("negative", [builder.add("reduce", [flat], axes=(1,), reducer="sum")])
    ignored = builder.add("equal", [TARGETS, builder.constant(np.asarray(NO_CLASS, np.int64), "ignored")])
    counts = builder.add("cast", [builder.add("logical_not", [ignored])], dtype="float32")
    row = builder.add("reshape", [counts], shape=(1, rows))
    return builder.add("divide", [total, builder.add("reduce", [row], axes=(1,), reducer="sum")])


LOSSES: Mapping[str, AddLoss] = {"cross_entropy": _cross_entropy, "mse": _mean_squared_error}
"""Losses by name: means over rows or elements, as `torch.nn.functional` has them by default."""
