"""Mistakes of whoever calls the package: each ends in one sentence, which names what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, helper

import autotune
from autotune import language
from search_space import workloads
from targets.manifest import ExecutableError
from targets.native_executable import NativeExecutable
from tests.autotune.compiler.test_compile import choose_schedule
from tests.autotune.graph.nets import compile_graph, residual


def model() -> ModelProto:
    """A relu of (2, 8)."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 3}, "`model` must be a file, a name, a model of ONNX or a module of PyTorch, but got 3"),
        ({"shapes": {"x": 3}}, "`shapes` of x must be a list of numbers, but got 3"),
        ({"shapes": [2, 8]}, r"`shapes` must be a mapping, but got shapes=\[2, 8\]"),
        ({"sizes": {"n": 5}}, "`sizes` of n must be a list of numbers, but got 5"),
        ({"quantise": "weights4", "quantisation": 5}, "`quantisation` must be a mapping, but got quantisation=5"),
        ({"algorithms": "strassen"}, "`algorithms` must be a list of names, but got algorithms='strassen'"),
        ({"output": "file"}, "`output` must be a folder to write to, but got file: File exists"),
        ({"output": "file/within"}, "`output` must be a folder to write to, but got file/within: Not a directory"),
        (
            {"model": torch.nn.ReLU(), "example_inputs": np.zeros(3)},
            "must be a tensor or a tuple of tensors, .* ndarray",
        ),
    ],
)
def test_compile(arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    with pytest.raises(ValueError, match=message):
        autotune.compile(**{"model": model(), **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": "matmul"}, "`workload` must be one of search_space.workloads, .*, but got workload='matmul'"),
        ({"workload": None}, "`workload` must be one of .*, but got workload=None"),
        ({"trials": 2.5}, "`trials` must be an integer of at least 1, but got trials=2.5"),
        ({"seed": "a"}, "`seed` must be an integer of at least 0, but got seed='a'"),
        (
            {"callbacks": [print]},
            "`callbacks` must be objects of autotune.tuner.callbacks.Callback, but got <built-in",
        ),
    ],
)
def test_tune(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        autotune.tune(**{"workload": workloads.matmul(4, 4, 4), "trials": 1, **arguments})


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> NativeExecutable:
    found = compile_graph(residual(), choose_schedule, tmp_path_factory.mktemp("mistakes") / "network", threads=1)
    assert isinstance(found, NativeExecutable)
    return found


def test_executables(network: NativeExecutable, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for wrong in ("2", 1.5):
        with pytest.raises(ExecutableError, match=f"`threads` must be from 1 to .*, but got threads={wrong!r}"):
            autotune.load(network.folder, threads=wrong)  # type: ignore[arg-type]
    for iterations in (-1, "3", 2.5):
        with pytest.raises(ExecutableError, match=f"`iterations` must be .*, but got iterations={iterations!r}"):
            network.time(iterations)  # type: ignore[arg-type]
    with pytest.raises(ExecutableError, match="`folder` must be one that can be written, but got .*: File exists"):
        network.save(file)
    for place, why in ((tmp_path, "Is a directory"), (tmp_path / "no" / "t.json", "No such file or directory")):
        with pytest.raises(ExecutableError, match=f"`path` must be a file that can be written, but got .*: {why}"):
            network.profile(1).to_chrome_trace(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_language_models() -> None:
    with pytest.raises(
        language.LanguageModelError,
        match="`model` must be one that `gpt2`, `llama` or `read_gguf` gives, but got model=3",
    ):
        language.compile(3)  # type: ignore[arg-type]
