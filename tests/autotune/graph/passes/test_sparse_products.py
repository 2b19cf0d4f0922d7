"""Products and 1x1 convolutions that leave blocks of zeros out: which of them, in which blocks, and their outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import autotune
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.config import ConfigError
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.graph.partition import partition
from autotune.graph.passes.sparse_products import SparseProducts, find_zeros
from tests.autotune.graph.onnx_models import assert_close, model_from, runtime
from tests.search_space.operators.test_sparse import prune


def layer(weight: NDArray[Any], conv: bool = False, channels: int = 0, **attrs: Any) -> Graph:
    """A product or a convolution with a weight (k, n) or (height, width, k, n), a bias and a relu."""
    depth, columns = channels or weight.shape[-2], weight.shape[-1]
    b = GraphBuilder("layer", {"x": TensorType((2, 3, 4, depth) if conv else (24, depth))})
    constant = b.constant(weight[None, None] if conv and weight.ndim == 2 else weight, "w")
    out = b.add("conv2d" if conv else "matmul", ["x", constant], "product", **attrs)
    return b.finish([b.add("relu", [b.add("add", [out, b.constant(np.ones(columns, np.float32))])], "y")])


@pytest.mark.parametrize("conv", [False, True])
@pytest.mark.parametrize("block", [(16, 1), (4, 4), (1, 1)], ids=str)
def test_a_layer_is_one_kernel_with_its_ending(conv: bool, block: tuple[int, int]) -> None:
    graph = layer(prune(32, 64, block, 0.2), conv)
    sparse = SparseProducts(0.7)(graph)
    (group,) = (group for group in partition(sparse) if group.workload is not None)
    assert group.title == "sparse_matmul+add+relu" and group.workload.anchor.args["block"] == block
    x = np.random.default_rng(1).standard_normal(graph.type("x").shape).astype(np.float32)
    new, old = (evaluate(g, {"x": x})[g.outputs[0]] for g in (sparse, graph))
    np.testing.assert_allclose(new, old, 1e-5, 1e-5)


@pytest.mark.parametrize("stride", [2, (1, 2)])
def test_strides_take_some_pixels(stride: int | tuple[int, int]) -> None:
    graph = layer(prune(32, 64, (16, 1), 0.2), conv=True, stride=stride)
    sparse = SparseProducts(0.7)(graph)
    assert [node.op for node in sparse.nodes if node.op != "reshape"] == ["slice", "sparse_matmul", "add", "relu"]
    x = np.random.default_rng(1).standard_normal(graph.type("x").shape).astype(np.float32)
    new, old = (evaluate(g, {"x": x})[g.outputs[0]] for g in (sparse, graph))
    np.testing.assert_allclose(new, old, 1e-5, 1e-5)


@pytest.mark.parametrize(
    "window",
    [{"padding": 1}, {"stride": (1, 2), "padding": ((0, 1), (1, 2))}, {"dilation": (1, 2), "padding": 2}],
    ids=str,
)
def test_a_window_is_one_kernel_with_its_ending(window: dict[str, Any]) -> None:
    graph = layer(prune(9 * 32, 64, (4, 4), 0.2).reshape(3, 3, 32, 64), conv=True, **window)
    sparse = SparseProducts(0.7)(graph)
    (group,) = (group for group in partition(sparse) if group.workload is not None)
    assert group.title == "sparse_conv2d+add+relu" and group.workload.anchor.args["block"] == (4, 4)
    x = np.random.default_rng(1).standard_normal(graph.type("x").shape).astype(np.float32)
    new, old = (evaluate(g, {"x": x})[g.outputs[0]] for g in (sparse, graph))
    np.testing.assert_allclose(new, old, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("graph", "shares"),
    [
        (layer(prune(32, 64, (16, 1), 0.5)), "0.5 in 1 weights"),
        (layer(np.ones((32, 64), np.float32)), "0 in 1 weights"),
        (layer(np.full((32, 64), np.nan, np.float32)), "0 in 1 weights"),
        (layer(prune(16, 64, (16, 1), 0.2), conv=True, groups=2, channels=32), "no weight"),
        (layer(prune(9 * 32, 64, (16, 1), 0.4).reshape(3, 3, 32, 64), conv=True, padding=1), "0.6 in 1 weights"),
    ],
)
def test_other_layers_stay(graph: Graph, shares: str) -> None:
    assert [node.op for node in SparseProducts(0.7)(graph).nodes] == [node.op for node in graph.nodes]
    rule = "`sparsity` must be at most the largest share of a weight in blocks of zeros"
    with pytest.raises(GraphError, match=f"^{rule}, but got sparsity=0.7, and {shares}$"):
        SparseProducts(0.7, required=True)(graph)


def test_winograds_algorithm_needs_more_zeros_to_lose() -> None:
    weight = prune(9 * 32, 64, (16, 1), 0.4).reshape(3, 3, 32, 64)
    assert SparseProducts(0.5)(layer(weight, conv=True, padding=1)).nodes[0].op == "conv2d"
    assert SparseProducts(0.5)(layer(weight, conv=True, padding=1, stride=2)).nodes[0].op == "sparse_conv2d"


def test_the_blocks_leave_the_least_time() -> None:
    assert find_zeros(prune(64, 64, (32, 1), 0.25)).block == (32, 1)
    assert find_zeros(prune(64, 48, (1, 16), 0.1)).block == (1, 16)
    zeros = find_zeros(prune(64, 64, (4, 4), 0.25))
    assert zeros.block == (4, 4) and zeros.share == 0.75 and zeros.cost < 0.4


def pruned_model() -> onnx.ModelProto:
    """Two products, and convolutions of 1x1 and 3x3, whose weights are pruned by blocks of different sizes."""
    weights = {
        "w0": prune(32, 64, (16, 1), 0.2).T.reshape(64, 32, 1, 1),
        "w1": prune(9 * 64, 8, (8, 1), 0.2, 5).reshape(3, 3, 64, 8).transpose(3, 2, 0, 1) / 16,
        "w2": prune(8 * 36, 96, (4, 4), 0.15, 1),
        "w3": prune(96, 32, (32, 1), 0.25, 2),
        "b": np.linspace(-1, 1, 96, dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["c1"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b"], ["g"]),
        helper.make_node("Tanh", ["g"], ["t"]),
        helper.make_node("MatMul", ["t", "w3"], ["y"]),
    ]
    return model_from(nodes, {"x": np.zeros((20, 32, 6, 6), np.float32)}, weights)


def test_a_pruned_network_is_what_onnxruntime_computes() -> None:
    model = pruned_model()
    graph = load_network(model, "pruned", CompileOptions(sparsity=0.7)).graph
    ops = [node.op for node in graph.nodes]
    assert ops.count("sparse_matmul") == 3 and ops.count("sparse_conv2d") == 1
    x = np.random.default_rng(3).standard_normal((20, 32, 6, 6)).astype(np.float32)
    network = autotune.compile(model, sparsity=0.7, cache="none", threads=1)
    assert_close([np.asarray(network(x))], runtime(model, {"x": x}))


def test_bad_values_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match="`sparsity` must be at most the largest share.*but got sparsity=0.9"):
        autotune.compile(pruned_model(), sparsity=0.9, cache="none")
    for value in (0, 1.5):
        with pytest.raises(ConfigError, match="sparsity"):
            autotune.compile(pruned_model(), sparsity=value)
    with pytest.raises(ValueError, match="`least` must be above 0 and at most 1, but got least=0"):
        SparseProducts(0)


@pytest.mark.parametrize(
    ("options", "products"),
    [
        ({"precision": "bfloat16"}, 3),
        ({"quantise": "int8"}, 2),
        ({"quantise": "int8", "precision": "bfloat16"}, 2),
    ],
    ids=str,
)
def test_lower_precision_keeps_the_blocks(options: dict[str, Any], products: int) -> None:
    """Bytes are equal; in bfloat16 sums are rounded to values of eight bits, so that two may be one step apart."""
    model = pruned_model()
    sparse, dense = (
        load_network(model, "pruned", CompileOptions(**options, **s)).graph for s in ({"sparsity": 0.7}, {})
    )
    assert [node.op for node in sparse.nodes].count("sparse_matmul") == products
    feeds = {"x": np.random.default_rng(3).standard_normal((20, 32, 6, 6)).astype(np.float32)}
    new, old = (evaluate(graph, feeds)[graph.outputs[0]] for graph in (sparse, dense))
    limit = 0 if "quantise" in options else 0.02 * float(np.abs(old).max())
    np.testing.assert_allclose(new, old, 0, limit)
