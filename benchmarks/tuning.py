"""Tuning of a workload with our own code generator, as every comparison does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

import numpy as np

from autotune.config import Measure, Model, Search
from autotune.tuner.finals import Best, select_best
from autotune.tuner.result import TuneResult
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
    result, seconds = _run_search(workload, trials, seed, threads, knowledge)
    generated = _select_generated(result.records, result.finals)
    library = select_best(*(filter(_is_library, records) for records in (result.records, result.finals)))
    if generated is None:
        raise RuntimeError(f"`trials` must hold one that works, but got trials={trials}: none, {workload.key}")
    took: dict[str, Any] = {
        "trials": trials,
        "seconds": seconds,
        "trials_per_second": trials / seconds,
        "seed": seed,
    }
    took |= {"best_seconds": generated.seconds, "algorithm": generated.record.algorithm}
    return TuningOutcome(_options(generated.record), _options(library.record) if library else None, took)


def tuned_after(
    workload: Workload, counts: Sequence[int], seed: int, threads: int, knowledge: str = NOTHING
) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """Tunes once for the most trials, and returns the best generated schedule among the first ones of each number.

    That of all trials is the one that a user gets: the search timed the fastest candidates again at its end. The second
    value has facts about the complete search.

    Raises:
        RuntimeError: none of the first ones worked.
    """
    result, seconds = _run_search(workload, max(counts), seed, threads, knowledge)
    records = list(result.records)
    best_after = {}
    for count in counts:
        best = _select_generated(records[:count], result.finals if count == max(counts) else ())
        if best is None:
            raise RuntimeError(f"`trials` must hold one that works, but got trials={count}: none, {workload.key}")
        best_after[count] = _options(best.record)
    generated = [record.seconds if record.ok and record.algorithm != LIBRARY else np.inf for record in records]
    took = {"trials": max(counts), "seconds": seconds, "trials_per_second": len(records) / seconds}
    return best_after, {**took, "nearly_after": trials_to(generated)}


def _run_search(workload: Workload, trials: int, seed: int, threads: int, knowledge: str) -> tuple[TuneResult, float]:
    """Runs a search, and returns its result and its seconds."""
    start = time.perf_counter()
    measure = Measure(threads=threads)
    result = tune(workload, target="cpu", trials=trials, seed=seed, measure=measure, **KNOWLEDGE[knowledge])
    return result, time.perf_counter() - start


def _select_generated(*records: Iterable[Record]) -> Best | None:
    """Returns the best candidate of generated code, as `autotune.tuner.finals` defines it; None if none works."""
    return select_best(*(filterfalse(_is_library, group) for group in records))


def _is_library(record: Record) -> bool:
    return record.algorithm == LIBRARY


def _options(record: Record) -> dict[str, Any]:
    return {"algorithm": record.algorithm, "trace": [dict(step) for step in record.trial.trace], "target": "cpu"}
