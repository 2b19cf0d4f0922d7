"""Second compilations: what kernels were linked to is taken where nothing has moved, and weights are copied once."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autotune
from autotune.compiler.cache.linked import LinkResult
from autotune.compiler.executable.weights import Weights
from autotune.graph.ir import Graph, GraphBuilder, TensorType
from autotune.graph.passes import same_graph
from autotune.graph.passes.common_subexpressions import common_subexpressions
from autotune.graph.passes.layout import Rows, rows_in_order
from targets import registry
from targets.arrays import contiguous
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

    def count_link(target: Any, plan: Any, folder: Path) -> Any:
        links.append(plan.weights_bytes)
        return real(target, plan, folder)

    monkeypatch.setattr(TARGET, "link", count_link)
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)

    def compile_files(equal: bool, cache: Path | str) -> dict[str, bytes]:
        model, weights = products(equal)
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        network = autotune.compile(model, threads=1, output=folder, cache=cache)
        wanted = np.maximum(np.maximum(x @ weights["a"], 0) @ weights["b"], 0)
        np.testing.assert_allclose(network(x), wanted, rtol=1e-4, atol=1e-5)
        return {path.name: path.read_bytes() for path in (folder / "network").iterdir()}

    alone = {equal: compile_files(equal, "none") for equal in (False, True)}
    assert len(set(links)) == 2
    links.clear()
    for equal, times in ((False, 1), (False, 1), (True, 2), (True, 2), (False, 3)):
        assert compile_files(equal, tmp_path / "cache") == alone[equal]
        assert len(links) == times


@pytest.mark.parametrize("broken", [False, True])
def test_threads_that_pack_end_with_the_compilation(
    tmp_path: Path, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    autotune.compile(products(False)[0], threads=1, cache=cache)
    packing = []
    place = Weights.add

    def note_threads(weights: Weights, array: np.ndarray) -> int:
        packing.extend(thread for thread in threading.enumerate() if thread.name.startswith("autotune-packing"))
        if broken:
            raise OSError("no room")
        return place(weights, array)

    monkeypatch.setattr(Weights, "add", note_threads)
    with pytest.raises(OSError, match="no room") if broken else nullcontext():
        autotune.compile(products(False)[0], threads=1, cache=cache)
    assert packing and not any(thread.is_alive() for thread in packing)


def test_an_entry_is_what_was_kept() -> None:
    module = Module("k", "cpu", b"code", "text", (Parameter("x", (2,), "float32"),), ("x",), (), {"shared_bytes": 1})
    made = LinkResult.of("plan", {"memory": {"shared_bytes": 1}}, {"n.so": b"\0so", "n.h": b""}, [module])
    assert (made.modules[0].object_code, made.modules[0].llvm_ir) == (b"", "")
    assert LinkResult.from_bytes(made.to_bytes()) == made


def test_weights_are_the_same_in_one_array_and_in_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5), (300, 70), (1,))]
    arrays += [arrays[1].T, arrays[0].copy(), np.zeros(0, np.float32)]
    apart, together = Weights(64), Weights(64, room=1 << 20)
    places = [[weights.add(array) for array in arrays] for weights in (apart, together)]
    assert places[0] == places[1] and places[0][4] == places[0][0]
    assert apart.write(tmp_path / "apart", 0) == {**together.write(tmp_path / "together", 0), "file": "apart"}
    assert (tmp_path / "apart").read_bytes() == (tmp_path / "together").read_bytes()
    whole = together.joined_parts
    np.testing.assert_array_equal(whole[: together.nbytes], np.concatenate(apart.joined_parts))
    for array, place in zip(arrays, places[1], strict=True):
        assert whole[place : place + array.nbytes].tobytes() == array.tobytes()


def test_weights_of_a_few_bytes_have_a_line_to_themselves(tmp_path: Path) -> None:
    weights = Weights(8, room=8)
    weights.add(np.ones(1, np.float32))
    assert (weights.nbytes, weights.joined_parts.nbytes, weights.joined_parts.ctypes.data % 64) == (8, 64, 0)
    assert weights.write(tmp_path / "weights", 0)["nbytes"] == 8


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
def test_contiguous_copies_are_copies_of_transpositions(axes: tuple[int, ...]) -> None:
    array = np.arange(3 * 70 * 130, dtype=np.int32).reshape(3, 70, 130).transpose(axes)
    for view in (array, array[:, 1:, ::2]):
        found = contiguous(view)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, view)


def test_large_transpositions_are_constants_as_they_lie_and_no_other_views() -> None:
    builder = GraphBuilder("graph", {})
    square = np.random.default_rng(0).standard_normal((160, 160)).astype(np.float32)
    kept = builder.array(builder.constant(square.T))
    assert kept is not None and np.shares_memory(kept, square)
    for view in (square[:, ::2], np.broadcast_to(square[:1], square.shape), square[:4, :4].T):
        found = builder.array(builder.constant(view))
        assert found is not None and found.flags.c_contiguous
        np.testing.assert_array_equal(found, view)


def test_a_square_matrix_and_its_transposition_are_two_constants() -> None:
    square = np.random.default_rng(0).standard_normal((160, 160)).astype(np.float32)

    def graph(weight: Any) -> Graph:
        builder = GraphBuilder("graph", {"x": TensorType((4, 160), "float32")})
        first = builder.add("matmul", ["x", builder.constant(weight, "w")])
        return builder.finish([builder.add("matmul", [first, builder.constant(square, "v")])])

    assert not same_graph(graph(square), graph(square.T))
    assert len(common_subexpressions(graph(square.T)).constants) == 2
    assert len(common_subexpressions(graph(square)).constants) == 1


def test_rows_in_order_are_the_same_of_a_transposition() -> None:
    weight = np.random.default_rng(0).standard_normal((24, 5)).astype(np.float32)
    rows = Rows("x", (2, 3, 4), (2, 0, 1))
    wanted = rows_in_order(weight, rows)
    found = rows_in_order(np.ascontiguousarray(weight.T).T, rows)
    np.testing.assert_array_equal(found, wanted)
    x = np.arange(24, dtype=np.float32)
    np.testing.assert_allclose(x @ found, x.reshape(2, 3, 4).transpose(2, 0, 1).reshape(-1) @ weight, rtol=1e-4)
