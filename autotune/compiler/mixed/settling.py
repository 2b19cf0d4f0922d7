"""The choice of precisions that keeps its bound with everything rounded together, and others along the trade-off."""

from __future__ import annotations

import math
from collections.abc import Callable

from autotune.graph.mixed import Candidate, Problem, assign, front
from autotune.graph.mixed.assignment import Choice, Point, point_of

NARROW = "bfloat16"
"""What kernels are in that are neither in float32 nor on bytes."""

TYPES = ("float32", NARROW, "int8")
"""Of kernels, by the numbers of a `Problem`."""

ROUNDS = 8
"""Choices that are checked as a whole, each with a bound corrected by the check before."""

CLOSE = 0.9
"""Share of the allowed noise beyond which no bound is laxed any more."""

SHOWN = 10
"""Choices of the front that are kept, besides both ends."""


def settled(problem: Problem, allowed: float, measure: Callable[[Choice], float]) -> tuple[Choice, float]:
    """The fastest choice found that keeps the bound with all of it rounded together, and its noise then.

    Noise adds up only nearly: each choice is measured as a whole, and the bound of the next search is corrected by what
    the sum was off. All in float32 keeps every bound.

    Args:
        problem: to solve.
        allowed: noise over signal of the worst output.
        measure: noise over signal of a choice.
    """
    best, saved, least = problem.full, 0.0, 0.0
    most = point_of(problem, assign(problem, math.inf)).saved
    bound, measured = allowed, dict[bytes, float]()
    for _ in range(ROUNDS if allowed > 0 else 0):
        choice = assign(problem, bound)
        if not choice.any():
            break
        if choice.tobytes() not in measured:
            measured[choice.tobytes()] = measure(choice)
        found = measured[choice.tobytes()]
        if found <= allowed:
            point = point_of(problem, choice)
            if point.saved > saved:
                best, saved, least = choice, point.saved, found
            if found > CLOSE * allowed or math.isclose(point.saved, most):
                break
            bound *= min(allowed / found if found > 0 else 2.0, 2.0) * (1 + CLOSE) / 2
        else:
            bound *= allowed / found * CLOSE
    return best, least


def candidates(problem: Problem, seconds: float) -> tuple[Candidate, ...]:
    """Choices along the trade-off, estimated, the most accurate first: all in float32, all in 16 bits, all on
    bytes where they may, and some between them.

    Args:
        problem: that was solved.
        seconds: of the network in float32.
    """
    wholes = [point_of(problem, problem.all_in(kind)) for kind in range(1, problem.may.shape[1])]
    loudest = max(point.noise for point in wholes)
    points = front(problem, loudest)[1:] if loudest > 0 else []
    shown = [points[round(i * (len(points) - 1) / max(SHOWN - 1, 1))] for i in range(min(SHOWN, len(points)))]

    def named(name: str, point: Point) -> Candidate:
        counts = [int((point.choice == kind).sum()) for kind in (1, 2)]
        return Candidate(name, point.decibels, seconds - point.saved, *counts)

    known = {point.choice.tobytes() for point in wholes}
    found = (
        named("float32", point_of(problem, problem.full)),
        *(named("mixed", point) for point in dict.fromkeys(shown) if point.choice.tobytes() not in known),
        *(named(name, point) for name, point in zip(TYPES[1:], wholes, strict=False)),
    )
    return tuple(sorted(found, key=lambda candidate: -candidate.decibels))
