"""Gradients of filters: NumPy's sum over windows, by every sketch, in groups and with strides; what is refused."""

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

PLAIN: dict[str, Any] = {"kernel": 3, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}


@pytest.mark.parametrize(
    ("data", "slope", "attrs", "dtype"),
    [
        ((2, 6, 5, 4), (2, 6, 5, 18), {"padding": 1, "groups": 2}, "float32"),
        ((1, 7, 8, 20), (1, 4, 4, 20), {"padding": 1, "stride": 2, "groups": 20}, "float32"),
        ((2, 9, 6), (2, 5, 3), {"kernel": 3, "dilation": 2, "groups": 3}, "float32"),
        ((2, 4, 4, 4), (2, 2, 2, 8), {"groups": 4}, "bfloat16"),
        ((4, 6, 5, 4), (4, 6, 5, 18), {"padding": 1, "parts": (2, 3)}, "float32"),
    ],
)
def test_every_sketch_is_the_sum_over_windows(
    data: tuple[int, ...], slope: tuple[int, ...], attrs: dict[str, Any], dtype: str
) -> None:
    operation, target = find("conv_filters"), registry.get("cpu")
    types = [TensorType(data, dtype), TensorType(slope, dtype)]
    rank = len(data) - 2
    spread = {
        name: (value,) * rank if name in PLAIN and name != "groups" else value
        for name, value in {**PLAIN, **attrs}.items()
    }
    checked = operation.attributes(spread, types)
    workload = Workload.of(operation.tensors(checked, types))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in (data, slope)]
    expected = operation.evaluate(checked, arrays)
    assert expected.shape == (*checked["parts"], *checked["kernel"], data[-1] // checked["groups"], slope[-1])
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    wanted = expected.astype(np.float32)
    reference = workload.reference(*arrays).astype(np.float32)
    np.testing.assert_allclose(reference, wanted, rtol=tolerance, atol=tolerance)
    for sketch in generate(workload, target.hardware).sketches[:3]:
        row = candidates.legal(sketch, 1)[0]
        kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))
        found = kernel.bind(arrays).run().astype(np.float32)
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("data", "slope", "changes", "rule"),
    [
        (TensorType((1, 5, 5, 4)), TensorType((1, 4, 3, 4)), {}, r"slopes must be of \[1, 3, 3\] windows"),
        (TensorType((1, 5, 5, 4)), TensorType((1, 3, 3, 4)), {"groups": 3}, "`groups` must divide channels"),
        (TensorType((2, 5, 4)), TensorType((2, 3, 4)), {"parts": (2, 2)}, r"`parts` must divide \[2, 3\]"),
        (TensorType((5, 4)), TensorType((3, 4)), {}, "data and slopes must be floats"),
        (TensorType((1, 5, 4), "int32"), TensorType((1, 3, 4), "int32"), {}, "data and slopes must be floats"),
        (TensorType((1, 2, 2, 4)), TensorType((1, 1, 1, 4)), {}, "`kernel` must fit the padded"),
    ],
)
def test_what_is_no_gradient_of_filters(
    data: TensorType, slope: TensorType, changes: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        find("conv_filters").attributes(PLAIN | changes, [data, slope])
