"""Test of models on the test networks, which no other module reads. Choices are made on the validation networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.lab.protocol import POOLS, Pools, Study, study


def test(
    models: Sequence[str],
    folder: str | Path = POOLS,
    seeds: int = 5,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Study:
    """Learns models from the programs to learn from, and scores them on the networks to test with.

    Args:
        models: names; the first is the reference of comparisons.
        folder: folder of pools.
        seeds: number of seeds of each model.
        options: model → options of its constructor.
        progress: called with a sentence.

    Raises:
        CostModelError: no such model, or networks that were not measured whole.
        DatasetError: no pools, or other than registered.
    """
    return study(Pools.open(folder, test=True), "test", models, seeds, options, progress)
