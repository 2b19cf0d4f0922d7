"""Datasets: what is kept is what was measured, features come out the same, and nothing else is opened."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from costmodel.dataset import SHIPPED_DATASET, Dataset, DatasetError, symbolic
from costmodel.dataset.build import build, merge
from costmodel.dataset.schema import COLUMNS
from costmodel.features import NAMES, FeatureExtractor
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import Trial
from measure.provenance import Kind, Provenance
from measure.record import Record
from search_space import workloads
from search_space.hardware import Hardware
from search_space.space import generate, make_program
from targets import registry
from tests.costmodel.fixture import FIXTURE, open_fixture
from tests.measure.helpers import change_record

pytestmark = pytest.mark.xdist_group("dataset")
ROOT = Path(__file__).parents[2]
CPU = Hardware("cpu", 2, 64, 32, 49152, 1 << 21, 1 << 25, 3e11, 4e10, ("avx512f", "cblas"))
SMALL = workloads.matmul(24, 48, 16)


@pytest.fixture
def data() -> Dataset:
    return open_fixture()


def records(count: int = 24, workload=SMALL, target: str = "cpu", seed: int = 0) -> list[Record]:
    """Records as tuning writes them, of candidates drawn from the space; every fifth failed."""
    space = generate(workload, registry.get(target).hardware)
    rng = np.random.default_rng(seed)
    found: dict[str, Record] = {}
    while len(found) < count:
        sketch = space.sketches[int(rng.integers(len(space.sketches)))]
        choices = [int(rng.integers(len(group.table))) for group in sketch.groups]
        trace = sketch.trace(choices)
        if trace.key in found:
            continue
        failed = len(found) % 5 == 4
        latencies = () if failed else tuple(rng.uniform(1e-4, 1e-3, 3).tolist())
        found[trace.key] = Record(
            Trial.of(workload, sketch.algorithm, trace, target=target, threads=2, cache="network", seed=seed),
            Outcome(
                latencies,
                float(np.median(latencies)) if latencies else float("nan"),
                ErrorClass.wrong_output if failed else ErrorClass.ok,
                host={"cpu": "a processor", "cores": 2},
            ),
            Provenance(
                Kind.search,
                ("random", "evolution")[len(found) % 2],
                round=0,
                choices=tuple(choices),
                sketch=sketch.name,
                order=len(found),
            ),
        )
    return list(found.values())


def test_the_fixture_says_what_the_simulator_says(data):
    target = registry.get("vta")
    for task in data.tasks[:: len(data.tasks) - 1]:
        inputs = task.workload.make_inputs(0)
        for row in (0, data.count(task) // 2, data.count(task) - 1):
            algorithm, trace = data.trace(task, row)
            kernel = target.load(target.build(make_program(task.workload, algorithm, trace)))
            (seconds,) = kernel.bind(inputs).time(1)
            assert data.seconds(task)[row] == pytest.approx(seconds, rel=1e-6)


def test_the_fixture_is_half_random_half_searched(data):
    assert {name for task in data.tasks for name in task.networks} == {"resnet18", "squeezenet"}
    for task in data.tasks:
        origin = data.origin(task)
        assert len(origin) == data.count(task) >= 60
        assert min((origin == "random").sum(), (origin == "search").sum()) >= 28
        assert np.isfinite(data.seconds(task)).all() and (data.errors(task) == "ok").all()
        throughput = data.throughput(task)
        assert throughput.max() == 1 and throughput.argmax() == data.seconds(task).argmin()


def test_features_are_those_of_the_sketches_that_were_searched(data):
    task = data.tasks[0]
    space = {s.name: s for s in generate(task.workload, task.hardware).sketches}
    seen = 0
    for rows, features in data.features(task):
        programs = [data.programs(task)[row] for row in rows]
        sketch = space[data.sketches(task)[programs[0].sketch].name]
        columns = np.array([program.values for program in programs], float).T
        extractor = FeatureExtractor(sketch.program, sketch.columns, task.hardware)
        np.testing.assert_array_equal(features, extractor(columns))
        np.testing.assert_array_equal(data.roofline(task)[rows], extractor.roofline(columns))
        assert features.shape == (len(rows), len(extractor.statements), len(NAMES))
        seen += len(rows)
    assert seen == data.count(task) and data.features(task) is data.features(task)


def test_features_know_that_weights_are_cold():
    of = records(8)
    cold = build(of)
    warm = build([change_record(record, cache="warm") for record in of])
    assert (cold.roofline(cold.tasks[0]) >= warm.roofline(warm.tasks[0])).all()
    assert (cold.roofline(cold.tasks[0]) > warm.roofline(warm.tasks[0])).any()


def test_writing_and_opening_changes_nothing(data, tmp_path):
    data.write(tmp_path / "again")
    again = Dataset.open(tmp_path / "again")
    assert [task.key for task in again.tasks] == [task.key for task in data.tasks]
    for task, other in zip(data.tasks, again.tasks, strict=True):
        assert (task.name, task.hardware, task.networks) == (other.name, other.hardware, other.networks)
        assert data.sketches(task) == again.sketches(other)
        for one, two in zip(data.programs(task), again.programs(other), strict=True):
            assert dataclasses.replace(one, latencies=None) == dataclasses.replace(two, latencies=None)
            np.testing.assert_array_equal(one.latencies, two.latencies)
    for name in COLUMNS:
        written = (tmp_path / "again" / f"{name}.parquet").read_bytes()
        again.write(tmp_path / "third")
        assert (tmp_path / "third" / f"{name}.parquet").read_bytes() == written


def test_a_dataset_that_cannot_be_written_whole_is_left_as_it_was(data, tmp_path, monkeypatch):
    build(records(6)).write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    whole = pyarrow.parquet.write_table

    def full(table, path, **options):
        if "programs" in str(path):
            raise OSError(28, "No space left on device")
        whole(table, path, **options)

    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    with pytest.raises(OSError, match="No space left"):
        data.write(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before and len(before) == 3


def test_a_dataset_of_records_holds_what_was_measured(tmp_path):
    of = records()
    build(of).write(tmp_path)
    data = Dataset.open(tmp_path)
    (task,) = data.tasks
    assert task.machine == "a processor, 2 cores" and task.workload == SMALL and task.cache == "network"
    for row, record in enumerate(of):
        algorithm, trace = data.trace(task, row)
        assert (algorithm, trace.key) == (record.algorithm, record.trace_key)
        assert trace.to_json() == [dict(step) for step in record.trial.trace]
    np.testing.assert_allclose(data.seconds(task), [record.min_seconds for record in of], rtol=1e-6)
    assert data.errors(task).tolist() == [str(record.error) for record in of]
    assert data.origin(task).tolist() == ["random", "search"] * 12
    assert [program.order for program in data.programs(task)] == list(range(24))


def test_a_schedule_that_its_space_does_not_give_is_kept_as_it_is():
    of = records(6)
    by_hand = [dataclasses.replace(record.provenance, choices=None, strategy="", note="by hand") for record in of]
    noted = [change_record(record, provenance=how) for record, how in zip(of, by_hand, strict=True)]
    known, unknown = build(of), build(noted)
    (one,), (two,) = known.tasks, unknown.tasks
    assert all(sketch.columns == () for sketch in unknown.sketches(two))
    assert any(sketch.columns for sketch in known.sketches(one))
    rows = {row: features for block in unknown.features(two) for row, features in zip(*block, strict=True)}
    for row in range(6):
        assert unknown.trace(two, row)[1].key == known.trace(one, row)[1].key
    for block in known.features(one):
        for row, features in zip(*block, strict=True):
            np.testing.assert_array_equal(features, rows[row])
    assert set(unknown.origin(two)) == {"search"}


def test_choices_that_make_another_schedule_today_are_not_believed():
    first, *rest = records(6)
    wrong = change_record(first, choices=(999,) * len(first.provenance.choices))
    short = change_record(rest[0], choices=(0,))
    data = build([wrong, short, *rest[1:]])
    assert data.trace(data.tasks[0], 0)[1].key == first.trace_key
    assert data.trace(data.tasks[0], 1)[1].key == rest[0].trace_key
    with pytest.raises(DatasetError, match="`trace_key` must be that of the record's trace"):
        build([change_record(wrong, trace_key="0" * 64)])


def test_each_program_is_in_it_once_and_a_success_wins():
    of = records(6)
    again = [change_record(r, error=ErrorClass.ok, latencies=(1.0,), seconds=1.0, order=50) for r in of]
    data = build([*of, *again])
    assert len(data) == 6
    seconds = data.seconds(data.tasks[0])
    assert (seconds == 1.0).sum() == sum(not record.ok for record in of) == 1
    assert data.programs(data.tasks[0])[4].order == 50


def test_a_program_that_failed_at_first_has_the_samples_of_all_later_times():
    (record,) = records(1)
    failed = change_record(record, error=ErrorClass.run_timeout, latencies=(), seconds=float("nan"))
    fine = change_record(record, strategy="evolution", order=7)
    again = change_record(
        record, provenance=record.provenance.again(Kind.retimed, 0.0), latencies=(1e-9,), seconds=1e-9
    )
    data = build([failed, fine, again])
    assert len(data) == 1 and data.seconds(data.tasks[0]) == pytest.approx(1e-9)
    assert len(data.programs(data.tasks[0])[0].latencies) == len(record.latencies) + 1


def test_what_is_known_of_tasks_besides_the_records_counts(data):
    of = records(4)
    (task,) = build(of).tasks
    hardware = dataclasses.replace(task.hardware, peak_flops=1.0)
    (named,) = build(of, [dataclasses.replace(task, name="mine", networks={"net": 3}, hardware=hardware)]).tasks
    assert (named.name, named.networks, named.hardware) == ("mine", {"net": 3}, hardware)
    assert named == task and hash(named) == hash(task)


def test_records_of_nothing_known_are_refused():
    with pytest.raises(DatasetError, match="at least one measurement"):
        build([])
    (record,) = records(1)
    with pytest.raises(DatasetError, match="targets that are known here, but `target` must be one of"):
        build([change_record(record, target="tpu")])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trace_key": "zz" * 32}, "`trace_key` must be a SHA-256 in hexadecimal, but got 'zz"),
        (
            {"trace": ({"step": "none"},), "provenance": Provenance()},
            "`trace` of a record must be a schedule, but `step` must be",
        ),
    ],
)
def test_records_of_no_schedule_are_refused(changes, message):
    (record,) = records(1)
    with pytest.raises(DatasetError, match=message):
        build([change_record(record, **changes)])


@pytest.mark.parametrize(
    "changes", [{"algorithm": "magic"}, {"steps": '[{"step":"fuse","stage":"X","axes":["i","j"]}]'}]
)
def test_a_sketch_that_is_no_schedule_by_now_is_told(changes):
    (sketch,) = build(records(1)).sketches(build(records(1)).tasks[0])
    with pytest.raises(
        DatasetError, match=f"a sketch must be a schedule of its workload, but {re.escape(sketch.name)}"
    ):
        dataclasses.replace(sketch, **changes).program(SMALL)


def test_merging_joins_tasks_and_drops_what_is_there_twice(data):
    of = records(12)
    (task,) = build(of).tasks
    left = build(of[:8], [dataclasses.replace(task, name="left", networks={"a": 1})])
    right = build(of[4:], [dataclasses.replace(task, name="right", networks={"b": 2})])
    both = merge([left, right, data])
    assert len(both) == 12 + len(data) and len(both.tasks) == 1 + len(data.tasks)
    joined = both.tasks[0]
    assert joined.name == "left" and joined.networks == {"a": 1, "b": 2}
    assert {both.trace(joined, row)[1].key for row in range(12)} == {record.trace_key for record in of}
    by_key = {record.trace_key: record.min_seconds for record in of}
    wanted = [by_key[both.trace(joined, row)[1].key] for row in range(12)]
    np.testing.assert_allclose(both.seconds(joined), wanted, rtol=1e-6)
    whole = build(of)
    features = {r: f for block in whole.features(task) for r, f in zip(*block, strict=True)}
    order = [record.trace_key for record in of]
    for block in both.features(joined):
        for row, found in zip(*block, strict=True):
            np.testing.assert_array_equal(found, features[order.index(both.trace(joined, int(row))[1].key)])


def test_machines_do_not_mix():
    of = records(4)
    other = [change_record(record, host={"cpu": "another", "cores": 8}) for record in of]
    assert len(merge([build(of), build(other)]).tasks) == 2


def test_selecting(data):
    part = data.select([data.tasks[2], data.tasks[0].key])
    assert part.tasks == (data.tasks[2], data.tasks[0])
    assert len(part) == data.count(data.tasks[2]) + data.count(data.tasks[0])
    assert part.features(part.tasks[0])[0].features is data.features(data.tasks[2])[0].features
    with pytest.raises(DatasetError, match="`key` must be of a task of the dataset"):
        data.select(["nothing"])
    with pytest.raises(DatasetError, match="`task` must be one of the dataset"):
        part.seconds(data.tasks[1])


@pytest.mark.parametrize(
    "workload",
    [
        SMALL,
        workloads.conv2d(height=10, width=9, in_channels=16, out_channels=24, kernel=3, padding=1, bias=True),
        workloads.depthwise_conv2d(height=14, width=14, channels=32, padding=1),
        workloads.softmax(30, 100),
        workloads.max_pool2d(height=15, width=15, channels=40, kernel=3),
    ],
    ids=lambda workload: workload.operator,
)
def test_symbolic_traces_travel_as_text(workload):
    sketches = generate(workload, CPU).sketches
    for sketch in sketches:
        again = symbolic.from_text(symbolic.to_text(sketch.steps))
        assert again == sketch.steps  # the same expressions: they are interned
    if workload.operator == "conv2d":
        assert {sketch.algorithm for sketch in sketches} >= {"direct", "im2col", "library", "winograd4"}
    assert any("var" in symbolic.to_text(sketch.steps) for sketch in sketches)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"step": "splitt"}]', '[{"step": "split", "stage": 3}]'])
def test_other_text_is_no_trace(text):
    if text == "{}":
        assert symbolic.from_text(text).steps == ()
        return
    with pytest.raises(DatasetError, match="a sketch must hold a symbolic trace"):
        symbolic.from_text(text)


def test_anything_else_is_refused_in_one_sentence(data, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(DatasetError, match=r"must be a folder with tasks.parquet, .* but .* has no tasks.parquet"):
        Dataset.open(tmp_path / "nowhere")
    data.write(tmp_path)
    whole = (tmp_path / "programs.parquet").read_bytes()
    (tmp_path / "programs.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match="programs.parquet: a table must be a readable Parquet file"):
        Dataset.open(tmp_path)
    table = pq.read_table(FIXTURE / "programs.parquet")
    newer = table.replace_schema_metadata({"schema": "autotune.dataset/2"})
    pq.write_table(newer, tmp_path / "programs.parquet")
    with pytest.raises(
        DatasetError, match="`schema` must be 'autotune.dataset/1', but got schema='autotune.dataset/2'"
    ):
        Dataset.open(tmp_path)
    pq.write_table(table.drop_columns("origin"), tmp_path / "programs.parquet")
    with pytest.raises(DatasetError, match="a table must have the columns sketch, .* but got sketch: int32"):
        Dataset.open(tmp_path)
    beyond = table.set_column(0, table.schema.field("sketch"), pa.array([9999] * len(table), pa.int32()))
    pq.write_table(beyond, tmp_path / "programs.parquet")
    with pytest.raises(DatasetError, match="a dataset must be whole"):
        Dataset.open(tmp_path)


def test_the_code_of_its_page_runs(data, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(Dataset, "open", {str(FIXTURE.relative_to(ROOT)): data}.__getitem__)
    code, *_ = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "cost_model_lab.md").read_text(), re.M | re.S)
    names = {}
    exec(compile(code, "cost_model_lab.md", "exec"), names)
    assert len(names["train"]) == len(names["test"]) == 3 and len(names["small"].tasks) == 2


def test_every_column_is_documented():
    text = (ROOT / "docs" / "cost_model_lab.md").read_text()
    rows = re.findall(r"^\| (\w*) ?\| `(\w+)` \| (.*?) \|$", text, re.MULTILINE)
    table, documented = "", {}
    for name, column, _ in rows:
        table = name or table
        documented.setdefault(table, []).append(column)
    assert documented == {name: list(columns) for name, columns in COLUMNS.items()}


def test_the_dataset_that_comes_along_for_transfer_is_balanced() -> None:
    data = Dataset.open(SHIPPED_DATASET)
    assert {task.target for task in data.tasks} == {"cpu", "cpu:haswell", "vta"}
    large = [task for task in data.tasks if data.count(task) >= 300]
    assert len(large) >= 20
    assert all(0.4 < (data.origin(task) == "random").mean() < 0.6 for task in large)
    assert sum(path.stat().st_size for path in (ROOT / "costmodel").rglob("*.parquet")) < 10 << 20
