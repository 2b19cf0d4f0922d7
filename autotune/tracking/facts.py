"""Facts about a run: parameters, tags and final metrics, made of its configuration and its summary."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from autotune import __version__
from autotune.config import RunConfig
from autotune.naming import leaves
from measure.host import describe_host

if TYPE_CHECKING:
    from autotune.tuner.task_tuning import TaskTuning

DATABASE = "mlflow.db"
"""The embedded store: a file beside the run folders."""

URI_VARIABLE = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_ROOT = Path(__file__).parents[2]


def store_uri(config: RunConfig) -> str:
    """Chooses the store of a run: the configuration's, else the environment's, else a database beside the run folder.

    Raises:
        ValueError: neither a file of SQLite nor a server, or one with a password in it.
    """
    given = config.tracking.uri or os.environ.get(URI_VARIABLE)
    return database_uri(config.folder.absolute().parent) if given is None else checked_uri(given)


def database_uri(folder: Path) -> str:
    """Returns the address of the embedded store for the runs in a folder."""
    return f"{_SQLITE}{folder.absolute() / DATABASE}"


def database_file(uri: str) -> Path | None:
    """Returns the file of an embedded store; None for the address of a server."""
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def checked_uri(uri: str) -> str:
    """Checks an address, and makes the path of a file absolute.

    Raises:
        ValueError: neither a file of SQLite nor a server, or one with a password in it.
    """
    path = database_file(uri)
    if path is not None and path.name:
        return f"{_SQLITE}{path.absolute()}"
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"`uri` must be sqlite:///FILE or http[s]://HOST[:PORT], but got uri={uri!r}")
    if parts.password is not None:
        raise ValueError(
            "`uri` must hold no password, for it is shown and stored; MLflow reads MLFLOW_TRACKING_USERNAME and "
            f"MLFLOW_TRACKING_PASSWORD, but got one for {parts.hostname}"
        )
    return uri


def run_parameters(config: RunConfig) -> dict[str, str]:
    """Lists the parameters of a run: configuration, host, code version."""
    said: dict[str, Any] = {**config.model_dump(mode="json"), "host": describe_host(), "version": code_version()}
    return flat(said)


def run_tags(where: str) -> dict[str, str]:
    """Makes the tags of a run that MLflow's browser reads."""
    tags = {"mlflow.source.name": f"autotune run {where}", "mlflow.source.type": "LOCAL", "mlflow.user": _user()}
    commit = code_version().get("commit")
    return {**tags, **({"mlflow.source.git.commit": commit.removesuffix("-dirty")} if commit else {})}


def run_name(config: RunConfig, now: time.struct_time) -> str:
    """Makes a name that distinguishes a run within its experiment: `evolution 64 seed 3, 11-28 09:15`.

    Strategy and trials begin it. Other values follow if they are not the default, and the seed if it is given.
    """
    search, network = config.search, config.network
    usual = RunConfig.model_fields
    words = [
        config.name if config.tracking.experiment not in (None, config.name) else "",
        f"{_short(search.strategy)} {config.trials}" if config.trials else "no trials",
        "+".join(search.algorithms or ()),
        network.precision if network.precision != "float32" else "",
        network.quantise or "",
        _short(config.cost_model.name) if config.cost_model.name != usual["cost_model"].default.name else "",
        config.target if config.target != usual["target"].default else "",
        f"seed {config.seed}" if "seed" in config.model_fields_set else "",
    ]
    return f"{' '.join(filter(None, words))}, {time.strftime('%m-%d %H:%M', now)}"


def result_tags(document: Mapping[str, Any]) -> dict[str, str]:
    """Makes tags of a run's results: the algorithms of its tasks, the most frequent first, and the precision."""
    counts: Counter[str] = Counter()
    for entry in document["tasks"]:
        if entry["algorithm"]:
            counts[entry["algorithm"]] += entry["weight"]
    algorithms = ", ".join(name for name, _ in counts.most_common())
    precision = (document.get("network") or {}).get("precision")
    return {name: text for name, text in (("algorithm", algorithms), ("precision", precision)) if text}


def task_parameters(tuning: TaskTuning) -> dict[str, str]:
    """Lists the parameters of a task's run."""
    workload, settings = tuning.task.workload, tuning.settings
    return flat(
        {
            "workload": workload.to_json(),
            "workload_key": workload.key,
            "weight": tuning.task.weight,
            "flops": workload.flops,
            "target": settings.target.name,
            "threads": settings.threads,
            "cache": settings.measure.cache,
            "seed": settings.seed,
        }
    )


def final_metrics(entry: Mapping[str, Any]) -> dict[str, float | None]:
    """Collects metrics of a task's entry in the summary; the curve of `best_seconds` ends with the trials."""
    names = ("gflops", "peak_share", "spread", "reference_seconds", "trials_per_second")
    figures = headline(entry["best_seconds"], entry["reference_seconds"])
    return {**{name: entry[name] for name in (*names, "candidates_per_second")}, **figures}


def run_metrics(document: Mapping[str, Any]) -> dict[str, float | None]:
    """Collects the figures for the list of runs: of a network as one executable, or the sum of its tasks.

    The rate is that of the tasks, whose operations are known. The spread is that of a network, or of a lone task.
    """
    network, tasks = document.get("network"), document["tasks"]
    seconds, reference = (_sum_of_tasks(tasks, name) for name in ("best_seconds", "reference_seconds"))
    work = [entry["weight"] * entry["gflops"] * entry["best_seconds"] for entry in tasks] if seconds else []
    rate = sum(work) / seconds if seconds else None
    spread = tasks[0]["spread"] if len(tasks) == 1 else None
    if network and network["seconds"] is not None:
        seconds, reference, spread = network["seconds"], network["reference_seconds"], network["spread"]
    return {**headline(seconds, reference), "gflops": _digits(rate, 4), "spread": _digits(spread, 3)}


def headline(seconds: float | None, reference: float | None) -> dict[str, float | None]:
    """Computes the latency in milliseconds, and the speed-up over the reference; None for an unknown one."""
    ratio = reference / seconds if seconds and reference else None
    return {"latency_ms": _digits(seconds and seconds * 1e3, 6), "ratio": _digits(ratio, 4)}


def network_metrics(network: Mapping[str, Any]) -> dict[str, float]:
    """Collects all numbers in the `network` part of the summary."""
    return {
        _replace_forbidden(f"network.{name}"): float(value)
        for name, value in leaves(network)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


@cache
def code_version() -> dict[str, str]:
    """Reads the version of the package, and its commit in a checkout, with `-dirty` after it if files were changed."""
    version = {"package": __version__}
    if (_ROOT / ".git").exists():
        command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--match="]
        try:
            answer = subprocess.run(
                command, capture_output=True, encoding="utf-8", errors="replace", timeout=5, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return version
        version["commit"] = answer.stdout.strip()
    return version


def flat(nested: Mapping[str, Any]) -> dict[str, str]:
    """Flattens nested data to texts by dotted name, in characters that MLflow allows in names."""
    return {
        _replace_forbidden(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in leaves(nested)
    }


def _sum_of_tasks(tasks: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Adds up a value in seconds, each task's as often as it occurs; None if a task lacks it."""
    values = [entry[name] and entry["weight"] * entry[name] for entry in tasks]
    return None if None in values else sum(values)


def _digits(value: float | None, digits: int) -> float | None:
    """Rounds a value to so many significant digits, as a column of the list of runs shows it."""
    return None if value is None else float(f"{value:.{digits}g}")


def _short(name: Any) -> str:
    """Shortens the name of a class in a file or a module to the class; a registry's name stays."""
    text = name.__name__ if isinstance(name, type) else str(name)
    return text.rpartition(":")[2][:24]


def _replace_forbidden(name: str) -> str:
    return re.sub(r"[^\w./ :-]", "_", name)[:250]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
