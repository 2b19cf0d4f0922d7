"""Searches that are told of other tasks: what a good source gains, what a false one costs, what is said of both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autotune
from autotune.config import ConfigError, Search, check_config, in_file
from autotune.config import Transfer as TransferSection
from autotune.run.workloads import make_settings
from autotune.tuner.loop import run_rounds
from autotune.tuner.search.evolution import Evolution
from autotune.tuner.task_tuning import TaskTuning
from costmodel.dataset import Dataset
from costmodel.transfer import Options, Source, Transfer, TransferError
from costmodel.transfer.base import Base
from costmodel.transfer.guard import Guard
from costmodel.transfer.methods import Method
from search_space import workloads
from targets import registry as targets
from tests.autotune.fakes import FakePool, space, tuning

VTA = Path(__file__).parents[2] / "datasets" / "vta"
TRIALS, BATCH = 96, 16
PRIOR = cast(Any, SimpleNamespace(base=SimpleNamespace(tasks=3, programs=300)))


class Oracle(Method):
    """Knows the landscape of the fakes; or says the contrary of it, or nothing."""

    def __init__(self, truth: float) -> None:
        super().__init__(PRIOR)
        self.truth = truth

    def fit(self, features: Any, throughput: Any) -> None:
        """Must not be trained."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        numbers = np.exp2(features[:, 0, :5]) - 1
        good = features[:, 0, 3] > 0  # the good sketch has five numbers; absent ones are 0 like a number of 1
        seconds = np.where(good, 0.0, 3.0) + np.abs(numbers - np.array((31, 7, 12, 4, 2))).sum(axis=1) * 0.05
        return -self.truth * seconds

    @property
    def weight(self) -> float:
        return 1.0


def run_search(seed: int, truth: float | None = None, guard: bool = True, trials: int = TRIALS) -> TaskTuning:
    of = space()
    task = tuning(of, trials, BATCH, seed)
    strategy = cast(Evolution, task.strategy)
    strategy.options = replace(strategy.options, population=256, first_sample=1024)
    if truth is not None:
        task.scorer.transfer = Transfer(Oracle(truth), "oracle", "a test", Guard() if guard else None)
    run_rounds([task], FakePool(of))
    return task


def test_a_good_source_finds_in_a_round_what_takes_a_search_many() -> None:
    plain, told = run_search(0).result(), run_search(0, 1.0).result()
    wanted = plain.curve[-1]
    first = int(np.argmax(told.curve <= wanted)) + 1
    assert first <= 2 * BATCH < np.argmax(plain.curve <= wanted) + 1
    assert told.transfer is not None and told.transfer["kept"] and told.transfer["dropped_at"] is None


def test_what_chooses_most_of_a_round_is_measured_first() -> None:
    rounds = {}
    for first in (0.25, 0.75):
        of = space()
        task = tuning(of, 16, 16, 0)
        task.scorer.transfer = Transfer(Oracle(1.0), "oracle", "a test", Guard(first=first, most=0.8))
        run_rounds([task], FakePool(of))
        records = sorted(task.records, key=lambda record: record.provenance.order)
        rounds[first] = [record.provenance.transferred for record in records]
    assert rounds[0.25] == [False] * 12 + [True] * 4 and rounds[0.75] == [True] * 12 + [False] * 4


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_a_source_that_says_the_contrary_is_soon_dropped(seed: int) -> None:
    told = run_search(seed, -1.0, trials=3 * BATCH).result()
    assert told.transfer is not None
    at = told.transfer["dropped_at"]
    assert at in (BATCH, 2 * BATCH, 3 * BATCH) and not told.transfer["kept"] and told.transfer["weight"] == 0.0
    chosen = [record.provenance.transferred for record in told.records]
    # three quarters are meant to be its own at most; which they are is drawn, and a batch has one more now and then
    assert 0 < sum(chosen[:at]) <= 0.85 * at and not any(chosen[at:])


def test_a_false_source_costs_next_to_nothing_in_the_end() -> None:
    ratios = [run_search(seed, -1.0).best_seconds / run_search(seed).best_seconds for seed in range(8)]
    assert np.exp(np.mean(np.log(ratios))) <= 1.05  # each by itself is as different as another seed makes it


def test_without_the_guard_a_false_source_ruins_the_search() -> None:
    """The guard is needed: if a false source did no harm, the test above would show nothing."""
    ratios = [run_search(seed, -1.0, guard=False).best_seconds / run_search(seed).best_seconds for seed in range(3)]
    assert np.exp(np.mean(np.log(ratios))) > 1.2


def test_a_source_that_says_nothing_costs_little() -> None:
    ratios = [run_search(seed, 0.0).best_seconds / run_search(seed).best_seconds for seed in range(4)]
    assert np.exp(np.mean(np.log(ratios))) <= 1.1


def test_records_are_resumed_with_what_they_say_of_the_source() -> None:
    done = run_search(3, -1.0)
    again = tuning(space(), TRIALS, BATCH, 3)
    again.scorer.transfer = Transfer(Oracle(-1.0), "oracle", "a test", Guard())
    again.replay(list(done.records))
    assert not again.scorer.transfer.active and again.scorer.transfer.guard is not None
    assert again.scorer.transfer.guard.rounds[0].source_accuracy < 0.5


def test_a_resumed_search_judges_its_source_as_it_did_before() -> None:
    done = run_search(5, 1.0, trials=3 * BATCH)
    again = tuning(space(), TRIALS, BATCH, 5)
    again.scorer.transfer = Transfer(Oracle(1.0), "oracle", "a test", Guard())
    again.replay(list(done.records))
    assert done.scorer.transfer is not None and done.scorer.transfer.guard is not None
    resumed = again.scorer.transfer.guard
    assert resumed is not None and resumed.rounds == done.scorer.transfer.guard.rounds and len(resumed.rounds) == 3
    assert not any(np.isnan(round_.wins) for round_ in resumed.rounds)
    run_rounds([again], FakePool(space()))
    assert [r.provenance.round for r in again.records[::BATCH]] == list(range(6))


def test_what_the_source_chooses_is_not_random() -> None:
    """Explorers are among the others of a round."""
    of = space()
    task = tuning(of, TRIALS, BATCH, 0)
    strategy = cast(Evolution, task.strategy)
    explored: list[int] = []
    explore = strategy.explore
    strategy.explore = lambda n: (explored.append(n), explore(n))[1]  # type: ignore[method-assign]
    assert len(strategy.ask_greedy(12)) == 12 and len(strategy.ask(12)) == 12
    assert explored == [0, 2]


def test_a_tuning_run_on_a_dataset_says_what_it_did(tmp_path: Path) -> None:
    data = Dataset.open(VTA)
    task = min(data.tasks, key=lambda task: task.workload.flops)
    others = data.select([other for other in data.tasks if other != task][:2])
    others.write(tmp_path / "source")
    transfer = TransferSection(source=str(tmp_path / "source"), model_options={"tasks_trees": 40})
    how = Search(batch=8, options={"population": 128})
    result = autotune.tune(task.workload, target="vta", trials=16, search=how, transfer=transfer)
    assert result.transfer is not None
    told = result.summary()["transfer"]
    assert told["source_tasks"] == 2 and told["source_programs"] == len(others) and told["method"] == "kriging"
    assert [round_["trials"] for round_ in told["rounds"]] == [8, 16]
    assert 0 <= told["rounds"][0]["source_accuracy"] <= 1 and 0 <= told["rounds"][0]["wins"] <= 1
    assert {record.provenance.transferred for record in result.records[:8]} == {True, False}
    opened = transfer.model_copy(update={"source": Source.open(tmp_path / "source")})
    again = autotune.tune(task.workload, target="vta", trials=16, search=how, transfer=opened)
    assert [r.trace_key for r in again.records] == [r.trace_key for r in result.records]


def test_a_run_that_is_told_nothing_says_nothing_of_it() -> None:
    result = run_search(0, trials=BATCH).result()
    assert result.transfer is None and not any(record.provenance.transferred for record in result.records)


def config(**transfer: Any) -> Any:
    workload = {"operator": "matmul", "m": 8, "n": 8, "k": 8}
    return {"name": "t", "workload": workload, "cost_model": {"transfer": {"source": "somewhere", **transfer}}}


def test_configurations_name_a_source_and_a_method() -> None:
    found = make_settings(check_config(config(method="joint", tasks=4, options={"share": 8}), "f")).cost_model.transfer
    assert found is not None and Options(**dict(found)) == Options("somewhere", "joint", {"share": 8}, tasks=4)
    assert make_settings(check_config({**config(), "cost_model": {}}, "f")).cost_model.transfer is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "residul"}, "f:cost_model.transfer: `method` must be one of .* did you mean 'residual'"),
        ({"align": "best"}, "f:cost_model.transfer: `align` must be one of none, machine, centred, quantile"),
        ({"similarity": "name"}, "f:cost_model.transfer: `similarity` must be one of all, operator"),
        ({"model": "lightgmb"}, "f:cost_model.transfer: `cost_model` must be one of"),
        ({"tasks": 0}, "f:cost_model.transfer.tasks: must be greater than or equal to 1"),
        ({"sorce": "x"}, "f:cost_model.transfer.sorce: must be one of the known keys; did you mean 'source'"),
    ],
)
def test_configurations_that_cannot_be_run_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message), in_file("f"):
        make_settings(check_config(config(**options), "f"))


def test_sources_that_are_none_are_refused(tmp_path: Path) -> None:
    workload = Dataset.open(VTA).tasks[0].workload
    with pytest.raises(TransferError, match="must be a dataset, a records file or a saved model, but got"):
        autotune.tune(workload, target="vta", transfer=tmp_path / "nothing")
    with pytest.raises(TransferError, match="must hold tasks of machines like .*, but .* has none"):
        autotune.tune(workloads.matmul(m=8, n=8, k=8), transfer=VTA)
    with pytest.raises(TransferError, match="must hold tasks of machines like .*, but .* has none"):
        autotune.tune(workloads.matmul(m=8, n=8, k=8), transfer=Source.open(VTA))
    assert Source.open(VTA).knows(Dataset.open(VTA).tasks[0].hardware)


def test_machines_of_another_kind_say_nothing_of_a_gpu() -> None:
    """A GPU is not comparable with processors that have caches, in tasks and in models learned from them."""
    kinds = {name: targets.get(name).hardware for name in ("cpu", "cuda", "vta")}
    assert [hardware.kind for hardware in kinds.values()] == ["cpu", "gpu", "accelerator"]
    tasks = [SimpleNamespace(hardware=hardware) for hardware in kinds.values()]
    source: Any = Source(tasks)  # type: ignore[arg-type]
    for task in tasks:
        assert source.comparable(task.hardware) == [task]
    base = Base.learn(Source.open(VTA).tasks[:2], "ridge")
    assert base.kinds == ("accelerator",)
    learned = Source(base=base)
    assert [learned.knows(hardware) for hardware in kinds.values()] == [False, False, True]


def test_a_saved_model_knows_its_kinds(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    Base.learn(Source.open(VTA).tasks[:2], "ridge").save(path)
    assert Base.load(path).kinds == ("accelerator",)
    older = json.loads(path.read_text())
    del older["kinds"]
    path.write_text(json.dumps(older))
    assert Source.open(path).knows(targets.get("cpu").hardware), "files of before there were kinds are asked as before"
