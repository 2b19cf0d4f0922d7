"""Layers of a graph take their sizes from the types of their inputs, whatever their rank."""

from __future__ import annotations

import pytest

from autotune.graph.ops import find
from autotune.graph.types import TensorType


@pytest.mark.parametrize(
    ("op", "shapes", "output"),
    [
        ("conv1d", [(2, 7, 4), (3, 2, 6)], (2, 5, 6)),
        ("conv2d", [(2, 7, 8, 4), (3, 2, 2, 6)], (2, 5, 7, 6)),
        ("conv3d", [(2, 5, 7, 8, 4), (1, 3, 2, 2, 6)], (2, 5, 5, 7, 6)),
    ],
)
def test_convolutions_of_each_rank(op: str, shapes: list[tuple[int, ...]], output: tuple[int, ...]) -> None:
    operation, types = find(op), [TensorType(shape) for shape in shapes]
    attrs = operation.attributes({"groups": 2}, types)
    assert operation.infer(attrs, types) == TensorType(output)
    assert operation.anchor(attrs, types, [False, True]).args["constant_weight"] is True
    with pytest.raises(ValueError, match=f"the second input must have {len(shapes[1])} dimensions, but got"):
        operation.infer(attrs, [types[0], TensorType(shapes[1][1:])])
    with pytest.raises(ValueError, match=f"the first input must have {len(shapes[0])} dimensions, but got"):
        operation.infer(attrs, [TensorType(shapes[0][1:]), types[1]])


def test_a_depthwise_weight_has_no_input_channels() -> None:
    operation, types = find("depthwise_conv2d"), [TensorType((2, 7, 8, 4)), TensorType((3, 2, 4))]
    assert operation.infer(operation.attributes({}, types), types) == TensorType((2, 5, 7, 4))
    with pytest.raises(ValueError, match="the second input must have 3 dimensions, but got"):
        operation.infer(operation.attributes({}, types), [types[0], TensorType((3, 2, 1, 4))])
