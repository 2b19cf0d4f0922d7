"""`torch.compile` with our backend: outputs, constants, fallback and refusals, on models of a few kernels."""

from __future__ import annotations

import re
import tomllib
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import autotune

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from autotune.pytorch import backend as backends  # noqa: E402
from autotune.pytorch.backend import autotune_backend  # noqa: E402
from autotune.pytorch.options import MOST_TRIALS, read_options  # noqa: E402
from tests.autotune.graph.torch_models import Counting  # noqa: E402

pytestmark = pytest.mark.usefixtures("kernel_cache")

ONE = {"threads": 1}


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Clears Dynamo's memory and seeds the weights."""
    torch._dynamo.reset()
    torch.manual_seed(0)


def compile_model(model: Any, **options: Any) -> Any:
    """The model by our backend, on one thread."""
    return torch.compile(model.eval(), backend=autotune_backend, dynamic=False, options={**ONE, **options})


def check(model: Any, *inputs: Any, tolerance: float = 1e-5, **options: Any) -> Any:
    """Outputs are those of PyTorch; the compiled model."""
    run = compile_model(model, **options)
    with torch.no_grad():
        wanted, found = model(*inputs), run(*inputs)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    return run


class Block(nn.Module):
    """A residual block, pooled and classified."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last((x + self.second(x)).mean((2, 3)))


class SortModule(nn.Module):
    """Two products with an operator between them that graphs do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values, _ = torch.sort(torch.relu(self.first(x)))
        return self.last(values)


def test_a_convolutional_network() -> None:
    run = check(Block(), x := torch.randn(2, 3, 8, 8))
    with torch.no_grad():
        wanted = run(x)
        torch.testing.assert_close(run(x.contiguous(memory_format=torch.channels_last)), wanted)


def test_a_layer_of_an_encoder() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    check(layer, torch.randn(2, 7, 16))


def test_bfloat16_is_taken_and_given() -> None:
    x = torch.randn(3, 6, dtype=torch.bfloat16)
    run = check(nn.Linear(6, 8).to(torch.bfloat16), x, tolerance=2e-2)
    with torch.no_grad():
        assert run(x).dtype == torch.bfloat16


def test_a_lower_precision_is_an_option() -> None:
    model, x = nn.Linear(6, 8), torch.randn(3, 6)
    run = check(model, x, tolerance=3e-2, precision="bfloat16")
    with torch.no_grad():
        assert not torch.equal(run(x), model(x))


def test_outputs_are_laid_out_as_pytorch_has_them() -> None:
    class TransposeModule(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x = torch.relu(x) * 2
            return x.transpose(1, 2), x, x[:, :1]

    run = check(TransposeModule(), x := torch.randn(2, 3, 4))
    with torch.no_grad():
        assert [t.stride() for t in run(x)] == [t.stride() for t in TransposeModule()(x)]


def test_an_input_that_is_written_to_is_written_to() -> None:
    model, x = Counting(), torch.randn(3, 4)
    run = compile_model(model)
    with torch.no_grad():
        for times in (1, 2, 3):
            torch.testing.assert_close(run(x), torch.relu(x) * times)
    assert model.count.tolist() == [3.0] * 4


def test_changed_parameters_are_compiled_anew() -> None:
    model, x = nn.Linear(6, 8), torch.randn(3, 6)
    run = check(model, x)
    with torch.no_grad():
        model.weight.mul_(2)
        torch.testing.assert_close(run(x), model(x))
        model.load_state_dict(nn.Linear(6, 8).state_dict())
        torch.testing.assert_close(run(x), model(x))


def test_operators_that_graphs_do_not_have_are_left_to_pytorch() -> None:
    check(SortModule(), x := torch.randn(3, 6))
    found = autotune.explain(SortModule(), x)
    assert (found.graphs, found.pieces) == (1, 2)
    assert [(left.operator, left.count) for left in found.left] == [("sort.default", 1)]
    assert str(found).splitlines() == [
        f"1 graphs, 2 compiled pieces of {found.compiled_operators} operations",
        "1 sort.default stays with PyTorch: operators must have a conversion to kernels, "
        "but aten.sort.default of node 'sort' has none",
    ]


def test_a_graph_break_is_explained() -> None:
    class BreakModule(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(x)
            torch._dynamo.graph_break()
            return x * 2

    found = autotune.explain(BreakModule(), torch.randn(4))
    assert (found.graphs, found.pieces, found.left) == (2, 2, ())
    assert sum(found.breaks.values()) == 1


def test_gradients_leave_a_graph_to_pytorch() -> None:
    model = nn.Linear(6, 8)
    with pytest.warns(UserWarning, match="gradients must be off"):
        compile_model(model)(torch.randn(3, 6)).sum().backward()
    assert model.weight.grad is not None


def test_tensors_elsewhere_leave_a_graph_to_pytorch() -> None:
    with torch.no_grad(), pytest.warns(UserWarning, match="tensors must be on the CPU, but got one on meta"):
        assert compile_model(nn.ReLU())(torch.empty(2, 3, device="meta")).shape == (2, 3)


def test_another_version_of_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "TESTED_VERSIONS", ("1.0", "1.1"))
    with torch.no_grad(), pytest.warns(UserWarning, match=r"PyTorch must be 1\.0 or 1\.1, but got"):
        torch.testing.assert_close(compile_model(nn.ReLU())(torch.ones(3)), torch.ones(3))


def test_trials_are_measured() -> None:
    class ScaleModule(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) * 2

    check(ScaleModule(), torch.randn(8, 16), trials=2)


def test_options() -> None:
    assert read_options(None, None).trials == 0
    assert read_options("max-autotune", {}).trials == MOST_TRIALS
    assert read_options("max-autotune", {"trials": 7, "threads": 2}).trials == 7
    with pytest.raises(ValueError, match=r"`mode` must be one of default, max-autotune, but got mode='fast'"):
        read_options("fast", None)
    with pytest.raises(ValueError, match=r"`options` must be among .*, but got 'trails'; did you mean 'trials'\?"):
        read_options(None, {"trails": 3})
    with pytest.raises(ValueError, match=r"`threads` must be a whole number of at least 1, but got threads=0"):
        read_options(None, {"threads": 0})
    with pytest.raises(ValueError, match=r"`shapes` must be a whole number of at least 1, but got shapes=0"):
        read_options(None, {"shapes": 0})
    with pytest.raises(ValueError, match=r"`precision` must be one of float32, .*, but got precision='int8'"):
        read_options(None, {"precision": "int8"})


def test_the_project_declares_the_backend() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    module, name = project["entry-points"]["torch_dynamo_backends"]["autotune"].split(":")
    assert getattr(import_module(module), name) is autotune_backend


def test_the_backend_is_known_by_its_name_once_registered() -> None:
    if "autotune" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(autotune_backend, name="autotune")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.compile(nn.ReLU(), backend="autotune", dynamic=False)(torch.tensor([-1.0, 2.0]))
    assert found.tolist() == [0.0, 2.0]


def test_the_page_holds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "pytorch.md").read_text()
    names: dict[str, Any] = {}
    exec(
        compile("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)), page[:10], "exec"),
        names,
    )
    said = re.findall(r"^# (\d.*)$", page, re.MULTILINE)
    assert str(names["found"]).splitlines() == said
    assert tuple(names["outputs"].shape) == (4, 8)
