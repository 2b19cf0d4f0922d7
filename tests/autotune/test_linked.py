"""What kernels were linked to before: taken where nothing has moved, and linked anew where weights lie elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.cache.linked import Linked
from targets import registry
from targets.base import Module, Parameter

TARGET = type(registry.get("cpu"))


def products(equal: bool) -> tuple[onnx.ModelProto, Any]:
    """Two products by the same weights or by others, of which an executable holds one or two; the model and weights."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((2, 16, 16)).astype(np.float32)
    weights = {"a": first, "b": first if equal else second}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["y"]),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 16])] for name in "xy")
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "products", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), weights


def test_weights_that_lie_elsewhere_are_linked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, links = TARGET.link, []

    def counted(target: Any, plan: Any, folder: Path) -> Any:
        links.append(plan.weights_bytes)
        return real(target, plan, folder)

    monkeypatch.setattr(TARGET, "link", counted)
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)

    def made(equal: bool, cache: Path | str) -> dict[str, bytes]:
        model, weights = products(equal)
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        network = autotune.compile(model, threads=1, output=folder, cache=cache)
        wanted = np.maximum(np.maximum(x @ weights["a"], 0) @ weights["b"], 0)
        np.testing.assert_allclose(network(x), wanted, rtol=1e-4, atol=1e-5)
        return {path.name: path.read_bytes() for path in (folder / "network").iterdir()}

    alone = {equal: made(equal, "none") for equal in (False, True)}
    assert len(set(links)) == 2
    links.clear()
    for equal, times in ((False, 1), (False, 1), (True, 2), (True, 2), (False, 3)):
        assert made(equal, tmp_path / "cache") == alone[equal]
        assert len(links) == times


def test_an_entry_is_what_was_kept() -> None:
    module = Module("k", "cpu", b"code", "text", (Parameter("x", (2,), "float32"),), ("x",), (), {"shared_bytes": 1})
    made = Linked.of("plan", {"memory": {"shared_bytes": 1}}, {"n.so": b"\0so", "n.h": b""}, [module])
    assert (made.modules[0].object_code, made.modules[0].llvm_ir) == (b"", "")
    assert Linked.from_bytes(made.to_bytes()) == made
