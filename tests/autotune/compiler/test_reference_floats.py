"""A column that says float32 computes in float32: runtimes round data of compressed weights to bytes unless told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.compiler.checking.runtimes import OnnxRuntime, OpenVino, Runtime
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import load_model, with_shapes
from benchmarks.peers.nbits_peer import chain


def weights_in_bytes() -> tuple[onnx.ModelProto, Any]:
    """A product whose right factor a DequantizeLinear gives, and its weights in float64."""
    rng = np.random.default_rng(0)
    numbers, scale = rng.integers(-128, 128, (512, 128), dtype=np.int8), (rng.random(128) * 0.1 + 0.01).astype("f")
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    constants = [numpy_helper.from_array(numbers, "q"), numpy_helper.from_array(scale, "s")]
    ends = [value("x", TensorProto.FLOAT, [4, 512])], [value("y", TensorProto.FLOAT, [4, 128])]
    graph = helper.make_graph(nodes, "bytes", *ends, constants)
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), numbers.astype("d") * scale


@pytest.mark.parametrize("kind", [OnnxRuntime, OpenVino])
def test_products_of_bytes_are_those_of_floats(tmp_path: Path, kind: type[Any]) -> None:
    model, weight = weights_in_bytes()
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(1).standard_normal((4, 512)).astype("f")
    runtime: Runtime = kind({"model": str(tmp_path / "m.onnx"), "threads": 1})
    exact = x.astype("d") @ weight
    error = runtime.infer({"x": x})["y"] - exact
    assert 10 * np.log10(np.mean(exact**2) / np.mean(error**2)) > 100  # rounded to bytes 44
    assert runtime.precision in ("", "float32")


@pytest.mark.parametrize("said", [True, False])
def test_a_domain_that_is_not_imported_is_of_version_1(tmp_path: Path, said: bool) -> None:
    """Quantisers of weights write `MatMulNBits` and leave the model's imports as they were."""
    model = chain(rows=2, depth=32, columns=16, bits=4, group=16, count=1)
    if not said:
        del model.opset_import[1:]
    before = model.SerializeToString()
    onnx.save(model, tmp_path / "m.onnx")
    found = [with_shapes(model), load_model(tmp_path / "m.onnx")]
    assert model.SerializeToString() == before
    x = np.random.default_rng(1).standard_normal((2, 32)).astype("f")
    wanted = OnnxRuntime({"model": str(tmp_path / "m.onnx"), "threads": 1}).infer({"x0": x})["x1"]
    for one in found:
        assert [(item.domain, item.version) for item in one.opset_import] == [("", 21), ("com.microsoft", 1)]
        graph = import_model(one)
        np.testing.assert_allclose(evaluate(graph, {"x0": x})[graph.outputs[0]], wanted, rtol=1e-5, atol=1e-5)
