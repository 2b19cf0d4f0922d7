"""Means of windows before 1x1 convolutions: the same values, with fewer pixels to convolve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import optimise
from autotune.graph.passes.early_means import EarlyMeans
from autotune.graph.passes.site import pair


def transition(
    pool: dict[str, Any] | None = None, conv: dict[str, Any] | None = None, bias: bool = False, kernel: int = 1
) -> Graph:
    """A convolution to half of the channels, a bias where there is one, and means of windows."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("transition", {"x": TensorType((2, 9, 8, 64))})
    weight = builder.constant(rng.standard_normal((kernel, kernel, 64, 32)).astype(np.float32) / 8, "w")
    value = builder.add("conv2d", ["x", weight], "conv", **(conv or {}))
    if bias:
        value = builder.add("add", [builder.constant(rng.standard_normal(32).astype(np.float32), "b"), value])
    return builder.finish([builder.add("avg_pool2d", [value], "y", **(pool or {}))])


EXAMPLE = transition()


def order(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def exact(graph: Graph, x: np.ndarray) -> np.ndarray:
    """The values of a graph as it was, in float64."""
    values = x.astype(np.float64) @ graph.constants["w"][0, 0].astype(np.float64)
    values += next((array for array in graph.constants.values() if array.ndim == 1), 0.0)
    attrs = graph.nodes[-1].attrs
    (rows, columns), (down, right), (top, left) = (pair(attrs[name]) for name in ("kernel", "stride", "padding"))
    wide = np.pad(values, ((0, 0), (top, top), (left, left), (0, 0)), constant_values=np.nan)
    out = np.empty(graph.type("y").shape)
    for i, j in np.ndindex(out.shape[1:3]):
        window = wide[:, i * down : i * down + rows, j * right : j * right + columns]
        found = np.nansum(window, axis=(1, 2))
        out[:, i, j] = found / (rows * columns if attrs["count_padding"] else np.isfinite(window[0, ..., 0]).sum())
    return out


def error(graph: Graph, before: Graph) -> float:
    """Root mean square of the distance from the exact values, over the largest of these."""
    x = np.maximum(np.random.default_rng(1).standard_normal((2, 9, 8, 64)), 0).astype(np.float32)
    wanted = exact(before, x)
    return float(np.sqrt(np.square(evaluate(graph, {"x": x})[graph.outputs[0]] - wanted).mean()) / np.abs(wanted).max())


@pytest.mark.parametrize(
    ("pool", "bias"),
    [
        ({}, False),
        ({}, True),
        ({"kernel": (3, 2), "stride": (3, 2), "padding": (1, 0)}, True),
        ({"kernel": 3, "stride": 2, "padding": 1, "count_padding": True}, False),
    ],
)
def test_a_mean_comes_first(pool: dict[str, Any], bias: bool) -> None:
    graph = transition(pool, bias=bias)
    early = EarlyMeans()(graph)
    assert order(early) == ["avg_pool2d", "conv2d", *(["add"] if bias else [])]
    assert early.type(early.outputs[0]) == graph.type("y")
    assert error(early, graph) < 2.5 * error(graph, graph) < 1e-6  # it is that of a convolution's own sum
    assert order(optimise(early)) == order(early)


@pytest.mark.parametrize(
    ("pool", "conv", "options"),
    [
        ({"stride": 1}, {}, {}),  # as many pixels as before
        ({"kernel": 3, "stride": 2, "padding": 1, "count_padding": True}, {}, {"bias": True}),  # no padding has a bias
        ({}, {"padding": 1}, {}),
        ({}, {"stride": 2}, {}),
        ({}, {"padding": 1}, {"kernel": 3}),
    ],
)
def test_it_stays_where_it_is(pool: dict[str, Any], conv: dict[str, Any], options: dict[str, Any]) -> None:
    graph = transition(pool, conv, **options)
    assert order(EarlyMeans()(graph)) == order(graph)


def test_it_stays_where_others_read_the_convolution() -> None:
    graph = transition()
    both = Graph(graph.name, graph.inputs, graph.constants, graph.nodes, ("y", "conv"))
    assert order(EarlyMeans()(both)) == order(both)
