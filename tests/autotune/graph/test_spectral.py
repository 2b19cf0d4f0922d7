"""Fourier transforms as products, and blocks that are added up to an image."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import UnsupportedModelError, fourier, import_model, spectral
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.ir import Array, TensorType
from autotune.graph.ops import find
from autotune.graph.passes import optimise
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.graph.onnx_models import evaluate_import, model_from


def make_model(
    op: str, shape: tuple[int, ...], constants: list[Any], dtype: str = "float32", **attrs: Any
) -> onnx.ModelProto:
    """One node; `constants` are its further inputs, None where one is left out."""
    arrays = [
        None
        if c is None
        else numpy_helper.from_array(np.asarray(c, None if isinstance(c, np.ndarray) else np.int64), f"c{i}")
        for i, c in enumerate(constants)
    ]
    names = ["x", *("" if a is None else a.name for a in arrays)]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="only", **attrs)],
        "one",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)],
        [helper.make_empty_tensor_value_info("y")],
        [a for a in arrays if a is not None],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@given(
    extent=st.integers(1, 9),
    length=st.integers(1, 12),
    parts=st.integers(1, 2),
    axis=st.integers(0, 1),
    inverse=st.booleans(),
    onesided=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_transform_is_numpys(extent: int, length: int, parts: int, axis: int, inverse: bool, onesided: bool) -> None:
    shape = (extent, 3, parts) if axis == 0 else (3, extent, parts)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    model = make_model("DFT", shape, [length, axis], inverse=int(inverse), onesided=int(onesided))
    wanted = numpys(x, length, axis, inverse, onesided)
    np.testing.assert_allclose(evaluate_import(model, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.fixture
def always_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply-adds alone count, so that every length that can be split is."""
    monkeypatch.setattr(fourier, "BALANCE", 0)
    monkeypatch.setattr(fourier, "START", 0)


@pytest.mark.usefixtures("always_split")
@given(
    length=st.one_of(st.integers(1, 60), st.sampled_from([96, 100, 128, 210, 768])),
    extent=st.one_of(st.none(), st.integers(1, 70)),
    parts=st.integers(1, 2),
    axis=st.integers(0, 2),
    inverse=st.booleans(),
    onesided=st.booleans(),
)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_stages_are_numpys_transform(
    length: int, extent: int | None, parts: int, axis: int, inverse: bool, onesided: bool
) -> None:
    whole = length // 2 + 1 if inverse and onesided else length
    shape = (*(extent or whole if a == axis else (2, 3, 1)[a] for a in range(3)), parts)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    model = make_model("DFT", shape, [length, axis], inverse=int(inverse), onesided=int(onesided))
    graph = import_model(model)
    if length > 9 and any(length % d == 0 for d in range(2, length)):
        assert "batch_matmul" in {node.op for node in graph.nodes}
    found, wanted = evaluate_import(model, {"x": x})[0], numpys(x, length, axis, inverse, onesided)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def numpys(x: Array, length: int, axis: int, inverse: bool, onesided: bool) -> Array:
    """The transform in float64."""
    signal = x[..., 0].astype(float) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.asarray(np.fft.irfft(signal, length, axis)[..., None])
    made = (np.fft.ifft if inverse else np.fft.fft)(signal, length, axis)
    made = np.take(made, np.arange(length // 2 + 1), axis) if onesided else made
    return np.stack([made.real, made.imag], -1)


def test_stages_err_no_more_than_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (64, 768, 2)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = numpys(x, 768, 1, False, False)
    errors = []
    for plan in (fourier.choose_digits, lambda length, *_: (length,)):
        monkeypatch.setattr(fourier, "choose_digits", plan)
        errors.append(np.abs(evaluate_import(make_model("DFT", shape, [768, 1]), {"x": x})[0] - wanted).max())
    assert errors[0] <= errors[1]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("columns", [1, 100, 10_000])
def test_long_composite_lengths_are_split(parts: int, columns: int) -> None:
    for length in (1009, 7, 4):  # prime, or short
        assert fourier.choose_digits(length, parts, columns, True) == (length,)
    for length in (768, 1000, 4096):
        digits = fourier.choose_digits(length, parts, columns, False)
        assert len(digits) > 1
        assert np.prod(digits) == length


@pytest.mark.parametrize("length", [60, 12, 1])
def test_one_short_signal_is_one_product(length: int) -> None:
    """Kernels that start would cost more than they save."""
    assert fourier.choose_digits(length, 1, 1, False) == (length,)


@pytest.mark.parametrize("zeros", [0.0, 1.0])
def test_only_zeros_make_a_signal_real(zeros: float) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "zeros"], ["c"], axis=-1),
        helper.make_node("DFT", ["c", "", "axis"], ["y"]),
    ]
    constants = {"zeros": np.full((3, 20, 1), zeros, np.float32), "axis": np.array(1)}
    x = np.random.default_rng(0).standard_normal((3, 20, 1)).astype(np.float32)
    model = model_from(nodes, {"x": x}, constants, 20)
    (found,) = evaluate_import(model, {"x": x})
    wanted = numpys(np.concatenate([x, constants["zeros"]], -1), 20, 1, False, False)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert [a.shape[0] for a in import_model(model).constants.values() if a.ndim == 2] == [40 if zeros else 20]


def test_real_parts_of_a_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    """FNet mixes tokens like this: zeros join no product, unread imaginary parts are not computed, little is moved."""
    monkeypatch.setattr(fourier, "START", 0)
    nodes = [
        helper.make_node("Concat", ["x", "zeros"], ["c"], axis=-1),
        helper.make_node("DFT", ["c", "", "two"], ["h"]),
        helper.make_node("DFT", ["h", "", "one"], ["f"]),
        helper.make_node("Gather", ["f", "first"], ["y"], axis=3),
    ]
    constants = {
        "zeros": np.zeros((1, 32, 96, 1), np.float32),
        "one": np.array(1),
        "two": np.array(2),
        "first": np.array(0),
    }
    x = np.random.default_rng(0).standard_normal((1, 32, 96, 1)).astype(np.float32)
    graph = optimise(import_model(model_from(nodes, {"x": x}, constants, 20)))
    wanted = np.fft.fft2(x[..., 0].astype(float)).real
    found = evaluate(graph, {"x": x})[graph.outputs[0]]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    ops = Counter(node.op for node in graph.nodes)
    assert not ops.keys() - {"matmul", "batch_matmul", "transpose", "reshape"}
    assert ops["transpose"] == 3
    products = [node for node in graph.nodes if "matmul" in node.op]
    assert products[-1].type.size == x.size
    assert sum(n.type.size * graph.type(n.inputs[0]).shape[-1] for n in products) < 100 * x.size


def test_a_signal_of_its_own_length_needs_none() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 1)).astype(np.float32)
    (found,) = evaluate_import(with_shapes(make_model("DFT", (2, 6, 1), [])), {"x": x})
    wanted = np.fft.fft(x[..., 0])
    np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "shape", "constants", "attrs", "rule"),
    [
        ("DFT", (2, 6, 1), [None, 2], {}, "must transform another axis than that of real and imaginary parts"),
        ("DFT", (2, 6, 1), [None, 1], {"dtype": "int32"}, "must transform floating-point values"),
        (
            "DFT",
            (2, 6, 3),
            [None, 1],
            {},
            "must have real and, perhaps, imaginary parts along its last axis, but got 3",
        ),
        ("DFT", (2, 6, 1), [0, 1], {}, "must have a length, but got 0"),
        ("STFT", (1, 6, 1), [1, None, 8], {}, "must have a window of the frame's length within 6 and a step"),
        ("STFT", (1, 6, 1), [0, None, 4], {}, "must have a window of the frame's length within 6 and a step"),
        ("STFT", (1, 6, 1), [1, np.ones(3, np.float32), 4], {}, "but got 3, 4, 1"),
    ],
)
def test_bad_transforms(
    op: str, shape: tuple[int, ...], constants: list[Any], attrs: dict[str, Any], rule: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        import_model(make_model(op, shape, constants, **attrs))


def test_a_transform_of_too_many_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "MOST_WEIGHTS", 71)
    with pytest.raises(UnsupportedModelError, match="must be of at most 71 weights, but got 6 x 12"):
        import_model(make_model("DFT", (2, 6, 1), [None, 1]))


def test_a_stage_of_too_many_weights() -> None:
    length = 2 * 100_003
    with pytest.raises(UnsupportedModelError, match="must be of at most 16777216 weights, but got 1 x 200006 x 200006"):
        import_model(make_model("DFT", (1, length, 2), [None, 1]))


def test_blocks_side_by_side_are_transposed() -> None:
    graph = import_model(with_shapes(make_model("Col2Im", (1, 8, 6), [[4, 6], [2, 2]], strides=[2, 2])))
    assert {node.op for node in graph.nodes} == {"reshape", "transpose"}


FOLDS = [
    ((1, 18, 16), {"image": (6, 6), "block": (3, 3), "stride": (1, 1)}),
    ((2, 27, 9), {"image": (6, 5), "block": (3, 3), "stride": (2, 2), "before": (1, 1), "after": (0, 1)}),
    ((1, 8, 6), {"image": (7, 5), "block": (2, 2), "stride": (2, 1), "dilation": (2, 3)}),
    ((1, 6, 5), {"image": (11,), "block": (3,), "stride": (2,)}),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "attrs"), FOLDS)
def test_every_sketch_of_overlapping_blocks_is_numpys_sum(
    shape: tuple[int, ...], attrs: dict[str, Any], dtype: str
) -> None:
    rank = len(attrs["image"])
    whole = {"dilation": (1,) * rank, "before": (0,) * rank, "after": (0,) * rank, **attrs}
    operation, rng, target = find("col2im"), np.random.default_rng(0), registry.get("cpu")
    types = [TensorType(shape, dtype)]
    checked = operation.attributes(whole, types)
    workload = Workload.of(operation.tensors(checked, types))
    x = rng.standard_normal(shape).astype(dtype)
    expected = operation.evaluate(checked, [x])
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(workload.reference(x), expected, rtol=tolerance, atol=tolerance)
    for sketch in generate(workload, target.hardware).sketches:
        rows = [rng.integers(len(g.table), size=50) for g in sketch.groups]
        choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
        for choice in choices[sketch.legal(choices)][:2]:
            kernel = target.load(target.build(make_program(workload, sketch.algorithm, sketch.trace(choice))))
            np.testing.assert_allclose(kernel.bind([x]).run(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("kind", "changes", "rule"),
    [
        (TensorType((1, 18, 15)), {}, r"data must have a multiple of 9 elements of blocks, and \[4, 4\] blocks"),
        (TensorType((1, 17, 16)), {}, "data must have a multiple of 9 elements of blocks"),
        (TensorType((18, 16)), {}, "data must be floating-point samples, elements of blocks and blocks"),
        (TensorType((1, 18, 16), "int32"), {}, "data must be floating-point samples"),
        (TensorType((1, 18, 16)), {"stride": (0, 1)}, "strides and dilations must be positive"),
        (TensorType((1, 18, 16)), {"before": (-1, 0)}, "padding not negative"),
        (TensorType((1, 18, 16)), {"stride": (1,)}, "attributes must be of as many axes as `image`"),
    ],
)
def test_bad_blocks(kind: TensorType, changes: dict[str, Any], rule: str) -> None:
    attrs = {"image": (6, 6), "block": (3, 3), "stride": (1, 1), "dilation": (1, 1), "before": (0, 0), "after": (0, 0)}
    with pytest.raises(ValueError, match=rule):
        find("col2im").attributes(attrs | changes, [kind])
