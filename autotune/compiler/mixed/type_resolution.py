"""Search for the fastest precisions whose measured noise keeps the bound, and estimates along the trade-off."""

from __future__ import annotations

import math
from collections.abc import Callable

from autotune.graph.mixed import Candidate, Problem, assign, front
from autotune.graph.mixed.assignment import Choice, TradeoffPoint, make_point

NARROW = "bfloat16"
"""Type of kernels that are neither in float32 nor on bytes."""

TYPES = ("float32", NARROW, "int8")
"""Types of kernels, by their numbers in a `Problem`."""

ROUNDS = 8
"""Number of choices that are measured, each with a bound corrected by the measurement before."""

CLOSE = 0.9
"""Share of the allowed noise beyond which the bound is not loosened any more."""

CANDIDATE_COUNT = 10
"""Number of choices of the front that are stored, besides both ends."""


def resolve_types(problem: Problem, noise_limit: float, measure: Callable[[Choice], float]) -> tuple[Choice, float]:
    """Returns the fastest choice found whose measured noise keeps the bound, and this noise.

    The noise of kernels is only nearly additive: each choice is measured as a whole, and the bound of the next search
    is corrected by the error of the sum. All in float32 keeps every bound.

    Args:
        problem: problem to solve.
        noise_limit: noise over signal of the worst output.
        measure: function choice → its noise over signal.
    """
    best, saved, least = problem.full, 0.0, 0.0
    most = make_point(problem, assign(problem, math.inf)).savings
    bound, measured = noise_limit, dict[bytes, float]()
    for _ in range(ROUNDS if noise_limit > 0 else 0):
        choice = assign(problem, bound)
        if not choice.any():
            break
        if choice.tobytes() not in measured:
            measured[choice.tobytes()] = measure(choice)
        noise = measured[choice.tobytes()]
        if noise <= noise_limit:
            point = make_point(problem, choice)
            if point.savings > saved:
                best, saved, least = choice, point.savings, noise
            if noise > CLOSE * noise_limit or math.isclose(point.savings, most):
                break
            # The aim is the middle of the range from `CLOSE` to all of the allowed noise; one step at most doubles it.
            bound *= min(noise_limit / noise if noise > 0 else 2.0, 2.0) * (1 + CLOSE) / 2
        else:
            bound *= noise_limit / noise * CLOSE
    return best, least


def candidates(problem: Problem, seconds: float) -> tuple[Candidate, ...]:
    """Estimates choices along the trade-off, the most accurate first: all in float32, all in 16 bits, all on bytes if
    allowed, and some between them.

    Args:
        problem: problem that was solved.
        seconds: seconds of the network in float32.
    """
    wholes = [make_point(problem, problem.all_in(kind)) for kind in range(1, problem.may.shape[1])]
    loudest = max(point.noise for point in wholes)
    points = front(problem, loudest)[1:] if loudest > 0 else []
    shown = [
        points[round(i * (len(points) - 1) / max(CANDIDATE_COUNT - 1, 1))]
        for i in range(min(CANDIDATE_COUNT, len(points)))
    ]

    def make_candidate(name: str, point: TradeoffPoint) -> Candidate:
        counts = [int((point.choice == kind).sum()) for kind in (1, 2)]
        return Candidate(name, point.decibels, seconds - point.savings, *counts)

    known = {point.choice.tobytes() for point in wholes}
    choices = (
        make_candidate("float32", make_point(problem, problem.full)),
        *(make_candidate("mixed", point) for point in dict.fromkeys(shown) if point.choice.tobytes() not in known),
        *(make_candidate(name, point) for name, point in zip(TYPES[1:], wholes, strict=False)),
    )
    return tuple(sorted(choices, key=lambda candidate: -candidate.decibels))
