"""A tracking store in memory that can be away, at any call, before or after the call took effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.tracking.store import Input, MetricPoint, StoreError, TrackingStore


class World:
    """The state of a server, shared by all clients.

    Attributes:
        runs: id → what is known of it, as plain data that can be compared.
        calls: made so far.
        fails: number of a call → whether it takes effect before it fails.
    """

    def __init__(self, fails: Mapping[int, bool] | None = None) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.calls = 0
        self.fails = dict(fails or {})

    def store(self, name: str) -> Any:
        """Returns a factory of stores, in place of the one that `registry.get` returns."""
        return lambda uri, experiment: FakeStore(uri, experiment, self)

    def do(self, effect: Callable[[], None]) -> None:
        self.calls += 1
        late = self.fails.get(self.calls)
        if late is not False:
            effect()
        if late is not None:
            raise StoreError(f"call {self.calls} fails")


class FakeStore(TrackingStore):
    def __init__(self, uri: str, experiment: str, world: World) -> None:
        self.world, self.experiment = world, experiment

    def open_run(
        self,
        key: str,
        name: str,
        time_ms: int,
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
        parent: str | None,
    ) -> str:
        run = f"id of {key}"
        fresh = {"name": name, "start": time_ms, "tags": dict(tags), "parent": parent, "experiment": self.experiment}
        empty: dict[str, Any] = {"parameters": {}, "points": set(), "files": {}, "inputs": set()}
        self.world.do(lambda: self.world.runs.setdefault(run, {**fresh, **empty}).update(status="RUNNING", end=None))
        self.log_parameters(run, parameters)
        return run

    def log_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        def effect() -> None:
            there = self.world.runs[run]["parameters"]
            for name, value in parameters.items():
                if there.setdefault(name, value) != value:
                    self.world.runs[run]["tags"][f"resumed.{name}"] = value

        self.world.do(effect)

    def log_metrics(self, run: str, points: Sequence[MetricPoint]) -> None:
        self.world.do(lambda: self.world.runs[run]["points"].update(points))

    def log_tags(self, run: str, tags: Mapping[str, str]) -> None:
        self.world.do(lambda: self.world.runs[run]["tags"].update(tags))

    def log_file(self, run: str, path: Path, folder: str) -> None:
        content = path.read_bytes()
        self.world.do(lambda: self.world.runs[run]["files"].update({f"{folder}/{path.name}": content}))

    def log_model(self, run: str, path: Path, kind: str) -> None:
        self.log_file(run, path, f"model {kind}")

    def register_model(self, run: str, name: str) -> str:
        self.world.do(lambda: self.world.runs[run].update(registered=name))
        return f"{name}/1"

    def log_input(self, run: str, data: Input) -> None:
        self.world.do(lambda: self.world.runs[run]["inputs"].add(data))

    def set_status(self, run: str, status: str, time_ms: int | None) -> None:
        self.world.do(lambda: self.world.runs[run].update(status=status, end=time_ms))
