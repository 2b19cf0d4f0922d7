"""How a trial may fail (the field's error classes), and the exceptions of this package."""

from __future__ import annotations

from enum import StrEnum


class ErrorClass(StrEnum):
    """Outcome of one trial; the value is what a record holds."""

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
    """Each machine that had the trial was gone before it answered."""
    unknown = "unknown"


class MeasureError(Exception):
    """Base of the exceptions that this package raises to its user."""


class RecordError(MeasureError, ValueError):
    """A records file that cannot be read or written, or that holds something else than it should."""


class BadRecordError(RecordError):
    """One record that cannot be true, or is damaged; those beside it can be used."""


class FullError(RecordError):
    """A record that could not be written, as there is no room for it; those before it are kept."""


class PoolError(MeasureError, RuntimeError):
    """A pool that is used wrongly or that cannot start its workers; never a failure of one trial."""


class OutcomeError(MeasureError, ValueError):
    """What is said of a measurement cannot be true; see `measure.outcome`."""


class TrialFailure(Exception):
    """Raised by an executor inside a worker: this one trial failed, and the class says how."""

    def __init__(self, error: ErrorClass, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def failure(rule: str, error: BaseException) -> PoolError:
    """What the user is told of an exception: its own sentence where it was made for that."""
    if isinstance(error, PoolError):
        return error
    wrong = PoolError(f"{rule}, but raised {type(error).__name__}: {error}")
    wrong.__cause__ = error
    return wrong
