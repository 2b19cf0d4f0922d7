"""Complete networks compared with ONNX Runtime, and models that cannot be imported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model, with_weights
from autotune.graph.frontends.onnx.model import UnsupportedModelError, load_model, shapes
from autotune.graph.passes import optimise
from tests.autotune.graph.helpers import save, save_conv
from tests.autotune.graph.onnx_models import Array, assert_close, evaluate_import, make_model, model_from, runtime


def draw_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Normal inputs."""
    weights = {tensor.name for tensor in model.graph.initializer}
    known, rng = shapes(model), np.random.default_rng(seed)
    names = [value.name for value in model.graph.input if value.name not in weights]
    return {name: rng.standard_normal(known[name]).astype(np.float32) for name in names}


def reaching(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """The model with `count` values along the way as outputs, the last before the softmax among them."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    fixed = {"Constant", "ConstantOfShape", "Softmax", "Shape", "Unsqueeze", "Dropout"}
    along = [node.output[0] for node in model.graph.node if node.op_type not in fixed]
    chosen = dict.fromkeys(along[i] for i in np.linspace(2, len(along) - 1, count).astype(int))
    del out.graph.output[:]
    out.graph.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes(model)[n]) for n in chosen)
    return out


NETWORKS = ["squeezenet", "shufflenet", "inception_v1", pytest.param("resnet50", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_along_the_way(name: str) -> None:
    model = reaching(with_weights(load_model(name)), 6)
    inputs = draw_inputs(model)
    assert_close(evaluate_import(model, inputs), runtime(model, inputs), 1e-4)


def test_optimised_network_agrees() -> None:
    model = reaching(with_weights(load_model("squeezenet")), 1)
    inputs = draw_inputs(model)
    graph = optimise(import_model(model))
    values = evaluate(graph, inputs)
    assert_close([values[name] for name in graph.outputs], runtime(model, inputs), 1e-4)


def test_a_change_of_one_weight_by_one_per_cent_is_seen() -> None:
    model = reaching(with_weights(load_model("squeezenet")), 1)
    inputs = draw_inputs(model)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    first = next(node for node in model.graph.node if node.op_type == "Conv").input[1]
    tensor = next(t for t in changed.graph.initializer if t.name == first)
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * np.float32(1.01), first))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_close(evaluate_import(changed, inputs), runtime(model, inputs), 1e-4)


def test_weights_depend_on_the_seed_alone() -> None:
    model = load_model("squeezenet")
    first, again, other = (with_weights(model, seed).SerializeToString() for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "densenet121"])
def test_seeded_weights_keep_activations_and_logits_within_tens(name: str) -> None:
    model = reaching(with_weights(load_model(name)), 9)
    for value in runtime(model, draw_inputs(model)):
        assert 0.01 < value.std() < 30 and np.abs(value).max() < 100


def test_seeded_weights_keep_to_the_variances_that_a_model_carries() -> None:
    rng = np.random.default_rng(0)
    carried = {name: rng.uniform(0.5, 40, 16).astype(np.float32) for name in ("scale", "bias", "mean", "variance")}
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["w"]),
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *carried], ["y"]),
    ]
    shape = np.array([16, 64, 3, 3])
    found = with_weights(model_from(nodes, {"x": np.ones((1, 64, 8, 8), np.float32)}, {"shape": shape, **carried}))
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in found.graph.initializer}
    for name, array in carried.items():
        np.testing.assert_array_equal(tensors[name], array)
    np.testing.assert_allclose(tensors["w"].var(axis=(1, 2, 3)) * 64 * 9, carried["variance"], rtol=0.3)


def test_unsupported_operators_are_named_with_their_node() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Det", ["r"], ["d"], name="odd one"),
        helper.make_node("NonZero", ["d"], ["n"]),
    ]
    model = model_from(nodes, {"x": np.ones((2, 2), np.float32)})
    with pytest.raises(
        UnsupportedModelError, match=r"but got Det in node 'odd one' \(not supported here: Det, NonZero\)"
    ):
        import_model(model)


@pytest.mark.parametrize("opset", [1, 5])
def test_operator_set_out_of_range(opset: int) -> None:
    model = make_model("Relu", {"x": np.ones(3, np.float32)})
    model.opset_import[0].version = opset
    with pytest.raises(UnsupportedModelError, match=f"operator set of a model must be 6 to 2., but got opset={opset}"):
        import_model(model)


def test_dynamic_shapes_need_values(tmp_path: Path) -> None:
    path = save_conv(tmp_path / "open.onnx", shape=("batch", 8, 6, 6))
    with pytest.raises(
        UnsupportedModelError, match=r"must have fixed positive dimensions, but got x=\(batch, 8, 6, 6\)"
    ):
        load_model(path)
    graph = import_model(load_model(path, shapes={"x": (3, 8, 6, 6)}))
    assert graph.type(graph.outputs[0]).shape == (3, 16, 4, 4)


@pytest.mark.parametrize(
    ("shapes_option", "rule"),
    [
        ({"x": (3, 8, 6)}, "must have 4 dimensions"),
        ({"x": (3, 9, 6, 6)}, "must agree with the model's"),
        ({"z": (3, 8, 6, 6)}, "must be of inputs of the model"),
    ],
)
def test_wrong_shapes(tmp_path: Path, shapes_option: dict[str, tuple[int, ...]], rule: str) -> None:
    path = save_conv(tmp_path / "open.onnx", shape=("batch", 8, 6, 6))
    with pytest.raises(UnsupportedModelError, match=rule):
        load_model(path, shapes=shapes_option)


def test_layers_whose_shapes_do_not_agree(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    path = save(tmp_path / "wrong.onnx", nodes, {"a": (3, 4), "b": (5, 6)}, [])
    with pytest.raises(UnsupportedModelError, match="must be a graph whose shapes agree"):
        load_model(path)


@pytest.mark.parametrize("part", [0.1, 0.6, 0.99])
def test_truncated_file(tmp_path: Path, part: float) -> None:
    path = save_conv(tmp_path / "cut.onnx")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
    with pytest.raises(UnsupportedModelError, match=r"`model` must be .*cut.onnx"):
        load_model(path)


def test_weight_that_is_computed_is_refused() -> None:
    inputs = {"x": np.ones((1, 2, 4, 4), np.float32), "w": np.ones((3, 2, 3, 3), np.float32)}
    with pytest.raises(UnsupportedModelError, match="Conv node 'only' must have a constant weight, but got w"):
        import_model(make_model("Conv", inputs))


def test_input_of_an_unknown_dtype() -> None:
    with pytest.raises(UnsupportedModelError, match=r"inputs of a model must be of float32, .* but got x: float64"):
        import_model(make_model("Relu", {"x": np.ones(3)}))
