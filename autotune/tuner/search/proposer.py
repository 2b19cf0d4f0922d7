"""Candidates that another program proposes, such as a language model: it reads loops and history, and writes decisions.

After "Reasoning Compiler" (Tang et al., 2025) and Helion's searches that ask a language model. The program is started
once and receives JSON, a line each way: docs/proposers.md has the protocol. Evolution replaces proposals that are
missing, repeated or illegal, so that a search goes on whatever the program answers.
"""

from __future__ import annotations

import json
import math
import shlex
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search.base import Bounds, Candidate, Scorer
from autotune.tuner.search.evolution import Evolution, EvolutionOptions
from autotune.tuner.search.population import Population
from measure.child import ChildError, Program
from search_space import strict_json
from search_space.decisions import Decisions, Space
from search_space.schedule.errors import ScheduleError

PROTOCOL = "autotune.proposer/1"
_MAX_ROWS = 4096
"""Largest number of rows of a decision's table that a program is shown."""
_REASONS = 16
"""Largest number of a round's rejected proposals that the program is told of."""
_FAREWELL = 0.2
"""Seconds that a program has to end once its input is closed."""
MOST_BYTES = 64 << 20
"""Bytes of the longest answer; a program that writes more is ended."""


@dataclass(frozen=True)
class ProposerOptions(EvolutionOptions):
    """Options.

    Attributes:
        command: command line of the program, split as a shell would; empty: no program.
        replay: file of recorded answers, used in order in place of a program's.
        record: file that answers are appended to, for `replay`.
        share: share of each request that the program proposes; evolution proposes the rest.
        timeout: seconds for an answer; a program that takes longer is ended, and not asked again.
    """

    BOUNDS: ClassVar[Bounds] = {"share": (0, 1), "timeout": (0, math.inf)}

    command: str = ""
    replay: str = ""
    record: str = ""
    share: float = 1.0
    timeout: float = 600.0


class Proposer(Evolution):
    """Strategy that uses a program's proposals, and evolution's where it has none that are legal and new."""

    Options: ClassVar[type[ProposerOptions]] = ProposerOptions

    def __init__(self, space: Space, scorer: Scorer, rng: np.random.Generator, **options: Any) -> None:
        super().__init__(space, scorer, rng, **options)
        chosen: ProposerOptions = self.options
        if chosen.command and chosen.replay:
            raise ValueError(
                f"`command` and `replay` of proposer must not be given together, but got command={chosen.command!r}, "
                f"replay={chosen.replay!r}"
            )
        self._program: _Program | _Replay | None = None
        if chosen.command:
            self._program = _Program(chosen.command, chosen.timeout)
        elif chosen.replay:
            self._program = _Replay(Path(chosen.replay), str(space.workload))
        self._sketch_numbers = {sketch.name: place for place, sketch in enumerate(self.frame.sketches)}
        self._has_begun = False
        self._untold: list[dict[str, Any]] = []  # measurements that the program does not know yet
        self._rejections: list[dict[str, Any]] = []  # rejected proposals of its last answer

    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        super().tell(candidates, seconds)
        if self._program is not None:
            for candidate, taken in zip(candidates, np.asarray(seconds).tolist(), strict=True):
                self._untold.append(
                    {**self._write_candidate(candidate), "seconds": None if math.isnan(taken) else taken}
                )

    def _best(self, n: int) -> Population:
        wanted = round(n * self.options.share)
        chosen = self._collect_proposals(wanted) if wanted and self._program is not None else self.frame.empty()
        if len(chosen) == n:
            return chosen
        # The caller marks `chosen` as seen later, together with the rest: evolution may pick one of them again.
        rest = super()._best(n)
        new = ~np.isin(self.frame.keys(rest), self.frame.keys(chosen))
        return Population.concatenate([chosen, rest.take(np.flatnonzero(new)[: n - len(chosen)])])

    def _collect_proposals(self, n: int) -> Population:
        """Collects the program's proposals that are legal and new; at most `n`."""
        assert self._program is not None
        request: dict[str, Any] = {"propose": n, "history": self._untold, "rejected": self._rejections[:_REASONS]}
        if not self._has_begun:
            request = {**self._introduction(), **request}
        answer = self._program.ask(request)
        self._has_begun, self._untold, self._rejections = True, [], []
        if answer is END_OF_ANSWERS:
            self._program = None
            return self.frame.empty()
        if self.options.record:
            with Path(self.options.record).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"workload": str(self.space.workload), "answer": answer}) + "\n")
        return self._sorted_out(answer, n)

    def _introduction(self) -> dict[str, Any]:
        """Describes the task for the first request: the computation, the loops, and the decisions."""
        return {
            "protocol": PROTOCOL,
            "workload": str(self.space.workload),
            "cores": self.space.cores,
            "sketches": [_describe_sketch(sketch) for sketch in self.frame.sketches],
        }

    def _sorted_out(self, answer: Any, n: int) -> Population:
        proposals = answer.get("proposals") if isinstance(answer, dict) else None
        if not isinstance(proposals, list):
            self._rejections.append({"proposal": None, "reason": "an answer must be an object with a list `proposals`"})
            return self.frame.empty()
        candidates: list[Candidate] = []
        for proposal in proposals:
            try:
                candidate = self._read(proposal)
            except ValueError as error:
                self._rejections.append({"proposal": proposal, "reason": str(error)})
                continue
            if candidate not in candidates and len(candidates) < n:
                candidates.append(candidate)
        return self.frame.population(candidates) if candidates else self.frame.empty()

    def _read(self, proposal: Any) -> Candidate:
        """Reads the candidate of a proposal.

        Raises:
            ValueError: the proposal is malformed, breaks a limit, or was measured already; the message names the fault.
        """
        if not isinstance(proposal, dict) or not isinstance(proposal.get("values"), dict):
            raise ValueError("a proposal must be an object with `sketch`, a name, and `values`, numbers by name")
        name = proposal.get("sketch")
        number = self._sketch_numbers.get(name) if isinstance(name, str) else None
        if number is None:
            raise ValueError(f"`sketch` must be one of those given, but got {proposal.get('sketch')!r}")
        sketch = self.frame.sketches[number]
        choices = tuple(_find_row(group.columns, group.table, proposal["values"]) for group in sketch.groups)
        row = np.array([choices], np.int32).reshape(1, -1)
        if not sketch.legal(row)[0]:
            raise ValueError(f"values must keep every limit, but break {', '.join(sketch.violations(row))}")
        if not self.seen_candidates.fresh(self.frame.keys(self.frame.of(number, row)))[0]:
            raise ValueError("a proposal must be new, but it was proposed before")
        return Candidate(number, choices)

    def _write_candidate(self, candidate: Candidate) -> dict[str, Any]:
        sketch = self.frame.sketches[candidate.sketch]
        values = sketch.expand(np.array([candidate.choices], np.int32).reshape(1, -1))[:, 0]
        return {"sketch": sketch.name, "values": dict(zip(sketch.columns, map(_plain, values.tolist()), strict=True))}


def _plain(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value


def _describe_sketch(sketch: Decisions) -> dict[str, Any]:
    try:
        program = getattr(sketch, "program", None)  # spaces of parameters have none
    except ScheduleError:  # no candidate of it is legal
        program = None
    return {
        "name": sketch.name,
        "algorithm": sketch.algorithm,
        "program": "" if program is None else str(program),
        "decisions": [
            {
                "names": list(group.columns),
                "rows": np.asarray(group.table)[:_MAX_ROWS].tolist(),
                "more": max(0, len(group.table) - _MAX_ROWS),
            }
            for group in sketch.groups
        ],
    }


def _find_row(columns: Sequence[str], table: NDArray[Any], values: Mapping[str, Any]) -> int:
    """Finds the row of the values in a decision's table."""
    numbers = [values.get(column) for column in columns]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        raise ValueError(f"`values` must have numbers for {', '.join(columns)}, but got {numbers}")
    places = np.flatnonzero((np.asarray(table, np.float64) == np.array(numbers, np.float64)).all(axis=1))
    if not len(places):
        raise ValueError(f"{', '.join(columns)} must be a row of their decision, but got {numbers}")
    return int(places[0])


END_OF_ANSWERS = object()
"""Marker in place of an answer, if there will be no more answers."""


class _Replay:
    """Recorded answers of a file for one workload, one after the other."""

    def __init__(self, path: Path, workload: str) -> None:
        try:
            lines = [strict_json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            self._left = iter([line["answer"] for line in lines if line["workload"] == workload])
        except OSError as error:
            raise ValueError(
                f"`replay` of proposer must be a readable file, but got {path}: {error.strerror}"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"`replay` of proposer must be what `record` wrote, but {path}: {error}") from None

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Returns the next answer; `END_OF_ANSWERS` after the last."""
        return next(self._left, END_OF_ANSWERS)


class _Program:
    """Program that is asked by a line of JSON and answers by one; its standard error is ours."""

    def __init__(self, command: str, timeout: float) -> None:
        try:
            self._process = Program(shlex.split(command), MOST_BYTES)
        except (OSError, ValueError, IndexError) as error:
            raise ValueError(
                f"`command` of proposer must be a program to start, but got {command!r}: {error}"
            ) from None
        self._timeout = timeout
        weakref.finalize(self, _end, self._process)

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Returns the answer; `END_OF_ANSWERS` if the program has ended, or was ended for exceeding the time or size
        limit."""
        try:
            line = self._process.exchange(json.dumps(request).encode(), self._timeout)
        except ChildError:
            return END_OF_ANSWERS
        try:
            return strict_json.loads(line)
        except ValueError:
            return line.decode(errors="replace")  # `_sorted_out` rejects it as no answer


def _end(process: Program) -> None:
    """Closes the program's input, which tells it to end, and kills it soon after if it has not."""
    process.channel.close()
    process.wait(_FAREWELL)
    process.close()
