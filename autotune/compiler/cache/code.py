"""Digest of the code that fills the cache, so that no entry outlives the version that made it."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("search_space", "targets", "costmodel", "autotune")
LIBRARIES = ("llvmlite", "numpy")
"""Libraries that entries depend on as well: for machine code, and for random draws."""
_ROOT = Path(__file__).resolve().parents[3]


@cache
def code_digest() -> str:
    """Computes the digest of all sources of the packages, and of the versions of the libraries, once per process."""
    code = hashlib.sha256()
    for name in LIBRARIES:
        code.update(f"{name} {version(name)}\n".encode())
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            data = path.read_bytes()
            code.update(f"{path.relative_to(_ROOT)} {len(data)}\n".encode() + data)
    return code.hexdigest()
