"""Reading models: names, paths, and files that are none."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from autotune.graph.onnx_model import ZOO, ModelError, constants, load_model, model_path, shapes
from tests.graph.helpers import save_conv


@pytest.mark.parametrize("name", ZOO)
def test_every_network_of_the_zoo_loads_with_all_convolution_shapes(name: str) -> None:
    model = load_model(name)
    known = shapes(model)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) >= 5
    assert all(value in known for node in convolutions for value in (*node.input, *node.output))


def test_weights_computed_by_nodes_are_constants_and_activations_are_not() -> None:
    model = load_model("resnet50")
    fixed = constants(model)
    first = next(node for node in model.graph.node if node.op_type == "Conv")
    assert first.input[1] in fixed
    assert first.input[0] not in fixed
    assert first.output[0] not in fixed


def test_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "one.onnx")
    assert model_path(path) == path
    assert shapes(load_model(str(path)))["y"] == (1, 16, 4, 4)


def test_unknown_name_lists_and_suggests() -> None:
    with pytest.raises(ModelError, match=r"must be one of alexnet, .*got model='resnet5'; did you mean 'resnet50'"):
        load_model("resnet5")


@pytest.mark.parametrize("keep", [0.02, 0.5, 0.97])
def test_truncated_file(tmp_path: Path, keep: float) -> None:
    data = model_path("resnet50").read_bytes()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ModelError, match=r"`model` must be .*got model='.*cut.onnx'"):
        load_model(path)


@pytest.mark.parametrize("data", [b"", b"name: resnet50\ntrials: 64\n", b"\x89PNG\r\n\x1a\n" + bytes(100)])
def test_file_that_is_not_onnx(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"`model` must be .*other.onnx"):
        load_model(path)


@pytest.mark.parametrize(
    ("shape", "shown"), [(("N", 8, 6, 6), r"x=\(N, 8, 6, 6\)"), ((1, 8, None, 6), r"x=\(1, 8, \?, 6\)")]
)
def test_dynamic_shape(tmp_path: Path, shape: tuple[object, ...], shown: str) -> None:
    path = save_conv(tmp_path / "dynamic.onnx", shape)
    with pytest.raises(ModelError, match="must have fixed positive dimensions, but got " + shown):
        load_model(path)


def test_shapes_that_contradict_each_other(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "bad.onnx", (1, 8, 6))
    with pytest.raises(ModelError, match="shapes agree"):
        load_model(path)


def test_directory_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="path of an .onnx file"):
        load_model(tmp_path)


def test_missing_external_weights(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "apart.onnx")
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match="must be a complete ONNX file"):
        load_model(path)
