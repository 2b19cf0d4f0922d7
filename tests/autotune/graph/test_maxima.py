"""Indices of maxima and their gradients: NumPy's by every sketch, in both element types; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.graph.ops import find
from autotune.graph.types import TensorType
from search_space.dtypes import numpy_dtype
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.gpu import candidates

WINDOW: dict[str, Any] = {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}
DATA, COUNT = (2, 7, 6, 18), (2, 4, 4, 18)


def every_sketch(name: str, attrs: dict[str, Any], arrays: list[Any]) -> list[Any]:
    """Results of NumPy's evaluation, of the expression, and of a kernel of each of the first sketches."""
    operation, target = find(name), registry.get("cpu")
    types = [TensorType(array.shape, str(array.dtype)) for array in arrays]
    checked = operation.attributes(attrs, types)
    workload = Workload.of(operation.tensors(checked, types))
    found = [operation.evaluate(checked, arrays), workload.reference(*arrays)]
    for sketch in generate(workload, target.hardware).sketches[:3]:
        row = candidates.legal(sketch, 1)[0]
        kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))
        found.append(kernel.bind(arrays).run())
    return found


@pytest.mark.parametrize(("dtype", "best_dtype"), [("float32",) * 2, ("bfloat16",) * 2, ("bfloat16", "float32")])
def test_the_first_maximum_and_the_last_nan(dtype: str, best_dtype: str) -> None:
    data = np.random.default_rng(0).integers(-2, 2, DATA).astype(numpy_dtype(dtype))
    data[0, :3, :3], data[1, 2:5] = np.nan, -np.inf
    padded = np.pad(data.astype(np.float32), ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=-np.inf)
    best, index = np.empty(COUNT, np.float32), np.empty(COUNT, np.int32)
    for y, x in np.ndindex(COUNT[1:3]):
        rows, columns = [2 * y + t for t in range(3)], [x, x + 2]
        part = padded[:, rows][:, :, columns].reshape(2, 6, 18)
        best[:, y, x] = part.max(1)
        nan = np.isnan(part)
        chosen = np.where(nan.any(1), 5 - nan[:, ::-1].argmax(1), (part == best[:, None, y, x]).argmax(1))
        places = np.array([np.clip(row - 1, 0, 6) * 6 + column for row in rows for column in columns])
        index[:, y, x] = places[chosen]
    for found in every_sketch("window_argmax", WINDOW, [data, best.astype(numpy_dtype(best_dtype))]):
        np.testing.assert_array_equal(found, index)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_go_to_the_elements_that_windows_name(dtype: str) -> None:
    rng = np.random.default_rng(0)
    slope = rng.integers(-8, 8, COUNT).astype(numpy_dtype(dtype))
    y, x = (np.arange(4).reshape(shape) for shape in ((1, 4, 1, 1), (1, 1, 4, 1)))
    rows = np.clip(2 * y - 1 + rng.integers(3, size=COUNT), 0, 6)
    columns = x + 2 * rng.integers(2, size=COUNT)
    wanted = np.zeros((2, 8, 6, 18), np.float32)
    sample, _, _, channel = np.indices(COUNT)
    np.add.at(wanted, (sample, rows, columns, channel), slope.astype(np.float32))
    indices = (rows * 6 + columns).astype(np.int32)
    for found in every_sketch("maxima_gradient", {**WINDOW, "extent": (7, 6)}, [slope, indices]):
        np.testing.assert_array_equal(found.astype(np.float32).reshape(wanted.shape), wanted)


def test_what_is_refused() -> None:
    data, best = TensorType(DATA), TensorType(COUNT)
    with pytest.raises(ValueError, match="data and maxima must be floats"):
        find("window_argmax").attributes(WINDOW, [data, TensorType(COUNT, "int32")])
    with pytest.raises(ValueError, match=r"maxima must be of shape \[2, 4, 4, 18\]"):
        find("window_argmax").attributes(WINDOW, [data, data])
    with pytest.raises(ValueError, match="slopes must be floats with an int32 index"):
        find("maxima_gradient").attributes({**WINDOW, "extent": (7, 6)}, [best, best])
    with pytest.raises(ValueError, match="numbers for two axes"):
        find("maxima_gradient").attributes({**WINDOW, "extent": (7,)}, [best, TensorType(COUNT, "int32")])
