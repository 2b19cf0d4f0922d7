"""Models of the lab in a tracking store: a run for each, its metrics, its files, and the model in the registry."""

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
from autotune.tracking import facts
from autotune.tracking import registry as stores
from autotune.tracking.store import Point, Store
from costmodel.evaluate import Comparison
from costmodel.protocol import Study
from costmodel.protocol.intervals import METRICS
from measure.host import describe_host
from search_space.scratch import ScratchFolder

EXPERIMENT = "cost models"


def store_of(backend: str | None, uri: str | None) -> Store | None:
    """The store of a command; None where nothing is tracked.

    Args:
        backend: a name of `autotune.tracking.registry`, or None for the usual one.
        uri: of the store; by default a database in `runs`.

    Raises:
        ConfigError: no such backend, or a URI that cannot be one.
        StoreError: the store is away, or refuses.
    """
    try:
        name = stores.chosen(backend)
        if stores.BACKENDS[name] is None:
            return None
        place = facts.checked_uri(uri) if uri else facts.database_uri(Path("runs"))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return stores.get(name)(place, EXPERIMENT)


def registered_name(model: str) -> str:
    """What a model is called in the store's registry of models."""
    return "autotune-" + re.sub(r"[^\w.-]+", "-", model)


def track(store: Store, title: str, about: Mapping[str, Any], rows: Sequence[Comparison]) -> list[str]:
    """Logs models and their metrics; several are runs of one run, which holds their table.

    Args:
        store: where to.
        title: of the run.
        about: what was done, as plain data.
        rows: the models.

    Returns:
        Of each model, its name and version in the registry.

    Raises:
        StoreError: the store is away, or refuses.
    """
    key, tags = uuid.uuid4().hex, facts.run_tags("costmodel")
    common = facts.flat({**about, "host": describe_host(), "version": facts.code_version()})
    parent = None
    if len(rows) != 1:
        parent = store.open_run(key, title, _now(), tags, common, None)
        with ScratchFolder("table") as folder:
            table = Path(folder) / "models.json"
            table.write_text(json.dumps({**about, "models": [row.to_json() for row in rows]}, indent=2) + "\n")
            store.log_file(parent, table, "")
    found = []
    for row in rows:
        name = row.name if parent else title
        own = {**common, **facts.flat({"cost_model": row.name, "options": row.options})}
        run = store.open_run(f"{key}/{row.name}", name, _now(), tags, own, parent)
        store.log_metrics(run, _points(row.to_json()))
        with ScratchFolder("model") as folder:
            learned = Path(folder) / "model.txt"
            row.model.save(learned)
            store.log_model(run, learned, row.name)
        found.append(store.register_model(run, registered_name(row.name)))
        store.set_status(run, "FINISHED", _now())
    if parent:
        store.set_status(parent, "FINISHED", _now())
    return found


def track_study(store: Store, title: str, of: Study, plots: Path | None) -> None:
    """Logs a study: a run of it all with its figures and pictures, and in it one for each model.

    Raises:
        StoreError: the store is away, or refuses.
    """
    key, tags, document = uuid.uuid4().hex, facts.run_tags("costmodel"), of.to_json()
    about = {name: document[name] for name in ("role", "registered", "seeds", "learned_from", "networks")}
    common = facts.flat({**about, "host": describe_host(), "version": facts.code_version()})
    parent = store.open_run(key, title, _now(), tags, common, None)
    with ScratchFolder("study") as folder:
        table = Path(folder) / "study.json"
        table.write_text(json.dumps(document, indent=1) + "\n")
        store.log_file(parent, table, "")
    for picture in () if plots is None else sorted(plots.glob("*.png")):
        store.log_file(parent, picture, "")
    for name, one in of.learned.items():
        run = store.open_run(f"{key}/{name}", name, _now(), tags, {**common, "cost_model": name}, parent)
        row: dict[str, float] = {}
        for metric in METRICS:
            value, low, high = of.held.tasks.estimate(metric, one.ranked)
            row |= {metric: value, f"{metric}.low": low, f"{metric}.high": high}
        known = [(metric, value) for metric, value in row.items() if math.isfinite(value)]
        store.log_metrics(run, [Point(metric, value, 0, _now()) for metric, value in known])
        store.set_status(run, "FINISHED", _now())
    store.set_status(parent, "FINISHED", _now())


def _points(row: Mapping[str, Any]) -> list[Point]:
    values = {**row, **{f"{name}.{k}": v for name, scores in row["networks"].items() for k, v in scores.items()}}
    return [
        Point(re.sub(r"[^\w./ :-]", "_", name), float(value), 0, _now())
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    ]


def _now() -> int:
    return time.time_ns() // 1_000_000
