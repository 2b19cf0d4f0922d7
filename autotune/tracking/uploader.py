"""Uploads spools to their stores: in a process beside a run, or in the foreground for `autotune track` and `ui`.

A spool's state is written after what it stands for, and a store takes a call twice as once: an uploader that dies
anywhere leaves nothing out and nothing double.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.tracking import registry
from autotune.tracking.facts import database_file
from autotune.tracking.spool import (
    FOLDER,
    SpoolError,
    driver_lives,
    events,
    pending,
    read_head,
    read_state,
    read_store,
    spools,
    write_state,
)
from autotune.tracking.store import Input, MetricPoint, StoreError, TrackingStore
from measure.child_main import open_parent, requests
from measure.filelock import lock_within
from measure.hostlock import HostLock

Exclusive = Callable[[], AbstractContextManager[None]]
"""A factory of contexts in which this process may compute, as no kernel is timed."""

SLICE = 0.05
"""Longest seconds in one exclusive section: a run that wants to time something waits no longer."""

LIVE = 5.0
"""Seconds between two uploads while a run goes on: a call of a store costs about as much for one value as for many."""

_LOCK, _LOG = "lock", "uploader.log"
_POLL, _LONGEST_PAUSE, _LAST_TRIES = 0.1, 30.0, 2
_PATIENCE = 60.0  # seconds that another uploader of the same folder may take
_REST = 3  # pauses while a driver lives, in lengths of the section before


class Upload:
    """An uploader of one spool.

    Args:
        spool: folder of the events.
        exclusive: the section in which stores on this host are called.
        get_store: name of a backend → its class.
    """

    def __init__(
        self,
        spool: Path,
        exclusive: Exclusive = nullcontext,
        get_store: Callable[[str], type[TrackingStore]] = registry.get,
    ) -> None:
        self.spool, self._exclusive, self._get = spool, exclusive, get_store
        self._store: TrackingStore | None = None
        self._state = read_state(spool)
        self._points: dict[str, list[MetricPoint]] = defaultdict(list)  # run → values not logged yet

    def catch_up(self) -> None:
        """Uploads what is there, and the end of a run whose driver died without a word.

        Raises:
            StoreError: the store is away or refuses; the state says so, too.
            SpoolError: the spool cannot be read.
        """
        try:
            while True:
                alive, start = driver_lives(self.spool), time.monotonic()
                if not self._slice():
                    break
                if alive:
                    time.sleep(min(1.0, _REST * (time.monotonic() - start)))
            if not alive and not self._state.ended:
                self._mark_killed()
        except (StoreError, SpoolError) as error:
            self._store = None
            self._points.clear()
            self._note(problem=str(error))
            raise

    def _slice(self) -> bool:
        """Uploads for a moment; whether there is more."""
        head = read_head(self.spool)
        if head is None or not pending(self.spool):
            return False
        if self._store is None:
            with self._exclusive():  # the import alone computes for seconds
                kind = self._kind(head["backend"])
            with self._exclusive_for(head["uri"]):
                self._store = kind(head["uri"], head["experiment"])
        with self._exclusive_for(head["uri"]):
            until, position, more = time.monotonic() + SLICE, self._state.position, False
            for event, end in events(self.spool, position):
                self._apply(self._store, head, event)
                position, more = end, True
                if time.monotonic() >= until:
                    break
            for run, points in self._points.items():
                self._store.log_metrics(run, points)
            self._points.clear()
        if more or self._state.problem:
            self._note(position=position, problem="")
        return more

    def _kind(self, backend: str) -> type[TrackingStore]:
        try:
            return self._get(backend)
        except ImportError as error:
            raise StoreError(f"`{backend}` must be installed for its runs to be uploaded, but: {error}") from error

    def _exclusive_for(self, uri: str) -> AbstractContextManager[None]:
        """Makes the context for calls of a store: none for a server, as waiting for it must keep no run from timing."""
        return nullcontext() if database_file(uri) is None else self._exclusive()

    def _apply(self, store: TrackingStore, head: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        kind, task, time_ms = event["event"], event.get("task", ""), event["time_ms"]
        if kind == "run":
            tags, parameters = event["tags"], event["parameters"]
            self._know("", store.open_run(event["key"], event["name"], time_ms, tags, parameters, None))
        elif kind == "resume":
            self._state = replace(self._state, ended=False)
            store.set_status(self._run(""), "RUNNING", None)
            store.log_parameters(self._run(""), event["parameters"])
        elif kind == "task":
            key = f"{head['key']}/{task}"
            self._know(task, store.open_run(key, task, time_ms, {}, event["parameters"], self._run("")))
        elif kind == "metrics":
            points = [MetricPoint(name, value, event["step"], time_ms) for name, value in event["values"].items()]
            self._points[self._run(task)] += points
        elif kind == "series":
            self._points[self._run(task)] += [
                MetricPoint(event["name"], v, step, at) for step, v, at in event["points"]
            ]
        elif kind == "tags":
            store.log_tags(self._run(task), event["tags"])
        elif kind == "file":
            self._file(store, self._run(task), event)
        elif kind == "model":
            store.log_model(self._run(task), Path(event["path"]), event["kind"])
        elif kind == "input":
            store.log_input(self._run(""), Input(event["name"], event["digest"], event["source"], event["context"]))
        elif kind == "end":
            store.set_status(self._run(task), event["status"], time_ms)
            self._state = replace(self._state, ended=self._state.ended or not task)
        else:
            raise SpoolError(f"{self.spool}: `event` must be a known one, but got event={kind!r}")

    def _file(self, store: TrackingStore, run: str, event: Mapping[str, Any]) -> None:
        """Uploads a file, unless a later run has put another one in its place."""
        path = Path(event["path"])
        try:
            status = path.stat()
        except OSError:
            status = None
        same = status is not None and (status.st_size, status.st_mtime_ns) == (event["bytes"], event["changed_ns"])
        grown = status is not None and event.get("grows") and status.st_size >= event["bytes"]
        if same or grown:
            store.log_file(run, path, event["to"])
        else:
            store.log_tags(run, {f"missing.{path.name}": "was changed or removed before it was uploaded"})

    def _mark_killed(self) -> None:
        """Marks the runs of a driver that died."""
        head = read_head(self.spool)
        if self._store is None or head is None:
            return
        now = time.time_ns() // 1_000_000
        with self._exclusive_for(head["uri"]):
            for run in reversed(list(self._state.runs.values())):
                self._store.set_status(run, "KILLED", now)
        self._note(ended=True)

    def _run(self, task: str) -> str:
        if task not in self._state.runs:
            raise SpoolError(f"{self.spool}: an event must come after that of its run, but got task={task!r}")
        return self._state.runs[task]

    def _know(self, task: str, run: str) -> None:
        self._state = replace(self._state, runs={**self._state.runs, task: run})

    def _note(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        write_state(self.spool, self._state)


def upload_run(run_folder: Path, exclusive: Exclusive = nullcontext) -> list[str]:
    """Uploads what the runs of a folder have to say so far; sentences on what could not be, one a spool."""
    problems = []
    for spool in spools(run_folder):
        if pending(spool):
            try:
                Upload(spool, exclusive).catch_up()
            except (StoreError, SpoolError) as error:
                problems.append(str(error))
    return problems


@contextmanager
def only_uploader(run_folder: Path, patience: float = 0.0) -> Iterator[bool]:
    """Makes this process the only one to upload from a run folder, and tells whether it is.

    Args:
        run_folder: folder of the runs.
        patience: seconds to wait for another one to end.
    """
    descriptor = os.open(run_folder / FOLDER / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield lock_within(patience, descriptor, pause=0.05)
    finally:
        os.close(descriptor)


def run_folders(folder: Path) -> list[Path]:
    """Lists the folders in `folder` that hold a tracked run, in order."""
    return sorted({path.parents[2] for path in folder.glob(f"*/{FOLDER}/[0-9]*/events.jsonl")})


def main() -> None:
    """Runs beside a run, with the name of the backend among its options, and the run folder in a message.

    It imports what it needs before it reads the folder, so that it can be started before there is one; it ends when
    everything is uploaded, or after some tries, or where no folder comes.
    """
    options, channel = open_parent()
    with suppress(ImportError), _exclude_timing():  # reported later, where somebody reads it
        registry.get(options["backend"])
    message = next(requests(channel), None)
    if message is None:
        return
    folder = Path(message[0]["folder"])
    log = os.open(folder / FOLDER / _LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    with only_uploader(folder, _PATIENCE) as alone:  # another one may be about to end, and not see what is new
        done = not alone or _follow(folder)
    if alone and done:
        _upload_others(folder)
    sys.exit(0 if done else 1)


def _follow(folder: Path) -> bool:
    """Uploads as long as a driver lives, and then the rest; whether nothing is left."""
    uploads: dict[Path, Upload] = {}
    failures, last_tries = 0, 0
    while True:
        spool_folders = spools(folder)
        alive = any(driver_lives(spool) for spool in spool_folders)
        problems = []
        for spool in spool_folders:
            try:
                if spool in uploads or pending(spool):
                    uploads.setdefault(spool, Upload(spool, _exclude_timing)).catch_up()
            except (StoreError, SpoolError) as error:
                print(f"{time.strftime('%F %T')} {error}", flush=True)
                problems.append(error)
        failures = failures + 1 if problems else 0
        if not alive:
            last_tries += 1
            if not failures or last_tries >= _LAST_TRIES:
                return not failures
        pause = min(LIVE * 2**failures, _LONGEST_PAUSE) if alive else 1.0
        until = time.monotonic() + pause
        while time.monotonic() < until and not (alive and not any(map(driver_lives, spool_folders))):
            time.sleep(_POLL)


def _upload_others(folder: Path) -> None:
    """Uploads what other runs beside this one have left for the same store."""
    mine = {read_store(spool) for spool in spools(folder)}
    for other in run_folders(folder.parent):
        wanted = [spool for spool in spools(other) if pending(spool) and read_store(spool) in mine]
        if other != folder and wanted:
            with only_uploader(other) as alone:
                if alone:
                    for problem in upload_run(other, _exclude_timing):
                        print(f"{other}: {problem}", flush=True)


@contextmanager
def _exclude_timing() -> Iterator[None]:
    """Enters a section in which no run on this host times a kernel, as for builds."""
    lock = HostLock()
    try:
        while not lock.acquire("build", 0.0):
            time.sleep(0.1)
        yield
    finally:
        lock.close()
