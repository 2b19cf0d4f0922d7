"""The driver's side of tracking: a callback that writes what happens to the spool, and starts the uploader."""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from autotune.config import ConfigError, RunConfig
from autotune.naming import file_name
from autotune.tracking import facts, registry
from autotune.tracking.launch import Uploads, wait
from autotune.tracking.spool import EVENTS, SpoolError, Writer, read_state, read_store, spool_for, spools
from autotune.tuner.callbacks import Callback, Progress
from costmodel.models.errors import CostModelError
from measure.errors import RecordError
from measure.notices import notice_if_slow
from measure.record import Record

if TYPE_CHECKING:
    from autotune.tuner.result import TuneResult
    from autotune.tuner.task_tuning import TaskTuning

LIVE_AFTER = 60.0
"""Seconds of an operator's run after which uploading begins: MLflow's import then costs a few hundredths of it."""


class Tracker(Callback):
    """Tracks nothing; base of what does. Used as a context around a run, whose exceptions it notes."""

    def begin(self, folder: Path, resume: bool) -> None:
        """Begins to track a run in this folder."""

    def finish(self, folder: Path, document: Mapping[str, Any], interrupted: bool, seconds: float) -> str:
        """Finishes a run whose files are written; returns a remark for the user, or "".

        Args:
            folder: the run folder.
            document: the summary.
            interrupted: whether the user stopped it early.
            seconds: wall time of the run.
        """
        return ""

    def settle(self) -> str:
        """Waits until the store has what `finish` wrote; what the user should know of, or ""."""
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Notes an exception that ends the run."""


def make_tracker(config: RunConfig, where: str, say: Callable[[str], None]) -> Tracker:
    """Makes the tracker of a run.

    Raises:
        ConfigError: an unknown backend, or a URI that cannot be one.
    """
    try:
        backend = registry.choose_backend(config.tracking.backend)
        if registry.BACKENDS[backend] is None:
            if not registry.find_setting(config.tracking.backend):
                if config.tracking.uri is not None:
                    registry.choose_backend(registry.DEFAULT)  # says what is missing
                say(f"the run is not tracked: {registry.explain_absence()}")
            return Tracker()
        return SpoolTracker(config, where, backend, facts.store_uri(config), say)
    except ValueError as error:
        raise ConfigError(str(error), "tracking") from None


class SpoolTracker(Tracker):
    """Tracks through a spool. A failed write ends the tracking, never the run.

    Args:
        config: configuration of the run.
        where: name of its file.
        backend: a name of `registry.BACKENDS`.
        uri: address of the store.
        say: shows a sentence to the user.
    """

    def __init__(self, config: RunConfig, where: str, backend: str, uri: str, say: Callable[[str], None]) -> None:
        self._config, self._where, self._backend, self._uri, self._say = config, where, backend, uri, say
        self._writer: Writer | None = None
        self._uploads = Uploads(backend)
        self._folder: Path | None = None
        given, by_default = config.tracking.live_after_s, LIVE_AFTER if config.model is None else 0.0
        self._after = by_default if given is None else given  # seconds of the run after which uploading begins
        self._patience = config.tracking.wait_s  # seconds
        self._problem = ""
        self._tunings: Sequence[TaskTuning] = ()
        self._errors: dict[str, Counter[str]] = {}  # task → error class → trials
        self._points: dict[tuple[str, str], list[list[float | int]]] = {}  # task, metric → step, value, Unix ms
        self._best: dict[str, float] = {}  # task → seconds of the best candidate by now
        self._began = 0.0

    def __enter__(self) -> Self:
        """Prepares to upload while the run prepares to measure."""
        if not self._after:
            self._uploads.prepare()
        return self

    def begin(self, folder: Path, resume: bool) -> None:
        self._began = time.monotonic()
        try:
            spool = spool_for(folder, resume)
            if (spool / EVENTS).exists() and read_store(spool) not in (None, (self._backend, self._uri)):
                spool = spool_for(folder, resume=False)  # a run of another store cannot go on in this one
            self._writer = Writer(spool)
        except (OSError, SpoolError) as error:
            self._stop(error)
            return
        self._folder = folder
        parameters = facts.run_parameters(self._config)
        if self._writer.fresh:
            self._write(
                {
                    "event": "run",
                    "key": uuid.uuid4().hex,
                    "backend": self._backend,
                    "uri": self._uri,
                    "experiment": self._config.tracking.experiment or self._config.name,
                    "name": facts.run_name(self._config, time.localtime()),
                    "parameters": parameters,
                    "tags": facts.run_tags(self._where),
                }
            )
        else:
            self._write({"event": "resume", "parameters": parameters})
        self._upload_if_due()

    def on_start(self, tasks: Sequence[TaskTuning]) -> None:
        self._tunings = tasks
        for tuning in tasks:
            self._errors[tuning.task.name] = Counter(str(r.error) for r in tuning.records if not r.ok)
            self._best[tuning.task.name] = tuning.fastest
            self._write({"event": "task", "task": tuning.task.name, "parameters": facts.task_parameters(tuning)})

    def on_trial(self, progress: Progress, record: Record) -> None:
        if record.ok:
            self._point(progress.task, "trial_seconds", record.provenance.order, record.seconds)
        else:
            self._errors[progress.task][str(record.error)] += 1
        self._best[progress.task] = progress.best_seconds
        self._point(progress.task, "best_seconds", progress.task_trials, progress.best_seconds)
        self._point("", "best_seconds", progress.trials, self._seconds())

    def on_round(self, progress: Progress) -> None:
        self._series()
        values = {
            "trials": progress.task_trials,
            "rank_accuracy": progress.rank_accuracy,
            **{f"errors.{name}": count for name, count in self._errors[progress.task].items()},
        }
        self._metrics(progress.task, progress.task_trials, values)
        errors = sum(self._errors.values(), Counter())
        counts = {f"errors.{name}": count for name, count in errors.items()}
        self._metrics(
            "", progress.trials, {"trials": progress.trials, "rank_accuracy": progress.rank_accuracy, **counts}
        )
        self._upload_if_due()

    def on_finish(self, results: Sequence[TuneResult]) -> None:
        if self._writer is None:
            return
        for tuning in self._tunings:
            if not tuning.scorer.is_fitted:
                continue
            path = self._writer.folder / "cost_model" / f"{file_name(tuning.task.name)}.txt"
            try:
                path.parent.mkdir(exist_ok=True)
                tuning.scorer.model.save(path)
            except (OSError, CostModelError) as error:
                self._stop(error)
                return
            kind = tuning.settings.cost_model.name
            self._write({"event": "model", "task": tuning.task.name, "kind": kind, "path": str(path.absolute())})

    def finish(self, folder: Path, document: Mapping[str, Any], interrupted: bool, seconds: float) -> str:
        for entry in document["tasks"]:
            self._metrics(entry["name"], entry["trials"], facts.final_metrics(entry))
            self._tags(entry["name"], {"algorithm": entry["algorithm"], "errors": entry["errors"]})
        network = document.get("network")
        total = sum(entry["trials"] for entry in document["tasks"])
        self._metrics("", total, {"wall_seconds": seconds, **facts.run_metrics(document)})
        self._metrics("", total, facts.network_metrics(network) if network else {})
        self._tags("", facts.result_tags(document))
        self._report(folder)
        if self._config.records_path.exists():  # without trials there are none
            self._write({"event": "file", "task": "", "to": "", "grows": True, **_stamp(self._config.records_path)})
        for task, path, place in _files(folder, document):
            self._write({"event": "file", "task": task, "to": place, **_stamp(path)})
        for path, context in self._inputs():
            data = {"name": path.name, "digest": _digest(path), "source": str(path.absolute()), "context": context}
            self._write({"event": "input", **data})
        self._end("KILLED" if interrupted else "FINISHED", [entry["name"] for entry in document["tasks"]])
        return self._problem

    def settle(self) -> str:
        """Waits as `Tracker`; neither Ctrl-C nor the end of the waiting ends the upload, a process of its own."""
        if self._folder is None or not spools(self._folder):
            return ""
        self._uploads.start(self._folder)
        if self._problem:
            return ""
        spool, limit = spools(self._folder)[-1], self._patience
        show, track = f"`autotune ui {self._folder}`", f"`autotune track {self._folder}`"
        try:
            with notice_if_slow(f"uploading to {self._uri}, for at most {limit:g} s", self._say):
                done = wait(spool, limit, partial(self._uploads.at_work, self._folder))
        except KeyboardInterrupt:
            done = False
        if done:
            self._say(f"tracked in {self._uri}; {show} shows it")
        elif self._uploads.at_work(self._folder):
            self._say(f"being uploaded to {self._uri} by a process of its own; {show} shows it, {track} waits for it")
        else:
            why = read_state(spool).problem or "the process that uploads has ended"
            return f"not tracked yet: {why}; {track} uploads what was missed"
        return ""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Notes an exception that ends the run."""
        self._uploads.stop()
        if self._writer is None:
            return
        if value is not None:
            self._tags("", {"exception": f"{type(value).__name__}: {value}"})
            killed = isinstance(value, KeyboardInterrupt | SystemExit)
            self._end("KILLED" if killed else "FAILED", [tuning.task.name for tuning in self._tunings])
            if self._folder is not None:
                self._uploads.start(self._folder)
            if not killed and (note := self.settle()):
                self._say(note)
        self._close()

    def _seconds(self) -> float:
        """Adds up the tasks' best latencies, each as often as it occurs; NaN while a task has none."""
        return sum(tuning.task.weight * self._best[tuning.task.name] for tuning in self._tunings)

    def _point(self, task: str, name: str, step: int, value: float) -> None:
        """Keeps a value of a curve, if it is finite, until `_series` writes it."""
        if math.isfinite(value):
            self._points.setdefault((task, name), []).append([step, value, _milliseconds()])

    def _series(self) -> None:
        """Writes the points of all curves since the last call, an event a curve."""
        for (task, name), points in self._points.items():
            self._write({"event": "series", "task": task, "name": name, "points": points})
        self._points.clear()

    def _report(self, folder: Path) -> None:
        """Writes the report of the run, where anything is tracked still; the store shows the page in place."""
        if self._writer is None:
            return
        from autotune.report.html import write_report

        try:
            write_report([folder])
        except (ConfigError, RecordError, OSError) as error:
            self._say(f"no report: {error}")

    def _inputs(self) -> Iterator[tuple[Path, str]]:
        """Lists the data that went into the run, and its purpose."""
        pool, _, path = str(self._config.measure.pool).partition(":")
        if pool == "replay":
            yield Path(path), "replay"
        model = self._config.model
        if model is not None and Path(model).is_file():
            yield Path(model), "model"

    def _metrics(self, task: str, step: int, values: Mapping[str, float | None]) -> None:
        """Writes those of the values that are finite."""
        finite = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
        if finite:
            self._write({"event": "metrics", "task": task, "step": step, "values": finite})

    def _tags(self, task: str, tags: Mapping[str, Any]) -> None:
        self._write({"event": "tags", "task": task, "tags": facts.flat(tags)})

    def _end(self, status: str, tasks: Sequence[str]) -> None:
        self._series()
        for task in (*tasks, ""):
            self._write({"event": "end", "task": task, "status": status})
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, event: Mapping[str, Any]) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write({"time_ms": _milliseconds(), **event})
        except OSError as error:
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        """Stops tracking, as the disk is full or another run writes here; the run continues, and says so at its end."""
        self._problem = f"not tracked from {time.strftime('%H:%M:%S')} on: {error}"
        self._close()

    def _upload_if_due(self) -> None:
        if self._folder is not None and time.monotonic() - self._began >= self._after:
            self._uploads.start(self._folder)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _files(folder: Path, document: Mapping[str, Any]) -> Iterator[tuple[str, Path, str]]:
    """Lists task, path, and folder in the store, of the files of a run besides its records."""
    for name in ("report.html", "summary.json", "curve.png", "roofline*.png"):
        for path in sorted(folder.glob(name)):
            yield "", path, ""
    for entry in document["tasks"]:
        if entry["trace"] is not None:
            for path in sorted((folder / "best" / file_name(entry["name"])).glob("*")):
                yield entry["name"], path, "best"


def _stamp(path: Path) -> dict[str, Any]:
    """Returns the path of a file with facts that change when the file does."""
    status = path.stat()
    return {"path": str(path.absolute()), "bytes": status.st_size, "changed_ns": status.st_mtime_ns}


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
