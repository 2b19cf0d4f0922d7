"""The table of models through `torch.compile`, on a model of two kernels."""

from __future__ import annotations

import argparse

import pytest

torch = pytest.importorskip("torch")

from benchmarks.pytorch import __main__ as pytorch  # noqa: E402
from benchmarks.survey.models import Model, load_models  # noqa: E402


class Sorting(torch.nn.Module):
    """What graphs do not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x)[0]


def test_a_row_says_what_is_left_and_how_far_the_outputs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), Sorting(), torch.nn.Linear(8, 4)).eval()
    monkeypatch.setattr(pytorch, "made", lambda model, seed: (module, {"x": torch.ones(3, 6)}))
    options = argparse.Namespace(threads=1, kernels="numpy", time=False, turns=1)
    row = pytorch.measure(Model("tiny", "own", "own"), options)
    assert (row["graphs"], row["pieces"], row["left"]) == (1, 2, {"sort.default": 1})
    assert row["error"] < 1e-6
    failed = {"title": "other", "failed": "ValueError: no"}
    lines = pytorch.shown([row, failed]).splitlines()
    assert lines[0] == "| model | graphs | pieces | operations | left to PyTorch | error |"
    assert lines[2].startswith("| tiny | 1 | ")
    assert lines[3] == "| other | – | – | – | – | ValueError: no |"


def test_the_list_has_sixty_models_of_three_libraries() -> None:
    models = load_models(pytorch.LISTED)
    assert len(models) == 60
    assert {model.library for model in models} == {"torchvision", "timm", "transformers"}


def test_a_model_is_explained_without_being_computed(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), Sorting()).eval()
    monkeypatch.setattr(pytorch, "made", lambda model, seed: (module, {"x": torch.ones(3, 6)}))
    pytorch.main(["--explain", "--rows", "resnet18"])
    assert capsys.readouterr().out.startswith("resnet18: 1 graphs, 1 compiled pieces")
