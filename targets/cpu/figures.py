"""Probed figures of this host's processor, kept in a file of the user's cache folder after the first probe.

Every process takes the same figures from it, so that a choice without measurements is the same each time. A probe that
other programs disturbed holds for an hour. The file is JSON, and a run's folder has a copy of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

from search_space.files import replace_file
from search_space.folders import cache_folder
from targets.cpu.caches import host_caches
from targets.cpu.probe import ProbeFigures

log = logging.getLogger(__name__)

VERSION = 5
"""Version of the figures and of their measurement; figures of another version are measured anew."""

DISTURBED_SECONDS = 3600.0
"""Seconds after which the figures of a disturbed probe are measured again."""

TIMEOUT = 60.0  # seconds of the probe's process, which takes about one
_ROOT = Path(__file__).resolve().parents[2]
_IDENTITY = ("vendor_id", "model name", "cpu family", "model", "stepping", "microcode")
_ARM = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision")


class FiguresError(ValueError):
    """A file that holds no figures of this processor."""


@cache
def processor_identity() -> dict[str, str]:
    """Reads name, family, model, stepping and microcode of the first core from the system."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    first = dict(line.partition(":")[::2] for line in text.split("\n\n")[0].splitlines())
    facts = {name.strip(): value.strip() for name, value in first.items()}
    return {name: facts[name] for name in (*_IDENTITY, *_ARM) if name in facts}


def load_or_probe(lanes: int, registers: int, cores: Sequence[int]) -> ProbeFigures:
    """Returns the figures of this host, and measures them if they are not known yet.

    Args:
        lanes: float32 elements of a vector register.
        registers: vector registers.
        cores: logical cores that this process may use.
    """
    path = figures_path(lanes, registers, cores)
    figures = _read_saved(path)
    if figures is not None:
        return figures
    with _lock(path):
        figures = _read_saved(path)  # another process may have been faster
        return figures or probe_again(lanes, registers, cores)


def probe_again(lanes: int, registers: int, cores: Sequence[int]) -> ProbeFigures:
    """Measures the figures, and keeps them.

    Raises:
        RuntimeError: the probe's process fails.
    """
    numbers = [lanes, registers, len(cores), physical_cores(cores), *host_caches().sizes]
    command = [sys.executable, "-m", "targets.cpu.probe", *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT, cwd=_ROOT)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise RuntimeError(f"the probe of the processor must end with code 0, but got {done.returncode}: {last}")
    found = from_json(json.loads(done.stdout))
    save(found, figures_path(lanes, registers, cores))
    return found


def save(figures: ProbeFigures, path: Path) -> None:
    """Writes figures whole or not at all, for this user alone; a folder that cannot be written costs the next probe."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, json.dumps(to_json(figures), indent=1).encode(), private=True)
    except OSError as error:
        log.warning("the processor's figures cannot be kept in %s: %s", path, error.strerror)


def load(path: Path) -> ProbeFigures:
    """Reads the figures of a file.

    Raises:
        FiguresError: the file holds no figures, or those of another processor.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FiguresError(f"{path}: figures of a processor must be a JSON file, but {error}") from None
    if not isinstance(document, dict):
        raise FiguresError(f"{path}: figures of a processor must be an object, but got {type(document).__name__}")
    if document.get("version") != VERSION or document.get("processor") != processor_identity():
        raise FiguresError(f"{path}: figures must be of this processor and of version {VERSION}, but they are not")
    try:
        return from_json(document.get("figures"))
    except ValueError as error:
        raise FiguresError(f"{path}: {error}") from None


def to_json(figures: ProbeFigures) -> dict[str, Any]:
    """Converts figures to the form that `load` reads, with the identity of their processor."""
    return {"version": VERSION, "processor": processor_identity(), "figures": asdict(figures)}


def from_json(data: object) -> ProbeFigures:
    """Makes figures from their fields.

    Raises:
        ValueError: a field that is missing, unknown or no positive number.
    """
    names = [field.name for field in fields(ProbeFigures)]
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise ValueError(f"figures must be {', '.join(names)}, but got {data!r:.200}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name == "disturbed":
            values[name] = bool(value)
        elif name in ("one", "each") and isinstance(value, list) and len(value) == 3:
            values[name] = tuple(_positive(name, part) for part in value)
        else:
            values[name] = _positive(name, value)
    return ProbeFigures(**values)


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"`{name}` must be a positive number, but got {name}={value!r:.60}")
    return float(value)


def figures_path(lanes: int, registers: int, cores: Sequence[int]) -> Path:
    """Returns the path of a file of figures, which depends on processor, vectors, cores and version."""
    key = json.dumps([VERSION, processor_identity(), lanes, registers, len(cores), host_caches().sizes])
    return cache_folder() / f"processor-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def physical_cores(cores: Sequence[int], system: Path = Path("/sys/devices/system/cpu")) -> int:
    """Counts cores with units of their own among logical ones."""
    siblings = set()
    for core in cores:
        try:
            siblings.add((system / f"cpu{core}" / "topology" / "thread_siblings_list").read_text().strip())
        except OSError:
            siblings.add(str(core))
    return len(siblings)


def _read_saved(path: Path) -> ProbeFigures | None:
    """Reads the figures of a file that only this user can write; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        return None
    try:
        found = load(path)
    except FiguresError:
        return None
    return None if found.disturbed and time.time() - status.st_mtime > DISTURBED_SECONDS else found


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lets one process probe at a time, as far as the folder can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
