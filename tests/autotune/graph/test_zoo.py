"""Networks built here: imported, optimised and held against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import load_model, shapes, with_shapes
from autotune.graph.passes import optimise
from autotune.graph.zoo import BUILDERS, bert_base
from tests.autotune.graph.onnx_models import Array, assert_close, evaluate_import, runtime

BERT: dict[str, Any] = {"layers": 2, "hidden": 48, "heads": 4, "sequence": 10, "batch": 2, "vocabulary": 120}
SMALL: dict[str, dict[str, Any]] = {
    "resnet18": {"size": 64, "classes": 10},
    "mobilenet_v2": {"size": 64, "classes": 10, "batch": 2},
    "bert_base": BERT,
}


def draw_inputs(model: onnx.ModelProto) -> dict[str, Array]:
    rng, known = np.random.default_rng(0), shapes(model)
    (value,) = model.graph.input
    if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return {value.name: rng.integers(0, 120, known[value.name])}
    return {value.name: rng.standard_normal(known[value.name]).astype(np.float32)}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("optimised", [False, True])
def test_networks_agree_with_onnx_runtime(name: str, optimised: bool) -> None:
    model = with_shapes(BUILDERS[name](**SMALL[name]))
    inputs = draw_inputs(model)
    graph = import_model(model)
    values = evaluate(optimise(graph) if optimised else graph, inputs)
    wanted = runtime(model, inputs)
    assert float(np.abs(wanted[0]).max()) > 0.1  # neither vanished nor blown up
    assert float(np.abs(wanted[0]).max()) < 1e3
    assert_close([values[name] for name in graph.outputs], wanted, 1e-4)


def test_decomposed_layer_normalisation_agrees() -> None:
    model = with_shapes(bert_base.build(**BERT, fused_normalisation=False))
    inputs = draw_inputs(model)
    assert_close(evaluate_import(model, inputs), runtime(model, inputs), 1e-4)


@pytest.mark.parametrize("name", BUILDERS)
def test_weights_depend_on_the_seed(name: str) -> None:
    first, again, other = (BUILDERS[name](seed, **SMALL[name]).SerializeToString() for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(("name", "output"), [("resnet18", (1, 1000)), ("mobilenet_v2", (1, 1000))])
def test_known_by_name(name: str, output: tuple[int, ...]) -> None:
    model = load_model(name)
    assert shapes(model)[model.graph.output[0].name] == output


def test_parameters_are_as_many_as_in_the_papers() -> None:
    def parameters(model: onnx.ModelProto) -> int:
        floats = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
        return sum(int(np.prod(t.dims)) for t in floats)

    assert abs(parameters(BUILDERS["resnet18"]()) / 11.69e6 - 1) < 0.01
    assert abs(parameters(BUILDERS["mobilenet_v2"]()) / 3.50e6 - 1) < 0.02


def test_heads_must_divide_the_hidden_size() -> None:
    with pytest.raises(ValueError, match="`heads` must divide hidden, but got heads=5, hidden=48"):
        bert_base.build(**{**BERT, "heads": 5})
