"""Result of tuning a task: the best schedule, its kernel, and every record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.finals import Best, best_of_logs
from autotune.units import latency, share
from measure.errors import ErrorClass
from measure.record import Record
from measure.recordlog import RecordLog
from search_space.dtypes import numpy_dtype
from search_space.former_names import FormerAttribute
from search_space.hardware import Hardware
from search_space.intrinsics import available
from search_space.ir.stmt import LoopProgram
from search_space.lower.memories import workspace_bytes
from search_space.operators import winograd
from search_space.schedule.trace import Trace
from search_space.space import make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import Kernel, Module

_LONGEST = 100  # number of characters of a workload that are shown


class AllTrialsFailed(RuntimeError):
    """A task of which every trial failed, or failed when it was timed again.

    Attributes:
        result: result with the records of all trials.
    """

    def __init__(self, result: TuneResult) -> None:
        super().__init__(f"{result.name}: {result.problem}")
        self.result = result


@dataclass(frozen=True, repr=False)
class TuneResult:
    """Outcome of one task.

    Attributes:
        name: name of the task.
        workload: workload that was tuned.
        target: name of the target.
        hardware: limits of the machine, for the share of peak.
        weight: number of occurrences of the task.
        threads: number of threads that the kernels ran on.
        cache: state of the caches during timing.
        seed: seed of the run.
        records: all trials in order, those of a resumed earlier run included.
        others: trials of runs with other seeds that were in the records file when this one began.
        finals: final timings of the fastest candidates, see `autotune.tuner.finals`.
        phases: wall seconds of this run by phase: `search`, `model`, `measure`.
        measured_count: number of trials of this run, without those resumed.
        scored_count: number of candidates created, checked, featurised and scored by the cost model.
        scoring_seconds: wall time of these steps.
        interrupted: whether the user stopped it early.
        problem: reason for a missing schedule; empty if there is one.
        transfer: effect of other tasks' programs on the search, see `Transfer.report`; None if they were not used.
        exhausted: whether the search ended because all candidates of the space were measured.
    """

    name: str
    workload: Workload
    target: str
    hardware: Hardware
    weight: int
    threads: int
    cache: str
    seed: int
    records: Sequence[Record]
    finals: tuple[Record, ...] = ()
    others: Sequence[Record] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    measured_count: int = 0
    scored_count: int = 0
    scoring_seconds: float = 0.0
    interrupted: bool = False
    problem: str = ""
    transfer: Mapping[str, Any] | None = None
    exhausted: bool = False

    measured = FormerAttribute("measured_count")
    scored = FormerAttribute("scored_count")

    def __repr__(self) -> str:
        """Formats the result in a few lines, whatever the number of records."""
        return "\n".join([f"TuneResult of {self.name}: {self._facts['workload']}", *self._lines])

    def _repr_html_(self) -> str:
        """Formats the result for notebooks."""
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts.items()
        )
        return f"<div><strong>TuneResult of {escape(self.name)}</strong><table>{rows}</table></div>"

    @property
    def _facts(self) -> dict[str, str]:
        key = str(self.workload.key)
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        failed = ", ".join(f"{count} {name}" for name, count in self.errors.items())
        facts = {"workload": key if len(key) <= _LONGEST else f"{key[: _LONGEST - 1]}…"}
        if self.best is None:
            facts["best"] = f"nothing works: {self.problem or failed or 'no trials'}"
        else:
            facts["best"] = f"{latency(self.best_seconds)}, spread {share(self.spread)}, by {self.algorithm}"
            assert self.algorithm is not None
            rate = rate_text(self.gflops, self.workload, self.algorithm)
            facts["rate"] = f"{rate}, {self.peak_share:.0%} of peak"
        facts["machine"] = f"{self.target}, {threads}, cache {self.cache}"
        facts["trials"] = f"{len(self.records)}{f', failed: {failed}' if failed else ''}"
        if self.exhausted:
            facts["space"] = f"{self.candidates_text}; all were measured"
        return {**facts, **({"interrupted": "by the user"} if self.interrupted else {})}

    @property
    def candidates_text(self) -> str:
        """Number of the distinct candidates that were measured, those of earlier runs included, as a phrase."""
        count = len(self.records) + len(self.others)
        return f"{count} candidate{'s' * (count != 1)}"

    @property
    def _lines(self) -> list[str]:
        return [f"  {name}: {value}" for name, value in self._facts.items() if name != "workload"]

    @cached_property
    def standing(self) -> Best | None:
        """The best candidate with its latency, see `autotune.tuner.finals`; None if none worked."""
        return best_of_logs(_log(self.records), _log(self.others), self.finals)

    @property
    def best(self) -> Record | None:
        """Record of the best candidate."""
        return None if self.standing is None else self.standing.record

    @property
    def best_seconds(self) -> float:
        """Latency of the best candidate; NaN if none worked."""
        return math.nan if self.standing is None else self.standing.seconds

    @property
    def spread(self) -> float:
        """Value (75th percentile - 25th percentile) / median of timings of the best candidate; NaN if none worked."""
        return math.nan if self.standing is None else self.standing.spread

    @property
    def gflops(self) -> float:
        """Rate of the best candidate in 1e9 operations per second, counted by the definition; NaN if none worked."""
        return self.workload.flops / self.best_seconds * 1e-9

    @property
    def peak_share(self) -> float:
        """Rate of the algorithm's operations, as a share of the peak of the cores used; NaN if none worked."""
        if self.algorithm is None:
            return math.nan
        return peak_share(self.workload, self.algorithm, self.best_seconds, self.hardware, self.threads)

    @property
    def effective(self) -> bool:
        """Tells whether `gflops` counts more operations than the algorithm computes."""
        return self.algorithm is not None and is_effective(self.workload, self.algorithm)

    @property
    def algorithm(self) -> str | None:
        """Algorithm of the best candidate."""
        return self.best.algorithm if self.best else None

    @property
    def trace(self) -> Trace:
        """The best schedule."""
        return Trace.from_json(self._winner.trial.trace)

    @cached_property
    def program(self) -> LoopProgram:
        """The best loop program."""
        return make_program(self.workload, self._winner.algorithm, self.trace)

    @cached_property
    def module(self) -> Module:
        """The best program, built."""
        return registry.get(self.target).build(self.program)

    def memory_front(self) -> list[tuple[Record, int]]:
        """Lists the records that no other beats in both latency and memory, fastest first, and the bytes of each.

        Memory is counted as in `Sketch.workspace`, with as many threads as were tuned for. Each program is lowered,
        which takes some 20 ms; `Nsga2.front` is faster if its strategy is available.
        """
        front: list[tuple[Record, int]] = []
        least = math.inf
        for record in sorted((record for record in self.records if record.ok), key=lambda record: record.seconds):
            program = make_program(self.workload, record.algorithm, Trace.from_json(record.trial.trace))
            size = int(workspace_bytes(program, self.threads).value)
            if size < least:
                front.append((record, size))
                least = size
        return front

    @property
    def curve(self) -> NDArray[np.float64]:
        """Best seconds after each trial, NaN until one has worked: (trials,).

        Results of other runs count from the beginning. Final timings are another quantity: they decide which candidate
        is best, and determine `best_seconds`.
        """
        known_before = np.fmin.reduce(_log(self.others).seconds, initial=np.nan)
        after: NDArray[np.float64] = np.fmin(np.fmin.accumulate(_log(self.records).seconds), known_before)
        return after

    @property
    def errors(self) -> dict[str, int]:
        """Number of failed trials by error class."""
        return {name: count for name, count in _log(self.records).errors.items() if name != ErrorClass.ok}

    def kernel(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        """Runs the best kernel.

        Args:
            arrays: inputs of the workload, and, to write it in place, the output.

        Returns:
            The output.
        """
        inputs = len(self.workload.inputs)
        if len(arrays) not in (inputs, inputs + 1):
            raise ValueError(f"`arrays` must be {inputs} inputs, or those and the output, but got {len(arrays)} arrays")
        output = self.workload.output
        if len(arrays) == inputs:
            arrays = (*arrays, np.empty(output.shape, numpy_dtype(output.dtype)))
        self._kernel(*arrays)
        return arrays[-1]

    def summary(self) -> dict[str, Any]:
        """Makes the task's entry of `summary.json`; values that were not measured are None."""
        spent = sum(self.phases.values())
        return {
            "name": self.name,
            "workload": self.workload.to_json(),
            "target": self.target,
            "weight": self.weight,
            "algorithm": self.algorithm,
            "trials": len(self.records),
            "best_seconds": none_if_nan(self.best_seconds),
            "gflops": none_if_nan(self.gflops),
            "peak_share": none_if_nan(self.peak_share),
            "spread": none_if_nan(self.spread),
            "cache": self.cache,
            "trials_per_second": self.measured_count / spent if self.measured_count else None,
            "candidates_per_second": self.scored_count / self.scoring_seconds if self.scored_count else None,
            "phases": dict(self.phases),
            "metrics": dict(self.best.metrics) if self.best else {},
            "correct": True if self.best else None,
            "errors": self.errors,
            **({} if self.transfer is None else {"transfer": dict(self.transfer)}),
            "reference": None,
            "reference_seconds": None,
            "seed": self.seed,
            "trace": [dict(step) for step in self.best.trial.trace] if self.best else None,
        }

    @cached_property
    def _kernel(self) -> Kernel:
        return registry.get(self.target).load(self.module)

    @property
    def _winner(self) -> Record:
        if self.best is None:
            raise LookupError(f"{self.name}: {self.problem or 'a task must have a candidate that works, but got none'}")
        return self.best


def describe_failure(records: Sequence[Record], finals: Sequence[Record]) -> str:
    """Writes a sentence that no candidate of a task works, with the first failure; empty if nothing failed."""
    first = next((record for record in (*records, *finals) if not record.ok), None)
    if first is None:
        return ""
    counts = ", ".join(f"{count} {error}" for error, count in _log(records).errors.items())
    lines = first.message.strip().splitlines() or ["it has no message"]
    message = lines[-1 if first.error == ErrorClass.unknown else 0].strip()  # the last line of a traceback
    return (
        f"a task must have a candidate that works, but got none among {len(records)} ({counts}); "
        f"the first failure is {first.error}: {message}"
    )


def _log(records: Sequence[Record]) -> RecordLog:
    return records if isinstance(records, RecordLog) else RecordLog(records)


def none_if_nan(value: float) -> float | None:
    """Replaces NaN by None."""
    return None if math.isnan(value) else value


def factor_types(workload: Workload) -> tuple[str, ...]:
    """Returns the element types of the first two inputs, which are the factors of a product."""
    return tuple(spec.dtype for spec in workload.inputs[:2])


def is_effective(workload: Workload, algorithm: str) -> bool:
    """Tells whether rates count more operations, those of the definition, than the algorithm computes."""
    return workload.count_flops(algorithm) < workload.flops


def rate_text(gflops: float, workload: Workload, algorithm: str) -> str:
    """Formats a rate in operations of the definition, and notes if it is an effective one."""
    return f"{gflops:.1f} GFLOP/s{' effective' if is_effective(workload, algorithm) else ''}"


def peak_share(workload: Workload, algorithm: str, seconds: float, hardware: Hardware, threads: int) -> float:
    """Computes the rate of an algorithm's operations, as a share of the peak of the cores that are used."""
    return workload.count_flops(algorithm) / seconds / compute_peak(workload, algorithm, hardware, threads)


def compute_peak(workload: Workload, algorithm: str, hardware: Hardware, threads: int) -> float:
    """Computes the peak operations per second of an algorithm, in the types that it multiplies.

    Winograd's algorithms, except those of `winograd.DOT`, multiply float32 whatever type is stored.
    """
    wide = algorithm in winograd.TILES and algorithm not in winograd.DOT
    return peak_flops(hardware, threads, () if wide else factor_types(workload))


def peak_flops(hardware: Hardware, threads: int, factors: tuple[str, ...] = ()) -> float:
    """Computes the peak operations per second on `threads` threads, in products of such factors; by default of float32.

    If an instruction of the processor adds up several products of these types at once, as of bfloat16, its rate is
    used.
    """
    rates, faster = hardware.rates, 1.0
    for intrinsic in available(hardware) if hardware.kind == "cpu" else ():
        if tuple(tensor.dtype for tensor in intrinsic.op.inputs) == factors:
            started, _ = rates.dot_rates(factors)
            faster = max(faster, math.prod(intrinsic.extents) / hardware.float_lanes * started / rates.fma)
    return hardware.peak_flops * faster * min(threads, hardware.cores) / hardware.cores


def collect_records(results: Sequence[TuneResult]) -> RecordLog:
    """Collects all records of tasks: trials, those of other seeds, and final timings."""
    return RecordLog(record for r in results for log in (r.records, r.others, r.finals) for record in log)


def list_problems(results: Sequence[TuneResult], replaced: bool) -> list[str]:
    """Lists sentences on the tasks that have no legal schedule or none that works.

    Args:
        results: results of all tasks.
        replaced: whether another schedule replaces that of a task whose trials all failed, as within a network.
    """
    lacking = [result for result in results if result.problem and not (replaced and result.records)]
    return [f"{result.name}: {result.problem}" for result in lacking]
