"""Rows taken at computed places: every sketch on the CPU gives what NumPy gives, whatever the indices."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.ir import TensorType
from autotune.graph.ops import find
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry

CASES = [
    ((50, 48), (2, 10), 0, "int64"),
    ((50, 37), (3, 5), 0, "int32"),
    ((4, 33), (7,), 1, "int64"),
    ((3, 20, 6), (9,), 1, "int32"),
    ((40,), (17,), 0, "int64"),
    ((1, 16), (5, 1), 0, "int32"),
]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(("shape", "index_shape", "axis", "dtype"), CASES)
def test_every_sketch_is_numpys_take(
    shape: tuple[int, ...], index_shape: tuple[int, ...], axis: int, dtype: str, constant: bool
) -> None:
    operation, rng, target = find("gather"), np.random.default_rng(0), registry.get("cpu")
    types = [TensorType(shape), TensorType(index_shape, dtype)]
    attrs = operation.attributes({"axis": axis}, types)
    workload = Workload.of(operation.tensors(attrs, types, [constant, False]))
    data = rng.standard_normal(shape).astype(np.float32)
    inside = rng.integers(-shape[axis], shape[axis], index_shape).astype(dtype)
    wild = inside.copy()
    extremes = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, -shape[axis] - 1, shape[axis]], dtype)
    wild.reshape(-1)[:4] = extremes[: wild.size]
    np.testing.assert_array_equal(operation.evaluate(attrs, [data, inside]), np.take(data, inside, axis))
    for sketch in generate(workload, target.hardware).sketches:
        rows = [rng.integers(len(g.table), size=100) for g in sketch.groups]
        choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
        for choice in choices[sketch.legal(choices)][:3]:
            program = make_program(workload, sketch.algorithm, sketch.trace(choice))
            kernel = target.load(target.build(program))
            for indices in (inside, wild):
                expected = operation.evaluate(attrs, [data, indices])
                np.testing.assert_array_equal(workload.reference(data, indices), expected)
                np.testing.assert_array_equal(kernel.bind([data, indices]).run(), expected)


def test_out_of_bounds_goes_to_the_nearest_end() -> None:
    data, indices = np.arange(5, dtype=np.float32), np.array([-9, -5, -1, 4, 5, 99])
    found = find("gather").evaluate({"axis": 0}, [data, indices])
    np.testing.assert_array_equal(found, [0, 0, 4, 4, 4, 4])


@pytest.mark.parametrize(
    ("types", "attrs", "rule"),
    [
        ([TensorType((3, 4)), TensorType((2,), "int32")], {"axis": 2}, "`axis` must be one of 2, but got axis=2"),
        ([TensorType((3, 4)), TensorType((2,))], {"axis": 0}, "indices must be int32 or int64, but got float32"),
    ],
)
def test_bad_gathers(types: list[TensorType], attrs: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        find("gather").attributes(attrs, types)
