"""The tuning loop: rounds, determinism, failures, exhaustion, interruption and resuming."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from autotune.config import Model
from autotune.report.terminal import exhausted_sentence
from autotune.tuner.callbacks import Callback
from autotune.tuner.loop import run_rounds
from autotune.tuner.preparation import prepare_task, reusable_records
from autotune.tuner.search import Candidate
from autotune.tuner.task import Task
from costmodel.features import FeatureExtractor
from costmodel.metrics import pairwise_accuracy
from costmodel.pretrained import open_pretrained
from measure.database import Database
from measure.provenance import Kind
from search_space import workloads
from tests.autotune import fakes
from tests.autotune.fakes import settings_with


def run(space, pool=None, database=None, callbacks=(), **options):
    (result,) = run_rounds([fakes.tuning(space, **options)], pool or fakes.FakePool(space), database, callbacks)
    return result


def test_the_best_of_all_trials_is_found():
    space = fakes.space()
    pool = fakes.FakePool(space)
    result = run(space, pool)
    assert len(result.records) == result.measured_count == 40 == len(pool.trials)
    assert result.best_seconds == min(record.seconds for record in result.records) < 2e-3
    assert result.gflops == pytest.approx(0.1 / result.best_seconds)
    assert result.peak_share == pytest.approx(result.gflops / 100)  # one thread of two cores
    assert [record.provenance.order for record in result.records] == list(range(40))
    assert len({record.trace_key for record in result.records}) == 40
    assert result.errors == {} and not result.interrupted and not pool.is_closed
    assert set(result.phases) == {"search", "model", "measure"} and result.scored_count > 0


def test_the_same_seed_gives_the_same_trials_whatever_order_results_come_in():
    space = fakes.space()
    first, second, other = (run(space, seed=seed) for seed in (7, 7, 8))
    keys = [[record.trace_key for record in result.records] for result in (first, second, other)]
    assert keys[0] == keys[1] != keys[2]


def test_a_task_does_the_same_alone_and_beside_others():
    space = fakes.space()
    alone = run(space, name="one")
    tasks = [fakes.tuning(space, name="one"), fakes.tuning(space, name="two")]
    beside = run_rounds(tasks, fakes.FakePool(space))
    assert [r.trace_key for r in beside[0].records] == [r.trace_key for r in alone.records]
    assert [r.trace_key for r in beside[1].records] != [r.trace_key for r in alone.records]


def test_tasks_take_turns_round_by_round():
    space = fakes.space()
    turns = []

    class Turns(Callback):
        def on_round(self, progress):
            turns.append((progress.task, progress.task_trials, progress.trials, progress.total))

    tasks = [fakes.tuning(space, name=name, trials=20) for name in ("one", "two")]
    run_rounds(tasks, fakes.FakePool(space), callbacks=[Turns()])
    assert turns == [("one", 16, 16, 40), ("two", 16, 32, 40), ("one", 20, 36, 40), ("two", 20, 40, 40)]


def test_failures_are_counted_and_taught():
    space = fakes.space()

    def is_odd(trial):
        return trial.trace[0]["sketch"] == "bad"

    task = fakes.tuning(space)
    (result,) = run_rounds([task], fakes.FakePool(space, fails=is_odd))
    failed = sum(not record.ok for record in result.records)
    assert result.errors == {"wrong_output": failed} and failed > 0
    assert len(result.records) == 40 and result.best.ok
    throughput = task.scorer.model.fits[-1]
    assert throughput.max() == 1 and (throughput == 0).any()


def test_nothing_but_failures_gives_no_best():
    space = fakes.space()
    result = run(space, fakes.FakePool(space, fails=lambda trial: True))
    assert len(result.records) == 40 and result.best is None and math.isnan(result.best_seconds)
    with pytest.raises(LookupError, match="must have a candidate that works, but got none among 40 .40 wrong_output."):
        _ = result.trace
    summary = result.summary()
    assert summary["best_seconds"] is summary["correct"] is summary["trace"] is summary["gflops"] is None


def test_a_space_that_runs_out_ends_the_task():
    space = fakes.small()
    totals = []

    class Totals(Callback):
        def on_round(self, progress):
            totals.append(progress.total)

    result = run(space, trials=100, batch=8, callbacks=[Totals()])
    assert len(result.records) == 13 and not result.interrupted
    assert totals[-1] == 13
    assert result.exhausted and "space: 13 candidates; all were measured" in repr(result)
    sentence = exhausted_sentence([result])
    assert sentence == f"{result.name}: the space has 13 candidates; all were measured"


def test_tasks_whose_spaces_ran_out_are_named_among_others():
    one, two = (run(fakes.small(), trials=20, batch=8), run(fakes.space(), trials=8, batch=8))
    assert not two.exhausted and "all were measured" not in repr(two) and exhausted_sentence([two]) is None
    said = exhausted_sentence([one, two])
    assert said == f"spaces of which all candidates were measured: {one.name} (13 candidates)"
    assert str(exhausted_sentence([one] * 6)).endswith("(13 candidates) and 2 more")


def test_no_legal_schedule_is_a_problem_of_its_task_alone():
    barren = fakes.tuning(fakes.barren(), name="barren")
    fine = fakes.tuning(fakes.small(), name="fine")
    first, second = run_rounds([barren, fine], fakes.FakePool(fakes.small()))
    assert "registers failed for" in first.problem and len(first.records) == 0
    assert second.problem == "" and len(second.records) == 13


def test_candidates_of_one_schedule_are_measured_once():
    class Same(fakes.FakeSketch):
        def trace(self, choice):
            return fakes.FakeTrace(({"sketch": "tiny", "values": [int(choice[0]) + 1, 1]},))

    space = fakes.FakeSpace((Same("tiny", (4, 3), (1, 1)),))
    pool = fakes.FakePool(space)
    result = run(space, pool, trials=50, batch=2)
    assert len(result.records) == len(pool.trials) == 4


def test_records_are_written_as_results_come_in(tmp_path):
    space = fakes.space()
    with Database(tmp_path / "records.jsonl") as database:
        seen = []
        pool = fakes.FakePool(space, on_results=lambda done: seen.append(len(database)))
        result = run(space, pool, database)
        assert seen == list(range(40))
        assert {r.trace_key for r in database} == {r.trace_key for r in result.records}
        (record,) = [r for r in database if r.provenance.order == 0]
    assert record.provenance.sketch in ("good", "bad", "call")
    proposed = record.provenance
    assert (proposed.kind, proposed.strategy, proposed.round) == (Kind.search, "evolution", 0)
    assert np.isfinite(proposed.score) and proposed.choices is not None
    assert record.host == {"cores": 2}


def resume(space, path, database, **options):
    task = fakes.tuning(space, **options)
    task.replay(reusable_records(database, space.workload, task.settings))
    pool = fakes.FakePool(space)
    (result,) = run_rounds([task], pool, database)
    return result, pool


def test_a_resumed_run_measures_only_what_is_missing(tmp_path):
    space = fakes.space()
    path = tmp_path / "records.jsonl"
    with Database(path) as database:
        run(space, database=database, trials=24)
    with Database(path) as database:
        result, pool = resume(space, path, database, trials=40)
        assert len(database) == 40
    assert len(pool.trials) == result.measured_count == 16 and len(result.records) == 40
    assert len({record.trace_key for record in result.records}) == 40
    with Database(path) as database:
        result, pool = resume(space, path, database, trials=40)
    assert pool.trials == [] and len(result.records) == 40 and result.summary()["trials_per_second"] is None


def test_a_resumed_run_knows_what_was_learnt(tmp_path):
    space = fakes.space()
    with Database(tmp_path / "records.jsonl") as database:
        run(space, database=database, trials=32)
        task = fakes.tuning(space, trials=40)
        task.replay(reusable_records(database, space.workload, task.settings))
    assert task.scorer.is_fitted and len(task.strategy.measured_population) == 32
    assert task.best_seconds == min(record.seconds for record in task.records)


def test_trials_of_another_seed_are_known_but_are_not_its_own(tmp_path):
    space = fakes.space()
    pool = fakes.FakePool(space)
    with Database(tmp_path / "r.jsonl") as database:
        other = run(space, pool, database, seed=1, trials=12)
        first = run(space, pool, database, seed=2, trials=10)  # at the same time, so it knows nothing of the other
    with Database(tmp_path / "r.jsonl") as database:
        task = fakes.tuning(space, seed=2, trials=14)
        task.replay(reusable_records(database, space.workload, task.settings))
        assert not task.done and [record.trace_key for record in task.records] == [r.trace_key for r in first.records]
        both = {record.trace_key for record in (*first.records, *other.records)}
        assert {record.trace_key for record in (*task.records, *task.others)} == both
        pool.trials.clear()
        (result,) = run_rounds([task], pool, database)
    assert [record.provenance.order for record in result.records] == list(range(14)) and result.measured_count == 4
    assert not both & {record.trace_key for record in result.records[10:]} and len(pool.trials) == 4
    assert result.best_seconds == min(record.seconds for record in (*result.records, *result.others))


def test_numbers_go_on_after_a_gap(tmp_path):
    """A run that was killed in a round may have the last trial of the round, but not the first."""
    space = fakes.space()
    with Database(tmp_path / "r.jsonl") as database:
        whole = run(space, database=database, trials=8)
    with Database(tmp_path / "r.jsonl") as database:
        task = fakes.tuning(space, trials=10)
        task.replay([record for record in whole.records if record.provenance.order not in (5, 6)])
        (result,) = run_rounds([task], fakes.FakePool(space), database)
    assert [record.provenance.order for record in result.records] == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]


def test_records_of_changed_tables_are_not_measured_again_and_teach_nothing(tmp_path):
    before, after = fakes.space(), fakes.space()
    after = fakes.FakeSpace(tuple(fakes.FakeSketch(s.name, s.lengths[::-1], s.best) for s in after.sketches))
    with Database(tmp_path / "records.jsonl") as database:
        run(before, database=database, trials=16)
        task = fakes.tuning(after, trials=40)
        task.replay(reusable_records(database, before.workload, task.settings))
    assert len(task.records) == 16
    assert len(task.strategy.measured_population) < 16


def test_only_records_of_the_same_cache_and_threads_count(tmp_path):
    space = fakes.space()
    with Database(tmp_path / "records.jsonl") as database:
        run(space, database=database, trials=8)
        assert len(reusable_records(database, space.workload, settings_with())) == 8
        assert reusable_records(database, space.workload, settings_with(cache="network")) == []
        assert reusable_records(database, space.workload, settings_with(threads=2)) == []
        assert reusable_records(database, fakes.FakeWorkload("other"), settings_with()) == []


def test_ctrl_c_keeps_every_finished_trial(tmp_path):
    space, before = fakes.space(), signal.getsignal(signal.SIGINT)

    def press(count):
        if count == 20:
            os.kill(os.getpid(), signal.SIGINT)

    with Database(tmp_path / "records.jsonl") as database:
        result = run(space, fakes.FakePool(space, on_results=press), database)
        assert result.interrupted and len(result.records) == len(database) == 20
        again, pool = resume(space, tmp_path, database)
    assert len(again.records) == 40 and len(pool.trials) == 20 and not again.interrupted
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_stops_at_once():
    space = fakes.space()

    def press(count):
        if count == 3:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(space, fakes.FakePool(space, on_results=press))


@pytest.mark.parametrize("name", ["batch", "threads"])
def test_settings_state_their_rules(name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, but got {name}=0"):
        settings_with(**{name: 0})


def test_fewer_than_no_trials_are_refused():
    assert settings_with(trials=0).trials == 0
    with pytest.raises(ValueError, match="`trials` must be an integer of at least 0, but got trials=-1"):
        settings_with(trials=-1)


def test_the_guide_goes_by_the_roofline_until_there_is_data():
    task = fakes.tuning(fakes.space())
    choices = np.zeros((4, 5), np.int32)
    choices[:, 0] = [0, 39, 5, 20]
    task.scorer.noise = 0.0
    assert np.argsort(-task.scorer(0, choices)).tolist() == [0, 2, 3, 1]
    assert task.scorer.scored_count == 0
    task.scorer.observe([], [])
    task.scorer.refit()
    assert not task.scorer.is_fitted


def test_records_say_what_the_search_thought_of_their_trials():
    class Watch(Callback):
        def on_trial(self, progress, record):
            seen[record.provenance.order] = record.provenance.score

        def on_round(self, progress):
            accuracies.append(progress.rank_accuracy)

    seen, accuracies = {}, []
    space = fakes.space()
    records = run(space, trials=48, batch=16, callbacks=[Watch()]).records
    told = fakes.tuning(space, trials=48, batch=16)
    for number in range(3):
        part = records[16 * number : 16 * (number + 1)]
        candidates = [told._recorded_candidate(record) for record in part]
        scores = np.array([record.provenance.score for record in part])
        np.testing.assert_allclose(scores, told.scorer.score(candidates), rtol=1e-8)
        assert [seen[record.provenance.order] for record in part] == scores.tolist()
        speed = 1 / np.array([record.seconds for record in part])
        if number:
            assert pairwise_accuracy(scores, speed) == pytest.approx(accuracies[number])
        else:
            estimate = [told.scorer._extractor(c.sketch).roofline(np.array([c.choices]).T + 1.0) for c in candidates]
            np.testing.assert_allclose(np.exp(-scores), np.ravel(estimate), rtol=1e-8)
        told.scorer.observe(candidates, [record.seconds for record in part])
        told.scorer.refit()


def test_asking_the_guide_for_scores_changes_nothing():
    asked, other = (fakes.tuning(fakes.space()).scorer for _ in range(2))
    candidates = [
        Candidate(2, ()),
        Candidate(0, (1, 2, 3, 4, 5)),
        Candidate(1, (9, 9, 9)),
        Candidate(0, (0, 0, 0, 0, 0)),
    ]
    assert asked.score(candidates).shape == (4,) and asked.score([]).shape == (0,)
    choices = np.arange(20, dtype=np.int32).reshape(4, 5)
    np.testing.assert_array_equal(asked(0, choices), other(0, choices))
    assert asked.scored_count == 0


@pytest.mark.parametrize(("cache", "cold"), [("warm", False), ("network", True)])
def test_the_first_order_takes_weights_for_as_cold_as_they_are_timed(cache, cold):
    task = Task("dense", workloads.dense(1, 512, 512))
    tuning = prepare_task(task, settings_with(cache=cache), algorithms=["direct"])
    sketch = tuning.space.sketches[0]
    choices = np.zeros((1, len(sketch.groups)), np.int32)
    tuning.scorer.noise = 0.0
    threads = tuning.settings.threads
    extractor = FeatureExtractor(sketch.program, sketch.columns, tuning.space.hardware, cold, threads)
    other = FeatureExtractor(sketch.program, sketch.columns, tuning.space.hardware, not cold, threads)
    columns = sketch.expand(choices)
    order = np.log(2) * open_pretrained("shipped", "cpu").predict(extractor(columns))
    assert tuning.scorer(0, choices) == pytest.approx(order)
    assert tuning.scorer.score([Candidate(0, (0,) * len(sketch.groups))]) == pytest.approx(order)
    plain = replace(tuning.settings, cost_model=Model(pretrained="none"))
    other_order = prepare_task(task, plain, algorithms=["direct"]).scorer
    assert other_order.noise > tuning.scorer.noise == 0
    other_order.noise = 0.0
    assert other_order(0, choices) == pytest.approx(-np.log(extractor.roofline(columns)))
    assert extractor.roofline(columns) != pytest.approx(other.roofline(columns), rel=1e-3)
