"""Moves on populations: mutation, crossover and selection, in a few array operations for all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.population import Frame, Population


def mutate(
    population: Population, frame: Frame, rng: np.random.Generator, rate: float = 0.1, local: float = 0.5
) -> Population:
    """Changes one decision group of each row always, and each other one with probability `rate`.

    Args:
        population: population of the parents.
        frame: frame of their space.
        rng: source of the draws.
        rate: probability that another group changes.
        local: share of changes to a neighbour in the table, which is ordered; others go anywhere.
    """
    if not frame.width:
        return population
    shape = population.rows.shape
    lengths = frame.lengths[population.sketches]  # (n, width)
    chosen = (rng.random(shape[0]) * np.maximum(frame.groups[population.sketches], 1)).astype(np.int64)
    change = rng.random(shape, np.float32) < rate
    change[np.arange(shape[0]), chosen] = True
    anywhere = (rng.random(shape, np.float32) * (lengths - 1)).astype(np.int64)
    anywhere += anywhere >= population.rows  # any other entry than the present one
    step = rng.integers(1, 4, shape) * (2 * rng.integers(0, 2, shape) - 1)  # up to three entries up or down
    near = np.clip(population.rows + step, 0, lengths - 1)
    moved = np.where(rng.random(shape, np.float32) < local, near, anywhere)
    rows = np.where(change & (lengths > 1), moved, population.rows).astype(np.int32)
    return Population(population.sketches, rows)


def cross(parents: Population, mates: Population, rng: np.random.Generator, share: float = 0.5) -> Population:
    """Takes each decision group from the mate, of the same sketch, with probability `share`."""
    take = rng.random(parents.rows.shape, np.float32) < share
    return Population(parents.sketches, np.where(take, mates.rows, parents.rows))


def draw_mates(parents: NDArray[np.intp], population: Population, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draws positions of random members of each parent's own sketch: (parents,)."""
    order = np.argsort(population.sketches, kind="stable")
    sketches, starts, counts = np.unique(population.sketches[order], return_index=True, return_counts=True)
    sketch = np.searchsorted(sketches, population.sketches[parents])
    place: NDArray[Any] = starts[sketch] + (rng.random(len(parents)) * counts[sketch]).astype(np.int64)
    mates: NDArray[np.intp] = order[place]
    return mates


def tournament(scores: NDArray[np.float64], n: int, rng: np.random.Generator, size: int = 3) -> NDArray[np.intp]:
    """Draws positions of `n` winners, each the best of `size` random members: (n,)."""
    drawn = rng.integers(0, len(scores), (n, size))
    winners: NDArray[np.intp] = drawn[np.arange(n), scores[drawn].argmax(axis=1)]
    return winners


def pick_diverse(
    population: Population, scores: NDArray[np.float64], n: int, weight: float, cap: int | None = None
) -> NDArray[np.intp]:
    """Picks positions of `n` members that score well and differ from each other (maximal marginal relevance).

    Args:
        population: population to pick from.
        scores: their scores `(members,)`.
        n: largest number of members.
        weight: loss of an exact copy of a picked member, as a share of the gap between the best and the median score.
        cap: largest number of members of one sketch, as long as there are others; None: any number.
    """
    worth = np.where(np.isfinite(scores), scores, -np.inf)
    top = float(worth.max(initial=-np.inf))
    spread = top - float(np.median(worth)) if np.isfinite(top) else 0.0
    penalty = weight * (spread if np.isfinite(spread) and spread > 0 else 1.0)
    likeness = np.zeros(len(population))  # likeness to the closest picked member, in [0, 1]
    left = np.ones(len(population), np.bool_)
    full = np.zeros(len(population), np.bool_)  # members of sketches that have reached the cap
    picked: list[int] = []
    while len(picked) < n and left.any():
        if not (left & ~full).any():
            full[:] = False
            cap = None
        value = np.where(left & ~full, worth - penalty * likeness, -np.inf)
        best = int(value.argmax()) if np.isfinite(value).any() else int((left & ~full).argmax())
        picked.append(best)
        left[best] = False
        same = population.sketches == population.sketches[best]
        if cap is not None and int(same[picked].sum()) >= cap:
            full |= same
        if population.rows.shape[1]:
            alike = (population.rows == population.rows[best]).mean(axis=1) * same
            likeness = np.maximum(likeness, alike)
    return np.array(picked, np.intp)
