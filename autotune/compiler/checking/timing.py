"""Timing of a network's executable and of other runtimes, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from autotune.compiler.build import make_feeds
from autotune.compiler.checking.comparison import Rounding
from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure, time_in_turns
from autotune.compiler.checking.runtimes import RUNTIMES
from autotune.compiler.precisions import own_precision
from autotune.compiler.prepare import Network
from autotune.compiler.sources import ModelSource
from autotune.graph.precision import FULL
from autotune.graph.types import Array
from autotune.titles import runtime_title
from autotune.tuner.settings import Settings
from autotune.units import certainty, latency
from measure.steadiness import DISAGREE, compute_spread, disagreement, half_medians
from search_space.scratch import ScratchFolder

EXACT = "onnxruntime"
"""Runtime that decibels are taken against."""


@dataclass(frozen=True)
class Timing:
    """Latencies of runtimes, measured in turns.

    Attributes:
        seconds: latency of an inference, by runtime.
        memory: resident bytes of each process after ten or more inferences.
        missing: reasons why runtimes were not timed, by runtime.
        turns: latencies of the turns, in order of time, from which `seconds` is computed.
        titles: titles of runtimes, with the precision of each.
        decibels: signal to noise of the worst output beside ONNX Runtime in float32, which has no entry itself; empty
            if it was not requested, or nothing runs the model in float32.
    """

    seconds: Mapping[str, float]
    memory: Mapping[str, int]
    missing: Mapping[str, str]
    turns: Mapping[str, Sequence[float]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    decibels: Mapping[str, float] = field(default_factory=dict)

    def title(self, runtime: str) -> str:
        """Returns the title of a runtime."""
        return self.titles.get(runtime, runtime)

    @staticmethod
    def is_ours(runtime: str) -> bool:
        """Tells whether a runtime is an executable of ours."""
        return runtime.partition(" ")[0] == "autotune"

    def is_exact(self, runtime: str) -> bool:
        """Tells whether the outputs of the other runtimes were compared with this runtime's."""
        return runtime == EXACT and bool(self.decibels)

    def spread(self, runtime: str) -> float:
        """Computes (75th percentile - 25th percentile) / median of a runtime's turns; NaN without turns."""
        return compute_spread(self.turns.get(runtime, ()))

    @property
    def unsteady(self) -> str:
        """Sentence on the machine if the halves of the turns disagree; "" if they agree."""
        halves = {name: half_medians(turns) for name, turns in self.turns.items()}
        worst = max(halves, key=lambda name: disagreement(halves[name]), default="")
        if not worst or disagreement(halves[worst]) <= DISAGREE:
            return ""
        first, second = map(latency, halves[worst])
        return (
            f"{self.title(worst)}: the first half of its turns took {first}, the second {second}: the machine was "
            f"busy, and ratios are {certainty(disagreement(halves[worst]))}"
        )


def time_network(
    network: Network,
    folder: Path,
    settings: Settings,
    others: Sequence[str],
    turns: int = 20,
    say: Callable[[str], None] = lambda text: None,
    also: Mapping[str, Path] = MappingProxyType({}),
    accuracy: bool = False,
) -> Timing:
    """Times the executable in `folder` and the same model on other runtimes, which take turns.

    Args:
        network: network of the executable.
        folder: folder of the executable.
        settings: settings of the run.
        others: names of runtimes.
        turns: number of turns of each.
        say: shows a sentence to the user.
        also: folders of additional executables of the same model, by precision.
        accuracy: whether to compare the outputs of all.
    """
    with ScratchFolder("time") as scratch, ExitStack() as stack:
        beside = _Beside(make_feeds(network, settings.seed), Path(scratch), network.source)
        stack.callback(beside.close)
        beside.open("autotune", NetworkProcess("autotune", settings.threads, folder=str(folder)))
        for precision, another in also.items():
            label = runtime_title("autotune", precision)
            beside.attempt(label, "autotune", settings.threads, folder=str(another))
        for name in others:
            beside.attempt(name, name, settings.threads)
        decibels = beside.decibels(settings.threads) if accuracy else {}
        processes = beside.processes
        titles = {p.runtime: _title(p, network) for p in processes}
        say(f"timing the network, in turns with {', '.join(titles[p.runtime] for p in processes[1:]) or 'nobody'}")
        took = time_in_turns(processes, turns)
        memory = {process.runtime: process.memory() for process in processes}
    seconds = {name: timing.steady for name, timing in took.items()}
    medians = {name: timing.latencies for name, timing in took.items()}
    return Timing(seconds, memory, beside.missing, medians, titles, decibels)


def _title(process: NetworkProcess, network: Network) -> str:
    if process.runtime == "autotune":
        return runtime_title("autotune", own_precision(network))
    known = process.runtime in RUNTIMES
    return runtime_title(process.runtime, network.source.precision, process.precision) if known else process.runtime


class _Beside:
    """Processes of runtimes that have inferred once, and their outputs.

    Args:
        feeds: inputs by name.
        folder: folder of files that live as long as the processes.
        source: model for other runtimes.

    Attributes:
        processes: processes in the order in which they were opened.
        missing: reasons why runtimes are missing or refuse the model, such as one without 16-bit floats.
    """

    def __init__(self, feeds: Mapping[str, Array], folder: Path, source: ModelSource) -> None:
        self._feeds, self._folder, self._source = feeds, folder, source
        self._outputs: dict[str, list[Array]] = {}
        self.processes: list[NetworkProcess] = []
        self.missing: dict[str, str] = {}

    @cached_property
    def _model(self) -> str:
        """Path of the ONNX file, which is written on first use.

        Raises:
            RuntimeFailure: the model cannot be saved as ONNX.
        """
        file = self._folder / "model.onnx"
        self._source.save(file)
        return str(file)

    def open(self, label: str, process: NetworkProcess) -> None:
        """Adds a process that has opened its model, after one inference.

        Raises:
            RuntimeFailure: the inference fails.
        """
        process.runtime = label
        try:
            self._outputs[label] = list(process.infer(self._feeds).values())
        except RuntimeFailure:
            process.close()
            raise
        self.processes.append(process)

    def attempt(self, label: str, runtime: str, threads: int, **facts: str) -> None:
        """Opens a runtime; one that is missing or refuses goes to `missing`.

        Args:
            label: title that it is shown by.
            runtime: its name.
            threads: number of its threads.
            facts: folder or file to open; the model by default.
        """
        try:
            self.open(label, NetworkProcess(runtime, threads, **(facts or {"model": self._model})))
        except RuntimeFailure as error:
            self.missing[label] = str(error)

    def decibels(self, threads: int) -> dict[str, float]:
        """Computes the signal to noise of each runtime's worst output beside ONNX Runtime, by runtime."""
        if self._source.precision != FULL:
            return {}  # no runtime computes it without rounding
        exact = self._outputs.get(EXACT)
        if exact is None:
            try:
                with NetworkProcess(EXACT, threads, model=self._model) as process:
                    exact = list(process.infer(self._feeds).values())
            except RuntimeFailure:
                return {}  # not an error, as ONNX Runtime was not requested
        return {
            label: min(Rounding.between(*pair).decibels for pair in zip(found, exact, strict=True))
            for label, found in self._outputs.items()
            if label != EXACT
        }

    def close(self) -> None:
        """Ends the processes."""
        for process in self.processes:
            process.close()
