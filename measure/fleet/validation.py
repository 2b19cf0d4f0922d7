"""Validation of answers: an endpoint's answer to a trial becomes a result, or the endpoint is refused.

An answer comes from a machine that may be broken, over a network that may be hostile. It is compared with the limits of
any measurement (`measure.outcome`), those of any machine (`measure.bounds`), and the duration of the call by this
process's clock. Answers of this very machine are believed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from measure.bounds import check_possible
from measure.errors import ErrorClass, OutcomeError
from measure.fleet.members import Member, Work
from measure.outcome import Outcome, read
from measure.pool import TrialResult
from measure.supervisor import Answer

SLACK = 0.25
"""Seconds by which two clocks may disagree on a call, in addition to a hundredth of it."""

Judge = Callable[[Member, Work, Answer, float], TrialResult | None]
"""Function that makes a result of a member's answer, as `judge_remote_answer` does."""


def now() -> float:
    """Returns seconds of a clock that goes on while this machine sleeps, as other machines go on then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def judge_remote_answer(member: Member, work: Work, answer: Answer, wall: float) -> TrialResult | None:
    """Returns the result of a trial; None after a build that succeeded, as the trial is yet to be run.

    Args:
        member: state of the endpoint.
        work: the trial; gets the module of a build.
        answer: answer of the endpoint.
        wall: seconds that the call took, by the clock of this process.

    Raises:
        OutcomeError: the answer cannot be true.
    """
    (said, span), longest = read(answer.header), 1.01 * wall + SLACK
    if span is not None and span[1] - span[0] > longest:
        raise OutcomeError(f"`span` must lie within a call of {wall:.3g} s, but got {span[1] - span[0]:.3g} s")
    if member.builds and said.get("error", ErrorClass.ok) is ErrorClass.ok:
        work.module, work.build_span = answer.blob, span
        return None
    result = read_result(work, answer.header, built=member.builds, host=None if member.builds else member.description)
    if result.ok:
        trial, timed = work.trial, math.fsum(result.latencies)
        check_possible(trial.workload, trial.target, trial.threads, result.seconds)
        if member.alone and timed > longest:  # otherwise these are simulated seconds
            raise OutcomeError(f"`latencies` must lie within a call of {wall:.3g} s, but add up to {timed:.3g} s")
    return result


def judge_local_answer(member: Member, work: Work, answer: Answer, wall: float) -> TrialResult | None:
    """Returns the result of a trial that this very machine measured; None after a build that succeeded.

    Works as `judge_remote_answer`, but records need not describe the host. An impossible answer is a failure of the
    trial, as no other machine can measure it. Either a kernel has damaged its process, or the clock is broken.
    """
    if member.builds and answer.error is ErrorClass.ok:
        work.module, work.build_span = answer.blob, tuple(answer.header["span"])
        return None
    try:
        return read_result(work, answer.header, member.builds)
    except OutcomeError as wrong:
        message = f"a measurement must be possible, but: {wrong}"
        return read_result(work, {"error": ErrorClass.unknown, "message": message}, member.builds)


def read_result(
    work: Work, header: Mapping[str, Any], built: bool = False, host: Mapping[str, Any] | None = None
) -> TrialResult:
    """Makes the result of a trial.

    Args:
        work: the trial.
        header: header of the last answer.
        built: whether it ended in the build.
        host: description of the device that ran it; None for this machine.

    Raises:
        OutcomeError: the answer has values that no measurement gives.
    """
    said, span = read(header)
    build_span, run_span = (span, None) if built else (work.build_span, span)
    outcome = Outcome(**said, build_seconds=_length(build_span), run_seconds=_length(run_span), host=host or {})
    return TrialResult(work.trial, work.index, outcome, build_span, run_span)


def _length(span: tuple[float, float] | None) -> float:
    return math.nan if span is None else span[1] - span[0]
