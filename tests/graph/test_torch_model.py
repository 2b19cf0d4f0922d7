"""PyTorch modules by import path; what torch exports is imitated, so that nothing here needs torch."""

from __future__ import annotations

import importlib.machinery
import sys
import types
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotune.graph import torch_model
from autotune.graph.evaluate import evaluate
from autotune.graph.importer import import_model
from autotune.graph.onnx.model import ModelError, load_model, shapes
from autotune.graph.passes import optimise
from search_space.dtypes import NARROW
from search_space.operators.estimates import STEP
from tests.graph.onnx_models import model_of


class Module:
    """Stands for torch.nn.Module."""

    def __init__(self) -> None:
        self.training = True

    def modules(self) -> list[Module]:
        return [self]

    def eval(self) -> Module:
        self.training = False
        return self


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A stand-in for torch; the list of what was exported: module, whether it was in training, options."""
    exported: list[Any] = []

    def export(module: Module, args: tuple[Any, ...], file: Any, **options: Any) -> None:
        exported.append((module, module.training, options))
        file.write(model_of("Relu", {"x": np.zeros(args[0], np.float32)}).SerializeToString())

    fake: Any = types.ModuleType("torch")
    fake.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    fake.nn, fake.onnx = types.SimpleNamespace(Module=Module), types.SimpleNamespace(export=export)
    fake.no_grad, fake.Tensor = nullcontext, np.ndarray
    monkeypatch.setitem(sys.modules, "torch", fake)
    return exported


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `my_nets` with functions."""
    found: Any = types.ModuleType("my_nets")
    found.none, found.other = Module, lambda: (1, (2, 3))
    found.one = lambda: (Module(), [(2, 3)])
    monkeypatch.setitem(sys.modules, "my_nets", found)


@pytest.mark.usefixtures("nets")
def test_module_is_exported_in_evaluation_mode(torch: list[Any]) -> None:
    model = load_model("my_nets:one")
    ((module, training, options),) = torch
    assert not training and module.training  # it is left as it was
    assert options["opset_version"] == torch_model.OPSET
    assert shapes(model)["x"] == shapes(model)["y0"] == (2, 3)


def test_missing_torch_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_model, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"needs the package `torch` \(pip install torch\), .* model='my_nets:one'"):
        load_model("my_nets:one")


@pytest.mark.usefixtures("nets", "torch")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("no_such_module:one", "must be the import path of a function .*No module named 'no_such_module'"),
        ("my_nets:two", "must be the import path of a function .*has no attribute 'two'"),
        ("my_nets:none", "must give .torch.nn.Module, inputs., .* which gives Module"),
        ("my_nets:other", "must give .torch.nn.Module, inputs., .* which gives int"),
    ],
)
def test_wrong_functions(path: str, rule: str) -> None:
    with pytest.raises(ModelError, match=rule):
        load_model(path)


@pytest.mark.parametrize("text", ["resnet50", "a/b.onnx", "C:\\models\\a.onnx", "a.b:c.d", ":f", "a:"])
def test_other_names_are_no_import_paths(text: str) -> None:
    assert not torch_model.is_import_path(text)


def small() -> Any:
    """A module of torch itself."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(4 * 25, 6), torch.nn.LayerNorm(6)), torch.randn(2, 3, 5, 5)


def test_torch_itself() -> None:
    torch = pytest.importorskip("torch")
    sys.modules.setdefault(__name__, sys.modules[small.__module__])
    module, data = small()
    graph = import_model(load_model(f"{small.__module__}:small"))
    values = evaluate(graph, {next(iter(graph.inputs)): data.numpy()})
    with torch.no_grad():
        wanted = module.eval()(data).numpy()
    np.testing.assert_allclose(values[graph.outputs[0]], wanted, atol=1e-5)


def mixed(dtype: str, autocast: bool) -> Any:
    """A module in a 16-bit float, or one whose forward pass is under `torch.autocast`, and an input of it."""
    torch = pytest.importorskip("torch")

    class Attending(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.made, self.out = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

        def attended(self, x: Any) -> Any:
            query, key, value = self.made(self.norm(x)).chunk(3, -1)
            scores = query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5  # a number that torch writes as a complex one
            return x + self.out(torch.nn.functional.gelu(torch.softmax(scores, -1) @ value)) * 0.5

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", getattr(torch, dtype), enabled=autocast):
                return self.attended(x)

    torch.manual_seed(0)
    module, data = Attending().eval(), torch.randn(2, 5, 8)
    return (module, data) if autocast else (module.to(getattr(torch, dtype)), data.to(getattr(torch, dtype)))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", NARROW)
def test_modules_in_16_bits(dtype: str, autocast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    found: Any = types.ModuleType("my_nets")
    found.one = lambda: mixed(dtype, autocast)
    monkeypatch.setitem(sys.modules, "my_nets", found)
    module, data = mixed(dtype, autocast)
    graph = optimise(import_model(load_model("my_nets:one")))
    products = [node for node in graph.nodes if node.op in ("matmul", "batch_matmul")]
    assert len(products) == 4
    assert {graph.type(name).dtype for node in products for name in node.inputs} == {dtype}
    kind = "float32" if autocast else dtype
    assert graph.type(graph.outputs[0]).dtype == next(iter(graph.inputs.values())).dtype == kind
    given = data.float().numpy().astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    values = evaluate(graph, {next(iter(graph.inputs)): given})
    with torch.no_grad():
        wanted = module(data).float().numpy()
        exact = module.float().attended(data.float()).numpy()
    ours = values[graph.outputs[0]].astype(np.float32)
    step = STEP[dtype] * np.abs(exact).max()
    np.testing.assert_allclose(ours, wanted, atol=2 * step)
    assert np.square(ours - exact).mean() < 2 * np.square(wanted - exact).mean()
