"""Packages outside the base installation: the extra that brings each, and the error message if one is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

PROJECT = "autotune-tensor"

EXTRAS: dict[str, tuple[str, ...]] = {
    "tune": ("lightgbm", "scipy"),
    "ray": ("ray",),
    "tracking": ("mlflow",),
    "lab": ("cmaes", "matplotlib", "optuna", "pandas", "pyarrow", "sklearn"),
    "onnx": ("onnxruntime",),
    "rpc": ("grpc",),
    "neural": ("torch",),
}
"""Extra → the modules of it that are imported here."""


class MissingExtra(ImportError, ValueError):
    """An error for a feature whose packages are not installed; the message names the extra that brings them."""


def require(what: str, module: str) -> None:
    """Checks that a module of `EXTRAS` is installed, without importing it.

    Raises:
        MissingExtra: it is not.
    """
    if why := missing(what, module):
        raise MissingExtra(why)


def missing(what: str, module: str) -> str:
    """Returns the error message for a module of `EXTRAS` that is not installed, "" for an installed one."""
    if (sys.modules[module] if module in sys.modules else find_spec(module)) is not None:
        return ""
    (extra,) = (name for name, modules in EXTRAS.items() if module in modules)
    return sentence(what, extra, f"No module named {module!r}")


def sentence(what: str, extra: str, why: object) -> str:
    """Formats the error message that names the missing extra and the command that installs it."""
    return f"{what} must have the packages of the extra `{extra}` (pip install '{PROJECT}[{extra}]'), but {why}"
