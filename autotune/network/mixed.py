"""Choosing a network's precision kernel by kernel: times, sensitivities, search, and the check of all together."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.mixed import (
    Candidate,
    Mixture,
    Place,
    Problem,
    assign,
    float_outputs,
    front,
    graph_digest,
    noise_between,
    places_of,
    sensitivities,
)
from autotune.graph.mixed.assignment import Bits, Point, point_of
from autotune.graph.precision import kernels_of, lower_precision
from autotune.graph.quantise import load_feeds, random_feeds
from autotune.network.precision_times import Kernels, Times, layers_of, saved_seconds
from autotune.network.process import NetworkProcess, RuntimeFailure
from autotune.network.schedules import Schedules
from autotune.network.selection import Chosen, Limits, select
from autotune.network.tasks import tasks_of
from autotune.tuning.settings import Settings
from autotune.tuning.tuner import known
from measure.database import Database
from measure.recordlog import RecordLog

NARROW = "bfloat16"
"""What kernels are in that are not in float32."""

AS_OPENVINO = "as openvino"
"""The accuracy of OpenVINO as it is installed, which is in bfloat16 where the processor has it."""

DEFAULT = 40.0
"""Decibels of `network.accuracy`."""

INPUTS = 2
"""Sets of inputs that noise is measured on."""

ROUNDS = 8
"""Choices that are checked as a whole, each with a bound corrected by the check before."""

CLOSE = 0.9
"""Share of the allowed noise beyond which no bound is laxed any more."""

SHOWN = 10
"""Choices of the front that are kept, besides both ends."""


@dataclass(frozen=True)
class Chooser:
    """Chooses what of a network is in 16 bits.

    Attributes:
        settings: of the run.
        limits: of algorithms.
        accuracy: decibels, or `AS_OPENVINO`.
        records: file of measurements, which may be missing.
        data: file of inputs; None: random ones.
        kept: file of an earlier choice to take if it is of the same graph and accuracy; None: none is.
    """

    settings: Settings
    limits: Limits
    accuracy: float | str = DEFAULT
    records: Path | None = None
    data: Path | None = None
    kept: Path | None = None

    def __call__(self, graph: Graph, model: onnx.ModelProto) -> Mixture:
        """The choice for a graph in float32, after the passes.

        Args:
            graph: of the network.
            model: that it was made of, with its weights.

        Raises:
            ValueError: no output in floats, inputs that do not fit, a kept choice that cannot be read, or no OpenVINO
                to be as accurate as.
        """
        if (before := self._before(graph)) is not None:
            return before
        if not float_outputs(graph):
            raise ValueError("`precision` must be of one type for a network without outputs in float32, but got mixed")
        feeds = self._feeds(graph)
        exact = [outputs_of(graph, feed) for feed in feeds]
        wanted = self._decibels(model, graph, feeds, exact)
        places = places_of(graph)
        with progress("sensitivities") as tell:
            noise = sensitivities(graph, places, feeds, NARROW, tell)
        problem, wide = self._problem(graph, places, noise)
        allowed = 10 ** (-wanted / 10)
        narrow, measured = settled(problem, allowed, lambda bits: _noise(graph, problem, bits, feeds, exact))
        full = tuple(name for name, chosen in zip(problem.kernels, narrow, strict=True) if not chosen)
        others = tuple(name for name, chosen in zip(problem.kernels, narrow, strict=True) if chosen)
        point = point_of(problem, narrow)
        return Mixture(
            NARROW,
            full,
            others,
            wanted,
            self.accuracy,
            point.decibels,
            -10 * math.log10(measured) if measured > 0 else math.inf,
            len(feeds),
            wide - point.saved,
            candidates(problem, wide),
            graph_digest(graph),
        )

    def _before(self, graph: Graph) -> Mixture | None:
        if self.kept is None or not self.kept.exists():
            return None
        try:
            found = Mixture.from_json(json.loads(self.kept.read_text()))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"`{self.kept}` must be a choice that a run wrote, but reading it failed: {error}"
            ) from None
        return found if (found.graph, found.asked) == (graph_digest(graph), self.accuracy) else None

    def _feeds(self, graph: Graph) -> Sequence[Mapping[str, Array]]:
        if self.data is None:
            return random_feeds(graph.inputs, self.settings.seed, INPUTS)
        found = load_feeds(self.data, graph.inputs)[:INPUTS]
        if not found:
            raise ValueError(f"`data` must hold at least one set of inputs, but got none in {self.data}")
        return found

    def _decibels(
        self,
        model: onnx.ModelProto,
        graph: Graph,
        feeds: Sequence[Mapping[str, Array]],
        exact: Sequence[Mapping[str, Array]],
    ) -> float:
        if not isinstance(self.accuracy, str):
            return float(self.accuracy)
        found = openvino_outputs(model, feeds, self.settings.threads)
        named = dict(zip((value.name for value in model.graph.output), graph.outputs, strict=True))
        noise = noise_between([{named[name]: a for name, a in each.items() if name in named} for each in found], exact)
        worst = max(noise.values())
        return -10 * math.log10(worst) if worst > 0 else math.inf

    def _problem(self, graph: Graph, places: Sequence[Place], noise: NDArray[np.float64]) -> tuple[Problem, float]:
        """What may be chosen, and the seconds of the network in float32."""
        kernels = kernels_of(graph)
        alignment = self.settings.target.alignment
        wide, narrow = (Kernels(graph, NARROW, full, alignment) for full in (kernels, ()))
        times = Times(Schedules({}, self.settings, self.limits), self._measured(wide, narrow))
        times.prepare([*wide.workloads, *narrow.workloads])
        times.learn(narrow.groups)
        times.learn(wide.groups)
        bandwidth = self.settings.target.hardware.bandwidth
        saved = saved_seconds(graph, places, wide, narrow, times, bandwidth)
        holders = [*(place.kernels for place in places), *((name,) for name in layers_of(graph))]
        at = np.array([[name in held for name in kernels] for held in map(set, holders)], bool)
        at = at.reshape(len(holders), len(kernels))
        silent = np.zeros((len(holders) - len(places), noise.shape[1]))
        return Problem(kernels, at, saved, np.vstack([noise, silent])), wide.seconds(times)

    def _measured(self, *kernels: Kernels) -> Chosen:
        if self.records is None or not self.records.exists():
            return {}
        tasks = [task for each in kernels for task in tasks_of(each.graph, None, self.settings.target.alignment)]
        with Database(self.records, readonly=True) as database:
            found = RecordLog(r for task in tasks for r in known(database, task.workload, self.settings))
        return select(tasks, found, self.limits)


def settled(problem: Problem, allowed: float, measure: Callable[[Bits], float]) -> tuple[Bits, float]:
    """The fastest choice found that keeps the bound with all of it rounded together, and its noise then.

    Noise adds up only nearly: each choice is measured as a whole, and the bound of the next search is corrected by what
    the sum was off. All in float32 keeps every bound.

    Args:
        problem: to solve.
        allowed: noise over signal of the worst output.
        measure: noise over signal of a choice.
    """
    best, saved, least = np.zeros(len(problem.kernels), bool), 0.0, 0.0
    bound = allowed
    for _ in range(ROUNDS if allowed > 0 else 0):
        narrow = assign(problem, bound)
        if not narrow.any():
            break
        found = measure(narrow)
        if found <= allowed:
            point = point_of(problem, narrow)
            if point.saved > saved:
                best, saved, least = narrow, point.saved, found
            if found > CLOSE * allowed or narrow.all():
                break
            bound *= min(allowed / found if found > 0 else 2.0, 2.0) * (1 + CLOSE) / 2
        else:
            bound *= allowed / found * CLOSE
    return best, least


def candidates(problem: Problem, seconds: float) -> tuple[Candidate, ...]:
    """Choices along the trade-off, estimated, from all in float32 to all in 16 bits.

    Args:
        problem: that was solved.
        seconds: of the network in float32.
    """
    whole = point_of(problem, np.ones(len(problem.kernels), bool))
    points = front(problem, whole.noise)[1:] if whole.noise > 0 else []
    shown = [points[round(i * (len(points) - 1) / max(SHOWN - 1, 1))] for i in range(min(SHOWN, len(points)))]

    def named(name: str, point: Point) -> Candidate:
        return Candidate(name, point.decibels, seconds - point.saved, int(point.narrow.sum()))

    nothing = point_of(problem, np.zeros(len(problem.kernels), bool))
    return (
        named("float32", nothing),
        *(named("mixed", point) for point in dict.fromkeys(shown) if not point.narrow.all()),
        named(NARROW, whole),
    )


def outputs_of(graph: Graph, feed: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name."""
    values = evaluate(graph, feed)
    return {name: values[name] for name in graph.outputs}


def _noise(
    graph: Graph,
    problem: Problem,
    narrow: Bits,
    feeds: Sequence[Mapping[str, Array]],
    exact: Sequence[Mapping[str, Array]],
) -> float:
    full = [name for name, chosen in zip(problem.kernels, narrow, strict=True) if not chosen]
    lowered = lower_precision(graph, NARROW, full)
    named = dict(zip(lowered.outputs, graph.outputs, strict=True))
    found = ({named[name]: array for name, array in outputs_of(lowered, feed).items()} for feed in feeds)
    return max(noise_between(list(found), exact).values())


def openvino_outputs(
    model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]], threads: int
) -> list[dict[str, Array]]:
    """Outputs by OpenVINO without a hint of the precision, for each set of inputs.

    Raises:
        ValueError: it is not installed, or does not run the model.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-accuracy-") as place:
        file = Path(place) / "model.onnx"
        onnx.save(model, file)
        try:
            with NetworkProcess("openvino-as-installed", threads, model=str(file)) as process:
                return [process.infer(feed, Path(place)) for feed in feeds]
        except RuntimeFailure as error:
            raise ValueError(
                f"`accuracy` must be decibels where OpenVINO does not run the model, but got {AS_OPENVINO!r}: {error}"
            ) from None


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal while something is computed, which takes what is done and of how much; none elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
