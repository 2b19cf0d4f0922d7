"""Networks in int8 beside ONNX Runtime's and OpenVINO's: accuracy and time, calibrated on the same inputs.

`python -m benchmarks.quantized_networks [--rows NAME,...] [--files A.onnx,...] [--trials 0] [--turns 20]` exports
networks of the survey's list with random weights (or takes files), quantises each by ours and by `quantize_static`, and
writes `benchmarks/results/quantized_networks.json`. Accuracy is the signal to quantisation noise of the outputs against
the network in float32 on ONNX Runtime, on inputs that no calibration saw. `--turns 0` measures accuracy alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from autotune.config import Quantisation, check_config
from autotune.graph.ir import Array
from autotune.graph.onnx_model import load_model
from autotune.graph.quantise import TEST_INPUTS, Feeds, random_feeds
from autotune.graph.quantise.accuracy import added
from autotune.graph.quantise.formats import decibels
from autotune.network.load import load_network
from autotune.network.process import NetworkProcess, interleaved, of_turns
from autotune.run.resolve import settings_of
from benchmarks import results, tables
from benchmarks.rows import pick
from benchmarks.survey.exports import EXPORTERS
from benchmarks.survey.models import load_models
from benchmarks.survey.one import PEERS, compiled
from benchmarks.survey.process import limited
from measure.hostlock import alone

ROWS = (
    "resnet50",
    "mobilenet_v2",
    "resnext50_32x4d",
    "wide_resnet50_2",
    "vit_small_patch16_224",
    "distilbert_base",
)
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "layers": {"op_types_to_quantize": ["Conv", "MatMul", "Gemm"], "extra_options": {"MatMulConstBOnly": True}},
}
"""What `quantize_static` quantises: all that it can, as it does by default, or layers with constant weights alone."""
EXPORT_SECONDS = 600.0
EXPORT_BYTES = 24 << 30
NAME = "quantized_networks"


def exported(name: str, folder: Path, seed: int) -> Path:
    """The ONNX file of a network of the survey's list.

    Raises:
        RuntimeError: its library is missing or cannot export it.
    """
    (model,) = [model for model in load_models() if model.name == name]
    file = folder / f"{name}.onnx"
    request = {"model": model.to_json(), "seed": seed, "file": str(file), "exporters": list(EXPORTERS)}
    request |= {"facts": str(folder / "facts.jsonl"), "memory_bytes": EXPORT_BYTES}
    ended = limited("benchmarks.survey.exports", request, EXPORT_SECONDS)
    if ended.why or not file.exists():
        raise RuntimeError(f"{name} must be exported, but: {ended.why or 'no file was written'}")
    return file


def peer_model(file: Path, recipe: str, feeds: Sequence[Feeds], folder: Path) -> Path:
    """The network as `quantize_static` gives it: operators between QuantizeLinear and DequantizeLinear.

    Activations are unsigned, between the least and the largest value; weights signed, with a scale a channel.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._feeds = iter(feeds)

        def get_next(self) -> dict[str, Array] | None:
            feed = next(self._feeds, None)
            return None if feed is None else dict(feed)

    prepared, found = folder / "prepared.onnx", folder / f"{recipe}.onnx"
    if not prepared.exists():
        quant_pre_process(str(file), str(prepared))
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    options = {"per_channel": True, "quant_format": QuantFormat.QDQ, **types, **RECIPES[recipe]}
    quantize_static(str(prepared), str(found), Reader(), **options)
    return found


def signal_to_noise(exact: Sequence[Mapping[str, Array]], found: Sequence[Mapping[str, Array]]) -> float:
    """Of the worst output, over all sets of inputs, dB; outputs are in the same order, whatever their names."""
    ratios = []
    for place in range(len(exact[0])):
        powers = 0.0, 0.0
        for a, b in zip(exact, found, strict=True):
            powers = added(powers, list(a.values())[place], list(b.values())[place])
        ratios.append(decibels(*powers))
    return min(ratios)


def outputs(process: NetworkProcess, feeds: Sequence[Feeds], folder: Path) -> list[dict[str, Array]]:
    """Of every set of inputs."""
    return [process.infer(feed, folder) for feed in feeds]


def compare(name: str, file: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one network: decibels and seconds of ours and of each peer with each recipe."""
    document = {
        "model": str(file),
        "name": name,
        "seed": options.seed,
        "trials": options.trials,
        "output": str(folder / "run"),
        "network": {"quantise": "int8"},
        "measure": {"cache": "network", "threads": options.threads},
        "tracking": {"backend": "none"},
    }
    config = check_config(document, NAME)
    network = load_network(load_model(str(file)), name, options.seed, quantise="int8")
    assert network.accuracy is not None
    place = compiled(network, config, settings_of(config), options.trials, folder)
    train = random_feeds(network.graph.inputs, options.seed, Quantisation().inputs)
    test = random_feeds(network.graph.inputs, options.seed + 1, TEST_INPUTS)
    row: dict[str, Any] = {"title": name, "threads": options.threads, "trials": options.trials}
    row |= {"layers": network.accuracy.quantised_layers, "float_layers": network.accuracy.float_layers}
    row |= {"decibels": {}, "seconds": {}}
    with NetworkProcess("onnxruntime", options.threads, model=str(file)) as process:
        exact = outputs(process, test, folder)
    for recipe in RECIPES:
        quantised = peer_model(file, recipe, train, folder)
        with ExitStack() as stack:
            opened = {"autotune": {"folder": str(place)}} | {peer: {"model": str(quantised)} for peer in PEERS}
            processes = [
                stack.enter_context(NetworkProcess(runtime, options.threads, **facts))
                for runtime, facts in opened.items()
            ]
            for process in processes:
                ratio = signal_to_noise(exact, outputs(process, test, folder))
                row["decibels"][_label(process.runtime, recipe)] = ratio
            if options.turns:
                with alone():
                    took = interleaved(processes, options.turns)
                for runtime, turns in took.items():
                    label = _label(runtime, recipe)
                    row["seconds"][label] = min(of_turns(turns), row["seconds"].get(label, np.inf))
    return row


def _label(runtime: str, recipe: str) -> str:
    return runtime if runtime == "autotune" else f"{runtime}, {recipe}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized_networks", description=__doc__)
    parser.add_argument("--rows", help="comma-separated names; default: all")
    parser.add_argument("--files", help="comma-separated ONNX files in place of the rows; each is named by its file")
    parser.add_argument("--trials", type=int, default=0, help="measured candidates of ours; 0: the roofline's choice")
    parser.add_argument("--turns", type=int, default=20, help="turns of each runtime; 0: accuracy alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        files = [Path(file) for file in options.files.split(",")] if options.files else []
        if missing := [file for file in files if not file.is_file()]:
            raise ValueError(f"`files` must be ONNX files, but got {missing[0]}")
        chosen = [] if files else pick(options.rows, ROWS)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logging.disable(logging.WARNING)  # of the peer, a line a tensor
    given = {file.stem: file for file in files}
    for name in given or chosen:
        with tempfile.TemporaryDirectory(prefix="autotune-int8-") as place:
            folder = Path(place)
            row = compare(name, given.get(name) or exported(name, folder, options.seed), folder, options)
        results.save(NAME, {"rows": {name: row}})
        shown = ", ".join(f"{label} {ratio:.1f} dB" for label, ratio in row["decibels"].items())
        sys.stderr.write(f"{name}: {shown}\n")
    saved = results.load(NAME)
    assert saved is not None
    sys.stdout.write(tables.quantized_networks(saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
