"""Interface of tracking stores. Every call may be repeated after a failure, and then changes nothing more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MetricPoint:
    """A value of a metric.

    Attributes:
        name: name of the metric.
        value: finite.
        step: place in the metric's history, such as a count of trials.
        time_ms: Unix milliseconds.
    """

    name: str
    value: float
    step: int
    time_ms: int


@dataclass(frozen=True)
class Input:
    """Data that went into a run.

    Attributes:
        name: name of the data.
        digest: digest of its content.
        source: its path or address.
        context: its purpose.
    """

    name: str
    digest: str
    source: str
    context: str


class StoreError(RuntimeError):
    """A store cannot be used now; the message says why in one sentence."""


class TrackingStore(ABC):
    """Runs, each with parameters, metrics, tags and files.

    Args:
        uri: address of the store.
        experiment: experiment of the runs, which is made if it does not exist.

    Raises:
        StoreError: the store is away, or refuses; raised by the constructor and by every method.
    """

    @abstractmethod
    def __init__(self, uri: str, experiment: str) -> None: ...

    @abstractmethod
    def open_run(
        self,
        key: str,
        name: str,
        time_ms: int,
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
        parent: str | None,
    ) -> str:
        """Opens the run with this key, or makes it if it does not exist, and returns its id; it is RUNNING then.

        Args:
            key: unique to the run, for all time.
            name: shown.
            time_ms: Unix milliseconds of its start.
            tags: tags of a new run.
            parameters: see `log_parameters`.
            parent: id of the run that it belongs to.
        """

    @abstractmethod
    def log_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        """Sets parameters. One that has another value already keeps it; the new one becomes the tag `resumed.NAME`."""

    @abstractmethod
    def log_metrics(self, run: str, points: Sequence[MetricPoint]) -> None:
        """Adds values of metrics."""

    @abstractmethod
    def log_tags(self, run: str, tags: Mapping[str, str]) -> None:
        """Sets tags, in place of those there were."""

    @abstractmethod
    def log_file(self, run: str, path: Path, folder: str) -> None:
        """Copies a file to `folder` of the run's files ("": the top)."""

    @abstractmethod
    def log_model(self, run: str, path: Path, kind: str) -> None:
        """Copies a saved cost model, such that the store's own tools can load it; `kind`: its name in the registry."""

    @abstractmethod
    def register_model(self, run: str, name: str) -> str:
        """Makes the model that `log_model` copied the next version of the model `name`; returns its name and version.

        A model of a run is one version, however often this is called.
        """

    @abstractmethod
    def log_input(self, run: str, data: Input) -> None:
        """Notes data that went into the run."""

    @abstractmethod
    def set_status(self, run: str, status: str, time_ms: int | None) -> None:
        """Sets RUNNING, FINISHED, FAILED or KILLED; `time_ms`: Unix milliseconds of the end, if it has ended."""
