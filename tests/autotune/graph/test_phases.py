"""Gradients of data where windows stride: slopes put where their windows lie, by every sketch; what is refused."""

from __future__ import annotations

from itertools import product
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

Sizes = tuple[int, ...]


def scatter(slope: np.ndarray, weight: np.ndarray, extent: Sizes, stride: Sizes, padding: Sizes) -> np.ndarray:
    """Each slope (batch, window..., groups, outputs) times its filter (kernel..., groups, outputs, depth), added up."""
    room = [n + 2 * p + s + k for n, p, s, k in zip(extent, padding, stride, weight.shape, strict=False)]
    found = np.zeros((slope.shape[0], *room, weight.shape[-3], weight.shape[-1]))
    for window in product(*map(range, slope.shape[1:-2])):
        for tap in product(*map(range, weight.shape[:-3])):
            place = tuple(w * s + t for w, s, t in zip(window, stride, tap, strict=True))
            given = slope[(slice(None), *window)]
            found[(slice(None), *place)] += np.einsum("ngk,gkc->ngc", given, weight[tap])
    cut = [slice(p, p + n) for n, p in zip(extent, padding, strict=True)]
    found = found[(slice(None), *cut)]
    return found.reshape(*found.shape[:-2], -1)


@pytest.mark.parametrize(
    ("extent", "kernel", "stride", "padding", "groups", "width", "depth", "dtype"),
    [
        ((8, 8), (3, 3), (2, 2), (1, 1), 20, 1, 1, "float32"),
        ((7, 9), (5, 3), (2, 2), (2, 0), 6, 1, 1, "float32"),
        ((9, 8), (3, 3), (3, 2), (0, 1), 2, 3, 5, "float32"),
        ((7,), (2,), (3,), (0,), 3, 2, 1, "float32"),  # no window reaches every third element
        ((10,), (3,), (2,), (5,), 4, 1, 2, "float32"),  # whole windows lie in the padding
        ((6, 6), (3, 3), (2, 2), (1, 1), 4, 1, 1, "bfloat16"),
    ],
)
def test_every_sketch_puts_slopes_where_windows_lie(
    extent: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, groups: int, width: int, depth: int, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    counts = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(extent, padding, kernel, stride, strict=True)]
    slope = rng.standard_normal((2, *counts, groups * width)).astype(numpy_dtype(dtype))
    weight = rng.standard_normal((*kernel, groups, width, depth)).astype(numpy_dtype(dtype))
    wanted = scatter(
        slope.astype(np.float64).reshape(2, *counts, groups, width), weight.astype(np.float64), extent, stride, padding
    )
    filters = np.moveaxis(weight, -3, -2).reshape(*kernel, width, groups * depth)
    filters = np.pad(filters, [(0, -k % s) for k, s in zip(kernel, stride, strict=True)] + [(0, 0)] * 2)
    parts = [n for k, s in zip(kernel, stride, strict=True) for n in (-(-k // s), s)]
    arrays = [slope, filters.reshape(*parts, width, groups * depth)]

    operation, target = find("conv_phases"), registry.get("cpu")
    types = [TensorType(array.shape, dtype) for array in arrays]
    given = {"extent": extent, "kernel": kernel, "stride": stride, "padding": padding, "groups": groups}
    checked = operation.attributes(given, types)
    workload = Workload.of(operation.tensors(checked, types))
    tolerance = 1e-4 if dtype == "float32" else 3e-2

    def agrees(actual: np.ndarray) -> None:
        whole = [-(-n // s) * s for n, s in zip(extent, stride, strict=True)]
        within = tuple(slice(n) for n in extent)
        actual = actual.astype(np.float32).reshape(2, *whole, groups * depth)[(slice(None), *within)]
        np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance * 5)

    agrees(operation.evaluate(checked, arrays))
    agrees(workload.reference(*arrays))
    for sketch in generate(workload, target.hardware).sketches[:3]:
        row = candidates.legal(sketch, 1)[0]
        kernel_of = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))
        agrees(kernel_of.bind(arrays).run())


@pytest.mark.parametrize(
    ("slope", "filters", "changes", "rule"),
    [
        (TensorType((1, 3, 4), "int32"), TensorType((2, 2, 1, 4), "int32"), {}, "slopes and filters must be floats"),
        (TensorType((1, 3, 4)), TensorType((2, 1, 4)), {}, "filters must be .parts, stride of each axis"),
        (TensorType((1, 3, 4)), TensorType((2, 2, 1, 4)), {"groups": 3}, "`groups` must divide channels"),
        (TensorType((1, 3, 4)), TensorType((2, 2, 2, 4)), {}, "`groups` must divide channels"),
        (TensorType((1, 3, 4)), TensorType((2, 3, 1, 4)), {}, r"a part for each phase of stride=\(2,\)"),
        (TensorType((1, 3, 4)), TensorType((1, 2, 1, 4)), {}, r"all taps of kernel=\(3,\)"),
    ],
)
def test_what_are_no_phases(slope: TensorType, filters: TensorType, changes: dict[str, Any], rule: str) -> None:
    given = {"extent": (6,), "kernel": (3,), "stride": (2,), "padding": (1,), "groups": 4} | changes
    with pytest.raises(ValueError, match=rule):
        find("conv_phases").attributes(given, [slope, filters])


def test_infinite_slopes_meet_no_taps_that_filters_lack() -> None:
    operation = find("conv_phases")
    slope, filters = np.full((1, 3, 4), np.inf, np.float32), np.ones((2, 2, 1, 4), np.float32)
    filters[1, 1] = 0
    types = [TensorType(array.shape) for array in (slope, filters)]
    given = {"extent": (5,), "kernel": (3,), "stride": (2,), "padding": (0,), "groups": 4}
    checked = operation.attributes(given, types)
    workload = Workload.of(operation.tensors(checked, types))
    for found in (operation.evaluate(checked, [slope, filters]), workload.reference(slope, filters)):
        assert np.isposinf(found.reshape(1, 6, 4)[:, :5]).all()
