"""How fast a network's executable is beside other runtimes, which take turns with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from autotune.graph.types import Array
from autotune.network.build import make_feeds
from autotune.network.load import Network
from autotune.network.process import NetworkProcess, RuntimeFailure, interleaved, of_turns
from autotune.tuning.settings import Settings
from autotune.units import latency, share
from measure.steadiness import DISAGREE, disagreement, halves_of, spread_of


@dataclass(frozen=True)
class Timing:
    """How fast runtimes are.

    Attributes:
        seconds: of an inference, by runtime.
        memory: resident bytes of its process after ten or more.
        missing: why runtimes were not timed.
        turns: seconds of an inference in each turn, in order of time, of which `seconds` is made.
    """

    seconds: Mapping[str, float]
    memory: Mapping[str, int]
    missing: Mapping[str, str]
    turns: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def spread(self, runtime: str) -> float:
        """(75th percentile - 25th percentile) / median of a runtime's turns; NaN where none are known."""
        return spread_of(self.turns.get(runtime, ()))

    @property
    def unsteady(self) -> str:
        """What the halves of the turns say of the machine, in a sentence; "" where they agree."""
        halves = {name: halves_of(turns) for name, turns in self.turns.items()}
        worst = max(halves, key=lambda name: disagreement(halves[name]), default="")
        if not worst or disagreement(halves[worst]) <= DISAGREE:
            return ""
        first, second = map(latency, halves[worst])
        return (
            f"{worst}: the first half of its turns took {first}, the second {second}: the machine was busy, and ratios "
            f"are certain to {share(disagreement(halves[worst]))} only"
        )


def _begin(
    process: NetworkProcess,
    feeds: Mapping[str, Array],
    place: Path,
    processes: list[NetworkProcess],
    missing: dict[str, str],
) -> None:
    """A first inference; a runtime that refuses it is missing, as one that has no 16-bit floats."""
    try:
        process.infer(feeds, place)
    except RuntimeFailure as error:
        if process.runtime == "autotune":
            raise
        process.close()
        processes.remove(process)
        missing[process.runtime] = str(error)


def time_network(
    network: Network,
    folder: Path,
    settings: Settings,
    others: Sequence[str],
    turns: int = 20,
    say: Callable[[str], None] = lambda text: None,
) -> Timing:
    """Times the executable in `folder` and the same model on other runtimes, which take turns."""
    feeds = make_feeds(network, settings.seed)
    processes: list[NetworkProcess] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="autotune-time-") as place:
        file = Path(place) / "model.onnx"
        onnx.save(network.model, file)
        try:
            processes.append(NetworkProcess("autotune", settings.threads, folder=str(folder)))
            for name in others:
                try:
                    processes.append(NetworkProcess(name, settings.threads, model=str(file)))
                except RuntimeFailure as error:
                    missing[name] = str(error)
            for process in list(processes):
                _begin(process, feeds, Path(place), processes, missing)
            say(f"timing the network, in turns with {', '.join(p.runtime for p in processes[1:]) or 'nobody'}")
            took = interleaved(processes, turns)
            memory = {process.runtime: process.memory() for process in processes}
        finally:
            for process in processes:
                process.close()
    return Timing({name: of_turns(each) for name, each in took.items()}, memory, missing, took)
