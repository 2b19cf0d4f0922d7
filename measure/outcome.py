"""What may be said of a measurement: one definition for whatever says it.

Results of pools, answers of workers wherever they are, lines of records files and tables that are replayed all pass
through `check`, so nothing that is compared, learned from or written down can be what no measurement gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from measure import readers
from measure.errors import ErrorClass, OutcomeError

SHORTEST = 1e-10
"""Seconds: no clock is as fine, and no kernel as fast."""
MOST_TEXT = 4000
"""Characters of a message."""
MOST_METRICS = 64
_SAME = 1e-6  # relative difference of two figures that are the same


class Outcome(Protocol):
    """What came of a trial, see `measure.pool.TrialResult`."""

    @property
    def error(self) -> ErrorClass: ...
    @property
    def message(self) -> str: ...
    @property
    def latencies(self) -> tuple[float, ...]: ...
    @property
    def seconds(self) -> float: ...
    @property
    def spread(self) -> float: ...
    @property
    def max_error(self) -> float: ...
    @property
    def build_seconds(self) -> float: ...
    @property
    def run_seconds(self) -> float: ...
    @property
    def rotation_bytes(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


def check(found: Outcome) -> None:
    """Refuses what no measurement gives.

    A trial that is `ok` has latencies, and `seconds` is their median; a failure has neither.

    Raises:
        OutcomeError: names the rule and the value.
    """
    if found.error is ErrorClass.ok:
        check_latencies(found.latencies)
        middle = median(found.latencies)
        if not abs(found.seconds - middle) <= _SAME * middle:
            raise OutcomeError(
                f"`seconds` must be the median of `latencies`, {middle:g}, but got seconds={found.seconds}"
            )
    elif found.latencies or not math.isnan(found.seconds):
        raise OutcomeError(
            f"`latencies` and `seconds` must be empty where error={found.error}, "
            f"but got seconds={found.seconds} and {len(found.latencies)} latencies"
        )
    for name in ("spread", "build_seconds", "run_seconds"):
        if not (0 <= (value := getattr(found, name)) < math.inf or math.isnan(value)):
            raise OutcomeError(f"`{name}` must be finite and not negative, but got {name}={value}")
    if found.max_error < 0:
        raise OutcomeError(f"`max_error` must not be negative, but got max_error={found.max_error}")
    if found.rotation_bytes < 0:
        raise OutcomeError(f"`rotation_bytes` must not be negative, but got rotation_bytes={found.rotation_bytes}")
    if found.metrics:
        _check_metrics(found.metrics)


def check_latencies(latencies: tuple[float, ...]) -> None:
    """Refuses samples of which one is no latency, or of which there is none.

    Raises:
        OutcomeError: names the rule and the value.
    """
    if not latencies:
        raise OutcomeError("`latencies` must hold a sample where error=ok, but got none")
    for latency in latencies:
        if not SHORTEST <= latency < math.inf:
            raise OutcomeError(f"`latencies` must be finite and at least {SHORTEST:g} seconds, but got {latency}")


def median(latencies: tuple[float, ...]) -> float:
    """The median of samples, of which there is at least one."""
    ordered, half = sorted(latencies), len(latencies) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def read(header: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `TrialResult` of a worker's last message, with `span` in place of the times that it gives.

    Whether they go together is `check`'s to say; fields of other names are left alone.

    Raises:
        OutcomeError: a field of another type.
    """
    found = {name: readers.read(_READERS[name], name, header[name]) for name in _READERS.keys() & header.keys()}
    message = found.get("message", "")
    if len(message) > MOST_TEXT or (not message.isascii() and not _is_unicode(message)):
        raise OutcomeError(f"`message` must have at most {MOST_TEXT} characters of Unicode, but got {message!r:.60}")
    span = found.setdefault("span", None)
    if span is not None and not 0 <= span[1] - span[0] < math.inf:
        raise OutcomeError(f"`span` must be a start and a later end, but got span={list(span)}")
    return found


def _check_metrics(metrics: Mapping[str, float]) -> None:
    if len(metrics) > MOST_METRICS:
        raise OutcomeError(f"`metrics` must be at most {MOST_METRICS} numbers, but got {len(metrics)}")
    for name, value in metrics.items():
        if not math.isfinite(value) or not _is_unicode(name):
            raise OutcomeError(f"`metrics` must be finite numbers by name, but got {name!r:.60}={value}")


def _is_unicode(text: str) -> bool:
    """Whether a text can be written down: JSON knows halves of characters that are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_READERS: dict[str, Callable[[Any], Any]] = {
    "error": readers.error_class,
    "message": readers.text,
    "latencies": readers.numbers,
    "seconds": readers.measured,
    "spread": readers.measured,
    "max_error": readers.measured,
    "rotation_bytes": readers.integer,
    "metrics": readers.figures,
    "span": readers.span,
}
