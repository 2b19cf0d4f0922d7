"""Collecting: balanced whenever it ends, resumable, both halves by themselves, and a dataset of it at the end."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.config import ConfigError, check_config, in_file
from autotune.lab.collect import collection, items, retiming
from autotune.lab.collect.collection import tasks_beside
from autotune.lab.collect.random_programs import MOST_ELEMENTS, OPERATIONS, random_workload
from autotune.run.workloads import import_network
from autotune.tuner import tune_tasks
from autotune.tuner.search.base import NoLegalSchedule
from costmodel.dataset import Dataset, DatasetError, Split
from costmodel.dataset.build import build
from measure.database import Database
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import TrialResult
from measure.provenance import Kind
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune import fakes
from tests.measure.helpers import change_record

ROOT = Path(__file__).parents[3]
MATMUL = {"operator": "matmul", "m": 24, "n": 64, "k": 48}
CONV = {"operator": "conv2d", "height": 6, "width": 6, "in_channels": 4, "out_channels": 16, "kernel": 1}
HALVES = ("random", "evolution")
POOL = {"operator": "max_pool2d", "height": 16, "width": 16, "channels": 32}

COLLECT = {"programs": 24, "sources": [{"workload": MATMUL}, {"workload": CONV}]}


class Pool(fakes.HashPool):
    """Answers at once; every trace whose key ends so has failed."""

    def results(self, timeout=None):
        found = super().results(timeout)
        failed = [result for result in found if result.trial.trace_key.endswith("0")]
        return [
            replace(result, outcome=Outcome(error=ErrorClass.wrong_output)) if result in failed else result
            for result in found
        ]


def make_config(folder: Path, *sources, programs: int = 24, **keys):
    return check_config(
        {
            "name": "small",
            "output": str(folder),
            "search": {"batch": 4},
            "cost_model": {"name": "roofline"},
            "collect": {"programs": programs, "sources": list(sources or ({"workload": MATMUL}, {"workload": CONV}))},
            **keys,
        },
        "small.yaml",
    )


@pytest.fixture
def pools(monkeypatch):
    """Every pool that is made; those to come may be put in first."""
    made: list[Pool] = []
    planned: list[Pool] = []

    def make(*_):
        made.append(planned.pop(0) if planned else Pool())
        return made[-1]

    monkeypatch.setattr(collection, "make_pool", make)
    return SimpleNamespace(made=made, planned=planned)


def test_a_session_makes_a_dataset_half_random_half_searched(tmp_path, pools):
    session = collection.collect(make_config(tmp_path))
    assert (session.measurements, session.trials, session.total) == (48, 48, 48)
    assert session.complete and not session.interrupted and not session.problems
    data = Dataset.open(tmp_path / "dataset")
    assert [task.workload.operator for task in data.tasks] == ["matmul", "conv2d"]
    with Database(tmp_path / "records.jsonl", readonly=True) as database:
        found = list(database)
    by_key = {(record.workload_key, record.trace_key): record for record in found}
    for task in data.tasks:
        origins = Counter(data.origin(task).tolist())
        assert all(6 <= origins[half] <= 12 for half in ("random", "search"))  # what both found is there once
        for row in range(data.count(task)):
            record = by_key[task.workload.key, data.trace(task, row)[1].key]
            np.testing.assert_allclose(data.seconds(task)[row], record.seconds, rtol=1e-6)
        assert all(program.values or not data.sketches(task)[program.sketch].columns for program in data.programs(task))
        assert task.hardware == registry.get("cpu").hardware
    failures = {record.trace_key for record in found if not record.ok}
    assert failures and sum((data.errors(task) == "wrong_output").sum() for task in data.tasks) == len(failures)


def test_a_prefix_of_a_session_is_balanced(tmp_path, pools):
    def stop(count):
        if count == 33:
            os.kill(os.getpid(), signal.SIGINT)

    pools.planned.append(Pool(stop))
    config = make_config(tmp_path, {"workload": MATMUL}, {"workload": CONV, "programs": 48})
    session = collection.collect(config)
    assert session.interrupted and session.dataset is None and session.measurements == 33
    with Database(tmp_path / "records.jsonl", readonly=True) as database:
        found = Counter((record.workload_key[:6], record.provenance.strategy) for record in database)
    shares = [found[name, half] / total for name, total in (("matmul", 12), ("conv2d", 24)) for half in HALVES]
    assert max(shares) - min(shares) <= 4 / 12


def test_it_goes_on_and_measures_nothing_twice(tmp_path, pools, monkeypatch):
    pools.planned.append(Pool(lambda done: os.kill(os.getpid(), signal.SIGINT) if done == 20 else None))
    config = make_config(tmp_path)
    collection.collect(config)
    monkeypatch.setattr(collection, "list_items", lambda *_: pytest.fail("the networks are imported again"))
    session = collection.collect(config)
    assert (session.measurements, session.trials) == (28, 48) and session.complete
    keys = [(t.workload_key, t.trace_key) for pool in pools.made for t in pool.trials]
    assert len(keys) == 48
    with Database(tmp_path / "records.jsonl", readonly=True) as database:
        halves = [(r.workload_key, r.trace_key, r.provenance.strategy) for r in database]
    assert len(set(halves)) == 48
    once_more = collection.collect(config)
    assert once_more.measurements == 0 and len(once_more.dataset) == len(session.dataset)


class Timer:
    """A substitute for `InterleavedTimer`: programs take half the pool's time, in one burst per round."""

    def __init__(self, threads, turns, settings=None):
        self.turns = turns

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def groups(self, trials, stop=lambda: False):
        seconds = [fakes.make_seconds(trial.trace_key) / 2 for trial in trials]
        yield [
            TrialResult(trial, place, Outcome((took,) * self.turns.rounds, took))
            for place, (trial, took) in enumerate(zip(trials, seconds, strict=True))
        ]


def test_programs_are_timed_again_task_by_task_and_go_on_where_they_were(tmp_path, pools, monkeypatch):
    said = []

    def say(text):
        said.append(text)
        if "timed again  matmul" in text:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(retiming, "InterleavedTimer", Timer)
    once = collection.collect(make_config(tmp_path)).dataset
    worked = [int(np.isfinite(once.seconds(task)).sum()) for task in once.tasks]
    config = make_config(tmp_path)
    config = config.model_copy(update={"collect": config.collect.model_copy(update={"rounds": 3})})
    first = collection.collect(config, say=say)
    assert first.interrupted and first.measurements == worked[0] and not first.complete and first.left == worked[1]
    second = collection.collect(config, say=say)
    assert second.complete and second.measurements == worked[1] and second.trials == second.total == 48
    with Database(tmp_path / "records.jsonl", readonly=True) as database:
        found = [(r.workload_key, r.trace_key) for r in database if r.provenance.kind is Kind.retimed]
    assert len(found) == len(set(found)) == sum(worked)
    for task in once.tasks:
        assert second.dataset.origin(task).tolist() == once.origin(task).tolist()
        np.testing.assert_allclose(second.dataset.seconds(task), once.seconds(task) / 2, rtol=1e-6)
    assert collection.collect(config).measurements == 0


def test_a_source_may_want_other_rounds():
    sources = ({"workload": MATMUL, "rounds": 9}, {"workload": CONV}, {"workload": POOL, "rounds": 0})
    config = make_config(Path("unused"), *sources)
    config = config.model_copy(update={"collect": config.collect.model_copy(update={"rounds": 4})})
    assert [item.rounds for item in items.list_items(config)] == [9, 4, 0]


def test_a_dataset_takes_the_fastest_of_all_samples(tmp_path, pools):
    config = make_config(tmp_path, {"workload": MATMUL}, programs=8)
    collection.collect(config)
    with Database(tmp_path / "records.jsonl") as database:
        known = next(record for record in database if record.ok)
        slower, faster = known.seconds * 2, known.seconds / 2
        for number, seconds in enumerate((slower, faster)):
            how = {"provenance": known.provenance.again((Kind.retimed, Kind.final)[number], 0.0)}
            database.append(change_record(known, latencies=(seconds, slower), seconds=(seconds + slower) / 2, **how))
        nothing = {"latencies": (), "seconds": float("nan"), "spread": float("nan")}
        again = known.provenance.again(Kind.retimed, 0.0)
        failed = change_record(known, error=ErrorClass.crash, provenance=again, **nothing)
        database.append(failed)
        data = build(database, tasks_beside(tmp_path / "records.jsonl"))
    (task,) = data.tasks
    row = [data.trace(task, row)[1].key for row in range(data.count(task))].index(known.trace_key)
    assert data.seconds(task)[row] == pytest.approx(faster, rel=1e-6)
    assert len(data.programs(task)[row].latencies) >= len(known.latencies) + 4


def test_a_collection_may_grow(tmp_path, pools):
    collection.collect(make_config(tmp_path, {"workload": MATMUL}, programs=8))
    grown = make_config(tmp_path, {"workload": MATMUL}, {"workload": POOL}, programs=16)
    session = collection.collect(grown)
    assert session.measurements == 24 and len(session.dataset.tasks) == 2


def test_a_task_that_is_no_longer_collected_keeps_what_is_known_of_it(tmp_path, pools):
    first = collection.collect(make_config(tmp_path, {"workload": MATMUL}, {"workload": POOL}, programs=4))
    path = tmp_path / "tasks.json"
    document = json.loads(path.read_text())
    for task in document["tasks"]:
        task["hardware"] = json.dumps({**json.loads(task["hardware"]), "peak_flops": 7e9})
    path.write_text(json.dumps(document))
    second = collection.collect(make_config(tmp_path, {"workload": MATMUL}, programs=6))
    assert [task.name for task in second.dataset.tasks] == [task.name for task in first.dataset.tasks]
    assert {task.hardware.peak_flops for task in second.dataset.tasks} == {7e9}


def test_the_hardware_stays_that_of_the_first_session(tmp_path, pools):
    config = make_config(tmp_path, programs=8)
    collection.collect(config)
    path = tmp_path / "tasks.json"
    document = json.loads(path.read_text())
    for task in document["tasks"]:
        task["hardware"] = json.dumps({**json.loads(task["hardware"]), "peak_flops": 7e9})
    path.write_text(json.dumps(document))
    session = collection.collect(make_config(tmp_path, programs=12))
    assert {task.hardware.peak_flops for task in session.dataset.tasks} == {7e9}
    document["tasks"][0]["machine"] = "another"
    document["tasks"][0]["key"] = document["tasks"][0]["key"].replace(session.dataset.tasks[0].machine, "another")
    path.write_text(json.dumps(document).replace('"items": [["matmul', '"items": [["nothing'))
    with pytest.raises(DatasetError, match="tasks must be as `autotune collect` writes them"):
        collection.collect(config)


def test_a_collection_stays_on_its_machine(tmp_path, pools, monkeypatch):
    collection.collect(make_config(tmp_path, programs=4))
    monkeypatch.setattr(collection, "describe_host", lambda: {"cpu": "another", "cores": 3})
    with pytest.raises(ConfigError, match="must go on on the machine that it was begun on, .* but this is another, 3"):
        collection.collect(make_config(tmp_path, programs=8))


def test_a_session_ends_in_time(tmp_path, pools):
    session = collection.collect(make_config(tmp_path), minutes=0.0)
    assert session.measurements == 0 and not session.complete and session.dataset is None


def test_replaying_its_records_gives_the_same_dataset(tmp_path, pools, monkeypatch):
    first = collection.collect(make_config(tmp_path / "a"))
    monkeypatch.undo()
    records = tmp_path / "a" / "records.jsonl"
    config = make_config(tmp_path / "b", measure={"pool": f"replay:{records}"})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tasks.json").write_bytes((tmp_path / "a" / "tasks.json").read_bytes())
    second = collection.collect(config)
    assert len(second.dataset) == len(first.dataset)
    for task in first.dataset.tasks:
        np.testing.assert_array_equal(first.dataset.seconds(task), second.dataset.seconds(task))
    assert (tmp_path / "a/dataset/sketches.parquet").read_bytes() == (
        tmp_path / "b/dataset/sketches.parquet"
    ).read_bytes()


def test_a_task_without_a_schedule_is_named_and_the_others_go_on(tmp_path, pools, monkeypatch):
    real = tune_tasks.prepare_task

    def barren(task, *arguments, **options):
        tuning = real(task, *arguments, **options)
        if task.workload.operator == "conv2d":
            monkeypatch.setattr(tuning.strategy, "ask", refuse)
        return tuning

    def refuse(n):
        raise NoLegalSchedule("conv2d", 3, {"registers": 3})

    monkeypatch.setattr(tune_tasks, "prepare_task", barren)
    session = collection.collect(make_config(tmp_path))
    assert len(session.problems) == 2 and "at least one legal schedule" in session.problems[0]
    assert [task.workload.operator for task in session.dataset.tasks] == ["matmul"]


@cache
def import_once(network):
    """The network, which takes seconds, once."""
    return import_network(check_config({"name": "x", "model": network}, "x"))


@pytest.fixture
def networks(monkeypatch):
    """Networks that are known are imported once for all tests."""
    known = {"resnet18": import_once}
    monkeypatch.setattr(
        items,
        "import_network",
        lambda run, at: known[run.model](run.model) if run.model in known else import_network(run, at),
    )


def test_items_of_a_network_are_its_tasks(networks):
    config = make_config(
        Path("unused"),
        {"network": "resnet18", "tasks": 3, "programs": 40, "most_mflop": 240, "least_mflop": 2},
        {"network": "resnet18", "only": ["max_pool2d3x3_112x112x64"]},
        {"workload": {**POOL, "height": 112, "width": 112, "channels": 64, "kernel": 3, "stride": 2, "padding": 1}},
    )
    found = items.list_items(config)
    assert [item.programs for item in found] == [40, 40, 40, 24]
    assert found[0].name == "conv2d7x7_3x224x224_64_s2_add_relu"
    assert [item.networks for item in found] == [{"resnet18": 1}, {"resnet18": 1}, found[2].networks, {"resnet18": 1}]
    assert all(2e6 <= item.workload.flops <= 240e6 for item in found[:3])
    assert len({item.name for item in found}) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"network": "nosuch"}, "small.yaml:collect.sources.0:model: "),
        (
            {"network": "resnet18", "only": ["max_pool"]},
            "sources.0.only: a task must be of the network, but got 'max_p",
        ),
        ({"workload": {"operator": "matmull"}}, "small.yaml:collect.sources.0.workload: `operator` must be one of"),
        ({"workload": {**MATMUL, "k": 0}}, "small.yaml:collect.sources.0.workload: "),
    ],
)
def test_sources_that_are_none_are_refused(source, message, networks):
    with pytest.raises(ConfigError, match=message), in_file("small.yaml"):
        items.list_items(make_config(Path("unused"), source))


@pytest.mark.parametrize(
    ("collect", "message"),
    [
        ({"sources": []}, "must have either sources or pools, but got 0 sources, pools=None"),
        ({"sources": [{}]}, "a source of tasks must have one of network, random_programs, workload, but got 0 of them"),
        ({"sources": [{"network": "a", "random_programs": 2}]}, "but got 2 of them"),
        ({"sources": [{"netwrok": "a"}]}, "sources.0.netwrok: must be one of the known keys; did you mean 'network'?"),
        ({"sources": [{"random_programs": 1}], "random_share": 2}, "collect.random_share: "),
        ({"sources": [{"random_programs": 1}], "program": 2}, "did you mean 'programs'?"),
    ],
)
def test_keys_are_checked(collect, message):
    with pytest.raises(ConfigError) as caught:
        check_config({"name": "x", "collect": collect}, "small.yaml")
    assert message in str(caught.value)


def test_every_key_of_a_source_is_documented():
    from autotune.config import Collect, SourceConfig

    text = (ROOT / "docs" / "cost_model_lab.md").read_text()
    for name in (*SourceConfig.model_fields, *(f"collect.{name}" for name in Collect.model_fields)):
        assert f"`{name}`" in text, name


def test_random_programs_are_the_same_for_the_same_seed_and_within_bounds():
    def draw(seed):
        rng = np.random.default_rng(seed)
        return [random_workload(rng) for _ in range(60)]

    found = draw(0)
    assert [workload.key for workload in found] == [workload.key for workload in draw(0)]
    assert len({workload.key for workload in [*found, *draw(1)]}) > 115
    hardware = registry.get("cpu").hardware
    for workload in found:
        assert OPERATIONS[0] <= workload.flops <= OPERATIONS[1]
        assert sum(np.prod(spec.shape) for spec in (*workload.inputs, workload.output)) <= MOST_ELEMENTS
        assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload
    for workload in found[::3]:
        assert generate(workload, hardware).sketches
    kinds = {workload.anchor.operator for workload in found}
    assert kinds >= {"conv2d", "matmul", "depthwise_conv2d", "tensors"} and len(kinds) >= 7


@pytest.mark.parametrize("seed", range(6))
def test_kernels_of_random_programs_compute_their_reference(seed):
    rng = np.random.default_rng(100 + seed)
    workload, target = random_workload(rng), registry.get("cpu")
    space = generate(workload, target.hardware)
    sketch = next(s for s in space.sketches if s.algorithm == "direct")
    rows = np.stack([rng.integers(len(g.table), size=512) for g in sketch.groups], axis=1).astype(np.int32)
    (choice, *_) = rows[sketch.legal(rows)]
    kernel = target.load(target.build(make_program(workload, "direct", sketch.trace(choice))))
    inputs = workload.make_inputs(seed)
    wanted = workload.reference(*inputs)
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(kernel.bind(inputs).run(), wanted, rtol=rtol, atol=atol)


def test_configurations_that_ship_are_whole():
    from autotune.config import load_config

    for path in sorted((ROOT / "configs").glob("collect_*.yaml")):
        config = load_config(path)
        assert config.collect is not None and (config.collect.sources or config.collect.pools), path
        for source in config.collect.sources:
            assert source.programs is None or source.programs >= 96


def test_commands_make_look_at_merge_and_split_datasets(tmp_path, pools):
    def call(*arguments, code=0):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == code, done.output
        return done.output

    path = tmp_path / "small.yaml"
    path.write_text(json.dumps({"search": {"batch": 4}, "cost_model": {"name": "roofline"}, "collect": COLLECT}))
    shown = call("collect", path, "--output", tmp_path / "run")
    assert "48 programs measured in this session, 48 of 48 in all" in shown and "the same command goes on" not in shown
    assert "2 tasks, 48 programs; 0 records are there" in shown
    call("dataset", "build", tmp_path / "run" / "records.jsonl", "-o", tmp_path / "built")
    built, made = Dataset.open(tmp_path / "built"), Dataset.open(tmp_path / "run" / "dataset")
    assert [task.name for task in built.tasks] == [task.name for task in made.tasks] and len(built) == len(made)
    shown = call("dataset", "stats", tmp_path / "built", "--tasks", "--json", tmp_path / "stats.json")
    assert "matmul_24x48_48x64_24x64" in shown and "wrong_output" in shown and "programs.parquet" in shown
    assert json.loads((tmp_path / "stats.json").read_text())["programs"] == len(made)
    assert re.search(r"^\d\.\d\d MB: programs.parquet [1-9]\d* kB", call("dataset", "stats", "shipped"), re.MULTILINE)
    fixture = ROOT / "tests" / "datasets" / "vta"
    call("dataset", "merge", tmp_path / "built", fixture, "-o", tmp_path / "both")
    split = tmp_path / "split.json"
    shown = call("dataset", "split", tmp_path / "both", "--by", "target", "--hold-out", "vta", "-o", split)
    assert f"train    2 tasks, {len(made):6} programs" in shown and "test     6 tasks,    382 programs" in shown
    assert len(Split.read(split).test_tasks) == 6
    for by in ("within", "task"):
        call("dataset", "split", tmp_path / "both", "--by", by, "--share", "0.25", "--seed", "3", "-o", split)
        assert (Split.read(split).kind, Split.read(split).seed, Split.read(split).share) == (by, 3, 0.25)
    shown = call("dataset", "split", tmp_path / "both", "--by", "network", "--hold-out", "lenet", "-o", split, code=2)
    assert shown == "`networks` must be among resnet18, squeezenet, but got 'lenet'\n"
    shown = call("dataset", "split", tmp_path / "both", "--by", "task", "--hold-out", "resnet18", "-o", split, code=2)
    assert shown == "`--hold-out` must go with `--by` target or network, but got --by task\n"
    assert "must be a folder with tasks.parquet" in call("dataset", "stats", tmp_path, code=2)
    assert "a run must have `model` or `workload`, but got `collect`" in call("run", path, code=2)
    assert "matmul_24x48_48x64_24x64" in call("tasks", path)
    path.write_text(json.dumps({"workload": MATMUL}))
    assert "a configuration to collect from must have `collect`" in call("collect", path, code=2)
    path.write_text(json.dumps({"search": {"strategy": "random"}, "collect": COLLECT}))
    assert "a collection must have a guided strategy, but got 'random'" in call("collect", path, code=2)


def test_ctrl_c_on_the_command_line_says_how_to_go_on(tmp_path, pools):
    pools.planned.append(Pool(lambda done: os.kill(os.getpid(), signal.SIGINT) if done == 9 else None))
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps({"search": {"batch": 4}, "cost_model": {"name": "roofline"}, "collect": COLLECT}))
    done = CliRunner().invoke(app, ["collect", str(path), "--output", str(tmp_path / "run")])
    assert done.exit_code == 130 and "every finished trial is kept. To go on: autotune" in done.output
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"target": "vta"}, "must be 0 for a simulated target, but got it for vta"),
        ({"measure": {"pool": "ray"}}, "must be 0 unless the pool is local, but got 'ray'"),
    ],
)
def test_rounds_need_a_machine_at_hand(tmp_path, pools, keys, message):
    source = {"operator": "conv2d_blocked", "height": 4, "width": 4, "in_channels": 32, "out_channels": 64}
    sources = {"workload": source if "target" in keys else MATMUL, "rounds": 2}
    with pytest.raises(ConfigError, match=f"small.yaml:collect.rounds: {message}"), in_file("small.yaml"):
        collection.collect(make_config(tmp_path, sources, **keys))
