"""Tuning of a workload with our own code generator, as every comparison does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.config import Measure, Model, Search
from autotune.tuner.tuner import tune
from benchmarks.reached import trials_to
from measure.record import Record
from search_space.workloads import Workload

LIBRARY = "library"
"""Algorithm that calls out to an existing library: shown by itself, no part of any ratio."""


NOTHING, SHIPPED_KNOWLEDGE = "none", "shipped"
"""Knowledge that a search begins with: none, or the schedules and the pretrained model that come along."""

KNOWLEDGE: Mapping[str, Mapping[str, Any]] = {
    name: {"search": Search(database=name), "cost_model": Model(pretrained=name)}
    for name in (NOTHING, SHIPPED_KNOWLEDGE)
}
"""Knowledge → arguments of `tune`."""

INFORMED_NOTE = (
    "Our searches in this table started from up to eight shipped schedules and the pretrained model, which may include "
    "the very layer. Newer tables start from nothing, and a column shows what shipped knowledge adds."
)
"""Sentences under tables that were measured before searches began from nothing."""


@dataclass(frozen=True)
class TuningOutcome:
    """Result of tuning.

    Attributes:
        generated_options: the best schedule of generated code, as options for `benchmarks.peers.ours`.
        library: the library call-out likewise; None where it was no candidate.
        took: trials, seconds and the rest, JSON-able.
    """

    generated_options: dict[str, Any]
    library: dict[str, Any] | None
    took: dict[str, Any]


def tune_workload(workload: Workload, trials: int, seed: int, threads: int, knowledge: str = NOTHING) -> TuningOutcome:
    """Tunes for `trials` trials, from nothing or with shipped knowledge, see `KNOWLEDGE`.

    Raises:
        RuntimeError: no trial of generated code worked.
    """
    records, seconds = _run_search(workload, trials, seed, threads, knowledge)
    generated = fastest([record for record in records if record.algorithm != LIBRARY])
    library = fastest([record for record in records if record.algorithm == LIBRARY])
    if generated is None:
        raise RuntimeError(f"`trials` must hold one that works, but got trials={trials}: none, {workload.key}")
    took: dict[str, Any] = {
        "trials": trials,
        "seconds": seconds,
        "trials_per_second": trials / seconds,
        "seed": seed,
    }
    took |= {"best_seconds": generated.seconds, "algorithm": generated.algorithm}
    return TuningOutcome(_options(generated), _options(library) if library else None, took)


def tuned_after(
    workload: Workload, counts: Sequence[int], seed: int, threads: int, knowledge: str = NOTHING
) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """Tunes once for the most trials, and returns the best generated schedule among the first ones of each number.

    The second value has facts about the complete search.

    Raises:
        RuntimeError: none of the first ones worked.
    """
    records, seconds = _run_search(workload, max(counts), seed, threads, knowledge)
    best_after = {}
    for count in counts:
        best = fastest([record for record in records[:count] if record.algorithm != LIBRARY])
        if best is None:
            raise RuntimeError(f"`trials` must hold one that works, but got trials={count}: none, {workload.key}")
        best_after[count] = _options(best)
    generated = [record.seconds if record.ok and record.algorithm != LIBRARY else np.inf for record in records]
    took = {"trials": max(counts), "seconds": seconds, "trials_per_second": len(records) / seconds}
    return best_after, {**took, "nearly_after": trials_to(generated)}


def _run_search(workload: Workload, trials: int, seed: int, threads: int, knowledge: str) -> tuple[list[Record], float]:
    """Runs a search, and returns its records and its seconds."""
    start = time.perf_counter()
    measure = Measure(threads=threads)
    result = tune(workload, target="cpu", trials=trials, seed=seed, measure=measure, **KNOWLEDGE[knowledge])
    return list(result.records), time.perf_counter() - start


def fastest(records: list[Record]) -> Record | None:
    """Returns the fastest record that worked."""
    return min((record for record in records if record.ok), key=lambda record: record.seconds, default=None)


def _options(record: Record) -> dict[str, Any]:
    return {"algorithm": record.algorithm, "trace": [dict(step) for step in record.trial.trace], "target": "cpu"}
