"""`autotune.tune` on real search spaces, measured in no time."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import autotune
from autotune.config import ConfigError, Measure, Model, Search, Transfer
from autotune.report.progress import LiveProgress
from autotune.tuner.search import NoLegalSchedule
from autotune.tuner.search.random import RandomSearch
from costmodel.models.roofline import RooflineModel
from costmodel.transfer import TransferError
from measure.errors import RecordError
from search_space import workloads
from tests.autotune import fakes

WORKLOAD = workloads.matmul(24, 32, 16)


def test_a_workload_is_tuned_with_an_open_pool(tmp_path):
    pool = fakes.HashPool()
    result = fakes.tune(WORKLOAD, trials=10, batch=4, seed=3, pool=pool, records=tmp_path / "r.jsonl")
    assert len(result.records) == 10 and len(result.finals) == 9 and len(pool.trials) == 19 and not pool.is_closed
    assert result.best_seconds == min(pool.answer(trial) for trial in pool.trials)
    assert {trial.seed for trial in pool.trials} == {3}
    again = fakes.tune(WORKLOAD, trials=12, batch=4, seed=3, pool=pool, records=tmp_path / "r.jsonl")
    assert again.measured_count == 2 and len(again.records) == 12


@pytest.mark.parametrize("strategy", ["annealing", "evolution", "random"])
@pytest.mark.parametrize("model", ["lightgbm", "random", "roofline"])
def test_every_strategy_works_with_every_model_and_repeats_itself(strategy, model):
    keys = [
        [
            record.trace_key
            for record in fakes.tune(
                WORKLOAD, trials=14, batch=9, strategy=strategy, cost_model=model, pool=fakes.HashPool()
            ).records
        ]
        for _ in range(2)
    ]
    assert keys[0] == keys[1] and len(set(keys[0])) == 14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "abacus"}, "`target` must be one of"),
        ({"trials": 0}, "`trials` must be an integer of at least 1, but got trials=0"),
        ({"strategy": "luck"}, "`strategy` must be one of"),
        ({"strategy_options": {"populaton": 3}}, "did you mean 'population'"),
        ({"cost_model": "oracle"}, "`cost_model` must be one of"),
        ({"cost_model_options": {"tree": 3}}, "did you mean 'trees'"),
        ({"pool": "lake"}, "`pool` must be one of"),
    ],
)
def test_wrong_names_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        fakes.tune(WORKLOAD, **options)


def test_no_legal_schedule_is_raised(monkeypatch):
    monkeypatch.setattr("autotune.tuner.preparation.generate", lambda *_: fakes.barren())
    with pytest.raises(NoLegalSchedule, match="registers failed for"):
        autotune.tune(WORKLOAD, trials=4, measure=fakes.HashPool())


def test_a_records_file_that_cannot_be_written(tmp_path):
    with pytest.raises(RecordError, match="`records` must be a writable file"):
        fakes.tune(WORKLOAD, trials=4, pool=fakes.HashPool(), records=tmp_path / "no" / "r.jsonl")


def progress(**console):
    stream = io.StringIO()
    shown = LiveProgress(Console(file=stream, width=120, **console))
    fakes.tune(WORKLOAD, trials=6, batch=3, pool=fakes.HashPool(), callbacks=[shown])
    return stream.getvalue()


def test_progress_is_a_line_a_round_where_there_is_no_terminal():
    lines = progress().splitlines()
    assert len(lines) == 3
    first = r"3/6 trials  matmul: 3/6  best \d\.\d{3} ms, \d+\.\d GFLOP/s, \d+% of peak  about \d+ s left"
    assert re.match(first, lines[0])
    assert lines[1].startswith("6/6 trials") and lines[1].endswith("done")
    assert re.fullmatch(r"matmul: best \d\.\d{3} ms, .* of peak, as the fastest were timed again", lines[2])


def test_progress_is_live_on_a_terminal():
    text = progress(force_terminal=True)
    assert "trials" in text and "GFLOP/s" in text and "of peak" in text


def tune_keys(**options):
    return [record.trace_key for record in autotune.tune(WORKLOAD, trials=6, **options).records]


def test_a_section_may_be_given_as_what_it_is_mostly_about(tmp_path):
    whole = {"search": Search(strategy="random"), "cost_model": Model(name="roofline")}
    usual = tune_keys(**whole, measure=Measure(pool=fakes.HashPool()))
    assert tune_keys(search="random", cost_model="roofline", measure=fakes.HashPool()) == usual
    assert tune_keys(search=RandomSearch, cost_model=RooflineModel, measure=fakes.HashPool()) == usual
    fields = {"source": str(tmp_path / "nothing")}
    for given in (
        {"transfer": tmp_path / "nothing"},
        {"transfer": Transfer(**fields)},
        {"cost_model": Model(transfer=fields)},
    ):
        with pytest.raises(
            TransferError, match="must be a dataset, a records file or a saved model, but got .*nothing"
        ):
            autotune.tune(WORKLOAD, **given)


def test_a_pool_that_is_given_open_is_left_open():
    with fakes.HashPool() as pool:
        tune_keys(measure=pool)
        assert tune_keys(measure=Measure(pool=pool, threads=1))


def test_algorithms_and_templates_of_a_section_are_kept():
    result = autotune.tune(WORKLOAD, trials=4, search=Search(algorithms=["direct"]), measure=fakes.HashPool())
    assert {record.algorithm for record in result.records} == {"direct"}
    with pytest.raises(
        ConfigError, match="search.algorithms: `algorithms` must be among direct, library, but got 'fft'"
    ):
        autotune.tune(WORKLOAD, search=Search(algorithms=["fft"]), measure=fakes.HashPool())
    with pytest.raises(ConfigError, match="search.template: `template` must be one of"):
        autotune.tune(WORKLOAD, search=Search(template="nothing"), measure=fakes.HashPool())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Search(batch=0), "^`batch` must be at least 1, but got batch=0$"),
        (
            lambda: Search(batch=9999, finalists=-1),
            "^`batch` must be at most 4096, .*\n`finalists` must be at least 0, but",
        ),
        (lambda: Search(stratgy="x"), "^`stratgy` must be one of the known keys; did you mean 'strategy'"),
        (lambda: Measure(cache="cold"), "^`cache` must be 'warm' or 'network', but got cache='cold'$"),
        (lambda: Model(transfer={"sorce": "x"}), "`transfer.source` must be given\n`transfer.sorce` must be one of"),
        (lambda: Transfer(), "^`source` must be given$"),
    ],
)
def test_sections_made_in_python_state_their_rules(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
