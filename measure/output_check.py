"""Validation of a bound kernel: it runs and is compared before it is timed, and again afterwards.

A time counts only for correct work. So kernels are timed on other inputs than those of the first comparison, and the
output of the last timed execution is compared, too. In between everything that an execution must not rely on is
overwritten: the output and intermediate results.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure.check import Comparison, Oracle, unwritten
from measure.interface import Task
from targets.base import Bound

_FILLS = (0xFF, 0xA5, 0x5A)
"""Bytes that fill memory for intermediate results before the first comparison, the timing and the last one."""
_SHORT = 1e-3
"""Seconds; a shorter kernel runs once more before it is timed, as its first run is slower."""


class References:
    """The reference outputs that kernels of one task are compared with: for its inputs, and for the others.

    Raises:
        ValueError: a reference output holds a NaN.
    """

    def __init__(self, task: Task) -> None:
        assert task.expected is not None
        self.first = Oracle(task.expected, task.rtol, task.atol)
        self.last = self.first
        if task.others and task.others_expected is not None:
            self.last = Oracle(task.others_expected, task.rtol, task.atol)

    @classmethod
    def of(cls, task: Task) -> References | None:
        """Makes the reference outputs of a task; None if it has no reference."""
        return None if task.expected is None else cls(task)

    @property
    def nbytes(self) -> int:
        """Memory held, bytes."""
        return self.first.nbytes + (self.last.nbytes if self.last is not self.first else 0)


class OutputCheck:
    """Validation of one kernel, in three steps: `before` it is timed, `begin` the timing, `after` it.

    Args:
        bound: the kernel with its inputs.
        task: task that the kernel computes.
        references: reference outputs; None: the comparison is made elsewhere, so that only unwritten elements are
            detected.
        threads: number of threads that the kernel runs on.

    Attributes:
        run_seconds: wall time of the last run before the timing; 0 if nothing is compared here.
        output: output of the kernel; after `after` that of the last run, on the task's other inputs.
        max_error: largest error of all comparisons.
    """

    def __init__(self, bound: Bound, task: Task, references: References | None, threads: int) -> None:
        self._bound, self._references, self._threads = bound, references, threads
        self._inputs = task.inputs
        self._others = task.others or task.inputs
        self.run_seconds = 0.0
        self.max_error = math.nan
        self.output: NDArray[Any] = np.zeros(0)

    def before(self) -> Comparison:
        """Runs on a poisoned output and compares.

        Raises:
            RuntimeError: the binding code is faulty: the second run returned another output buffer.
        """
        bound, references = self._bound, self._references
        if references is None:
            if bound.deterministic:
                bound.feed(self._others, _FILLS[0])
            self.output = bound.run(self._threads)  # warms up caches
            return self._record(Comparison(True, math.nan))
        self.output = output = bound.fetch()
        references.first.poison(output)
        bound.feed(self._inputs, _FILLS[0])
        again = self._time_run()
        comparison = references.first.compare(again)
        if comparison.ok and not np.may_share_memory(output, again):
            raise RuntimeError("`Bound.run` must return the same buffer each time, but got another one")
        if comparison.ok and not bound.deterministic and self.run_seconds < _SHORT:
            right = again.tobytes()
            if self._time_run().tobytes() != right:  # the kernel may have changed its inputs
                comparison = references.first.compare(again)
        return self._record(comparison)

    def _time_run(self) -> NDArray[Any]:
        start = time.perf_counter()
        output = self._bound.run(self._threads)
        self.run_seconds = time.perf_counter() - start
        return output

    def begin(self) -> None:
        """Prepares executions that are timed: feeds other inputs and overwrites the previous output."""
        if self._bound.deterministic:
            return
        if self._references is not None:
            self._references.last.poison(self.output, 1)
        self._bound.feed(self._others, _FILLS[1])

    def after(self, last: bool = True) -> Comparison:
        """Compares the output that the timed executions have left, and one more.

        Args:
            last: whether to run once more, on a poisoned output again, which detects a kernel that did its work in some
                executions only. Not needed after a single execution.
        """
        bound, references = self._bound, self._references
        if bound.deterministic:
            return Comparison(True, self.max_error)
        if references is None:
            return self._unwritten()
        comparison = self._record(references.last.compare(bound.fetch()), "after timing, ")
        if not comparison.ok or not last:
            return comparison
        right = self.output.tobytes()
        references.last.poison(self.output, 2)
        bound.feed(self._others, _FILLS[2])
        if bound.run(self._threads).tobytes() != right:  # most kernels give the same bits again
            comparison = references.last.compare(self.output)
        return self._record(comparison, "after timing, ")

    def _unwritten(self) -> Comparison:
        """Checks that all of the output is written, in a run whose result is compared elsewhere."""
        self._bound.feed(self._others, _FILLS[2])
        missing = unwritten(lambda: self._bound.run(self._threads), self.output)
        sentence = f"`output` must be written whole, but got {missing} of {self.output.size} elements that were not"
        return self._record(Comparison(not missing, math.nan, sentence if missing else ""))

    def _record(self, comparison: Comparison, when: str = "") -> Comparison:
        """Notes the largest error; returns the comparison, or a failed one if memory around arrays was overwritten."""
        self.max_error = float(np.fmax(self.max_error, comparison.max_error))
        wrong = self._bound.damage() if comparison.ok else comparison.message
        return Comparison(False, comparison.max_error, when + wrong) if wrong else comparison
