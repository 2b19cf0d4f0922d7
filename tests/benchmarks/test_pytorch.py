"""Models through `torch.compile` beside PyTorch's own ways: what rows say, what is right, what is done already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.pytorch import __main__ as command
from benchmarks.pytorch import one, runtime
from benchmarks.pytorch.table import RIGHT, pytorch, ratio
from benchmarks.survey.models import Model, load_models
from benchmarks.survey.process import Facts, ProcessEnd
from tests.benchmarks.waiting import waiting

MODEL = Model("tiny", "own", "own")
ROW: dict[str, Any] = {
    "name": "net",
    "library": "timm",
    "missing": {},
    "errors": {"autotune": 1e-6, "inductor": 1e-6},
    "seconds": {"autotune": 2e-3, "inductor": 3e-3, "inductor-frozen": 1e-3, "eager": 4e-3},
    "cold_seconds": {"autotune": 4.0, "inductor": 20.0, "inductor-frozen": 30.0},
    "warm_seconds": {"autotune": 1.0, "inductor": 2.0, "inductor-frozen": 3.0},
    "unsteady": 0.04,
}


def test_ratios_are_of_right_outputs_alone() -> None:
    assert ratio(ROW, "seconds", "inductor") == pytest.approx(1.5)
    assert ratio(ROW, "cold_seconds", "inductor-frozen") == pytest.approx(7.5)
    assert ratio(ROW, "seconds", "another") is None
    for wrong in (None, 2 * RIGHT):
        assert ratio({**ROW, "errors": {"autotune": wrong}}, "seconds", "inductor") is None


def test_the_table_says_what_is_slower_and_what_is_missing() -> None:
    slow = {**ROW, "name": "slow", "seconds": {"autotune": 4e-3, "inductor": 3e-3}}
    failed = {"name": "bad", "library": "timm", "missing": {}, "failed": "compile by autotune: no"}
    lacking = {**ROW, "name": "lacking", "missing": {"inductor": "no compiler"}, "seconds": {"autotune": 1e-3}}
    text = pytorch({"rows": {str(place): row for place, row in enumerate((ROW, slow, failed, lacking))}})
    assert "3 of 4 models are right." in text
    assert "Under 0.9x of Inductor: slow 0.75x." in text
    assert "Missing: bad: compile by autotune: no; Inductor on lacking: no compiler." in text
    assert "| inference, the fastest of all | 0.61x | 0.50x | 2 | 2 |" in text
    assert "| inference, Inductor | 1.06x | 0.75x | 1 | 2 |" in text
    assert "| net | timm |  | 1e-06 | 2.00 | 3.00 | 1.00 | 4.00 | 1.50x | 0.50x | 4.0 / 1.0 |" in text


def test_the_list_has_sixty_models_of_three_libraries() -> None:
    models = load_models(command.MODELS_FILE)
    assert len(models) == 60
    assert {model.library for model in models} == {"torchvision", "timm", "transformers"}


def test_errors_are_relative_to_the_largest_output() -> None:
    wanted = np.array([1.0, -4.0], np.float32)
    answers = {"eager": wanted, "autotune": wanted + np.float32(0.5), "inductor": wanted * np.float32(np.nan)}
    assert one.compute_errors(answers) == {"autotune": pytest.approx(0.125), "inductor": None}


def test_a_model_is_compiled_twice_in_processes_and_timed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Real processes with a model of this file, which the list's maker is replaced by."""
    monkeypatch.setattr(one.ModelProcess, "server", "tests.benchmarks.tiny_torch")
    request = {"model": MODEL.to_json(), "seed": 0, "threads": 1, "turns": 1, "runtimes": ["eager", "autotune"]}
    facts = Facts(tmp_path / "facts.jsonl")
    one.take({**request, "folder": str(tmp_path)}, facts)
    found = facts.all()
    assert found["errors"]["autotune"] < 1e-6 and not found["missing"]
    assert set(found["seconds"]) == {"eager", "autotune"} and set(found["warm_seconds"]) == {"autotune"}
    assert list((tmp_path / "cache-autotune").rglob("*")), "the cache of the runtime is one of its own"


def test_what_fails_is_a_row_that_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: dict[str, Any], capsys
) -> None:
    """Models that have a row are left out, as long as the commit is unchanged."""

    def end_by_signal(module: str, request: dict[str, Any], seconds: float) -> ProcessEnd:
        asked.append(request["model"]["name"])
        Facts(Path(request["facts"])).begin("compile by eager")
        return ProcessEnd("the process was ended by SIGKILL")

    asked: list[str] = []
    monkeypatch.setattr(command, "run_with_limit", end_by_signal)
    given = ["--only", "resnet50,opt_125m", "--threads", "1", "--results", str(tmp_path)]
    assert command.main(given) == 0 and command.main(given) == 0
    assert asked == ["resnet50", "opt_125m"]
    rows = waiting("pytorch", tmp_path)
    assert {row["failed"] for row in rows.values()} == {"compile by eager: the process was ended by SIGKILL"}
    assert "0 of 2 models are right" in capsys.readouterr().out
    state["commit"] = "another"
    assert command.main(given) == 0 and len(asked) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "nothing"], "only='nothing'"),
        (["--only", "gpt2"], "`only` must be among alexnet, "),
        (["--peers", "eager"], "must be among inductor"),
    ],
)
def test_unknown_names_are_refused(arguments: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_a_model_is_explained_without_being_computed(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    from tests.benchmarks.tiny_torch import make_model

    monkeypatch.setattr(command, "make_model", make_model)
    command.main(["--explain", "--only", "resnet18"])
    assert capsys.readouterr().out.startswith("resnet18: 1 graphs, 2 compiled pieces")


def test_options_of_compilers_are_what_their_titles_say() -> None:
    assert set(runtime.TITLES) == set(runtime.RUNTIMES)
    assert runtime.Ours.options == {"backend": "autotune"} and runtime.Inductor.options == {}
    assert command.PEERS == (runtime.INDUCTOR, runtime.INDUCTOR_BEST)
    assert runtime.BestInductor.options == {"options": {"freezing": True, "max_autotune": True}}
