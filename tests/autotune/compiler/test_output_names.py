"""Names of inputs and outputs: those of the model's file, whatever passes and copies call the values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx import helper as h

import autotune
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import with_shapes
from autotune.graph.passes import OPTIONAL, PASSES

WEIGHT = np.random.default_rng(0).standard_normal((8, 8), np.float32)
OUTPUTS = ("scores", "again", "echo", "x", "w", "class")
"""A softmax, the same value, the input by another name and by its own, a weight, and a keyword of C++."""


def model(rows: int | str = 2) -> onnx.ModelProto:
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["product"]),
        h.make_node("Softmax", ["product"], ["scores"]),
        h.make_node("Identity", ["scores"], ["again"]),
        h.make_node("Identity", ["x"], ["echo"]),
        h.make_node("Relu", ["product"], ["class"]),
    ]
    shapes = {name: [rows, 8] for name in OUTPUTS} | {"w": [8, 8]}
    outputs = [h.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in OUTPUTS]
    inputs = [h.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])]
    graph = h.make_graph(nodes, "named", inputs, outputs, [numpy_helper.from_array(WEIGHT, "w")])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("name", [*PASSES, *OPTIONAL])
def test_passes_leave_them(name: str) -> None:
    graph = {**PASSES, **OPTIONAL}[name](import_model(with_shapes(model())))
    assert graph.output_names == OUTPUTS


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "c"},
        {"precision": "bfloat16"},
        {"quantise": "int8"},
        {"sizes": {"n": (1, 4)}, "shapes": {"x": ("n", 8)}},
    ],
    ids=["floats", "c", "bfloat16", "int8", "sizes"],
)
def test_a_mapping_has_them(options: dict[str, object], tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((2, 8), np.float32)
    executable = autotune.compile(model("rows" if "sizes" in options else 2), **options)  # type: ignore[arg-type]
    found = executable({"x": x})
    assert tuple(found) == OUTPUTS == tuple(p.name for p in executable.outputs)
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["echo"], x)
    np.testing.assert_array_equal(found["w"], WEIGHT)
    np.testing.assert_array_equal(found["again"], found["scores"])
    np.testing.assert_allclose(found["class"], np.maximum(x @ WEIGHT, 0), atol=0.2)
    again = autotune.load(executable.save(tmp_path / "saved"))({"x": x})
    assert tuple(again) == OUTPUTS
    header = next((tmp_path / "saved").glob("*.h"))
    languages = ["c"] if "target" in options or not shutil.which("g++") else ["c", "c++"]
    for language in languages:
        command = ["cc", "-fsyntax-only", "-x", language, str(header)]
        assert subprocess.run(command, capture_output=True, text=True).stderr == ""
