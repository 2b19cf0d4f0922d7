"""The community's format for results, T4: a JSON file with configurations, their samples and the costs of measuring.

As Kernel Tuner writes it and the FAIR benchmark hub stores it, also compressed (`.gz`).
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.lab.dataset.measured_space import OK, MeasuredSpace
from costmodel.dataset.errors import DatasetError
from search_space.parameters import Parameter, ParameterSpace, T1Error, read_t1, write_t1

MOST_BYTES = 2 << 30
"""Most bytes of an uncompressed file."""
UNITS = {"seconds": 1.0, "milliseconds": 1e-3, "miliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
VERSION = "1.0.0"
INVALID = {"correctness": "wrong_result"}
"""Invalidity → class of failure, where their names differ."""
TIMES = ("compilation", "framework", "search_algorithm", "validation")


def read_t4(path: Path, space: Path | None = None) -> MeasuredSpace:
    """Reads a measured space from a T4 file.

    A configuration that occurs several times counts once, with its last result.

    Args:
        path: path of the results; compressed if it ends in `.gz`.
        space: a T1 file; None: parameters have the values that occur, and there are no restrictions.

    Raises:
        DatasetError: no such file, another form, or configurations that the space does not have.
    """
    document = _document(path)
    results = document.get("results") if isinstance(document, Mapping) else None
    if not isinstance(results, list) or not all(isinstance(r, Mapping) for r in results):
        raise DatasetError(f"{path.name} must be a T4 file with a list of `results`")
    metadata = document.get("metadata")
    unit = metadata.get("timeunit", "milliseconds") if isinstance(metadata, Mapping) else "milliseconds"
    if unit not in UNITS:
        raise DatasetError(f"`timeunit` of {path.name} must be one of {', '.join(UNITS)}, but got {unit!r}")
    last: dict[str, Mapping[str, Any]] = {}
    for result in results:
        configuration = result.get("configuration")
        if not isinstance(configuration, Mapping):
            raise DatasetError(f"a result of {path.name} must have a `configuration`, but got {dict(result)!r:.120}")
        last[json.dumps(configuration, sort_keys=True)] = result
    latest = list(last.values())
    try:
        searched_space = _make_space(path, latest) if space is None else read_t1(space)
        rows = searched_space.choices([result["configuration"] for result in latest])
    except (T1Error, ValueError) as error:
        raise DatasetError(f"{path.name}: {error}") from error
    samples = [_samples(path, result, UNITS[unit]) for result in latest]
    return MeasuredSpace(
        searched_space,
        rows,
        [latencies for latencies, _ in samples],
        [error for _, error in samples],
        np.array([_time(result, "compilation") for result in latest]) * UNITS[unit],
        np.array([_other_time(result, UNITS[unit], runs) for result, (runs, _) in zip(latest, samples, strict=True)]),
    )


def write_t4(measured_space: MeasuredSpace, path: Path, space: Path | None = None) -> None:
    """Writes results as T4, compressed where the name ends in `.gz`; and the space as T1 into `space`."""
    classes = {name: invalidity for invalidity, name in INVALID.items()}
    results = []
    for row in range(len(measured_space)):
        samples, error = measured_space.latencies[row], measured_space.errors[row]
        milliseconds = (np.asarray(samples) * 1e3).tolist()
        value = float(np.mean(milliseconds)) if milliseconds else None
        invalidity = "correct" if error == OK else classes.get(error, error)
        results.append(
            {
                "configuration": dict(measured_space.values(row)),
                "times": {
                    "compilation": float(measured_space.compile_seconds[row] * 1e3),
                    "framework": float(measured_space.other_seconds[row] * 1e3),
                    "search_algorithm": 0.0,
                    "validation": 0.0,
                    "runtimes": milliseconds,
                },
                "invalidity": invalidity,
                "correctness": float(error == OK),
                "measurements": [] if value is None else [{"name": "time", "value": value, "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    document = {"metadata": {"timeunit": "milliseconds"}, "schema_version": VERSION, "results": results}
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    if space is not None:
        write_t1(measured_space.space, space)


def _document(path: Path) -> Any:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} must be a T4 file, but got {error}") from error
    if len(data) > MOST_BYTES:
        raise DatasetError(f"{path.name} must have at most {MOST_BYTES} bytes unpacked, but has more")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path.name} must be JSON, but got {error}") from error


def _make_space(path: Path, results: Sequence[Mapping[str, Any]]) -> ParameterSpace:
    """Builds a space whose parameters have the values that occur."""
    names = dict.fromkeys(name for result in results for name in result["configuration"])
    parameters = []
    for name in names:
        given = [result["configuration"][name] for result in results if name in result["configuration"]]
        if wrong := [value for value in given if not isinstance(value, bool | int | float | str)]:
            raise ValueError(f"values of a configuration must be numbers or texts, but {name} has {wrong[0]!r:.80}")
        found = list(dict.fromkeys(given))
        comparable = len({isinstance(value, str) for value in found}) == 1
        parameters.append(Parameter(name, tuple(sorted(found) if comparable else found)))  # or says that it has both
    return ParameterSpace(path.name.partition(".")[0], tuple(parameters))


def _samples(path: Path, result: Mapping[str, Any], unit: float) -> tuple[np.ndarray[Any, Any], str]:
    """Returns seconds of each sample, and the class of the failure."""
    invalidity = result.get("invalidity", "correct")
    if not isinstance(invalidity, str):
        raise DatasetError(f"`invalidity` in {path.name} must be a text, but got {invalidity!r}")
    if invalidity != "correct":
        return np.empty(0), INVALID.get(invalidity, invalidity)
    times = result.get("times")
    runs = times.get("runtimes", []) if isinstance(times, Mapping) else []
    if not runs:
        runs = [m.get("value") for m in result.get("measurements", []) if m.get("name") == "time"]
    good = [run for run in runs if isinstance(run, int | float) and math.isfinite(run) and run > 0]
    if not good or len(good) != len(runs):
        raise DatasetError(
            f"a correct result of {path.name} must have positive `runtimes`, but got {runs!r:.80} "
            f"for {dict(result['configuration'])}"
        )
    return np.array(good, np.float64) * unit, OK


def _other_time(result: Mapping[str, Any], unit: float, runs: np.ndarray[Any, Any]) -> float:
    """Computes the seconds of measuring a configuration besides compilation and the listed runs.

    If the file has the time of all runs (`benchmark`), warming up, launches and observers are included.
    """
    others = sum(_time(result, name) for name in TIMES[1:]) * unit
    whole = _time(result, "benchmark") * unit
    return others + whole - float(np.sum(runs)) if whole else others


def _time(result: Mapping[str, Any], name: str) -> float:
    times = result.get("times")
    value = times.get(name, 0.0) if isinstance(times, Mapping) else 0.0
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0
