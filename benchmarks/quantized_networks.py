"""Networks and layers in int8 beside ONNX Runtime's and OpenVINO's: accuracy and time, calibrated on the same inputs.

`python -m benchmarks.quantized_networks [--rows NAME,...] [--files A.onnx,...] [--trials 0] [--turns 20]` exports
networks of the survey's list with random weights, or takes files. It quantises each, and stacks of equal layers, by
ours and by `quantize_static`. It prints the table, and writes `benchmarks/results/quantized_networks.json` once all
rows are there. Accuracy is the signal to quantisation noise of the outputs against the network in float32 on ONNX
Runtime, on inputs that no calibration saw. `--turns 0` measures accuracy alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from autotune.compiler.checking.process import NetworkProcess
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.config import Quantisation, check_config
from autotune.graph.frontends.onnx.model import load_model
from autotune.graph.ir import Array
from autotune.graph.quantise import TEST_INPUTS, Feeds, random_feeds
from autotune.run.workloads import make_settings
from benchmarks import tables
from benchmarks.collected import collect
from benchmarks.figures import figures_in_turns
from benchmarks.stacks import STACKS, Stack
from benchmarks.subjects import add_options, outputs, signal_to_noise, subjects
from benchmarks.survey.one import compile_network
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
"""Settings of `quantize_static`: its default, which quantises all it can, or only layers with constant weights."""
PEERS = ("onnxruntime", "openvino", "openvino-as-installed")
"""The last computes unquantised layers in its default precision, the others in float32."""
NAME = "quantized_networks"


def peer_model(file: Path, recipe: str, feeds: Sequence[Feeds], folder: Path) -> Path:
    """Quantises the network by `quantize_static`: operators between QuantizeLinear and DequantizeLinear.

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

    prepared, quantised = folder / "prepared.onnx", folder / f"{recipe}.onnx"
    types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    options = {"per_channel": True, "quant_format": QuantFormat.QDQ, **types, **RECIPES[recipe]}
    with quiet():
        if not prepared.exists():
            quant_pre_process(str(file), str(prepared))
        quantize_static(str(prepared), str(quantised), Reader(), **options)
    return quantised


@contextmanager
def quiet() -> Iterator[None]:
    """Disables warnings, of which the peer has one for each tensor."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def compare(name: str, file: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the row of one network: decibels and seconds of ours and of each peer with each recipe."""
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
    network = load_network(load_model(str(file)), name, CompileOptions(seed=options.seed, quantise="int8"))
    assert network.accuracy is not None
    executable_folder = compile_network(network, config, make_settings(config), folder)
    train = random_feeds(network.graph.inputs, options.seed, Quantisation().inputs)
    test = random_feeds(network.graph.inputs, options.seed + 1, TEST_INPUTS)
    row: dict[str, Any] = {"title": name, "threads": options.threads, "trials": options.trials}
    row |= {"layers": network.accuracy.quantised_layers, "float_layers": network.accuracy.float_layers}
    row |= {"decibels": {}, "seconds": {}, "spread": {}, "halves": {}}
    with NetworkProcess("onnxruntime", options.threads, model=str(file)) as process:
        exact = outputs(process, test)
    opened = [("autotune", "autotune", {"folder": str(executable_folder)})]
    for recipe in RECIPES:
        quantised = {"model": str(peer_model(file, recipe, train, folder))}
        opened += [(_label(peer, recipe), peer, quantised) for peer in PEERS]
    with ExitStack() as stack:
        processes = []
        for label, runtime, facts in opened:
            process = stack.enter_context(NetworkProcess(runtime, options.threads, **facts))
            process.runtime = label  # several of a peer's take turns
            row["decibels"][label] = signal_to_noise(exact, outputs(process, test))
            processes.append(process)
        if options.turns:
            with alone():
                row |= figures_in_turns(processes, options.turns)
    return row


def _label(runtime: str, recipe: str) -> str:
    return runtime if runtime == "autotune" else f"{runtime}, {recipe}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized_networks", description=__doc__)
    add_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    options = parse(arguments)
    try:
        chosen = subjects(options.files, ROWS, options.results)
        chosen |= {} if options.files else {name: Stack(name) for name in STACKS}
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    settings = {name: getattr(options, name) for name in ("threads", "trials", "turns", "seed")}

    def measure(name: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="autotune-int8-") as place:
            folder = Path(place)
            return compare(name, chosen[name].file(folder, options.seed), folder, options)

    def summarise(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{label} {ratio:.1f} dB" for label, ratio in row["decibels"].items())

    return collect(options, NAME, settings, list(chosen), measure, summarise, tables.quantized_networks)


if __name__ == "__main__":
    sys.exit(main())
