"""Behaviour of beam search, the bandit and Optuna's samplers beyond their contract."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import optuna
import pytest

from autotune.tuner.search import Candidate, get
from autotune.tuner.search.base import make_options
from search_space import workloads
from search_space.ir.stmt import Allocate, For, Seq, substitute_program
from search_space.space import generate, make_program
from targets import registry
from tests.autotune import fakes


def blind(sketch, choices):
    """A scorer that knows nothing."""
    return np.zeros(len(choices))


def run(name, space, scorer, rounds, seed=0, n=16, **options):
    strategy = get(name)(space, scorer, np.random.default_rng(seed), **options)
    found = []
    for _ in range(rounds):
        batch = strategy.ask(n)
        found.append(np.array([space.seconds(c.sketch, c.choices) for c in batch]))
        strategy.tell(batch, found[-1])
    return strategy, np.array(found)


@pytest.mark.parametrize("name", ["cmaes", "tpe"])
def test_samplers_learn_from_measurements_alone(name):
    space = fakes.space(limit=80)
    learned, drawn = (
        np.median([np.median(run(kind, space, blind, 4, seed)[1][-1]) for seed in range(2)])
        for kind in (name, "random")
    )
    assert learned < 0.75 * drawn


def test_parameters_of_each_algorithm_are_sampled_jointly(monkeypatch):
    alone = []
    independent = optuna.samplers.TPESampler.sample_independent
    monkeypatch.setattr(
        optuna.samplers.TPESampler,
        "sample_independent",
        lambda self, study, trial, name, of: alone.append(name) or independent(self, study, trial, name, of),
    )
    sketches = (fakes.FakeSketch("tiled", (9, 9), (2, 2)), fakes.FakeSketch("split", (7, 5, 6), (1, 1, 1)))
    sketches = (sketches[0], replace(sketches[1], algorithm="transformed"))
    _, found = run("tpe", fakes.FakeSpace(sketches), blind, 4)
    assert found.shape == (4, 16) and not alone


def test_the_scorer_can_screen_proposals():
    space = fakes.space()
    alone, screened = (
        np.median(run("tpe", space, fakes.oracle(space), 2, n=8, screen=screen)[1][1:]) for screen in (1, 4)
    )
    assert screened < alone


def test_an_illegal_proposal_becomes_a_near_legal_candidate():
    space = fakes.FakeSpace((fakes.FakeSketch("narrow", (30, 30, 30), (0, 0, 0), limit=12),))
    _, found = run("cmaes", space, blind, 4)
    assert found.shape == (4, 16) and np.median(found[-1]) < np.median(found[0])


def test_optuna_is_told_failures_as_slower_than_all():
    space = fakes.space()
    strategy, found = run("tpe", space, blind, 1)
    batch = strategy.ask(8)
    strategy.tell(batch, np.full(8, np.nan))
    values = [trial.value for trial in strategy._study.trials if trial.value is not None]
    assert max(values) > np.log(found.max()) and np.isfinite(values).all()
    assert len(values) == 24


def test_nsga2_keeps_the_front_of_latency_and_memory():
    space = fakes.FakeSpace(fakes.space().sketches[:2])
    strategy, found = run("nsga2", space, blind, 6)
    front = strategy.front()
    seconds, memory = np.array([s for _, s, _ in front]), np.array([m for _, _, m in front])
    assert len(front) > 1 and seconds[0] == found.min()
    assert (np.diff(seconds) > 0).all() and (np.diff(memory) < 0).all()
    known = strategy.frame.candidates(strategy.measured_population)
    for candidate in known:
        of = space.sketches[candidate.sketch]
        own = (space.seconds(candidate.sketch, candidate.choices), workspace(of, candidate, space.hardware.cores))
        assert any(s <= own[0] and m <= own[1] for _, s, m in front)


def workspace(sketch, candidate, threads):
    return sketch.workspace(np.array([candidate.choices], np.int32).reshape(1, -1), threads)[0]


def count_bytes(stmt, times, threads):
    """Bytes outside registers of a concrete statement, by hand."""
    if isinstance(stmt, Seq):
        return sum(count_bytes(s, times, threads) for s in stmt.body)
    if isinstance(stmt, For):
        extent = int(stmt.extent.value)
        each = {"parallel": min(extent, threads), "vthread": extent}.get(stmt.kind, 1)
        return count_bytes(stmt.body, times * each, threads)
    if isinstance(stmt, Allocate):
        size = (
            np.prod([int(e.value) for e in stmt.buffer.shape])
            * {"float32": 4, "int32": 4, "int8": 1}[stmt.buffer.dtype]
        )
        return (0 if stmt.buffer.scope == "local" else size * times) + count_bytes(stmt.body, times, threads)
    return 0


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        (workloads.conv2d(height=9, width=9, in_channels=8, out_channels=32, kernel=3, padding=1), "cpu"),
        (workloads.conv2d_blocked(height=6, width=6, in_channels=32, out_channels=32, kernel=3, padding=1), "vta"),
    ],
    ids=["cpu", "vta"],
)
def test_memory_on_columns_is_that_of_the_program(workload, target):
    rng = np.random.default_rng(0)
    space = generate(workload, registry.get(target).hardware)
    sizes = set()
    for sketch in space.sketches[:6]:
        choices = np.stack([rng.integers(len(g.table), size=3) for g in sketch.groups], axis=1).astype(np.int32)
        for choice, found in zip(choices, sketch.workspace(choices, 2), strict=True):
            program = substitute_program(sketch.program, sketch.values(choice))
            made = {name for p in program.prologues for name in p.outputs}
            constants = [b for b in program.params if b.name in made]
            packed = sum(np.prod([int(e.value) for e in b.shape]) * 4 for b in constants)
            assert found == count_bytes(program.body, 1, 2) + packed
            sizes.add(found)
    assert len(sizes) > 3


def test_memory_is_what_the_cpu_allocates():
    workload = workloads.conv2d(height=9, width=9, in_channels=8, out_channels=32, kernel=3, padding=1)
    target = registry.get("cpu")
    rng = np.random.default_rng(1)
    for sketch in generate(workload, target.hardware, ["direct"]).sketches[:2]:
        choices = np.stack([rng.integers(len(g.table), size=400) for g in sketch.groups], axis=1).astype(np.int32)
        choices = choices[sketch.legal(choices)][:2]
        for choice, found in zip(choices, sketch.workspace(choices, 1), strict=True):
            program = make_program(workload, sketch.algorithm, sketch.trace(choice))
            packed = sum(int(p.buffers[p.outputs[0]].size.value) * 4 for p in program.prologues)
            kernel = target.load(target.build(program))
            allocated = kernel.workspace_bytes(1) + packed
            assert allocated >= found and allocated - found <= 64 * 2 * 8  # a line to round up, and one between


def test_the_bandit_gives_most_to_what_gains():
    space = fakes.space()
    oracle = fakes.oracle(space)
    strategy = get("bandit")(space, oracle, np.random.default_rng(0), arms="random,evolution", exploration=0.05)
    by_arm = np.zeros(2)
    for _ in range(6):
        batch = strategy.ask(16)
        by_arm += np.bincount([strategy._arm_by_candidate[c] for c in batch], minlength=2)
        strategy.tell(batch, np.array([space.seconds(c.sketch, c.choices) for c in batch]))
    assert by_arm[1] > 1.5 * by_arm[0] > 0


def test_the_gain_of_an_arm_is_the_area_under_its_curve():
    strategy = get("bandit")(fakes.space(), blind, np.random.default_rng(0), arms="random, beam")
    strategy._window.extend([(0, False), (1, True), (0, True), (0, False)])
    np.testing.assert_allclose(strategy.gains(), [2 * 2 / (3 * 4), 1.0])
    shares = strategy.divide_shares(10, np.array([True, True]))
    assert shares.sum() == 10 and shares[1] > shares[0]
    assert strategy.divide_shares(5, np.array([True, False])).tolist() == [5, 0]


def test_arms_of_a_bandit_propose_nothing_twice():
    space = fakes.small()
    strategy = get("bandit")(space, blind, np.random.default_rng(0))
    asked = strategy.ask(100)
    assert len(set(asked)) == 13 and strategy.ask(3) == []


@pytest.mark.parametrize("arms", ["", "bandit", "random,random"])
def test_a_bandit_must_have_arms(arms):
    with pytest.raises(ValueError, match="`arms` must be different strategies other than bandit, but got arms="):
        get("bandit")(fakes.space(), blind, np.random.default_rng(0), arms=arms)


def test_arms_are_known_before_anything_is_measured():
    with pytest.raises(ValueError, match="`arms` must be among .*, but got 'bean'; did you mean 'beam'"):
        make_options(get("bandit").Options, {"arms": "random,bean"}, "bandit")


def test_beam_search_finds_what_depends_on_several_groups():
    """A ridge: values only go together in pairs, so that one group alone says nothing."""
    space = fakes.FakeSpace((fakes.FakeSketch("ridge", (20, 20, 20, 20), (0, 0, 0, 0)),))

    def ridge(sketch, choices):
        return -np.abs(choices[:, 0] - choices[:, 1]) - np.abs(choices[:, 2] + choices[:, 3] - 19.0) + choices[:, 0] / 4

    strategy = get("beam")(space, ridge, np.random.default_rng(0), epsilon=0)
    strategy.tell([Candidate(0, (0, 19, 0, 0))], np.ones(1))
    (best,) = strategy.ask(1)
    assert ridge(0, np.array([best.choices]))[0] >= 19 / 4 - 1


def test_strategies_of_optuna_say_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match="tpe, cmaes and nsga2 must have the packages of the extra `lab` "):
        get("tpe")(fakes.space(), blind, np.random.default_rng(0))
