"""Pretrained models, which predict before any measurement of a task: one is in the package, others are files.

Its imports are light, so that a process whose choices are all in a cache does not load a model.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.models.errors import CostModelError

if TYPE_CHECKING:
    from costmodel.models.base import CostModel

SHIPPED_MODEL = "shipped"
NONE = "none"
SHIPPED_FILE = Path(__file__).parent / "shipped.npz"


def open_pretrained(name: str, target: str) -> CostModel | None:
    """Opens the model of a name; returns None unless it has learned of a target's kind.

    Args:
        name: `shipped`, `none`, or a file that `autotune costmodel pretrain` wrote.
        target: name of the target; `cpu` and `cpu:haswell` are of one kind.

    Raises:
        CostModelError: the file cannot be read.
    """
    file = _file(name)
    if file is None:
        return None
    kinds, model = _read(file, *_version(file))
    return model if target.partition(":")[0] in kinds else None


def compute_digest(name: str) -> str:
    """Returns twelve hexadecimal digits that identify the model of a name; empty for `none`.

    Raises:
        CostModelError: the file cannot be read.
    """
    file = _file(name)
    return "" if file is None else _digest(file, *_version(file))


def _file(name: str) -> Path | None:
    if name == NONE:
        return None
    return SHIPPED_FILE if name == SHIPPED_MODEL else Path(name).expanduser()


def _version(file: Path) -> tuple[int, int]:
    """Returns the time of change in nanoseconds and the size of a file, by which cached contents are recognised.

    Raises:
        CostModelError: the file does not exist.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise CostModelError(
            f"`pretrained` must be {SHIPPED_MODEL}, {NONE} or a file that `autotune costmodel pretrain` wrote, but got "
            f"{str(file)!r}: {error.strerror}"
        ) from None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=2)
def _digest(file: Path, modified_at: int, size: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


@lru_cache(maxsize=2)
def _read(file: Path, modified_at: int, size: int) -> tuple[frozenset[str], CostModel]:
    from costmodel.pretrained.file import read

    return read(file)
