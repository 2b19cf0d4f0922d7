"""Moves on populations."""

from __future__ import annotations

import time

import numpy as np
import pytest

from autotune.tuner.search import moves
from autotune.tuner.search.population import Frame, Population, SeenCandidates
from tests.autotune import fakes


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def frame():
    return Frame(fakes.space())


@pytest.fixture
def population(frame, rng):
    parts = [frame.of(sketch, frame.uniform(sketch, 300, rng)) for sketch in range(3)]
    return Population.concatenate(parts).take(rng.permutation(900))


def test_uniform_choices_cover_each_table(frame, rng):
    choices = frame.uniform(0, 20_000, rng)
    assert choices.dtype == np.int32
    assert choices.min(axis=0).tolist() == [0] * 5 and choices.max(axis=0).tolist() == [39, 29, 19, 9, 5]
    assert np.bincount(choices[:, 4]) == pytest.approx(np.full(6, 20_000 / 6), rel=0.1)


def test_mutation_changes_rows_within_their_tables(frame, population, rng):
    moved = moves.mutate(population, frame, rng, rate=0.0, local=0.0)
    assert np.array_equal(moved.sketches, population.sketches)
    changed = (moved.rows != population.rows).sum(axis=1)
    assert (changed[population.sketches == 2] == 0).all()
    assert (changed[population.sketches != 2] == 1).all()
    assert (moved.rows >= 0).all() and (moved.rows < frame.lengths[moved.sketches]).all()


def test_local_mutation_stays_near(frame, population, rng):
    moved = moves.mutate(population, frame, rng, rate=0.0, local=1.0)
    assert np.abs(moved.rows - population.rows).max() <= 3


def test_crossover_takes_each_group_from_one_of_two(frame, population, rng):
    places = np.arange(len(population))
    mates = population.take(moves.draw_mates(places, population, rng))
    assert np.array_equal(mates.sketches, population.sketches)
    child = moves.cross(population, mates, rng)
    assert ((child.rows == population.rows) | (child.rows == mates.rows)).all()
    assert (child.rows != population.rows).any() and (child.rows != mates.rows).any()


def test_tournaments_prefer_the_better(rng):
    scores = np.arange(100.0)
    won = moves.tournament(scores, 5000, rng)
    assert scores[won].mean() > 70
    assert 95 in won and won.min() >= 0


def test_diverse_pick_begins_with_the_best_and_avoids_copies(frame):
    rows = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [9, 9, 9, 9, 5]], np.int32)
    population = Population(np.zeros(3, np.int32), rows)
    scores = np.array([1.0, 0.99, 0.95])
    assert moves.pick_diverse(population, scores, 2, weight=0.0).tolist() == [0, 1]
    assert moves.pick_diverse(population, scores, 2, weight=20.0).tolist() == [0, 2]
    assert sorted(moves.pick_diverse(population, scores, 9, weight=20.0).tolist()) == [0, 1, 2]


def test_diverse_pick_caps_a_sketch_while_there_are_others(frame):
    population = Population(np.array([0, 0, 0, 1], np.int32), np.arange(20, dtype=np.int32).reshape(4, 5))
    picked = moves.pick_diverse(population, np.array([4.0, 3.0, 2.0, 1.0]), 4, weight=0.0, cap=1)
    assert picked.tolist() == [0, 3, 1, 2]


def test_diverse_pick_of_scores_that_are_not_finite(frame):
    population = Population(np.zeros(3, np.int32), np.eye(3, 5, dtype=np.int32))
    scores = np.array([-np.inf, np.nan, 1.0])
    assert moves.pick_diverse(population, scores, 3, weight=0.1).tolist() == [2, 0, 1]


@pytest.mark.parametrize("lengths", [(7, 5, 3), (1000,) * 12])
def test_keys_are_equal_exactly_where_candidates_are(lengths, rng):
    frame = Frame(fakes.FakeSpace(tuple(fakes.FakeSketch(n, lengths, lengths) for n in "ab")))
    rows = frame.uniform(0, 500, rng) % 3
    population = Population.concatenate([frame.of(0, rows), frame.of(1, rows)])
    whole = np.column_stack([population.sketches, population.rows])
    assert len(np.unique(frame.keys(population))) == len(np.unique(whole, axis=0))


def test_seen_tells_new_from_old_and_first_from_repeated():
    seen = SeenCandidates()
    seen.add(np.array([4, 2]))
    assert seen.fresh(np.array([1, 2, 1, 3, 4])).tolist() == [True, False, False, True, False]
    assert len(seen) == 2


def test_candidates_survive_the_way_through_arrays(frame, population):
    again = frame.population(frame.candidates(population))
    assert np.array_equal(again.rows, population.rows) and np.array_equal(again.sketches, population.sketches)


def test_a_million_candidates_a_second_are_created_and_told_apart(rng):
    frame = Frame(fakes.FakeSpace((fakes.FakeSketch("one", (40, 30, 20, 10, 6, 4), (0,) * 6),)))
    seen, n = SeenCandidates(), 1 << 16
    fastest = np.inf
    for _ in range(5):
        start = time.process_time()
        population = frame.of(0, frame.uniform(0, n, rng))
        population = population.take(seen.fresh(frame.keys(population)))
        fastest = min(fastest, time.process_time() - start)
    assert n / fastest > 1e6
