"""Scaling of networks over threads: what their kernels allow on 1 to 64, and times on those of this machine.

`python -m benchmarks.scaling [--rows resnet50,...] [--repeat 20]` chooses kernels without trials for a machine like
this one with as many cores as threads. From their programs it computes the balance of the work, the bytes that each
thread reads from shared caches and memory, and the seconds that the roofline expects. On up to the cores of this
machine, each network also takes turns with ONNX Runtime and OpenVINO. It prints the table, and writes
`benchmarks/results/scaling.json` once all rows are there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autotune
from autotune.compiler.build import make_feeds
from autotune.compiler.checking.comparison import relative_error
from autotune.compiler.checking.process import NetworkProcess, RuntimeFailure
from autotune.compiler.prepare import Network
from autotune.config import Measure, RunConfig
from autotune.graph.frontends.onnx.importer.weights import with_weights
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Array
from autotune.run.workloads import import_network
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from benchmarks.collected import add_options, collect
from benchmarks.figures import figures_in_turns
from benchmarks.interleave import FEWEST_ROUNDS
from benchmarks.markdown import table
from costmodel.features import NAMES
from costmodel.features.extractor import FeatureExtractor
from search_space.hardware import Hardware
from search_space.space import make_program
from targets import registry
from targets.threads import host_cores

NAME = "scaling"
NETWORKS = ("resnet50", "mobilenet_v2", "squeezenet", "bert_base")
THREADS = (1, 2, 4, 8, 16, 32, 64)
POOR = 0.5
"""Share of the speed-up that is possible below which a layer is named."""
MOST_LAYERS = 3
"""Layers of a network that are named, those of the longest time first."""
PEERS = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class ScaledKernel:
    """A kernel that is chosen for a number of threads.

    Attributes:
        name: layer.
        seconds: seconds that the roofline expects of all its calls.
        balance: share of the threads that its parallel loops keep busy, by the time of its statements.
        shared_bytes: bytes that all threads read from outside of their own caches, in all its calls.
    """

    name: str
    seconds: float
    balance: float
    shared_bytes: float


def scale(task: Task, machine: Hardware) -> ScaledKernel:
    """Chooses a kernel for all cores of a machine, and computes how it uses them."""
    measure = Measure(cache="network", threads=machine.cores, pool="ray")  # a pool elsewhere may have so many
    chosen = select_by_roofline(task, Settings(registry.get("cpu"), 0, measure=measure), hardware=machine)
    program = make_program(task.workload, chosen.algorithm, chosen.trace)
    extractor = FeatureExtractor(program, (), machine, cold_constants=True, threads=machine.cores)
    features = dict(zip(NAMES, extractor(np.zeros((0, 1)))[0].astype(np.float64).T, strict=True))
    took = np.exp2(features["roofline.nanoseconds"]) - 1
    return ScaledKernel(
        task.name,
        task.weight * float(chosen.seconds),
        float(features["roofline.balance"] @ took / took.sum()),
        task.weight * float((np.exp2(features["roofline.traffic2"]) - 1).sum()),
    )


def read_network(name: str) -> Network:
    """Imports a network by its name."""
    config = {"name": name, "model": name, "target": "cpu", "measure": {"cache": "network"}}
    return import_network(RunConfig.model_validate(config))


def scale_network(network: Network, machine: Hardware) -> dict[str, Any]:
    """Computes for each number of threads what the kernels of a network allow: the key `threads` of a row."""
    return {str(n): [asdict(scale(task, machine.with_cores(n))) for task in network.tasks] for n in THREADS}


def measure_network(network: Network, turns: int) -> dict[str, Any]:
    """Times a network on each number of threads that this machine has, in turns with its peers."""
    feeds, name = make_feeds(network, 0), network.name
    with tempfile.TemporaryDirectory(prefix="autotune-scaling-") as folder:
        model = Path(folder) / f"{name}.onnx"
        onnx.save(with_weights(load_model(name)), model)
        return {str(n): _measure(model, feeds, n, turns) for n in THREADS if n <= host_cores()}


def _measure(model: Path, feeds: Mapping[str, Array], threads: int, turns: int) -> dict[str, Any]:
    output = model.with_name(f"{model.stem}-{threads}")
    autotune.compile(model, output=output, threads=threads, cache="none")
    with ExitStack() as stack:
        running = [stack.enter_context(NetworkProcess("autotune", threads, folder=str(output / "network")))]
        for peer in PEERS:
            try:
                running.append(stack.enter_context(NetworkProcess(peer, threads, model=str(model))))
            except RuntimeFailure as error:
                sys.stderr.write(f"{peer} does not run {model.stem}: {str(error)[:200]}\n")
        outputs = {process.runtime: next(iter(process.infer(feeds).values())) for process in running}
        errors = {who: float(relative_error(output, outputs["autotune"])) for who, output in outputs.items()}
        return {"errors": errors, **figures_in_turns(running, turns)}


def scaling(document: Mapping[str, Any]) -> str:
    """Formats the tables: a line for each network and number of threads, and the layers that do not scale."""
    lines: list[list[object]] = []
    poor: list[list[object]] = []
    for name, row in document["rows"].items():
        alone = _total(row["threads"]["1"])
        for n, layers in row["threads"].items():
            took = _total(layers)
            balance = sum(of["balance"] * of["seconds"] for of in layers) / took
            shared = sum(of["shared_bytes"] for of in layers)
            lines.append(
                [
                    *(name, n, f"{took * 1e3:.2f}", f"{alone / took:.1f}x", f"{balance:.0%}"),
                    *(f"{shared / int(n) / 1e6:.1f}", f"{shared / took / 1e9:.0f}"),
                    *_times(row["measured"].get(n)),
                ]
            )
        poor += _poor(name, row["threads"])
    head = ["network", "threads", "expected ms", "speed-up", "busy threads", "shared MB a thread", "shared GB/s"]
    head += ["measured ms", "ONNX Runtime ms", "OpenVINO ms", "ratio to best peer"]
    named = table(["network", "layer", f"speed-up on {THREADS[-1]}", "busy threads", "share of the time"], poor)
    said = f"Layers below {POOR:.0%} of the possible speed-up, at most {MOST_LAYERS} of a network:"
    return f"{table(head, lines)}\n\n{said}\n\n{named}"


def _total(layers: Sequence[Mapping[str, Any]]) -> float:
    return sum(of["seconds"] for of in layers)


def _times(timings: Mapping[str, Any] | None) -> Iterator[str]:
    """Yields the cells of what was measured; empty ones on numbers of threads that the machine lacks."""
    took = {} if timings is None else timings["seconds"]
    for who in ("autotune", *PEERS):
        yield f"{took[who] * 1e3:.2f}" if who in took else ""
    peers = [took[who] for who in PEERS if who in took]
    yield f"{min(peers) / took['autotune']:.2f}x" if peers else ""


def _poor(name: str, by_threads: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[list[object]]:
    """Lists the layers that have less than `POOR` of the speed-up on most threads, those of the longest time first."""
    most = THREADS[-1]
    pairs = list(zip(by_threads["1"], by_threads[str(most)], strict=True))
    total = _total(by_threads[str(most)])
    poor = [(one, all_) for one, all_ in pairs if one["seconds"] / all_["seconds"] < POOR * most]
    poor.sort(key=lambda pair: -pair[1]["seconds"])
    return [
        [
            *(name, all_["name"], f"{one['seconds'] / all_['seconds']:.1f}x"),
            *(f"{all_['balance']:.0%}", f"{all_['seconds'] / total:.0%}"),
        ]
        for one, all_ in poor[:MOST_LAYERS]
    ]


def _summarise(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{n} threads {_total(layers) * 1e3:.2f} ms" for n, layers in row["threads"].items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the rows that are missing, and prints all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.partition("\n")[0])
    add_options(parser)
    parser.add_argument("--repeat", type=int, default=FEWEST_ROUNDS, help="rounds of turns")
    options = parser.parse_args(arguments)

    def measure(name: str) -> dict[str, Any]:
        network = read_network(name)
        threads = scale_network(network, registry.get("cpu").hardware)
        measured = measure_network(network, options.repeat)
        return {"threads": threads, "measured": measured, "unsteady": max(of["unsteady"] for of in measured.values())}

    return collect(options, NAME, {"repeat": options.repeat}, NETWORKS, measure, _summarise, scaling)


if __name__ == "__main__":
    sys.exit(main())
