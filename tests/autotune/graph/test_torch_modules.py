"""Modules of PyTorch by import path, and as arguments of `autotune.compile`: exported by `torch.export`."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import autotune  # noqa: E402
from autotune.compiler.checking.check import check_network  # noqa: E402
from autotune.compiler.checking.process import RuntimeFailure  # noqa: E402
from autotune.compiler.options import CompileOptions  # noqa: E402
from autotune.compiler.prepare import load_network  # noqa: E402
from autotune.compiler.schedules import Schedules  # noqa: E402
from autotune.compiler.torch_source import TorchSource  # noqa: E402
from autotune.graph import import_path  # noqa: E402
from autotune.graph.errors import UnsupportedModelError  # noqa: E402
from autotune.graph.evaluate import evaluate  # noqa: E402
from autotune.graph.frontends.aten.modules import export  # noqa: E402
from autotune.graph.frontends.onnx.model import load_model  # noqa: E402
from autotune.graph.import_path import call_path, is_import_path  # noqa: E402
from autotune.graph.passes import optimise  # noqa: E402
from search_space.dtypes import NARROW  # noqa: E402
from search_space.operators.estimates import STEP  # noqa: E402
from tests.autotune.fakes import settings_with  # noqa: E402


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module `my_nets` with functions."""
    found: Any = types.ModuleType("my_nets")
    found.none, found.other = nn.ReLU, lambda: (1, (2, 3))
    found.one = lambda: (nn.ReLU(), torch.ones(2, 3))
    monkeypatch.setitem(sys.modules, "my_nets", found)


@pytest.mark.usefixtures("nets")
def test_a_path_gives_a_module_and_inputs() -> None:
    module, inputs = call_path("my_nets:one")
    assert isinstance(module, nn.ReLU) and inputs.shape == (2, 3)
    with pytest.raises(
        UnsupportedModelError,
        match=r"must be given a model of ONNX, .* by `autotune.graph.frontends.aten.import_exported`",
    ):
        load_model("my_nets:one")


def test_missing_torch_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_path, "find_spec", lambda name: None)
    with pytest.raises(
        UnsupportedModelError, match=r"needs the package `torch` \(pip install torch\), .* model='my_nets:one'"
    ):
        call_path("my_nets:one")


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("no_such_module:one", "must be the import path of a function .*No module named 'no_such_module'"),
        ("my_nets:two", "must be the import path of a function .*has no attribute 'two'"),
        ("my_nets:none", "must give .torch.nn.Module, inputs., .* which gives ReLU"),
        ("my_nets:other", "must give .torch.nn.Module, inputs., .* which gives int"),
    ],
)
def test_wrong_functions(path: str, rule: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        call_path(path)


@pytest.mark.parametrize("text", ["resnet50", "a/b.onnx", "C:\\models\\a.onnx", "a.b:c.d", ":f", "a:"])
def test_other_names_are_no_import_paths(text: str) -> None:
    assert not is_import_path(text)


class Arguments(nn.Module):
    """Takes tensors by place and by name, and numbers; gives a mapping of tensors and tuples, and nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Any, pair: Any, scale: float = 2.0, *, bias: Any = None) -> Any:
        y = self.norm(x) * scale + pair["left"] - pair["right"]
        return {"logits": y, "parts": (y + bias if bias is not None else y * 2, x.sum()), "cache": None}


def test_arguments_and_outputs_of_any_structure() -> None:
    torch.manual_seed(0)
    x, left, right, bias = (torch.randn(3, 4) for _ in range(4))
    module = Arguments()
    module.norm.train(False)
    args = (x, {"left": left, "right": right}, 3.0, {"bias": bias})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch's own notices are none of the caller's
        source = TorchSource.of(module, args)
        graph = source.graph()
    assert module.training and not module.norm.training  # both are left as they were
    assert [*graph.inputs] == ["x", "pair_left", "pair_right", "bias"]
    assert graph.output_names == tuple(source.output_names) == ("logits", "parts_0", "parts_1")
    feeds = {name: tensor.numpy() for name, tensor in zip(graph.inputs, (x, left, right, bias), strict=True)}
    with torch.no_grad():
        wanted = module.eval()(*args[:3], bias=bias)
    values, (_, given) = evaluate(graph, feeds), source.outputs(feeds, 1, Path())
    for name, value, tensor in zip(
        graph.output_names, graph.outputs, (wanted["logits"], *wanted["parts"]), strict=True
    ):
        np.testing.assert_allclose(values[value], tensor.numpy(), rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(given[name], tensor.numpy())


class Branching(nn.Module):
    """A module that branches by its data."""

    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class Halves(nn.Module):
    """Is of an even number of rows alone."""

    def forward(self, x: Any) -> Any:
        return x.reshape(2, -1, 4).sum(0) if x.shape[0] == 8 else x


@pytest.mark.parametrize(
    ("module", "inputs", "shapes", "rule"),
    [
        (nn.ReLU(), np.zeros(3), {}, "`example_inputs` must be a tensor or a tuple of tensors, but got ndarray"),
        (nn.ReLU(), torch.ones(3), {"x": ["n"]}, r"`shapes` must be of inputs of the model \(input\), but got 'x'"),
        (nn.ReLU(), torch.ones(3), {"input": [1, 3]}, r"must have 1 dimensions, but got \[1, 3\]"),
        (nn.ReLU(), torch.ones(3), {"input": [4]}, r"must agree with the model's, but got \[4\]"),
        (Branching(), torch.ones(3), {}, "torch.export must take Branching, but says: Could not guard on data"),
        (Halves(), torch.ones(8, 4), {"x": ["n", 4]}, "torch.export must take Halves, but says: Constraints violated"),
    ],
)
def test_what_cannot_be_exported(module: Any, inputs: Any, shapes: Any, rule: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        export(module, inputs, shapes, {"n": (1, 8)})


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_torchscript_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"must be a torch.nn.Module that is not compiled by TorchScript"):
        export(torch.jit.script(nn.ReLU()), torch.ones(3))


def test_a_module_of_open_sizes() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
    sizes = {"shapes": {"input": ["n", 4]}, "sizes": {"n": (1, 9)}}
    network = autotune.compile(module, torch.randn(1, 4), threads=1, cache="none", **sizes)
    for rows in (1, 2, 9):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            torch.testing.assert_close(torch.as_tensor(network(x)), module(x))


def test_the_reference_of_a_module_is_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 25, 6)]
    source = TorchSource.of(nn.Sequential(*layers, nn.Softmax(-1)), torch.randn(2, 3, 5, 5))
    settings = settings_with()
    network = load_network(source, "small", CompileOptions())
    check = check_network(network, Schedules(None, settings), settings, layers=True)
    assert check.reference == "PyTorch" and check.max_error < 1e-5
    assert len(check.layers) >= 2 and max(check.layers.values()) < 1e-5
    narrow = load_network(source, "small", CompileOptions(precision="bfloat16"))
    assert check_network(narrow, Schedules(None, settings), settings).rounding["output"].decibels > 30
    feeds = {"input": np.random.default_rng(0).standard_normal((2, 3, 5, 5)).astype(np.float32)}
    (exact,) = source.exact_outputs(feeds).values()
    assert exact.dtype == np.float64
    with pytest.raises(RuntimeFailure, match=r"a model of ONNX, which `torch.onnx.export` writes"):
        source.save(tmp_path / "model.onnx")


def make_mixed_module(dtype: str, autocast: bool) -> Any:
    """A module in a 16-bit float, or one whose forward pass is under `torch.autocast`, and an input of it."""

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.projection, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

        def attend(self, x: Any) -> Any:
            query, key, value = self.projection(self.norm(x)).chunk(3, -1)
            scores = query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5
            return x + self.out(nn.functional.gelu(torch.softmax(scores, -1) @ value)) * 0.5

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", getattr(torch, dtype), enabled=autocast):
                return self.attend(x)

    torch.manual_seed(0)
    module, data = Attending().eval(), torch.randn(2, 5, 8)
    return (module, data) if autocast else (module.to(getattr(torch, dtype)), data.to(getattr(torch, dtype)))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", NARROW)
def test_modules_in_16_bits(dtype: str, autocast: bool) -> None:
    module, data = make_mixed_module(dtype, autocast)
    source = TorchSource.of(module, data)
    graph = optimise(source.graph())
    assert source.narrow_types == (dtype,) and source.precision == dtype
    products = [node for node in graph.nodes if node.op in ("matmul", "batch_matmul")]
    assert len(products) == 4
    assert {graph.type(name).dtype for node in products for name in node.inputs} == {dtype}
    kind = "float32" if autocast else dtype
    assert graph.type(graph.outputs[0]).dtype == next(iter(graph.inputs.values())).dtype == kind
    given = data.float().numpy().astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    feeds = {next(iter(graph.inputs)): given}
    values = evaluate(graph, feeds)
    with torch.no_grad():
        wanted = module(data).float().numpy()
        exact = module.float().attend(data.float()).numpy()
    ours = values[graph.outputs[0]].astype(np.float32)
    step = STEP[dtype] * np.abs(exact).max()
    np.testing.assert_allclose(ours, wanted, atol=2 * step)
    assert np.square(ours - exact).mean() < 2 * np.square(wanted - exact).mean()
    (wide,) = source.in_float32().outputs(feeds, 1, Path())[1].values()
    np.testing.assert_allclose(wide, exact, rtol=1e-5, atol=1e-5)


class Converting(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.tanh(x.bfloat16()).float() + x.to(torch.int32)


def test_conversions_are_imported_without_the_checks_that_pytorch_adds() -> None:
    data = torch.linspace(-3, 3, 7)
    graph = optimise(TorchSource.of(Converting(), data).graph())
    values = evaluate(graph, {next(iter(graph.inputs)): data.numpy()})
    np.testing.assert_allclose(values[graph.outputs[0]], Converting()(data), atol=2 * STEP["bfloat16"])
