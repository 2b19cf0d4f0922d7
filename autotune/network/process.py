"""Networks run and timed in processes of their own: our executable, or the same model on another runtime.

A process reads JSON lines from its standard input and answers each with one: `{"open": {...}}`, then `{"infer": FILE}`,
which answers with the outputs in an .npz file, `{"time": iterations}` with seconds, `{"memory": true}` with resident
bytes. Two processes take turns, so that both see the machine in the same state; one that waits sleeps.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from measure.host import cores_for, worker_environment
from search_space.dtypes import NARROW, numpy_dtype

Array = NDArray[Any]
_ROOT = Path(__file__).resolve().parents[2]
OPENVINO_FLOATS: Mapping[str, str] = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Has OpenVINO compute in float32; by the first alone it rounds the data of compressed weights to bytes."""
ORT_FLOATS = ("session.qdq_matmulnbits_accuracy_level", "0")
"""Has ONNX Runtime compute products with a DequantizeLinear's weights in float32; otherwise it rounds data to bytes."""
_OPENVINO_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


class RuntimeFailure(RuntimeError):
    """A runtime that is missing, refuses the model, or whose process died."""


class RuntimeLacksOperator(RuntimeFailure):
    """A runtime that has no implementation of an operator of the model, which is legal."""


_LACKING = re.compile(
    r"NOT_IMPLEMENTED|No Op registered for|is not a registered function/op"
    r"|Type 'tensor\(\w+\)' of input parameter \(.*\) of operator \(\w+\) in node \(.*\) is invalid"
)
"""Message of ONNX Runtime on an operator that it lacks, or lacks for a type."""


def raise_refusal(runtime: str, said: str) -> NoReturn:
    """Raises what a runtime says of a model that it does not run.

    Raises:
        RuntimeLacksOperator: it has no implementation of an operator.
        RuntimeFailure: anything else.
    """
    kind = RuntimeLacksOperator if _LACKING.search(said) else RuntimeFailure
    raise kind(f"{runtime} must run the model, but said: {said}")


class Runtime(Protocol):
    """What a process serves.

    Attributes:
        precision: type that it says it computes floats in; "" where that is as what it was given has them.
    """

    precision: str

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""

    def time(self, iterations: int) -> Sequence[float]:
        """Seconds of each inference on the inputs of the last `infer`."""


class Ours:
    """An executable of ours: `{"runtime": "autotune", "folder": ...}`."""

    precision = ""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        from autotune.executable.loading import load

        self._network = load(facts["folder"], facts["threads"])

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        out = self._network(*(arrays[p.name] for p in self._network.inputs))
        outputs = out if isinstance(out, tuple) else (out,)
        return dict(zip((p.name for p in self._network.outputs), outputs, strict=True))

    def time(self, iterations: int) -> Sequence[float]:
        return [float(s) for s in self._network.time(iterations)]


class OnnxRuntime:
    """ONNX Runtime, graph optimised in full: `{"runtime": "onnxruntime", "model": FILE}`."""

    precision = ""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = len(cores_for(facts["threads"]))
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry(*ORT_FLOATS)
        self._session = ort.InferenceSession(facts["model"], options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self._given: dict[str, Array] = {}

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        self._given = dict(arrays)
        return dict(zip(self._names, self._session.run(None, self._given), strict=True))

    def time(self, iterations: int) -> Sequence[float]:
        return timed(lambda: self._session.run(None, self._given), iterations)


class OpenVino:
    """OpenVINO for latency, in float32: `{"runtime": "openvino", "model": FILE}`."""

    hint: Mapping[str, str] = OPENVINO_FLOATS

    def __init__(self, facts: Mapping[str, Any]) -> None:
        import openvino

        core = openvino.Core()
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": facts["threads"], **self.hint}
        self._model = core.compile_model(facts["model"], "CPU", settings)
        self._request = self._model.create_infer_request()
        taken = self._model.get_property("INFERENCE_PRECISION_HINT").to_string()
        self.precision = _OPENVINO_TYPES.get(taken, taken)

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = self._request.infer(dict(arrays))
        return {port.get_any_name(): np.array(value) for port, value in found.items()}

    def time(self, iterations: int) -> Sequence[float]:
        return timed(self._request.infer, iterations)


class OpenVinoAsInstalled(OpenVino):
    """The same in the precision that it takes by itself, which is bfloat16 where the processor multiplies that."""

    hint: Mapping[str, str] = {}


Opener = Callable[[Mapping[str, Any]], Runtime]
"""Opens what the facts name."""

RUNTIMES: dict[str, Opener] = {
    "autotune": Ours,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "openvino-as-installed": OpenVinoAsInstalled,
}


def timed(run: Callable[[], Any], iterations: int) -> list[float]:
    """Wall seconds of each call."""
    seconds = []
    for _ in range(iterations):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return seconds


class NetworkProcess:
    """A runtime with a model in a process of its own; a context manager.

    Args:
        runtime: a name of `RUNTIMES`.
        threads: cores it may use.
        facts: what it opens: `folder` of an executable, or `model`, an .onnx file.

    Attributes:
        runtime: its name, which whoever runs several of one kind may replace by another.
        precision: type that it says it computes floats in; "" where it does not say.
        server: module that the process runs; one of more runtimes than `RUNTIMES` calls `main` with them.
        tree: folder of packages that the process runs, where they are not these.

    Raises:
        RuntimeFailure: it cannot open the model.
    """

    server = "autotune.network.process"
    precision = ""
    tree: Path | None = None

    def __init__(self, runtime: str, threads: int, **facts: str) -> None:
        self.runtime = runtime
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.tree,  # what is there comes before what is on the path
            env=worker_environment([str(self.tree or _ROOT)]),
        )
        try:
            opened = self._ask({"open": {"runtime": runtime, "threads": threads, **facts}})
            self.precision = str(opened["precision"])
        except RuntimeFailure:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def infer(self, arrays: Mapping[str, Array], folder: Path) -> dict[str, Array]:
        """Outputs by name; arrays travel through files in `folder`."""
        given = folder / f"{self.runtime}_inputs.npz"
        _save(given, arrays)
        made = self._ask({"infer": str(given), "names": list(arrays)})
        return _loaded(made["file"], made["names"])

    def time(self, iterations: int) -> list[float]:
        """Seconds of each of `iterations` inferences on the last inputs."""
        return list(self._ask({"time": iterations})["seconds"])

    def median(self, iterations: int) -> float:
        """Median seconds of `iterations` inferences, after as many that are not counted."""
        return float(self._ask({"median": iterations})["seconds"])

    def memory(self) -> int:
        """Resident bytes of the process."""
        return int(self._ask({"memory": True})["bytes"])

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            _, said = self._process.communicate()
            last = (said.strip() or "no message").splitlines()[-1]
            raise RuntimeFailure(f"the process of {self.runtime} must stay alive, but ended: {last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise_refusal(self.runtime, answer["error"])
        return answer


def interleaved(processes: Sequence[NetworkProcess], turns: int, seconds: float = 0.12) -> dict[str, list[float]]:
    """Median seconds of each turn of each runtime; the runtimes take turns, one after the other.

    A turn warms up for as long as it then measures: a core that was idle takes a while to come back to its full clock.

    Args:
        processes: that have inferred once.
        turns: of each.
        seconds: of inferences in a turn.
    """
    counts = {p.runtime: max(3, round(seconds / max(min(p.time(3)), 1e-6))) for p in processes}
    found: dict[str, list[float]] = {process.runtime: [] for process in processes}
    for _ in range(turns):
        for process in processes:
            time.sleep(0.1)  # in which idle threads of the last runtime stop spinning
            count = counts[process.runtime]
            found[process.runtime].append(process.median(count))
    return found


def of_turns(turns: Sequence[float]) -> float:
    """What a runtime stands with: the median of the faster half of its turns."""
    return float(np.median(sorted(turns)[: max(1, len(turns) // 2)]))


def serve(
    request: Mapping[str, Any], state: dict[str, Any], runtimes: Mapping[str, Opener] = RUNTIMES
) -> dict[str, Any]:
    """Answers one request."""
    if "open" in request:
        facts = request["open"]
        state["runtime"] = runtimes[facts["runtime"]](facts)
        return {"open": True, "precision": state["runtime"].precision}
    if "infer" in request:
        outputs = state["runtime"].infer(_loaded(request["infer"], request["names"]))
        file = request["infer"].replace("_inputs", "_outputs")
        _save(file, outputs)
        return {"file": file, "names": list(outputs)}
    if "time" in request:
        return {"seconds": list(state["runtime"].time(request["time"]))}
    if "median" in request:  # of a small network there are thousands: one number is sent, not all of them
        count = request["median"]
        return {"seconds": float(np.median(state["runtime"].time(2 * count)[count:]))}
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return {"bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def _save(file: str | Path, arrays: Mapping[str, Array]) -> None:
    """Arrays in order, under their numbers; those of a type that is not NumPy's as their bits, beside its name."""
    numbered: dict[str, Any] = {}
    for number, array in enumerate(arrays.values()):
        foreign = str(array.dtype) in NARROW and array.dtype.kind != "f"
        numbered[f"{number}{array.dtype}" if foreign else str(number)] = array.view(np.uint16) if foreign else array
    np.savez(file, **numbered)


def _loaded(file: str | Path, names: Sequence[str]) -> dict[str, Array]:
    """Arrays that were saved, by these names."""
    found: dict[str, Array] = {}
    with np.load(file, allow_pickle=False) as data:
        for name, key in zip(names, data.files, strict=True):
            dtype = key.lstrip("0123456789")
            found[name] = data[key].view(numpy_dtype(dtype)) if dtype else data[key]
    return found


def main(runtimes: Mapping[str, Opener] = RUNTIMES) -> None:
    """Answers requests until there are no more.

    Args:
        runtimes: that can be asked for.
    """
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    state: dict[str, Any] = {}
    with os.fdopen(replies, "w") as stream:
        for line in sys.stdin:
            request = json.loads(line)
            if "open" in request:
                os.sched_setaffinity(0, cores_for(request["open"]["threads"]))
            try:
                answer = serve(request, state, runtimes)
            except Exception as error:  # reported to the parent, which raises it as a RuntimeFailure
                answer = {"error": (str(error).strip() or type(error).__name__).splitlines()[0]}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()


if __name__ == "__main__":
    main()
