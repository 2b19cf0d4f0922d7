"""Cases in processes of their own, until there are enough or the time is over; what fails is made smaller."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.kinds import KINDS, Case
from tests.fuzz.worker import REFUSAL, RIGHT, WRONG

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
"""Seconds that a case may take before it counts as a finding: the slowest take a few."""

REDUCING = 60.0
"""Seconds that making one finding smaller may take."""

MOST_FINDINGS = 20
"""Different ones after which fuzzing ends; one that was found before is counted, and not made smaller again."""


class Worker:
    """A process that checks cases, started anew where a case ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, case: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict on a case; a crash and a time-out are wrong."""
        process = self._alive()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()  # first: once the process is dead its answer is read at once
            process.kill()

        watch = threading.Timer(SECONDS, end)
        watch.start()
        try:
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        watch.cancel()
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = process.wait()
        self.close()
        why = f"it must end within {SECONDS:.0f} s, but it ran on" if late.is_set() else f"crash: exit code {code}"
        return {"verdict": WRONG, "why": why, "case": dict(case)}

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.fuzz.worker"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)  # type: ignore[call-overload]
        return self._process


@dataclass
class Outcome:
    """Outcome of a fuzzing run.

    Attributes:
        right: kind → cases that were run and are right.
        refusals: kind → reason → cases.
        findings: verdicts of cases that are wrong, of each sort the first, as small as it could be made.
        wrong: kind → cases that are wrong, of whatever sort.
    """

    right: Counter[str] = field(default_factory=Counter)
    refusals: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)
    _sorts: set[str] = field(default_factory=set)

    def is_new(self, answer: Mapping[str, Any], kind: str) -> bool:
        """Counts a finding; whether none of its sort was found before."""
        self.wrong[kind] += 1
        sort = f"{kind} {re.sub(r'[0-9.]+|sha256=[0-9a-f]+', '#', answer['why'])[:90]} {answer.get('where', '')}"
        new = sort not in self._sorts
        self._sorts.add(sort)
        return new

    def take(self, answer: Mapping[str, Any], kind: str) -> None:
        """Counts a verdict that is no finding."""
        if answer["verdict"] == RIGHT:
            self.right[kind] += 1
        elif answer["verdict"] == REFUSAL:
            self.refusals.setdefault(kind, Counter())[answer["why"][:60]] += 1


def fuzz(counts: Mapping[str, int], seed: int, minutes: float, jobs: int, tell: Any = print) -> Outcome:
    """Checks cases of every kind, in turns, until so many of each were run or the time is over.

    Args:
        counts: kind → cases that must be run; those that are refused do not count.
        seed: seed of the first case; the next has the next number.
        minutes: minutes after which no case begins.
        jobs: processes.
        tell: gets lines of text.
    """
    outcome, lock, end = Outcome(), threading.Lock(), time.monotonic() + 60 * minutes
    raised: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    seeds = _seeds(counts, seed, outcome)

    def work() -> None:
        worker = Worker()
        try:
            while time.monotonic() < end and len(outcome.findings) < MOST_FINDINGS:
                with lock:
                    case = next(seeds, None)
                if case is None:
                    return
                answer = worker.ask(case)
                with lock:
                    outcome.take(answer, case["kind"])
                    new = answer["verdict"] == WRONG and outcome.is_new(answer, case["kind"])
                if new:
                    found = {**reduce_case(worker, answer), "drawn": case}
                    with lock:
                        outcome.findings.append(found)
                        tell(f"{case['kind']} seed {case['seed']}: {found['why']}")
        except BaseException as error:
            raised.put(error)
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not raised.empty():
        raise raised.get()
    return outcome


def _seeds(counts: Mapping[str, int], first: int, outcome: Outcome) -> Iterator[Case]:
    """Kinds in turns, those that have enough left out; findings count as run."""
    number = first
    while True:
        lacking = [kind for kind, count in counts.items() if outcome.right[kind] + outcome.wrong[kind] < count]
        if not lacking:
            return
        for kind in lacking:
            yield {"kind": kind, "seed": number}
        number += 1


def reduce_case(worker: Worker, answer: dict[str, Any]) -> dict[str, Any]:
    """A smaller case that is wrong in the same way, as far as one is found in `REDUCING` seconds."""
    case, end = answer["case"], time.monotonic() + REDUCING
    if "of" not in case:  # it crashed before it could say what it was
        case = {**case, "of": KINDS[case["kind"]].draw(case["seed"])}
        answer = {**answer, "case": case}
    shrunk = True
    while shrunk and time.monotonic() < end:
        shrunk = False
        for of in KINDS[case["kind"]].smaller(case["of"]):
            if time.monotonic() > end:
                break
            again = worker.ask({**case, "of": of})
            if again["verdict"] == WRONG and _sort(again) == _sort(answer):
                answer, case, shrunk = again, again["case"], True
                break
    return answer


def _sort(answer: Mapping[str, Any]) -> str:
    """Returns the sort of a mistake: the exception, or the crash."""
    return str(answer["why"]).split(":")[0]
