"""Branches and loops: what must be known when a model is read, and what is refused in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.graph.frontends.onnx.importer import UnsupportedModelError, import_model
from tests.autotune.graph.onnx_models import Array, evaluate_import, make_model

X = np.array([1.0, -2.0], np.float32)


def value(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2,)) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def doubling() -> Any:
    """A body that doubles its state and goes on while the first element is below 5."""
    nodes = [
        helper.make_node("Identity", ["going"], ["on"]),
        helper.make_node("Add", ["state", "state"], ["doubled"]),
    ]
    inputs = [value("step", TensorProto.INT64, ()), value("going", TensorProto.BOOL, ()), value("state")]
    return helper.make_graph(nodes, "body", inputs, [value("on", TensorProto.BOOL, ()), value("doubled")])


def loop(trips: int, constant_count: bool = True) -> tuple[Any, dict[str, Array]]:
    """A model of a loop, whose trip count is a constant or an input; its inputs."""
    count, going = np.array(trips, np.int64), np.array(True)
    inputs = {"x": X} if constant_count else {"x": X, "count": count}
    constants = {"going": going} | ({"count": count} if constant_count else {})
    return make_model("Loop", inputs, constants, order=["count", "going", "x"], body=doubling()), inputs


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_goes_round_as_often_as_it_says(trips: int) -> None:
    np.testing.assert_array_equal(evaluate_import(*loop(trips))[0], X * 2**trips)


def test_a_trip_count_must_be_known() -> None:
    with pytest.raises(UnsupportedModelError, match="must have a constant trip count, but got count"):
        import_model(loop(3, constant_count=False)[0])


def test_a_loop_that_is_unrolled_must_end_soon() -> None:
    with pytest.raises(UnsupportedModelError, match="must have at most 1024 steps where it is unrolled, but got 1025"):
        import_model(loop(1025)[0])


@pytest.mark.parametrize("op", ["NonZero", "Unique"])
def test_shapes_that_elements_say_are_refused(op: str) -> None:
    with pytest.raises(
        UnsupportedModelError, match=f"{op} node 'only' must read constants, as its elements say which shape"
    ):
        import_model(make_model(op, {"x": X}))
