"""Analytic estimates by kind of machine. A new kind is a module with an `estimate`, see `base`, and a line here."""

from __future__ import annotations

import importlib

from costmodel.features.estimators.base import Estimate, Estimator, Terms

ESTIMATORS: dict[str, str] = {
    "cpu": "costmodel.features.estimators.cpu",
    "gpu": "costmodel.features.estimators.gpu",
    "accelerator": "costmodel.features.estimators.accelerator",
}
"""`Hardware.kind` -> module of its estimator."""


def get(kind: str) -> Estimator:
    """Returns the estimator for machines of a kind.

    Raises:
        ValueError: the kind is unknown.
    """
    if kind not in ESTIMATORS:
        raise ValueError(f"`kind` must be one of {', '.join(ESTIMATORS)}, but got kind={kind!r}")
    found: Estimator = importlib.import_module(ESTIMATORS[kind]).estimate
    return found


__all__ = ["ESTIMATORS", "Estimate", "Estimator", "Terms", "get"]
