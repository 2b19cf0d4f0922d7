"""Reading of models: names, paths, and files that hold no model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from autotune.graph.frontends.onnx.model import ZOO, UnsupportedModelError, load_model, model_path, with_shapes
from autotune.graph.frontends.onnx.model import shapes as fixed_shapes
from tests.autotune.graph.helpers import save_conv


@pytest.mark.parametrize("name", ZOO)
def test_every_network_of_the_zoo_loads_with_all_convolution_shapes(name: str) -> None:
    model = load_model(name)
    known = fixed_shapes(model)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) >= 5
    assert all(value in known for node in convolutions for value in (*node.input, *node.output))


def test_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "one.onnx")
    assert model_path(path) == path
    assert fixed_shapes(load_model(str(path)))["y"] == (1, 16, 4, 4)


def test_unknown_name_lists_and_suggests() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"must be one of alexnet, .*got model='resnet5'; did you mean 'resnet50'"
    ):
        load_model("resnet5")


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.97])
def test_truncated_file(tmp_path: Path, keep: float) -> None:
    data = model_path("resnet50").read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(UnsupportedModelError, match=r"`model` must be .*got model='.*cut.onnx'"):
        load_model(path)


@pytest.mark.parametrize("data", [b"", b"name: resnet50\ntrials: 64\n", b"\x89PNG\r\n\x1a\n" + bytes(100)])
def test_file_that_is_not_onnx(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(data)
    with pytest.raises(UnsupportedModelError, match=r"`model` must be .*other.onnx"):
        load_model(path)


@pytest.mark.parametrize(
    ("shape", "text"), [(("N", 8, 6, 6), r"x=\(N, 8, 6, 6\)"), ((1, 8, None, 6), r"x=\(1, 8, \?, 6\)")]
)
def test_dynamic_shape(tmp_path: Path, shape: tuple[object, ...], text: str) -> None:
    path = save_conv(tmp_path / "dynamic.onnx", shape)
    with pytest.raises(UnsupportedModelError, match="must have fixed positive dimensions, but got " + text):
        load_model(path)


def test_shapes_that_contradict_each_other(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "bad.onnx", (1, 8, 6))
    with pytest.raises(UnsupportedModelError, match="shapes agree"):
        load_model(path)


def test_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="path of an .onnx file"):
        load_model(tmp_path)


def test_missing_external_weights(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "apart.onnx")
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(UnsupportedModelError, match="must be a complete ONNX file"):
        load_model(path)


@pytest.mark.parametrize("shapes", [{"x": (1, 8, 6, 6)}, {}])
def test_negative_dimensions_are_open(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    path = save_conv(tmp_path / "open.onnx", (-1, 8, -1, 6))
    model = onnx.load(path)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (-1, 16, -1, -1)))
    onnx.save(model, path)
    if shapes:
        assert fixed_shapes(load_model(path, shapes))["y"] == (1, 16, 4, 4)
        with pytest.raises(
            UnsupportedModelError, match=r"`shapes` of x must agree with the model's, but got \[1, 7, 6, 6\]"
        ):
            load_model(path, {"x": (1, 7, 6, 6)})
    else:
        with pytest.raises(
            UnsupportedModelError, match=r"must have fixed positive dimensions, but got x=\(\?, 8, \?, 6\)"
        ):
            load_model(path)


def make_pool_model(shape: tuple[int, ...] | None, columns: int = 3) -> onnx.ModelProto:
    """Pools, the last window of the second would begin beyond its input: (1, 3, 2, 2) -> (1, 3, 1, 1); a product."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1),
        helper.make_node("MaxPool", ["p"], ["q"], kernel_shape=[1, 1], strides=[2, 2], ceil_mode=1),
        helper.make_node("Flatten", ["q"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"]),
    ]
    inputs = {"x": np.zeros((1, 3, 4, 4), np.float32)}
    graph = helper.make_graph(
        nodes,
        "pooled",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in inputs.items()],
        [helper.make_empty_tensor_value_info("y"), helper.make_tensor_value_info("q", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.ones((columns, 5), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


def test_shapes_are_those_of_the_definition_where_inference_errs() -> None:
    plain = make_pool_model(None)
    guess = fixed_shapes(shape_inference.infer_shapes(plain))
    assert guess["q"] == (1, 3, 2, 2), "ONNX's inference is right by now: a case of another kind is needed"
    for stated in (None, (1, 3, 1, 1), (1, 3, 2, 2)):  # the last is what ONNX's inference says
        found = fixed_shapes(with_shapes(make_pool_model(stated)))
        assert found["p"] == (1, 3, 2, 2) and found["q"] == (1, 3, 1, 1) and found["y"] == (1, 5)
    with pytest.raises(
        UnsupportedModelError, match=r"shapes agree, .*: q is stated to be \[1, 3, 3, 3\] and is \[1, 3, 1, 1\]"
    ):
        with_shapes(make_pool_model((1, 3, 3, 3)))
    with pytest.raises(UnsupportedModelError, match="shapes agree"):
        with_shapes(make_pool_model(None, columns=4))


def test_inference_stays_where_no_graph_can_be_made() -> None:
    model = make_pool_model(None, columns=12)
    model.graph.node.append(helper.make_node("NonZero", ["y"], ["z"]))
    assert fixed_shapes(with_shapes(model))["q"] == (1, 3, 2, 2)


def test_shapes_are_those_of_a_model_with_its_weights() -> None:
    """Large weights are left out while shapes are inferred: neither shapes nor weights may change by it."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 32)).astype(np.float32)  # more than `SMALL` elements
    extents = np.array([2, 4, 16], np.int64)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Reshape", ["y", "extents"], ["z"]),
        helper.make_node("Gather", ["w", "ids"], ["g"]),
    ]
    graph = helper.make_graph(
        nodes,
        "weights",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [3]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("z", "g")],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(extents, "extents")],
    )
    model = helper.make_model(graph, producer_name="a test", opset_imports=[helper.make_opsetid("", 18)])
    found = with_shapes(model)
    assert found == shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    assert fixed_shapes(found)["z"] == (2, 4, 16) and fixed_shapes(found)["g"] == (3, 32)
    assert len(model.graph.input) == 2


def test_a_weight_that_is_an_input_too_stays_one() -> None:
    weight = numpy_helper.from_array(np.ones((64, 32), np.float32), "w")
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 32]) for name in ("x", "w")]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", given, out, [weight])
    found = with_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert [value.name for value in found.graph.input] == ["x", "w"] and fixed_shapes(found)["y"] == (64, 32)


def test_shapes_are_given_in_place_and_weights_stay() -> None:
    """Inferred shapes are ONNX's; the caller's model stays unchanged, and a large weight stays complete."""
    weight = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)  # more elements than say anything of shapes
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph)
    before = model.SerializeToString(deterministic=True)
    found = with_shapes(model)
    assert model.SerializeToString(deterministic=True) == before
    assert fixed_shapes(found) == fixed_shapes(shape_inference.infer_shapes(model, data_prop=True))
    assert [value.name for value in found.graph.input] == ["x"]
    assert np.array_equal(numpy_helper.to_array(found.graph.initializer[0]), weight)
    assert with_shapes(found) == found
