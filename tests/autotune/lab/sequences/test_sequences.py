"""Records of Ansor as sequences of primitives: what is read and refused, shards of any size, and a model of them."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.lab.evaluate.scores import score_rankings
from autotune.lab.sequences import Sequences, encode, read_log, write_shards
from autotune.lab.sequences.encoding import KINDS, LENGTH, VALUES_PER_STEP, WIDTH, own_steps
from autotune.lab.sequences.model import Options, SequenceModel
from autotune.lab.sequences.shards import of_dataset
from costmodel.dataset import DatasetError, TaskPrograms
from search_space.schedule.steps import STEPS
from tests.costmodel.fixture import open_fixture

STEPS_OF_A_PRODUCT = [
    ["CHW", 2, "local"],
    ["SP", 2, 0, 512, [1, 16, 8], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FSP", 3, 0, 1, 2],
    ["CA", 2, 3, 3],
    ["FU", 3, [0, 1, 2, 3]],
    ["AN", 3, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
]


def record(steps=STEPS_OF_A_PRODUCT, costs=(0.002, 0.004), error=0, workload='["matmul", 512, 512, 512]'):
    return {
        "i": [[workload, "llvm -keys=cpu", [8, 64, 64, 0, 0, 0, 0, 0], "", 1, []], [[], steps]],
        "r": [list(costs), error, 0.5, 1],
        "v": "v0.6",
    }


def log(folder, records, name="log.json"):
    path = folder / name
    path.write_text("# a comment\n" + "".join(json.dumps(of) + "\n" for of in records))
    return path


def test_a_record_is_read_as_it_is_documented(tmp_path):
    first, failed = read_log(log(tmp_path, [record(), record(costs=(1e10,), error=4)]))
    assert first.workload == '["matmul", 512, 512, 512]' and first.target == "llvm -keys=cpu"
    assert first.seconds == pytest.approx(0.003) and np.isnan(failed.seconds)
    assert first.steps[1] == ("SP", 2, 0, 512, [1, 16, 8], 1) and len(first.steps) == 8
    packed = tmp_path / "log.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "log.json").read_bytes()))
    assert [of.steps for of in read_log(packed)] == [first.steps, failed.steps]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1 must be a record of auto_scheduler"),
        (json.dumps({"r": [[1], 0]}), "line 1 must be a record of auto_scheduler, but 'i'"),
        (
            json.dumps(record(steps=[["TWIST", 1]])),
            "a step must begin with one of AN, FU, .*, but got \\['TWIST', 1\\]",
        ),
        (json.dumps(record(costs=(0.0,))), "seconds must be positive, but got 0.0"),
        (json.dumps({**record(), "i": [[3, "llvm"], [[], []]]}), "a task must begin with its key and its target"),
    ],
)
def test_what_is_no_record_is_said(tmp_path, line, message):
    (tmp_path / "log.json").write_text(line + "\n")
    with pytest.raises(DatasetError, match=message):
        list(read_log(tmp_path / "log.json"))
    with pytest.raises(DatasetError, match="records must be a readable file"):
        list(read_log(tmp_path / "none.json"))


def test_a_primitive_is_a_row_with_its_kind_and_what_it_was_given():
    found = encode(STEPS_OF_A_PRODUCT)
    assert found.shape == (LENGTH, WIDTH) and not found[len(STEPS_OF_A_PRODUCT) :].any()
    assert [KINDS[int(row[: len(KINDS)].argmax())] for row in found[:8]] == [step[0] for step in STEPS_OF_A_PRODUCT]
    np.testing.assert_allclose(found[1, len(KINDS) :][:7], np.log2([3, 1, 513, 2, 17, 9, 2]), rtol=1e-3)
    assert not np.array_equal(encode([["PR", 2, 0, "a"]]), encode([["PR", 2, 0, "b"]]))
    long = encode([["SP", 0, 0, 8, list(range(2 * VALUES_PER_STEP)), 1]] * (LENGTH + 5))
    assert long.shape == (LENGTH, WIDTH) and np.isfinite(long).all()


def test_every_step_of_this_project_has_a_kind():
    for name in STEPS:
        ((kind, *_),) = own_steps([{"step": name}])
        assert kind in KINDS


def test_shards_hold_every_program_whatever_their_size(tmp_path):
    logs = [
        log(tmp_path, [record(costs=(number,), workload=f"w{number % 3}") for number in range(1, 12)], "a.json"),
        log(
            tmp_path, [record(costs=(number,), workload="w1") for number in range(12, 16)] + [record(error=1)], "b.json"
        ),
    ]
    whole, small = write_shards(logs, tmp_path / "whole"), write_shards(logs, tmp_path / "small", most=4)
    assert len(list((tmp_path / "small").glob("*.npz"))) == 4
    assert whole.counts == small.counts and sum(whole.counts.values()) == 15
    for name in whole.names:
        one, other = whole.task(name), small.task(name)
        assert sorted(one.seconds) == sorted(other.seconds) and one.sequences.shape[1:] == (LENGTH, WIDTH)
    assert sorted(whole.task("w1 on llvm -keys=cpu").seconds) == [1, 4, 7, 10, 12, 13, 14, 15]
    with pytest.raises(DatasetError, match="must hold at least one program"):
        write_shards([log(tmp_path, [record(error=1)], "c.json")], tmp_path / "empty")
    with pytest.raises(DatasetError, match="sequences must be a readable folder"):
        Sequences(tmp_path / "nowhere")


def made_up(folder):
    """Records of eight tasks in which the time is what two splits say."""
    rng, records = np.random.default_rng(0), []
    for task in range(8):
        for _ in range(60):
            tile, other = (int(2**x) for x in rng.integers(0, 7, 2))
            seconds = 1e-3 * (1 + task) * (1 + abs(np.log2(tile) - 3) + 0.3 * np.log2(other))
            steps = [["SP", 2, 0, 512, [tile], 1], ["SP", 2, 2, 512, [other], 1], ["FU", 3, [0, 1]]]
            records.append(record(steps, (seconds,), workload=f"w{task}"))
    return log(folder, records)


def test_a_model_learns_from_primitives_alone(tmp_path):
    pytest.importorskip("torch")
    run = CliRunner().invoke
    log_file = made_up(tmp_path)
    done = run(app, ["dataset", "sequences", str(log_file), "-o", str(tmp_path / "s")])
    assert done.exit_code == 0 and "8 tasks, 480 programs" in done.output, done.output
    command = ["costmodel", "sequences", str(tmp_path / "s"), "--json", str(tmp_path / "f.json"), "--steps"]
    scored = run(app, [*command, "100", "--share", "0.25"])
    assert scored.exit_code == 0, scored.output
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["models"]["primitives"]["pairwise"][0] > 0.85 and len(found["tasks"]) == 2
    (tmp_path / "w.json").write_text(json.dumps({"one": {"w0": 3, "w1": 1}, "two": {"w1": 2}}))
    weighed = run(app, [*command, "2", "--weights", str(tmp_path / "w.json")])
    assert weighed.exit_code == 0 and "scored on 2 tasks" in weighed.output
    refused = run(app, [*command, "2", "--share", "1.5"])
    assert refused.exit_code == 2 and "`share` must leave tasks on both sides of 8" in refused.output


def test_the_same_seed_learns_the_same():
    pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    sequences, seconds = rng.random((40, LENGTH, WIDTH)).astype(np.float16), rng.random(40) + 0.1
    first, second, other = (SequenceModel(Options(hidden=16, heads=2, steps=5, seed=s)) for s in (3, 3, 4))
    for model in (first, second, other):
        model.fit(1, lambda place: (sequences, seconds))
    assert np.array_equal(first.predict(sequences), second.predict(sequences))
    assert not np.array_equal(first.predict(sequences), other.predict(sequences))
    with pytest.raises(ValueError, match="must be fitted before it is used"):
        SequenceModel().predict(sequences)


def test_schedules_of_this_project_are_sequences_too():
    data = open_fixture()
    part = TaskPrograms(data.tasks[0], np.flatnonzero(np.isfinite(data.seconds(data.tasks[0]))))
    task = of_dataset(data, part)
    assert task.sequences.shape == (len(part.rows), LENGTH, WIDTH) and len(np.unique(task.sequences, axis=0)) > 10
    perfect = score_rankings([[-task.seconds]], [task.seconds])
    assert perfect.metrics["pairwise"][0, 0] == 1.0
