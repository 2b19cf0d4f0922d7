"""Classes of a trial's failure, and the exceptions of this package."""

from __future__ import annotations

from enum import StrEnum


class ErrorClass(StrEnum):
    """Outcome of one trial; records hold its value."""

    ok = "ok"
    instantiation = "instantiation"
    """The trace does not apply to the workload."""
    compile = "compile"
    """The target refuses the program."""
    build_timeout = "build_timeout"
    run_timeout = "run_timeout"
    crash = "crash"
    """The process of the builder or of the kernel died; the message says which."""
    wrong_output = "wrong_output"
    out_of_memory = "out_of_memory"
    lost = "lost"
    """Each machine that had the trial disappeared before it answered."""
    unknown = "unknown"


class MeasureError(Exception):
    """Base of the exceptions that this package raises to its user."""


class RecordError(MeasureError, ValueError):
    """A records file that cannot be read or written, or that holds unexpected content."""


class BadRecordError(RecordError):
    """One record that cannot be true, or is damaged; other records of the file can be used."""


class FullError(RecordError):
    """A record that could not be written because the disk is full; earlier records are kept."""


class PoolError(MeasureError, RuntimeError):
    """A pool that is used wrongly or cannot start its workers; never a failure of one trial."""


class OutcomeError(MeasureError, ValueError):
    """An impossible statement about a measurement; see `measure.outcome`."""


class TrialFailure(Exception):
    """Failure of one trial with its class, raised by an executor inside a worker."""

    def __init__(self, error: ErrorClass, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def failure(rule: str, error: BaseException) -> PoolError:
    """Converts an exception to a `PoolError` for the user; returns a `PoolError` unchanged."""
    if isinstance(error, PoolError):
        return error
    wrong = PoolError(f"{rule}, but raised {type(error).__name__}: {error}")
    wrong.__cause__ = error
    return wrong
