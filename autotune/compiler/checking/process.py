"""Networks run and timed in processes of their own, see `autotune.compiler.checking.runtimes`.

Two processes take turns, so that both see the machine in the same state; one that waits sleeps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from autotune.compiler.checking.runtimes import Array
from measure.arrays import pack_arrays, unpack_arrays
from measure.bench import Bench, Interleaved, Timeable
from measure.child import Child, ChildError
from measure.child_main import Message
from measure.closing import Closing
from measure.host import cores_for
from measure.timing import Timing

_ROOT = Path(__file__).resolve().parents[3]
_MOST_BYTES = 1 << 36
"""Bytes of the largest outputs."""


class RuntimeFailure(RuntimeError):
    """A runtime that is missing, refuses the model, or whose process died."""


class RuntimeLacksOperator(RuntimeFailure):
    """A runtime that has no implementation of an operator of the model, which is legal."""


_LACKING = re.compile(
    r"NOT_IMPLEMENTED|No Op registered for|is not a registered function/op"
    r"|Type 'tensor\(\w+\)' of input parameter \(.*\) of operator \(\w+\) in node \(.*\) is invalid"
)
"""Message of ONNX Runtime on an operator that it lacks, or lacks for a type."""


def raise_refusal(runtime: str, message: str) -> NoReturn:
    """Raises a runtime's message on a model that it does not run.

    Raises:
        RuntimeLacksOperator: it has no implementation of an operator.
        RuntimeFailure: anything else.
    """
    kind = RuntimeLacksOperator if _LACKING.search(message) else RuntimeFailure
    raise kind(f"{runtime} must run the model, but said: {message}")


class NetworkProcess(Timeable, Closing):
    """Process that runs a runtime with a model.

    Args:
        runtime: a name of `RUNTIMES`.
        threads: number of cores that it may use.
        facts: `folder` of an executable to open, or `model`, an .onnx file.

    Attributes:
        runtime: its name; a caller that runs several of one kind may replace it.
        precision: type that it reports for its floats; "" if it reports none.
        server: module whose `main` the process runs; a module of further runtimes calls `runtimes.main`.
        tree: folder of packages that the process runs, if they are not these.
        limit: seconds that a request may take.

    Raises:
        RuntimeFailure: the runtime cannot open the model.
    """

    server = "autotune.compiler.checking.runtimes"
    precision = ""
    tree: Path | None = None
    limit = 3600.0

    def __init__(self, runtime: str, threads: int, **facts: str) -> None:
        self.runtime = runtime
        path, prelude = None, ""
        if self.tree is not None:
            path, prelude = [str(self.tree)], _import_statement(_ROOT)
        options = {"runtime": runtime, "threads": threads, "cores": cores_for(threads), **facts}
        self._child = Child(options, self.server, path, prelude, _MOST_BYTES)
        try:
            self.precision = str(self._ask({"what": "open"})[0]["precision"])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process."""
        self._child.close()

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Computes one inference; returns the outputs by name."""
        described, data = pack_arrays(list(arrays.values()))
        header, blob = self._ask({"what": "infer", "names": list(arrays), "arrays": described}, data)
        return dict(zip(header["names"], unpack_arrays(header["arrays"], blob), strict=True))

    def time(self, iterations: int) -> list[float]:
        """Times `iterations` inferences on the last inputs, in seconds each."""
        return list(self._ask({"what": "time", "count": iterations})[0]["seconds"])

    def median(self, iterations: int, warm: int = 0) -> float:
        """Returns the median seconds of `iterations` inferences, after `warm` untimed ones."""
        return float(self._ask({"what": "median", "count": iterations, "warm": warm})[0]["seconds"])

    def memory(self) -> int:
        """Returns the resident bytes of the process."""
        return int(self._ask({"what": "memory"})[0]["bytes"])

    def _ask(self, request: Mapping[str, Any], blob: bytes = b"") -> Message:
        try:
            header, result = self._child.ask(request, blob, self.limit)
        except ChildError as error:
            how = error.death.brief
            raise RuntimeFailure(f"the process of {self.runtime} must stay alive, but it {how}") from error
        if "refused" in header:
            raise_refusal(self.runtime, header["refused"].splitlines()[0])
        return header, result


def time_in_turns(
    processes: Sequence[NetworkProcess],
    turns: int,
    seconds: float = 0.12,
    pause: float = 0.1,
    least: int = 3,
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Timing]:
    """Times runtimes in turns; returns the timing of each by its name, whose latencies are medians of its turns.

    Args:
        processes: processes that have inferred once.
        turns: number of turns of each.
        seconds: time of the inferences in a turn; warming up takes as long again.
        pause: seconds before a turn.
        least: smallest number of inferences in a turn.
        tick: called before each round; an exception ends the timing.
    """
    bench = Bench(Interleaved(turns, seconds, least, warm=True, pause=pause), tick)
    timings: dict[str, Timing] = {}
    for process, timing in zip(processes, bench.time(processes), strict=True):
        assert isinstance(timing, Timing)  # processes that fail raise RuntimeFailure instead
        timings[process.runtime] = timing
    return timings


def _import_statement(root: Path) -> str:
    """Writes a statement that lets a tree of packages without the modules of this protocol import them from `root`."""
    ours = {name: root.joinpath(*name.split(".")) for name in ("measure", "autotune", "autotune.compiler")}
    return "\n".join(f"import {name}; {name}.__path__.append({str(folder)!r})" for name, folder in ours.items())
