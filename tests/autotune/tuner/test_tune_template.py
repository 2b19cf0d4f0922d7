"""Templates tuned: by every strategy, with features of loops and of knobs, from Python and from a configuration."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.tuner.scorer import ModelScorer
from costmodel.features import NAMES, SECONDS
from costmodel.features.knobs import KnobFeatures
from costmodel.models.lightgbm_model import LightGBMModel
from costmodel.models.roofline import RooflineModel
from search_space import workloads
from search_space.space import generate, make_program
from search_space.template import get
from targets import registry
from tests.autotune import fakes
from tests.interpreter import interpret

CONV = workloads.conv2d(height=6, width=6, in_channels=4, out_channels=16, kernel=1)
PADDED_CONV = workloads.conv2d(height=6, width=6, in_channels=4, out_channels=16, kernel=3, padding=1)
BLOCKED_CONV = workloads.conv2d_blocked(height=2, width=2, in_channels=32, out_channels=32, kernel=1)


def check(result, workload):
    """The best schedule computes what the reference does, by the interpreter."""
    best = result.best
    inputs = workload.make_inputs(1)
    names = [spec.name for spec in workload.inputs]
    from search_space.schedule.trace import Trace

    program = make_program(workload, best.algorithm, Trace.from_json(best.trial.trace))
    found = interpret(program, dict(zip(names, inputs, strict=True)))[workload.output.name]
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(found, workload.reference(*inputs), rtol=rtol, atol=atol)


@pytest.mark.parametrize("features", ["loops", "knobs", "both"])
def test_a_template_is_tuned_and_its_best_computes_the_reference(features):
    made = get("conv2d.cpu")(CONV)
    result = fakes.tune(made, trials=24, batch=12, pool=fakes.HashPool(), features=features)
    assert len(result.records) == 24 and result.workload == CONV
    assert {record.provenance.sketch.split("/")[0] for record in result.records} == {"direct:conv2d.cpu"}
    check(result, CONV)


@pytest.mark.parametrize("strategy", ["beam", "bandit", "cmaes", "evolution", "nsga2", "tpe"])
def test_every_strategy_tunes_a_template(strategy):
    made = get("conv2d.cpu")(CONV)
    keys = [
        [
            record.trace_key
            for record in fakes.tune(
                made, trials=14, batch=7, strategy=strategy, cost_model="roofline", pool=fakes.HashPool()
            ).records
        ]
        for _ in range(2)
    ]
    assert keys[0] == keys[1] and len(set(keys[0])) == 14


def test_a_template_of_an_accelerator_is_tuned_on_its_simulator():
    result = fakes.tune(get("conv2d.vta")(BLOCKED_CONV), target="vta", trials=8, batch=4, threads=1)
    assert len(result.records) == 8 and not result.errors
    slowest = max(record.seconds for record in result.records)
    assert result.best_seconds < slowest
    check(result, BLOCKED_CONV)


def test_what_was_measured_is_known_again(tmp_path):
    made = get("conv2d.cpu")(CONV)
    options = {"batch": 6, "pool": fakes.HashPool(), "records": tmp_path / "r.jsonl"}
    fakes.tune(made, trials=6, **options)
    again = fakes.tune(made, trials=12, **options)
    assert again.measured_count == 6 and len(again.records) == 12


def test_knob_features_are_numbers_and_choices():
    space = get("conv2d.cpu")(PADDED_CONV).space(registry.get("cpu").hardware)
    features = KnobFeatures(space)
    numbers = [name for name in features.names if ":" in name]
    assert set(numbers) == {name for sketch in space.sketches for name in sketch.columns}
    assert set(features.names) - set(numbers) == {
        f"{knob}={value}"
        for knob, values in (("order", ("012", "201")), ("order_r", ("012", "201")), ("pad", ("whole", "block")))
        for value in values
    }
    for place, sketch in enumerate(space.sketches):
        choices = np.array([[len(g.table) - 1 for g in sketch.groups], [0] * len(sketch.groups)], np.int32)
        found = features(place, choices)
        for row, choice in zip(found, choices, strict=True):
            told = dict(zip(features.names, row.tolist(), strict=True))
            for name, value in sketch.values(choice).items():
                assert told[name] == pytest.approx(np.log2(1 + value))
            assert {name for name in told if "=" in name and told[name]} == {
                f"{knob}={value}" for knob, value in space.choices[place].items()
            }


def test_knob_features_of_other_spaces_tell_sketches_apart():
    space = generate(PADDED_CONV, registry.get("cpu").hardware, ["direct"])
    features = KnobFeatures(space)
    rows = np.concatenate([features(i, np.zeros((1, len(s.groups)), np.int32)) for i, s in enumerate(space.sketches)])
    assert len(np.unique(rows, axis=0)) == len(space.sketches)


@pytest.mark.parametrize("loops", [False, True])
def test_a_guide_by_knobs_learns_the_order_of_candidates(loops):
    space = get("conv2d.cpu")(PADDED_CONV).space(registry.get("cpu").hardware)
    rng = np.random.default_rng(0)
    scorer = ModelScorer(space, LightGBMModel(), rng, features="both" if loops else "knobs")
    from autotune.tuner.search import Candidate

    def seconds(sketch, choices):
        values = dict(zip(space.sketches[sketch].columns, space.sketches[sketch].expand(choices), strict=True))
        slow = 2.0 if space.choices[sketch]["order"] == "201" else 1.0
        return 1e-3 * slow * (1 + np.log2(values["tile_rc:1"]))

    for sketch, of in enumerate(space.sketches):
        choices = np.stack([rng.integers(len(g.table), size=24) for g in of.groups], axis=1).astype(np.int32)
        scorer.observe([Candidate(sketch, tuple(c)) for c in choices.tolist()], seconds(sketch, choices).tolist())
    scorer.refit()
    right = []
    for sketch in (0, 5):
        groups = space.sketches[sketch].groups
        choices = np.stack([rng.integers(len(g.table), size=64) for g in groups], axis=1).astype(np.int32)
        right.append(np.corrcoef(scorer(sketch, choices), -seconds(sketch, choices))[0, 1])
    assert min(right) > 0.8


def test_features_of_knobs_alone_leave_the_loops_out():
    space = get("conv2d.cpu")(CONV).space(registry.get("cpu").hardware)
    scorer = ModelScorer(space, RooflineModel(), np.random.default_rng(0), features="knobs")
    columns = space.sketches[0].expand(np.zeros((3, len(space.sketches[0].groups)), np.int32))
    found = scorer._extractor(0)(columns)
    assert found.shape == (3, 1, len(NAMES) + len(KnobFeatures(space).names))
    assert (found[:, 0, SECONDS] == 1).all() and np.count_nonzero(found[:, 0, : len(NAMES)]) == 3


CONFIG = """
workload: {operator: conv2d_blocked, height: 4, width: 4, in_channels: 16, out_channels: 16, kernel: 3, padding: 1}
target: vta
trials: 6
search: {batch: 3, template: conv2d.vta}
tracking: {backend: none}
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_configuration_names_a_template(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conv.yaml").write_text(CONFIG)
    done = call("run", "conv.yaml", "--json", "out.json", "--quiet")
    assert done.exit_code == 0, done.output
    (task,) = json.loads((tmp_path / "out.json").read_text())["tasks"]
    assert task["trials"] == 6 and task["correct"]
    lines = (tmp_path / "runs" / "conv" / "records.jsonl").read_text().splitlines()
    assert all("direct:conv2d.vta/" in line for line in lines if '"sketch"' in line)
    shown = call("lower", "conv.yaml", "--stage", "schedule")
    assert shown.exit_code == 0 and "cache_read(tensor=pad, scope=input" in shown.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "search.template=conv2d.vtb",
            "conv.yaml:search.template: `template` must be one of .*did you mean 'conv2d.vta'",
        ),
        ("search.template=conv2d.cpu", "must be given a workload of conv2d, but got conv2d_blocked"),
        ("search.algorithms=[direct]", "`template` must stand without `algorithms`"),
    ],
)
def test_wrong_templates_are_told(tmp_path, monkeypatch, change, message):
    import re

    monkeypatch.chdir(tmp_path)
    (tmp_path / "conv.yaml").write_text(CONFIG)
    done = call("run", "conv.yaml", "--set", change)
    assert done.exit_code == 2 and re.search(message, done.output), done.output


def test_a_template_needs_a_workload(tmp_path):
    (tmp_path / "net.yaml").write_text("model: squeezenet\nsearch: {template: conv2d.cpu}\n")
    done = call("tasks", tmp_path / "net.yaml")
    assert done.exit_code == 2 and "`search.template` must stand beside a `workload`" in done.output


def test_the_front_of_a_result_is_what_no_other_schedule_beats():
    space = get("conv2d.cpu")(PADDED_CONV).space(registry.get("cpu").hardware)
    result = fakes.tune(
        get("conv2d.cpu")(PADDED_CONV), trials=20, strategy="nsga2", cost_model="roofline", pool=fakes.HashPool()
    )
    found = []
    for record in result.records:
        (place,) = [i for i, sketch in enumerate(space.sketches) if sketch.name == record.provenance.sketch]
        choices = np.array([record.provenance.choices], np.int32)
        found.append((record.seconds, space.sketches[place].workspace(choices, result.threads)[0]))
    front = [(record.seconds, size) for record, size in result.memory_front()]
    assert front == sorted(
        own for own in found if not any(s <= own[0] and m <= own[1] and (s, m) != own for s, m in found)
    )
    assert front[0][0] == min(seconds for seconds, _ in found)


def test_features_of_knobs_do_not_go_to_other_tasks():
    with pytest.raises(ValueError, match="`features` must be loops where `transfer` is given, .* features='both'"):
        fakes.tune(CONV, features="both", transfer="somewhere", trials=4, pool=fakes.HashPool())
