"""Images of another size: what is imported is what ONNX computes, and every sketch on the CPU is what NumPy gives."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import UnsupportedModelError, import_model
from autotune.graph.frontends.onnx.importer.interpolation import ROUNDINGS, TRANSFORMATIONS, Axis, InterpolationKernel
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import TensorType
from autotune.graph.ops import find
from autotune.graph.passes import optimise
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.graph.onnx_models import Array, assert_close, evaluate_import, reference, runtime

EXTENTS = st.integers(1, 7)


def make_resize(shape: tuple[int, ...], dtype: str = "float32", **options: Any) -> onnx.ModelProto:
    """`Resize` of an input; `roi`, `scales` and `sizes` are constants, the rest attributes."""
    inputs = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    names = [name if name in options else "" for name in inputs]
    constants = [numpy_helper.from_array(np.asarray(options.pop(n), inputs[n]), n) for n in names if n]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", *names], ["y"], name="only", **options)],
        "resize",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_empty_tensor_value_info("y")],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@given(
    shape=st.tuples(st.integers(1, 3), EXTENTS, EXTENTS, EXTENTS),
    sizes=st.tuples(EXTENTS, EXTENTS),
    mode=st.sampled_from(["linear", "cubic", "nearest"]),
    how=st.sampled_from(TRANSFORMATIONS),
    coefficient=st.sampled_from([-0.75, -0.5]),
    flags=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_resize_is_what_onnx_computes(
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    mode: str,
    how: str,
    coefficient: float,
    flags: tuple[bool, bool],
    seed: int,
) -> None:
    assume(how != "pytorch_half_pixel" or min(sizes) > 1)  # ONNX's evaluator does not take 0, which ONNX states
    assume(mode != "nearest" or how == "tf_crop_and_resize")  # the others have ties; ONNX Runtime judges them
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": how, "cubic_coeff_a": coefficient}
    attrs |= {"extrapolation_value": 2.5, "axes": [2, 3], "sizes": sizes}
    attrs["exclude_outside"], attrs["antialias"] = (flag and mode != "nearest" for flag in flags)
    if how == "tf_crop_and_resize":
        attrs["roi"] = [0.13, -0.11, 0.87, 1.07]
    model = make_resize(shape, **attrs)
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    assert_close(evaluate_import(with_shapes(model), {"x": x}), reference(model, {"x": x}), 1e-5, 1.0)


@given(
    extent=st.integers(1, 12),
    size=st.integers(1, 12),
    how=st.sampled_from(TRANSFORMATIONS),
    kernel=st.builds(
        InterpolationKernel,
        st.booleans(),
        st.sampled_from([-0.75, -0.5]),
        antialias=st.booleans(),
        exclude_outside=st.booleans(),
    ),
)
def test_a_constant_stays_what_it_is(extent: int, size: int, how: str, kernel: InterpolationKernel) -> None:
    first, weights = kernel.taps(Axis(extent, size, size / extent, how, (0.1, 0.8)))
    assert first.shape == (size,)
    assert weights.shape[0] == size
    assert first.min() >= 0
    assert first.max() + weights.shape[1] <= extent
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-6)


SCALES = ((3, 1.5), (5, 1.5), (10, 1.25), (7, 1.7), (5, 2.5), (7, 0.75), (10, 3.4), (10, 0.3))
SIZES = ((10, 6), (7, 3), (3, 13), (4, 1), (5, 7))


def test_sizes_by_scales_are_those_that_onnx_infers() -> None:
    """The float32 of 3.3 is less than 3.3: of 10 elements there are 32, and 33 in ONNX Runtime, which warns of it."""
    model = with_shapes(make_resize((1, 1, 10), mode="nearest", scales=[3.3], axes=[2]))
    (dims,) = [value.type.tensor_type.shape.dim for value in model.graph.output]
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 10)
    assert dims[2].dim_value == evaluate_import(model, {"x": x})[0].shape[2] == 32


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("how", [kind for kind in TRANSFORMATIONS if kind != "tf_crop_and_resize"])
def test_the_nearest_is_onnx_runtimes(how: str, rounding: str) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": how, "nearest_mode": rounding, "axes": [2]}
    cases: list[tuple[int, str, float]] = [*((n, "scales", s) for n, s in SCALES), *((n, "sizes", s) for n, s in SIZES)]
    for extent, name, value in cases:
        model = make_resize((1, 1, extent), **attrs, **{name: [value]})
        x = np.arange(extent, dtype=np.float32).reshape(1, 1, extent)
        wanted = runtime(model, {"x": x})[0]
        np.testing.assert_array_equal(
            evaluate_import(with_shapes(model), {"x": x})[0], wanted, err_msg=f"{extent}, {name}={value}"
        )


@pytest.mark.parametrize("exact", [False, True])
def test_the_nearest_of_a_compiled_function_is_pytorchs(exact: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.fx import Graph

    from autotune.graph.frontends.aten import import_fx, make_constant_values

    kind = torch.ops.aten._upsample_nearest_exact1d if exact else torch.ops.aten.upsample_nearest1d
    for extent, size in itertools.product((3, 7, 14, 20, 21), (2, 3, 12, 16, 24, 46)):
        x = torch.arange(extent).float().reshape(1, 1, extent)
        traced = Graph()
        first = traced.placeholder("x")
        call = traced.call_function(kind.default, (first, [size]))
        first.meta["val"], call.meta["val"] = x, kind.default(x, [size])
        graph = import_fx(traced, [first], [call], make_constant_values({}))
        found = evaluate(graph, {"x": x.numpy()})[graph.outputs[0]]
        np.testing.assert_array_equal(found, kind.default(x, [size]).numpy())


def test_no_more_neighbours_are_read_than_weigh() -> None:
    assert InterpolationKernel().taps(Axis(32, 64, 2.0))[1].shape == (64, 2)
    assert InterpolationKernel(cubic=True).taps(Axis(32, 64, 2.0))[1].shape == (64, 4)
    assert InterpolationKernel().taps(Axis(32, 16, 0.5, "asymmetric"))[1].shape == (16, 1)
    assert InterpolationKernel(antialias=True).taps(Axis(64, 16, 0.25))[1].shape == (16, 8)


def test_both_axes_are_one_operation_where_neighbours_are_few_and_channels_many() -> None:
    def operations(channels: int = 16, **attrs: Any) -> list[str]:
        model = make_resize((1, channels, 6, 6), axes=[2, 3], **attrs)
        return [node.op for node in optimise(import_model(with_shapes(model))).nodes]

    assert operations(mode="linear", sizes=[12, 9]).count("resample") == 1
    assert operations(mode="cubic", sizes=[12, 9]).count("resample") == 2
    assert operations(mode="linear", sizes=[6, 9]).count("resample") == 1
    assert operations(3, mode="linear", sizes=[12, 9]).count("resample") == 2
    assert "transpose" not in operations(3, mode="linear", sizes=[12, 9])
    assert "resample" not in operations(mode="linear", sizes=[6, 6])


CASES = [
    ((1, 5, 6, 20), {1: 2, 2: 2}, "float32"),
    ((2, 6, 7, 3), {1: 4}, "float32"),
    ((3, 9), {1: 2}, "float32"),
    ((1, 24, 3, 17), {1: 18}, "float32"),
    ((1, 5, 4, 16), {1: 2, 2: 3}, "float16"),
    ((1, 24, 3, 16), {1: 18}, "float16"),
]


@pytest.mark.parametrize(("shape", "taps", "dtype"), CASES)
def test_every_sketch_is_numpys_sum(shape: tuple[int, ...], taps: dict[int, int], dtype: str) -> None:
    operation, rng, target = find("resample"), np.random.default_rng(0), registry.get("cpu")
    attrs = {"axes": tuple(taps)}
    arrays: list[Array] = [rng.standard_normal(shape).astype(dtype)]
    for axis, count in taps.items():
        arrays.append(rng.integers(-3, shape[axis] + 3, 5).astype(np.int32))  # what lies outside goes to the ends
        arrays.append(rng.standard_normal((5, count)).astype(np.float32))
    types = [TensorType(a.shape, str(a.dtype)) for a in arrays]
    attrs = operation.attributes(attrs, types)
    workload = Workload.of(operation.tensors(attrs, types, [False] + [True] * (len(arrays) - 1)))
    expected = operation.evaluate(attrs, arrays)
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(workload.reference(*arrays), expected, rtol=tolerance, atol=10 * tolerance)
    sketches = generate(workload, target.hardware).sketches
    assert sketches
    for sketch in sketches:
        rows = [rng.integers(len(g.table), size=50) for g in sketch.groups]
        choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
        for choice in choices[sketch.legal(choices)][:2]:
            kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(choice))))
            np.testing.assert_allclose(kernel.bind(arrays).run(), expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize(
    ("attrs", "rule"),
    [
        ({"mode": "quintic", "sizes": [1, 2, 8, 8]}, "must have a known mode, but got mode='quintic'"),
        ({"mode": "linear", "sizes": [1, 2, 8, 8], "dtype": "int32"}, "must interpolate floating-point values"),
        (
            {"mode": "linear", "sizes": [1, 2, 8, 8], "coordinate_transformation_mode": "polar"},
            "must have a known transformation, but got coordinate_transformation_mode='polar'",
        ),
        ({"nearest_mode": "up", "sizes": [1, 2, 8, 8]}, "must have a known rounding, but got nearest_mode='up'"),
    ],
)
def test_bad_models(attrs: dict[str, Any], rule: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        import_model(with_shapes(make_resize((1, 2, 4, 4), **attrs)))


TABLES = [TensorType((8,), "int32"), TensorType((8, 2))]


@pytest.mark.parametrize(
    ("types", "axes", "rule"),
    [
        ([TensorType((3, 4)), *TABLES], (2,), r"`axes` must rise and be among 2, but got axes=\[2\]"),
        ([TensorType((3, 4)), *TABLES, *TABLES], (1, 0), r"`axes` must rise and be among 2, but got axes=\[1, 0\]"),
        ([TensorType((3, 4), "int32"), *TABLES], (1,), "data must be of floating point"),
        ([TensorType((3, 4)), *TABLES], (0, 1), "two tables for each of 2 axes, but got 3"),
        ([TensorType((3, 4)), TABLES[1], TABLES[1]], (1,), "tables must be the first neighbours, int32, and float32"),
        ([TensorType((3, 1)), *TABLES], (1,), r"tables of axis 1 must be \(size,\) and \(size, at most 1\)"),
    ],
)
def test_bad_tables(types: list[TensorType], axes: tuple[int, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        find("resample").attributes({"axes": axes}, types)
