"""Modes: ways to compute with a network's numbers, by name; see `autotune.modes`."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from autotune.compiler.modes.base import Mode
from autotune.modes import CHOOSING, PRECISIONS, QUANTISATIONS

__all__ = ["Mode", "precision_mode", "precision_of_all", "quantisation_mode", "quantisation_of_weights"]


def precision_mode(name: str) -> Mode:
    """Returns the mode of a value of `network.precision`.

    Raises:
        ValueError: the name is unknown.
    """
    return _mode("precision", name)


def quantisation_mode(name: str) -> Mode:
    """Returns the mode of a value of `network.quantise`.

    Raises:
        ValueError: the name is unknown.
    """
    return _mode("quantise", name)


def precision_of_all(name: str) -> Mode:
    """Returns the mode of a value of `network.precision` that applies to all kernels alike.

    Raises:
        ValueError: the name is unknown, or the mode chooses for each kernel.
    """
    if name not in PRECISIONS or name in CHOOSING:
        allowed = ", ".join(mode for mode in PRECISIONS if mode not in CHOOSING)
        raise ValueError(f"`precision` must be one of {allowed}, but got precision={name!r}")
    return precision_mode(name)


def quantisation_of_weights(name: str) -> Mode:
    """Returns the mode of a value of `network.quantise` whose layers compute in floats.

    Raises:
        ValueError: the name is unknown, or layers compute with integers.
    """
    if name not in QUANTISATIONS or not quantisation_mode(name).weights_only:
        allowed = ", ".join(mode for mode in QUANTISATIONS if quantisation_mode(mode).weights_only)
        raise ValueError(f"`quantise` must be one of {allowed} or None, but got quantise={name!r}")
    return quantisation_mode(name)


@cache
def _mode(key: str, name: str) -> Mode:
    classes = PRECISIONS if key == "precision" else QUANTISATIONS
    if name not in classes:
        raise ValueError(f"`{key}` must be one of {', '.join(classes)}, but got {key}={name!r}")
    module, _, kind = classes[name].partition(":")
    mode: Mode = getattr(import_module(module), kind)()
    if mode.name != name:
        raise ValueError(f"`name` of {kind} must be {name!r}, as the registry says, but is {mode.name!r}")
    return mode
