"""Builds the two executables of a decoder; what compiles is imported only where something is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from autotune.cache.place import open_cache
from autotune.config import Measure, Quantisation
from autotune.executable.weights import Weights
from autotune.graph.ir import Array, Graph
from autotune.graph.quantise.weights import BITS, Known, quantise_weights_only
from autotune.language.graphs import Decoder
from autotune.language.model import Model
from autotune.language.parts import LEAST, PREFILL, STEP
from autotune.network.prepare import prepared
from autotune.network.schedules import Schedules
from autotune.network.selection import Limits
from autotune.network.sized_graph import write_sized
from autotune.tuning.settings import Settings
from measure.notices import notice_if_slow
from search_space.ir.intervals import Span
from search_space.terms import Point
from targets import registry

COPIES = 3
"""Of the weights that there is room for: as they are, as a step takes them, and as a prompt does."""

Change = Callable[[Graph], Graph]


def quantiser(mode: str, options: Quantisation) -> Change:
    """Makes weights of a few bits, of several graphs that share theirs once; see `quantise_weights_only`.

    Raises:
        ValueError: no mode of weights.
    """
    if mode not in BITS:
        raise ValueError(f"`quantise` must be one of {', '.join(BITS)} or None, but got quantise={mode!r}")
    known: Known = {}
    return lambda graph: quantise_weights_only(graph, mode, options, known).graph


def built(
    model: Model,
    longest: int,
    folder: Path,
    threads: int | None,
    precision: str,
    cache: str | None,
    change: Change | None = None,
) -> Array:
    """Writes the executables of a prompt and of a step to folders in `folder`.

    Args:
        longest: positions at most.
        change: of the graphs in floats; None: they stay as they are.

    Returns:
        The weights of both, (n,) bytes: those of the step are the first of them, and the prompt's all.
    """
    target = registry.get("cpu")
    settings = Settings(target, trials=0, measure=Measure(cache="network", threads=threads))
    decoder = Decoder(model, longest)
    weights = Weights(target.spacing, COPIES * decoder.nbytes)
    least = min(LEAST, longest - 1)
    parts: list[tuple[str, Callable[[int], Graph], Span]] = [
        (STEP, decoder.step, (2, longest)),
        (PREFILL, decoder.prefill, (least, longest)),
    ]
    schedules = Schedules({}, settings, Limits(hardware=target.hardware, open_sizes=True), cache=open_cache(cache))
    with notice_if_slow(f"compiling {model.name} for prompts and steps"):
        for name, graph_of, span in parts:

            def graph_at(point: Point, graph_of: Callable[[int], Graph] = graph_of) -> Graph:
                return prepared(graph_of(*point), target, precision, change)

            write_sized(graph_at, {"n": span}, schedules, folder / name, settings, False, weights)
    whole = weights.whole
    assert isinstance(whole, np.ndarray), "there is room for them"
    return whole
