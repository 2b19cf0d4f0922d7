"""Splits of datasets: the two parts share nothing, cover what they should, and are the same for the same seed."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.dataset import (
    Dataset,
    DatasetError,
    Split,
    split_by_network,
    split_by_target,
    split_by_task,
    split_within,
)

FIXTURE = Path(__file__).parents[1] / "datasets" / "vta"
DATA = Dataset.open(FIXTURE)


def twice() -> Dataset:
    """Every task of the fixture on two targets, the second half of whose networks are others."""
    other = {dataclasses.replace(task, target="vta:1x16x16"): DATA.copy_measurements(task) for task in DATA.tasks}
    return Dataset({**{task: DATA.copy_measurements(task) for task in DATA.tasks}, **other})


@settings(deadline=None, max_examples=25)
@given(share=st.floats(0.05, 0.95), seed=st.integers(0, 1 << 40))
def test_within_tasks_every_program_falls_on_one_side(share, seed):
    split = split_within(DATA, share, seed)
    sides = list(zip(split.train(DATA), split.test(DATA), strict=True))
    assert len(sides) == len(DATA.tasks)
    for (task, learn), (same, judge) in sides:
        assert task is same
        assert sorted([*learn, *judge]) == list(range(DATA.count(task)))
    drawn = sum(len(rows) for _, rows in split.test(DATA))
    assert abs(drawn - share * len(DATA)) < 5 * np.sqrt(len(DATA) * share * (1 - share)) + 1


def test_within_tasks_a_program_stays_where_it_was_as_a_dataset_grows():
    task = DATA.tasks[0]
    small = DATA.copy_measurements(task)
    small.programs = small.programs[10:40]
    split = split_within(DATA, 0.3, 7)
    (whole,), (part,) = split.test(DATA.select([task])), split.test(Dataset({task: small}))
    assert [row - 10 for row in whole.rows if 10 <= row < 40] == part.rows.tolist()
    assert split_within(DATA, 0.3, 8).test(DATA)[0].rows.tolist() != whole.rows.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_by_task_a_workload_is_on_one_side_on_all_targets(seed):
    data = twice()
    split = split_by_task(data, 0.34, seed)
    learn, judge = ({part.task.workload.key for part in side} for side in (split.train(data), split.test(data)))
    assert not learn & judge and len(judge) == 2 and len(learn) == 4
    assert len(split.test(data)) == 4 and len(split.train(data)) == 8
    assert all(len(part.rows) == data.count(part.task) for part in split.test(data))
    assert split == split_by_task(data, 0.34, seed)
    assert len({split_by_task(data, 0.34, other).test_tasks for other in range(8)}) > 3


def test_by_target():
    data = twice()
    split = split_by_target(data, ["vta"])
    assert {part.task.target for part in split.test(data)} == {"vta"}
    assert {part.task.target for part in split.train(data)} == {"vta:1x16x16"}
    with pytest.raises(DatasetError, match="`targets` must be among vta, but got 'cpu'"):
        split_by_target(DATA, ["cpu"])
    with pytest.raises(DatasetError, match="`held_out` must leave tasks to learn from, but got vta"):
        split_by_target(DATA, ["vta"])


def test_networks_are_held_out_whole_and_their_workloads_are_hidden():
    data = twice()
    others = {task: data.copy_measurements(task) for task in data.tasks}
    first = next(task for task in data.tasks if "squeezenet" in task.networks)
    shared = dataclasses.replace(first, networks={"squeezenet": 1, "resnet18": 1})
    alone = dataclasses.replace(first, target="vta:pynq", networks={})  # the same workload, of no network
    of = {shared if task == first else task: measured for task, measured in others.items()}
    data = Dataset({**of, alone: data.copy_measurements(first)})
    split = split_by_network(data, ["resnet18"])
    judge = {part.task for part in split.test(data)}
    learn = {part.task for part in split.train(data)}
    assert judge == {task for task in data.tasks if "resnet18" in task.networks} and shared in judge
    assert alone not in learn and alone not in judge
    assert not {task.workload.key for task in learn} & {task.workload.key for task in judge}
    assert len(learn) == 4
    with pytest.raises(DatasetError, match="`networks` must name at least one of resnet18, squeezenet, but got none"):
        split_by_network(DATA, [])


def test_a_split_is_a_file(tmp_path):
    split = split_within(DATA, 0.25, 3)
    path = tmp_path / "split.json"
    path.write_text(json.dumps(split.to_json()))
    assert Split.read(path) == split
    for text, message in (
        ("{", "a split must be JSON"),
        ("[]", "`schema` must be 'autotune.split/1', but got schema=None"),
        ('{"schema": "autotune.split/1", "kind": "task"}', "a split must have held_out, kind, .* but got kind"),
    ):
        path.write_text(text)
        with pytest.raises(DatasetError, match=message):
            Split.read(path)
    with pytest.raises(DatasetError, match="a split must be a readable file"):
        Split.read(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "weekday"}, "`kind` must be one of within, task, target, network, but got kind='weekday'"),
        ({"share": None}, "`share` must be between 0 and 1, but got share=None"),  # all rows would be on both sides
        ({"share": 1.5}, "`share` must be between 0 and 1, but got share=1.5"),
        ({"seed": "x"}, "`seed` must be a whole number from 0, but got seed='x'"),
        ({"train_tasks": "abc"}, "`train_tasks` must be a list of texts, but got train_tasks='abc'"),
        ({"kind": "target"}, "`share` must be null for kind='target', but got share=0.25"),
        ({"kind": "target", "share": None}, "`train_tasks` and `test_tasks` must have no task in common, but both"),
    ],
)
def test_a_file_that_would_judge_a_model_on_what_it_learned_is_refused(tmp_path, changes, message):
    path = tmp_path / "split.json"
    path.write_text(json.dumps({**split_within(DATA, 0.25, 3).to_json(), **changes}))
    with pytest.raises(DatasetError, match=re.escape(f"{path}: {message}")):
        Split.read(path)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_is_a_share(share):
    with pytest.raises(DatasetError, match="`share` must be between 0 and 1"):
        split_within(DATA, share)
    with pytest.raises(DatasetError, match="`share` must be between 0 and 1"):
        split_by_task(DATA, share)


def test_a_split_by_task_needs_both_sides():
    with pytest.raises(DatasetError, match="`share` must leave workloads on both sides, but got share=0.01 of 6"):
        split_by_task(DATA, 0.01)
