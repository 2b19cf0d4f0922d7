"""Validation of answers: what an endpoint says of a trial becomes a result, or the endpoint is refused.

An answer comes from a machine that may be broken, and over a network that may be anybody's. Here it is held against
what any measurement must be (`measure.outcome`), what any machine can do (`measure.bounds`), and how long the call took
by the clock of this process.
"""

from __future__ import annotations

import math
import time

from measure.blocking_worker import Answer
from measure.bounds import check_possible
from measure.errors import ErrorClass, OutcomeError
from measure.fleet.members import Member, Work
from measure.outcome import read
from measure.pool import TrialResult
from measure.supervisor import result_of

SLACK = 0.25
"""Seconds by which two clocks may disagree on a call, besides a hundredth of it."""


def now() -> float:
    """Seconds on a clock that goes on while this machine sleeps, as others do then."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def validated(member: Member, work: Work, answer: Answer, wall: float) -> TrialResult | None:
    """The result of a trial; None where it was built, and is to be run.

    Args:
        member: of the endpoint.
        work: the trial; gets the module of a build.
        answer: what the endpoint said.
        wall: seconds that the call took, by our clock.

    Raises:
        OutcomeError: it cannot be true.
    """
    (said, span), longest = read(answer.header), 1.01 * wall + SLACK
    if span is not None and span[1] - span[0] > longest:
        raise OutcomeError(f"`span` must lie within a call of {wall:.3g} s, but got {span[1] - span[0]:.3g} s")
    if member.builds and said.get("error", ErrorClass.ok) is ErrorClass.ok:
        work.module, work.build_span = answer.blob, span
        return None
    result = result_of(work, answer.header, built=member.builds, host=None if member.builds else member.description)
    if result.ok:
        trial, timed = work.trial, math.fsum(result.latencies)
        check_possible(trial.workload, trial.target, trial.threads, result.seconds)
        if member.alone and timed > longest:  # else it is a simulator's time
            raise OutcomeError(f"`latencies` must lie within a call of {wall:.3g} s, but add up to {timed:.3g} s")
    return result
