"""Events of a run for its tracking store: JSON lines in the run folder, and the position up to which they are uploaded.

`RUN/tracking/0001/` holds `events.jsonl`, which the driver appends to, and `state.json`, which the uploader keeps. A
run that goes on (`--resume`) goes on in the last folder, any other run makes the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from measure.filelock import SHARED, lock_within
from search_space.files import replace_file

FOLDER = "tracking"
EVENTS = "events.jsonl"
STATE = "state.json"
_PATIENCE = 0.2  # seconds: `driver_lives` of another process holds the lock for an instant


class SpoolError(RuntimeError):
    """Events that cannot be written or read."""


@dataclass(frozen=True)
class State:
    """State of the upload of a spool.

    Attributes:
        position: bytes of the events that are.
        runs: task → id of its run in the store; "": the run that they belong to.
        ended: whether the store knows that the run has ended.
        problem: reason why the last upload failed; "" if it did not.
    """

    position: int = 0
    runs: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False
    problem: str = ""


class Writer:
    """The driver's end.

    Args:
        folder: folder of the spool, which is made if it does not exist.

    Attributes:
        fresh: whether no event was there.

    Raises:
        SpoolError: another driver writes to it.
        OSError: it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        path = folder / EVENTS
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not lock_within(_PATIENCE, self._file):
            os.close(self._file)
            raise SpoolError(f"{path}: one run at a time must write events, but another one does")
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.ftruncate(self._file, whole)  # a crash may have torn the last line
        self.fresh = whole == 0

    def write(self, event: Mapping[str, Any]) -> None:
        """Appends an event.

        Raises:
            OSError: it could not be written whole.
        """
        line = orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
        if os.write(self._file, line) != len(line):
            raise OSError(f"{self.folder / EVENTS}: an event could not be written whole")

    def close(self) -> None:
        """Says that nothing more will come, and puts what there is on the disk; may be called twice."""
        if self._file >= 0:
            with suppress(OSError):  # a disk that is full has been told of already
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1


def spools(run_folder: Path) -> list[Path]:
    """Spools of a run folder, the oldest first."""
    return sorted(path.parent for path in (run_folder / FOLDER).glob(f"[0-9]*/{EVENTS}"))


def spool_for(run_folder: Path, resume: bool) -> Path:
    """Chooses the spool that a run writes to: the last one to go on with, or the next number."""
    there = spools(run_folder)
    if resume and there:
        return there[-1]
    number = 1 + max((int(path.name) for path in there), default=0)
    return run_folder / FOLDER / f"{number:04}"


def read_head(spool: Path) -> dict[str, Any] | None:
    """Reads the first event of a spool, which names the run and its store; None where it holds none.

    Raises:
        SpoolError: its first line is no event.
    """
    return next((event for event, _ in events(spool, 0)), None)


def read_store(spool: Path) -> tuple[str, str] | None:
    """Reads backend and address of the store from `read_head`; None where the spool holds no event."""
    head = read_head(spool)
    return None if head is None else (head["backend"], head["uri"])


def driver_lives(spool: Path) -> bool:
    """Tells whether a driver has the spool open."""
    with open(spool / EVENTS, "rb") as file:
        return not lock_within(0.0, file.fileno(), SHARED)


def events(spool: Path, position: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Reads complete events from `position` bytes on, each with the position after it.

    Raises:
        SpoolError: a line that is no event.
    """
    with open(spool / EVENTS, "rb") as file:
        file.seek(position)
        for line in file:
            if not line.endswith(b"\n"):
                return
            position += len(line)
            try:
                event = orjson.loads(line)
            except orjson.JSONDecodeError:
                event = None
            if not isinstance(event, dict) or "event" not in event:
                raise SpoolError(f"{spool / EVENTS}: an event must be a JSON object, but got {line[:60]!r}")
            yield event, position


def read_state(spool: Path) -> State:
    """Reads the state of the upload; nothing is uploaded where no state was written, or it cannot be read."""
    with suppress(OSError, orjson.JSONDecodeError, TypeError):
        return State(**orjson.loads((spool / STATE).read_bytes()))
    return State()


def write_state(spool: Path, state: State) -> None:
    """Writes the state whole or not at all."""
    replace_file(spool / STATE, orjson.dumps(asdict(state), option=orjson.OPT_INDENT_2))


def pending(spool: Path) -> int:
    """Counts the bytes of events that are not uploaded yet; 1 if only the end of a run that died is missing."""
    state = read_state(spool)
    left = (spool / EVENTS).stat().st_size - state.position
    return left if left > 0 else int(not state.ended and not driver_lives(spool))
