"""Models of the lab in a tracking store: a run for each, its metrics and files; one that is kept is registered."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.config import ConfigError
from autotune.lab.evaluate import Comparison
from autotune.lab.protocol import Study
from autotune.tracking import facts
from autotune.tracking import registry as stores
from autotune.tracking.store import MetricPoint, TrackingStore
from autotune.tracking.view import LAB
from measure.host import describe_host
from search_space.scratch import ScratchFolder


def open_store(backend: str | None, uri: str | None) -> TrackingStore | None:
    """Opens the store of a command; None if nothing is tracked.

    Args:
        backend: a name of `autotune.tracking.registry`, or None for the usual one.
        uri: URI of the store; by default a database in `runs`.

    Raises:
        ConfigError: no such backend, or a URI that cannot be one.
        StoreError: the store is away, or refuses.
    """
    try:
        name = stores.choose_backend(backend)
        if stores.BACKENDS[name] is None:
            return None
        place = facts.checked_uri(uri) if uri else facts.database_uri(Path("runs"))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return stores.get(name)(place, LAB)


def registered_name(model: str) -> str:
    """Returns the model's name in the store's registry of models."""
    return "autotune-" + re.sub(r"[^\w.-]+", "-", model)


def track_model(store: TrackingStore, title: str, about: Mapping[str, Any], row: Comparison) -> str:
    """Logs a model that the user wants to keep, and registers it.

    Args:
        store: store to log to.
        title: title of the run.
        about: plain data about the training.
        row: the model.

    Returns:
        Its name and version in the store's registry of models.

    Raises:
        StoreError: the store is away, or refuses.
    """
    run = _track_row(store, uuid.uuid4().hex, title, facts.run_tags("costmodel"), _common(about), row, None)
    return store.register_model(run, registered_name(row.name))


def track_comparison(store: TrackingStore, title: str, about: Mapping[str, Any], rows: Sequence[Comparison]) -> None:
    """Logs compared models as child runs of one run, which holds their table; registers none of them.

    Args:
        store: store to log to.
        title: title of the run.
        about: plain data about the comparison.
        rows: the models.

    Raises:
        StoreError: the store is away, or refuses.
    """
    key, tags, common = uuid.uuid4().hex, facts.run_tags("costmodel"), _common(about)
    document = {**about, "models": [row.to_json() for row in rows]}
    parent = _open_parent(store, key, title, tags, common, "models.json", json.dumps(document, indent=2))
    for row in rows:
        _track_row(store, f"{key}/{row.name}", row.name, tags, common, row, parent)
    store.set_status(parent, "FINISHED", _now())


def track_study(store: TrackingStore, title: str, of: Study, plots: Path | None) -> None:
    """Logs a study: a run of it all with its figures and pictures, and in it one for each model.

    Raises:
        StoreError: the store is away, or refuses.
    """
    key, tags, document = uuid.uuid4().hex, facts.run_tags("costmodel"), of.to_json()
    about = {name: document[name] for name in ("role", "registered", "seeds", "learned_from", "networks")}
    common = _common(about)
    parent = _open_parent(store, key, title, tags, common, "study.json", json.dumps(document, indent=1))
    for picture in () if plots is None else sorted(plots.glob("*.png")):
        store.log_file(parent, picture, "")
    for name in of.models:
        run = store.open_run(f"{key}/{name}", name, _now(), tags, {**common, "cost_model": name}, parent)
        row: dict[str, float] = {}
        for metric, (value, low, high) in of.figures[name].items():
            row |= {metric: value, f"{metric}.low": low, f"{metric}.high": high}
        known = [(metric, value) for metric, value in row.items() if math.isfinite(value)]
        store.log_metrics(run, [MetricPoint(metric, value, 0, _now()) for metric, value in known])
        store.set_status(run, "FINISHED", _now())
    store.set_status(parent, "FINISHED", _now())


def _open_parent(
    store: TrackingStore, key: str, title: str, tags: Mapping[str, str], common: Mapping[str, str], file: str, text: str
) -> str:
    """Opens the run of which others are part, logs a file with them all to it, and returns its id."""
    parent = store.open_run(key, title, _now(), tags, common, None)
    with ScratchFolder("table") as folder:
        table = Path(folder) / file
        table.write_text(text + "\n")
        store.log_file(parent, table, "")
    return parent


def _track_row(
    store: TrackingStore,
    key: str,
    title: str,
    tags: Mapping[str, str],
    common: Mapping[str, str],
    row: Comparison,
    parent: str | None,
) -> str:
    """Logs a model as a run of its own: options, metrics and the model as text; the run's id."""
    own = {**common, **facts.flat({"cost_model": row.name, "options": row.options})}
    run = store.open_run(key, title, _now(), tags, own, parent)
    store.log_metrics(run, _points(row.to_json()))
    with ScratchFolder("model") as folder:
        learned = Path(folder) / "model.txt"
        row.model.save(learned)
        store.log_model(run, learned, row.name)
    store.set_status(run, "FINISHED", _now())
    return run


def _common(about: Mapping[str, Any]) -> dict[str, str]:
    """Returns the parameters common to all runs of a command."""
    return facts.flat({**about, "host": describe_host(), "version": facts.code_version()})


def _points(row: Mapping[str, Any]) -> list[MetricPoint]:
    values = {**row, **{f"{name}.{k}": v for name, scores in row["networks"].items() for k, v in scores.items()}}
    return [
        MetricPoint(re.sub(r"[^\w./ :-]", "_", name), float(value), 0, _now())
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    ]


def _now() -> int:
    return time.time_ns() // 1_000_000
