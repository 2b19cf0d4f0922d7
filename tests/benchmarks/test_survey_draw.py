"""Lists of networks for the survey that a seed draws."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.survey import draw
from benchmarks.survey.models import MODELS_FILE, SEALED_FILE, Model, load_models

MODELS = [Model(f"model{i}", "timm", f"family{i // 2}") for i in range(20)]


def draw_names(seed: int, count: int) -> list[str]:
    return [model.name for model in draw.draw(MODELS, count, np.random.default_rng(seed), 1.0)]


def test_a_seed_draws_one_model_of_each_family(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"model4", "model5"}
    monkeypatch.setattr(draw, "explain_refusal", lambda model, *_: "it is refused" if model.name in refused else None)
    drawn = draw_names(1, 6)
    assert drawn == draw_names(1, 6) and len(drawn) == 6
    assert drawn != draw_names(2, 6)
    every = draw_names(1, 100)
    assert every[:6] == drawn
    families = {model.name: model.family for model in MODELS}
    assert sorted(families[name] for name in every) == sorted({f"family{i}" for i in range(10)} - {"family2"})


def test_a_name_in_the_repository_is_passed_over_before_anything_is_loaded() -> None:
    assert draw.explain_refusal(Model("ResNet50", "timm", "resnet"), 1.0) == "its name stands in the repository"
    assert not draw.is_mentioned("a_name_of" + "_no_file")


def test_a_name_in_another_commit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    page = tmp_path / "page.md"
    for text in ("of old_net", "of new_net"):
        page.write_text(text)
        git("add", "page.md")
        git("commit", "--quiet", "-m", text)
    before = git("rev-parse", "HEAD~1").strip()
    monkeypatch.setattr(draw, "ROOT", tmp_path)
    assert draw.is_mentioned("new_net") and not draw.is_mentioned("old_net")
    assert draw.is_mentioned("old_net", [before])
    assert not draw.is_mentioned("other_net", [before])
    with pytest.raises(RuntimeError, match="names must be looked up in a repository of git"):
        draw.is_mentioned("old_net", ["0" * 40])


def test_a_folder_without_a_repository_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match="^names must be looked up in a repository of git, but got: fatal"):
        draw.is_mentioned("resnet50")


def test_a_list_is_one_of_the_survey(tmp_path: Path) -> None:
    models = [
        Model("one", "torchvision", "a"),
        Model("two", "timm", "b"),
        Model("Three", "transformers", "c", {"model": "Three", "inputs": {"pixel_values": {"float": [1, 3, 8, 8]}}}),
    ]
    file = tmp_path / "list.yaml"
    file.write_text(draw.format_list(models))
    assert load_models(file) == models


@pytest.mark.parametrize("text", ["timm", "timm=-1", "timm=²", "timm=x", "other=3", "onnx=1", ""])
def test_bad_counts_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        draw.main(["--seed", "1", "--counts", text])
    assert (
        "`counts` must be LIBRARY=NUMBER,... with torchvision, timm, transformers, but got" in capsys.readouterr().err
    )


def test_a_bad_seed_and_missing_packages_are_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def miss() -> list[Model]:
        raise ModuleNotFoundError("No module named 'timm'")

    monkeypatch.setitem(draw.LISTS, "timm", miss)
    for arguments, message in (
        (["--seed", "-1"], "`seed` must be an integer from 0, but got '-1'"),
        (["--seed", "1", "--counts", "timm=1"], "(pip install '.[bench,survey]'), but got: No module named 'timm'"),
    ):
        with pytest.raises(SystemExit) as end:
            draw.main(arguments)
        assert end.value.code == 2 and message in capsys.readouterr().err


def test_drawn_networks_are_on_no_other_list() -> None:
    unseen, by_seal = load_models(MODELS_FILE.with_name("unseen.yaml")), load_models(SEALED_FILE)
    for drawn in (unseen, by_seal):
        counts = {library: sum(model.library == library for model in drawn) for library in draw.COUNTS}
        assert counts == draw.COUNTS
        assert not {model.name for model in drawn} & {model.name for model in load_models()}
    assert not {model.name for model in unseen} & {model.name for model in by_seal}
