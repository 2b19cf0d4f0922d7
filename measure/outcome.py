"""Outcome of a trial, and the rules that it must obey: one definition for all that reports one.

Results of pools, answers of workers anywhere and lines of records files consist of an `Outcome`. So no data that is
compared, learned from or written down can be impossible for a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from measure import typed
from measure.errors import ErrorClass, OutcomeError

SHORTEST = 1e-10
"""Lower limit of a latency, seconds: no clock is as fine, and no kernel as fast."""
MOST_TEXT = 4000
"""Maximum number of characters of a message."""
MOST_METRICS = 64  # every record contains them
_SAME = 1e-6  # relative difference of two figures that are the same


@dataclass(frozen=True)
class Outcome:
    """Samples of one trial's latency, or the class of its failure.

    A trial that is `ok` has latencies, and `seconds` is their median; a failure has neither.

    Attributes:
        latencies: seconds of each sample, in order of time; empty on failure.
        seconds: the median of `latencies`; NaN on failure.
        error: class of the failure, or `ErrorClass.ok`.
        message: one sentence on the failure, or on a trial that was cut short; else empty.
        build_seconds, run_seconds: wall time of the build, and of check and timing; NaN if it did not take place.
        spread: (75th percentile - 25th percentile) / median of `latencies`; NaN on failure.
        max_error: largest absolute difference to the reference / largest absolute reference value; NaN: not compared.
        rotation_bytes: bytes of rotated constants in the `network` state, 0 where nothing was rotated.
        metrics: other numbers that the target reports of an execution, by name.
        host: description of the machine that ran it, see `measure.host.describe_host`; a device of a fleet has its
            name under `device`. Empty in the results of pools that measure on this machine.

    Raises:
        OutcomeError: a value is impossible for a measurement; names the rule and the value.
    """

    latencies: tuple[float, ...] = ()
    seconds: float = math.nan
    error: ErrorClass = ErrorClass.ok
    message: str = ""
    build_seconds: float = math.nan
    run_seconds: float = math.nan
    spread: float = math.nan
    max_error: float = math.nan
    rotation_bytes: int = 0
    metrics: Mapping[str, int | float] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ok:
            check_latencies(self.latencies)
            middle = median(self.latencies)
            if not abs(self.seconds - middle) <= _SAME * middle:
                raise OutcomeError(
                    f"`seconds` must be the median of `latencies`, {middle:g}, but got seconds={self.seconds}"
                )
        elif self.latencies or not math.isnan(self.seconds):
            raise OutcomeError(
                f"`latencies` and `seconds` must be empty where error={self.error}, "
                f"but got seconds={self.seconds} and {len(self.latencies)} latencies"
            )
        for name in ("spread", "build_seconds", "run_seconds"):
            if not (0 <= (value := getattr(self, name)) < math.inf or math.isnan(value)):
                raise OutcomeError(f"`{name}` must be finite and not negative, but got {name}={value}")
        for name in ("max_error", "rotation_bytes"):
            if (value := getattr(self, name)) < 0:
                raise OutcomeError(f"`{name}` must not be negative, but got {name}={value}")
        if self.metrics:
            _check_metrics(self.metrics)

    @classmethod
    def of_samples(cls, latencies: tuple[float, ...], **others: Any) -> Outcome:
        """Makes the outcome of a trial that worked, with its samples' median and spread; `others` are other fields."""
        low, middle, high = np.quantile(latencies, (0.25, 0.5, 0.75)).tolist()
        return cls(latencies, middle, spread=(high - low) / middle if middle > 0 else 0.0, **others)

    @classmethod
    def from_error(cls, error: ErrorClass, message: str = "", **others: Any) -> Outcome:
        """Makes the outcome of a trial that failed; `others` are other fields."""
        return cls(error=error, message=message, **others)

    @property
    def ok(self) -> bool:
        """Tells whether the trial was measured and its output right."""
        return self.error is ErrorClass.ok


def check_latencies(latencies: tuple[float, ...]) -> None:
    """Refuses an empty tuple of samples, and samples that cannot be latencies.

    Raises:
        OutcomeError: names the rule and the value.
    """
    if not latencies:
        raise OutcomeError("`latencies` must hold a sample where error=ok, but got none")
    for latency in latencies:
        if not SHORTEST <= latency < math.inf:
            raise OutcomeError(f"`latencies` must be finite and at least {SHORTEST:g} seconds, but got {latency}")


def median(latencies: tuple[float, ...]) -> float:
    """Returns the median of at least one sample."""
    ordered, half = sorted(latencies), len(latencies) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def read(header: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[float, float] | None]:
    """Reads fields of an `Outcome` from a worker's last message, and start and end of the work by the worker's clock.

    Does not check whether the fields agree, which `Outcome` does; ignores fields of other names.

    Raises:
        OutcomeError: a field has another type, or its value is impossible.
    """
    said = typed.read(Outcome, {name: header[name] for name in _ANSWER_FIELDS & header.keys()})
    message = said.get("message", "")
    if len(message) > MOST_TEXT or (not message.isascii() and not _is_unicode(message)):
        raise OutcomeError(f"`message` must have at most {MOST_TEXT} characters of Unicode, but got {message!r:.60}")
    span: tuple[float, float] | None = typed.convert_value(
        tuple[float, float] | None, "span", header.get("span"), "a start and an end"
    )
    if span is not None and not 0 <= span[1] - span[0] < math.inf:
        raise OutcomeError(f"`span` must be a start and a later end, but got span={list(span)}")
    return said, span


def _check_metrics(metrics: Mapping[str, int | float]) -> None:
    if len(metrics) > MOST_METRICS:
        raise OutcomeError(f"`metrics` must be at most {MOST_METRICS} numbers, but got {len(metrics)}")
    for name, value in metrics.items():
        if (isinstance(value, int) and abs(value) >= 1 << 63) or not math.isfinite(value) or not _is_unicode(name):
            raise OutcomeError(f"`metrics` must be finite numbers by name, but got {name!r:.60}={value!r:.60}")


def _is_unicode(text: str) -> bool:
    """Tells whether a text can be encoded as UTF-8: JSON also has halves of surrogate pairs, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_ANSWER_FIELDS = frozenset(f.name for f in fields(Outcome)) - {"build_seconds", "run_seconds", "host"}
"""Fields that a worker sends of a trial; the receiver adds the other fields."""
