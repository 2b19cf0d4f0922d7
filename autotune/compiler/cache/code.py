"""Which code makes what the cache keeps: a digest of it, so that nothing outlives the version that made it."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("search_space", "targets", "costmodel", "autotune")
LIBRARIES = ("llvmlite", "numpy")
"""Others that what is made depends on: machine code, and random draws."""
_ROOT = Path(__file__).resolve().parents[3]


@cache
def code_digest() -> str:
    """Of all sources of the packages, and of the versions of the libraries, once a process."""
    found = hashlib.sha256()
    for name in LIBRARIES:
        found.update(f"{name} {version(name)}\n".encode())
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            data = path.read_bytes()
            found.update(f"{path.relative_to(_ROOT)} {len(data)}\n".encode() + data)
    return found.hexdigest()
