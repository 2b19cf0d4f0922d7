"""Builds the two executables of a decoder; what compiles is imported only where something is compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from autotune.cache.place import open_cache
from autotune.config import Measure, Quantisation
from autotune.executable.weights import Weights
from autotune.graph.ir import Array, Graph
from autotune.graph.precision import PRECISIONS
from autotune.graph.quantise.weights import BITS
from autotune.language.graphs import Decoder
from autotune.language.model import Model
from autotune.language.parts import LEAST, PREFILL, STEP
from autotune.network.options import CompileOptions, Precision, Quantise
from autotune.network.pipeline import pipeline_of
from autotune.network.schedules import Schedules
from autotune.network.selection import Limits
from autotune.network.sized_graph import write_sized
from autotune.tuning.settings import Settings
from measure.notices import notice_if_slow
from search_space.ir.intervals import Span
from search_space.terms import Point

COPIES = 3
"""Of the weights that there is room for: as they are, as a step takes them, and as a prompt does."""


def options_of(precision: str, quantise: str | None, how: Quantisation) -> CompileOptions:
    """Makes the options of a decoder's graphs.

    Raises:
        ValueError: a precision or a mode of weights that there is not.
    """
    if quantise not in (None, *BITS):
        raise ValueError(f"`quantise` must be one of {', '.join(BITS)} or None, but got quantise={quantise!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}, but got precision={precision!r}")
    mode = None if quantise is None else Quantise(quantise)
    return CompileOptions(precision=Precision(precision), quantise=mode, quantisation=how)


def built(
    model: Model,
    longest: int,
    folder: Path,
    threads: int | None,
    options: CompileOptions,
    cache: str | None,
) -> Array:
    """Writes the executables of a prompt and of a step to folders in `folder`.

    Args:
        longest: positions at most.
        options: of the graphs; both share the weights that are quantised.

    Returns:
        The weights of both, (n,) bytes: those of the step are the first of them, and the prompt's all.
    """
    target, pipeline = options.target, pipeline_of(options, report=False, known={})
    settings = Settings(target, trials=0, measure=Measure(cache="network", threads=threads))
    decoder = Decoder(model, longest)
    weights = Weights(target.spacing, COPIES * decoder.nbytes)
    least = min(LEAST, longest - 1)
    parts: list[tuple[str, Callable[[int], Graph], Span]] = [
        (STEP, decoder.step, (2, longest)),
        (PREFILL, decoder.prefill, (least, longest)),
    ]
    schedules = Schedules(None, settings, Limits(hardware=target.hardware, open_sizes=True), cache=open_cache(cache))
    with notice_if_slow(f"compiling {model.name} for prompts and steps"):
        for name, graph_of, span in parts:

            def graph_at(point: Point, graph_of: Callable[[int], Graph] = graph_of) -> Graph:
                return pipeline.run(graph_of(*point)).graph

            write_sized(graph_at, {"n": span}, schedules, folder / name, settings, False, weights)
    whole = weights.whole
    assert isinstance(whole, np.ndarray), "there is room for them"
    return whole
