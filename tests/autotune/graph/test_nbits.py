"""`MatMulNBits` of com.microsoft: imported and compiled, against ONNX Runtime's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import autotune
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.importer.nbits import in_floats
from autotune.graph.frontends.onnx.model import UnsupportedModelError, with_shapes
from autotune.graph.types import Array


def nbits_model(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    columns: int,
    bits: int = 4,
    block: int = 16,
    zeros: str = "",
    bias: bool = False,
    **changes: Any,
) -> onnx.ModelProto:
    """One node with random weights.

    Args:
        rng: generator of the weights.
        shape: shape of A.
        columns: N.
        bits, block: attributes of the node.
        zeros: "packed", "float", "fractions" or none.
        bias: whether there is one.
        changes: attributes and inputs (by name) in place of those that are right.
    """
    depth = shape[-1]
    blocks = -(-depth // block)
    arrays: dict[str, Array | None] = {
        "B": rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
        "scales": rng.uniform(-1, 1, (columns, blocks)).astype(np.float32),
        "zero_points": None,
        "g_idx": None,
        "bias": rng.uniform(-1, 1, columns).astype(np.float32) if bias else None,
    }
    if zeros == "packed":
        arrays["zero_points"] = rng.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8)
    elif zeros == "float":
        arrays["zero_points"] = rng.integers(0, 1 << bits, (columns, blocks)).astype(np.float32)
    elif zeros == "fractions":
        arrays["zero_points"] = rng.uniform(0, 1 << bits, (columns, blocks)).astype(np.float32)
    attrs = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    for name, value in changes.items():
        (arrays if name in arrays else attrs)[name] = value
    names = ["x", *(name if array is not None else "" for name, array in arrays.items())]
    while not names[-1]:
        names.pop()
    node = helper.make_node("MatMulNBits", names, ["y"], "product", domain="com.microsoft", **attrs)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (*shape[:-1], columns))
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items() if array is not None]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "nbits", [x], [y], constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_onnxruntime(model: onnx.ModelProto, x: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {"x": x})[0]
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([(1,), (3,), (2, 2)]),
    st.integers(1, 90),
    st.integers(1, 40),
    st.sampled_from([4, 8]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from(["", "packed", "float", "fractions"]),
    st.booleans(),
)
def test_it_is_what_onnxruntime_computes(
    seed: int, rows: tuple[int, ...], depth: int, columns: int, bits: int, block: int, zeros: str, bias: bool
) -> None:
    rng = np.random.default_rng(seed)
    if bits == 8 and zeros not in ("", "packed"):
        zeros = "packed"  # which ONNX Runtime has for 4 bits alone
    model = nbits_model(rng, (*rows, depth), columns, bits, block, zeros, bias)
    x = rng.uniform(-1, 1, (*rows, depth)).astype(np.float32)
    graph = import_model(with_shapes(model))
    found, wanted = evaluate(graph, {"x": x})[graph.outputs[0]], by_onnxruntime(model, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * (1 << bits) * depth)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["", "packed"])
def test_it_is_compiled(bits: int, zeros: str) -> None:
    rng = np.random.default_rng(bits)
    model = nbits_model(rng, (2, 3, 100), 70, bits, 32, zeros, bias=True)
    x = rng.uniform(-1, 1, (2, 3, 100)).astype(np.float32)
    network = autotune.compile(model, cache="none")
    np.testing.assert_allclose(network(x), by_onnxruntime(model, x), rtol=1e-4, atol=1e-4 * (1 << bits))
    # The bias and the data in a copy that fills up the last group, nothing else beside the packed weights.
    assert network.manifest["weights"]["nbytes"] < 70 * (128 * bits // 8 + 4 * (4 + bool(zeros)) + 4) * 1.4 + 4096


@pytest.mark.parametrize("bits", [4, 8])
def test_models_say_that_data_may_be_bytes(bits: int) -> None:
    """ONNX Runtime rounds them, too, a little otherwise; the check holds kernels to what NumPy makes of the same."""
    rng = np.random.default_rng(bits)
    model = nbits_model(rng, (2, 3, 96), 70, bits, 32, bias=True, accuracy_level=4)
    x = rng.uniform(-1, 1, (2, 3, 96)).astype(np.float32)
    found, wanted = autotune.compile(model, cache="none")(x), by_onnxruntime(model, x)
    exact = by_onnxruntime(in_floats(model), x)
    noise = np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))
    assert 1e-4 < noise < 1e-2
    assert np.sqrt(np.mean((found - wanted) ** 2) / np.mean(exact**2)) < 2e-2


@pytest.mark.parametrize("zeros", ["float", "fractions"])
@pytest.mark.parametrize("rows", [1, 40])
def test_zeros_in_floats_leave_data_in_floats(zeros: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    model = nbits_model(rng, (rows, 96), 70, 4, 32, zeros, accuracy_level=4)
    x = rng.uniform(-1, 1, (rows, 96)).astype(np.float32)
    np.testing.assert_allclose(autotune.compile(model)(x), by_onnxruntime(model, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 2}, "must have weights of 4 or 8 bits, but got bits=2"),
        ({"block_size": 24}, "must have blocks of a power of two, 16 or more, but got 24"),
        ({"g_idx": np.zeros(40, np.int32)}, "must have no g_idx, but got g_idx"),
        ({"N": 9}, r"must have a uint8 B \(9, 3, 8\), but got uint8\[8, 3, 8\]"),
        ({"scales": np.ones(5, np.float32)}, r"must have scales \(8, 3\), but got float32\[5\]"),
        ({"zero_points": np.ones(5, np.uint8)}, r"must have zero_points \(8, 2\), but got uint8\[5\]"),
        ({"zero_points": np.ones((8, 2), np.float32)}, r"must have zero_points \(8, 3\), but got float32\[8, 2\]"),
        ({"weight_prepacked": 1}, "must have weights that are not prepacked"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    model = nbits_model(np.random.default_rng(0), (2, 40), 8, **changes)
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(model)
