"""Operators and strategies of one's own: by file, by class, in workers that know nothing of them; and total failure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.tuner.callbacks import Callback
from autotune.tuner.result import AllTrialsFailed
from autotune.tuner.search import SearchStrategy, get
from autotune.tuner.search.random import RandomSearch
from measure.database import Database
from measure.errors import ErrorClass
from measure.local import LocalPool
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.settings import LocalSettings
from search_space import operators, te, workloads
from search_space.operators.base import Args, Operator, Precision
from search_space.workloads import OPERATORS, Workload
from tests.autotune import fakes

OPERATOR = '''
import numpy as np
from search_space import te
from search_space.operators.base import Operator, Precision


def checked(rows, columns=16):
    """Each row less its mean."""
    return {"rows": rows, "columns": columns}


def by_mean(args):
    x = te.placeholder((args["rows"], args["columns"]), name="x")
    r = te.reduce_axis((0, args["columns"]), "r")
    total = te.compute((args["rows"],), lambda i: te.sum(x[i, r], axis=r), name="total")
    return [x, te.compute(x.shape, lambda i, j: x[i, j] - total[i] * (1 / args["columns"]), name="centred")]


def by_parts(args):
    x, _ = by_mean(args)
    r = te.reduce_axis((0, args["columns"]), "r")
    mean = te.compute((args["rows"],), lambda i: te.sum(x[i, r] * (1 / args["columns"]), axis=r), name="mean")
    return [x, te.compute(x.shape, lambda i, j: x[i, j] - mean[i], name="centred")]


def reference(args, x):
    return x - x.mean(axis=1, keepdims=True)


CENTRED = Operator(
    "centred", checked, {"direct": by_mean, "parts": by_parts}, reference,
    lambda args: 3 * args["rows"] * args["columns"], Precision(lambda args: args["columns"]),
)
WRONG = Operator(
    "wrong", checked, {"direct": by_mean}, lambda args, x: x, lambda args: 1, Precision(lambda args: args["columns"])
)
'''
STRATEGY = '''
from autotune.tuner.search.random import RandomSearch


class Mine(RandomSearch):
    """Random search of my own."""
'''
SEARCH: dict[str, Any] = {"trials": 6, "batch": 3, "cost_model": "roofline", "threads": 1, "finalists": 0}
WORKLOAD = workloads.matmul(16, 32, 8)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(OPERATOR + STRATEGY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_operator_in_a_file_reaches_workers_and_records_as_plain_data(here: Path) -> None:
    workload = workloads.own("mine.py:CENTRED", rows=8)
    assert workload.key.startswith("definitions(centred(rows=8,columns=16),sha256=")
    assert workload.algorithms == ("direct", "parts") and workload.flops == 384
    with LocalPool(LocalSettings(builders=1)) as pool:
        result = fakes.tune(workload, pool=pool, records="records.jsonl", **SEARCH)
    assert result.errors == {} and {record.algorithm for record in result.records} == {"direct", "parts"}
    x = np.random.default_rng(0).uniform(-1, 1, (8, 16)).astype(np.float32)
    np.testing.assert_allclose(result.kernel(x), x - x.mean(axis=1, keepdims=True), atol=1e-5)
    with Database("records.jsonl", readonly=True) as database:
        for record in database.records():
            assert "mine" not in json.dumps(dict(record.trial.workload))
            assert Workload.from_json(record.trial.workload) == workload and record.workload_key == workload.key


def mine(here: Path) -> Operator[Any]:
    found = operators.resolve_operator(f"{here / 'mine.py'}:CENTRED")
    assert found is operators.resolve_operator("mine.py:CENTRED"), "a file is run once"
    return found


def test_an_operator_registered_in_one_program_is_tuned_like_any_other(here: Path) -> None:
    operators.register(mine(here))
    try:
        registered = Workload("centred", {"rows": 8})
        result = fakes.tune(registered, pool=fakes.HashPool(), **SEARCH)
        assert result.name == "centred" and result.workload == workloads.own(mine(here), rows=8) == registered.portable
    finally:
        del OPERATORS["centred"]
    assert Workload.from_json(result.workload.to_json()).tolerance == result.workload.tolerance
    plain = workloads.matmul(2, 3, 4)
    assert plain.portable is plain


def test_its_reference_must_agree_with_its_definition(here: Path) -> None:
    with pytest.raises(ValueError, match="`reference` of wrong must give what its definition computes, but differs by"):
        workloads.own("mine.py:WRONG", rows=8)


def test_no_name_in_a_record_or_from_a_machine_runs_code(here: Path) -> None:
    (here / "evil.py").write_text("import pathlib\n\npathlib.Path('ran').touch()\n")
    for name in ("evil.py:X", "evil:X", f"{here / 'evil.py'}:X"):
        with pytest.raises(ValueError, match="`operator` must be one of"):
            Workload.from_json({"operator": name, "args": {}})
    assert not (here / "ran").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.py:X", "`operator` must name a file that exists, but got operator='absent.py:X'"),
        ("mine.py:absent", "`operator` must name something that mine.py has, but got operator='mine.py:absent'"),
        ("mine.py:checked", "`operator` must name an Operator"),
        ("absent_module:X", "`operator` must name a module that can be imported"),
        ("centered", "`operator` must be one of conv2d"),
        (3, "`operator` must be an Operator or the name of one, but got operator=3"),
    ],
)
def test_names_that_are_no_operator_are_told(here: Path, name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workloads.own(name, rows=8)


DATA = workloads.from_tensors(
    [(x := te.placeholder((4,), name="x")), te.compute((4,), lambda i: x[i] * 2.0, name="y")]
).args["definition"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a\nb"}, "`name` must be a line of at most 500 characters"),
        ({"algorithms": []}, "`algorithms` must be pairs of a name and a definition"),
        ({"algorithms": [["direct", {}]]}, "a definition must have the keys inputs, stages"),
        ({"algorithms": [["direct", DATA], ["direct", DATA]]}, "`algorithms` must have different names"),
        ({"algorithms": [["direct", DATA], ["b", {**DATA, "inputs": [{**DATA["inputs"][0], "constant": True}]}]]},
         "must take and give the same tensors, but b and direct differ"),
        ({"flops": -1}, "`flops` must be an integer of at least 0, but got flops=-1"),
        ({"terms": 1.5}, "`terms` must be an integer of at least 0"),
        ({"scale": float("nan")}, "`scale` must be a number of at least 0"),
        ({"bounds": [0]}, r"`bounds` must be two numbers, but got bounds=\[0\]"),
    ],
    ids=str,
)  # fmt: skip
def test_plain_data_that_are_no_operator_are_refused(changes: dict[str, Any], message: str) -> None:
    args = {"name": "mine()", "algorithms": [["direct", DATA]], "flops": 4, **changes}
    with pytest.raises(ValueError, match=message):
        Workload.from_json({"operator": "definitions", "args": args})


def keys(**options: Any) -> list[str]:
    result = fakes.tune(WORKLOAD, pool=fakes.HashPool(), **{**SEARCH, **options})
    return [record.trace_key for record in result.records]


class Own(RandomSearch):
    """A strategy of this module, which a worker could not import."""


def test_a_strategy_of_ones_own_guides_a_search(here: Path) -> None:
    usual = keys(strategy="random")
    (here / "strategies_of_mine.py").write_text(STRATEGY)
    assert keys(strategy="mine.py:Mine") == keys(strategy="strategies_of_mine:Mine") == keys(strategy=Own) == usual
    arms = keys(strategy="bandit", strategy_options={"arms": "mine.py:Mine,annealing"})
    assert arms == keys(strategy="bandit", strategy_options={"arms": "random,annealing"})


class UnfinishedStrategy(SearchStrategy):
    Options: ClassVar[type[Any]] = RandomSearch.Options


class Optionless(SearchStrategy):
    def ask(self, n: int) -> list[Any]:
        return []

    def tell(self, candidates: Any, seconds: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("absent.py:Mine", "`strategy` must name a file that exists, but got strategy='absent.py:Mine'"),
        ("mine.py:absent", "`strategy` must name something that mine.py has, but got strategy='mine.py:absent'"),
        ("mine.py:CENTRED", "`strategy` must name a subclass of SearchStrategy"),
        ("evolutoin", "or module:Class, but got strategy='evolutoin'; did you mean 'evolution'"),
        (UnfinishedStrategy, "`strategy` must name a subclass of SearchStrategy"),
        (Optionless, "`strategy` must have a dataclass `Options`, but Optionless has none"),
        (3, "`strategy` must be a valid string, but got strategy=3"),
    ],
)
def test_what_is_no_strategy_is_told(here: Path, strategy: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fakes.tune(WORKLOAD, pool=fakes.HashPool(), strategy=strategy, **SEARCH)
    with pytest.raises(ValueError, match="`strategy` must name a subclass of SearchStrategy, but got strategy=3"):
        get(3)  # type: ignore[arg-type]


class FailingPool(fakes.HashPool):
    """Every trial fails as on a machine that does not know the operator; where asked, only when timed again."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.after = after

    def results(self, timeout: float | None = None) -> list[TrialResult]:
        found = super().results(timeout)
        self.after -= len(found)
        sentence = "`operator` must be one of conv2d, dense, but got operator='centred'"
        failed = {"error": ErrorClass.instantiation, "message": sentence, "latencies": (), "seconds": float("nan")}
        return [TrialResult(r.trial, r.index, Outcome(**failed)) if self.after < 0 else r for r in found]  # type: ignore[arg-type]


def test_tune_says_why_when_every_trial_failed() -> None:
    message = (
        "matmul: a task must have a candidate that works, but got none among 6 .6 instantiation.; "
        "the first failure is instantiation: `operator` must be one of conv2d, dense, but got operator='centred'$"
    )
    with pytest.raises(AllTrialsFailed, match=message) as caught:
        fakes.tune(WORKLOAD, pool=FailingPool(), **SEARCH)
    assert len(caught.value.result.records) == 6 and caught.value.result.best is None


def test_tune_goes_on_where_a_trial_works() -> None:
    assert fakes.tune(WORKLOAD, pool=FailingPool(after=3), **SEARCH).errors == {"instantiation": 3}


class Stop(Callback):
    def on_round(self, progress: Any) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGINT)


def test_a_search_that_was_stopped_is_no_failure() -> None:
    result = fakes.tune(WORKLOAD, pool=FailingPool(), callbacks=[Stop()], **SEARCH)
    assert result.interrupted and result.best is None and result.problem == ""


def command(here: Path, document: dict[str, Any]) -> Any:
    fixed = {
        "trials": 3,
        "measure": {"threads": 1},
        "cost_model": {"name": "roofline"},
        "tracking": {"backend": "none"},
    }
    (here / "run.yaml").write_text(yaml.safe_dump({**fixed, **document}))
    return CliRunner().invoke(app, ["run", "run.yaml", "--quiet"])


def test_a_run_takes_both_by_file_and_fails_where_no_trial_works(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.run.run.make_pool", lambda *_: fakes.HashPool())
    named = {
        "name": "own",
        "workload": {"operator": "mine.py:CENTRED", "rows": 8},
        "search": {"strategy": "mine.py:Mine"},
    }
    done = command(here, named)
    assert done.exit_code == 0, done.output
    (task,) = json.loads((here / "runs/own/summary.json").read_text())["tasks"]
    assert task["workload"] == workloads.own(mine(here), rows=8).to_json() and task["best_seconds"] > 0

    wrong = command(here, {**named, "workload": {"operator": "mine.py:CENTRED", "rowz": 8}})
    assert wrong.exit_code == 2
    assert "`mine.py:CENTRED` must have arguments among rows, columns, but got 'rowz'" in " ".join(wrong.output.split())

    monkeypatch.setattr("autotune.run.run.make_pool", lambda *_: FailingPool())
    failed = command(here, {**named, "name": "failed"})
    told = " ".join(failed.output.split())
    assert failed.exit_code == 2
    assert re.search(r"none among (\d+) \(\1 instantiation\); the first failure is instantiation:", told)


def test_precision_travels(here: Path) -> None:
    def scale(args: Args) -> float:
        return 4.0

    operator = mine(here)
    rough = Operator(
        "rough", operator.normalise, operator.definitions, operator.reference, operator.flops,
        Precision(lambda args: 9, scale, lambda args: 2.0), lambda args: (0.0, 0.25),
    )  # fmt: skip
    args = workloads.own(rough, rows=3).args
    assert (args["terms"], args["scale"], args["floor"], args["bounds"]) == (9, 4.0, 2.0, [0.0, 0.25])
    (drawn,) = workloads.own(rough, rows=3).make_inputs(0)
    assert drawn.min() >= 0 and drawn.max() <= 0.25
