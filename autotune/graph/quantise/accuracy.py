"""Accuracy of quantisation: outputs and intermediate values compared with the float network on other inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph
from autotune.graph.quantise.calibration import Feeds
from autotune.graph.quantise.formats import decibels
from autotune.graph.quantise.rewriting import QuantisedGraph


@dataclass(frozen=True)
class Layer:
    """A value that is stored in bytes: its format, and the ratio of signal to noise in dB."""

    name: str
    op: str
    format: str
    decibels: float


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of a quantised network relative to the float network.

    Attributes:
        network: name of the network.
        inputs: number of sets of inputs.
        top1: share of rows of the logits whose largest element has the same index.
        rms_error: root of the mean squared difference of the logits, over that of their mean square.
        max_error: largest difference of the logits, over their largest element.
        decibels: ratio of signal to noise of the logits.
        quantised_layers, float_layers: number of layers that work on bytes, and of the others.
        layers: values stored in bytes, in order.
        storage: storage of layers: int8, or weights alone in weights8 or weights4.
    """

    network: str
    inputs: int
    top1: float
    rms_error: float
    max_error: float
    decibels: float
    quantised_layers: int
    float_layers: int
    layers: tuple[Layer, ...]
    storage: str = "int8"

    def to_json(self) -> dict[str, Any]:
        """Returns the figures as plain data, with the storage as `stored`."""
        data = {**asdict(self), "layers": [asdict(layer) for layer in self.layers]}
        data["stored"] = data.pop("storage")
        return data

    def table(self) -> str:
        """Formats the figures as text: totals, then a line per value."""
        lines = [
            f"{self.network}: {self.quantised_layers} layers in {self.storage}, {self.float_layers} in float32; "
            f"on {self.inputs} inputs",
            f"top-1 agreement {self.top1:.1%}, error of the logits {self.rms_error:.2%} rms, {self.max_error:.2%} max, "
            f"{self.decibels:.1f} dB",
            "",
            f"{'value':<28} {'operation':<18} {'format':<14} {'dB':>6}",
        ]
        lines += [f"{x.name:<28} {x.op:<18} {x.format:<14} {x.decibels:>6.1f}" for x in self.layers]
        return "\n".join(lines)


def logits(graph: Graph) -> str:
    """Returns the value that decides the network's answer: its first output, or the input of a final softmax."""
    name = graph.outputs[0]
    node = graph.node(name)
    return node.inputs[0] if node is not None and node.op == "softmax" else name


def measure_accuracy(graph: Graph, in_bytes: QuantisedGraph, feeds: Iterable[Feeds]) -> Accuracy:
    """Measures the accuracy by an evaluation of both networks in NumPy.

    Args:
        graph: graph in floats.
        in_bytes: its quantised form.
        feeds: inputs that the calibration has not seen; at least one set.

    Raises:
        ValueError: there are no feeds.
    """
    result, wanted = logits(in_bytes.graph), logits(graph)
    power: dict[str, tuple[float, float]] = dict.fromkeys([*in_bytes.names, "logits"], (0.0, 0.0))
    agree: list[Array] = []
    largest = furthest = 0.0
    count = 0
    for feed in feeds:
        exact, ours = evaluate(graph, feed), evaluate(in_bytes.graph, feed)
        count += 1
        for old, new in in_bytes.names.items():
            power[old] = add_power(power[old], exact[old], in_bytes.formats[old].decode(ours[new]))
        a, b = exact[wanted], ours[result]
        power["logits"] = add_power(power["logits"], a, b)
        agree.append(np.atleast_1d(a.argmax(-1) == b.argmax(-1)).reshape(-1))
        largest = max(largest, float(np.abs(a).max()))
        furthest = max(furthest, float(np.abs(a.astype(np.float64) - b).max()))
    if not count:
        raise ValueError("`feeds` must hold at least one set of inputs, but got none")
    signal, noise = power["logits"]
    return Accuracy(
        graph.name,
        count,
        float(np.concatenate(agree).mean()),
        float(np.sqrt(noise / signal)) if signal else 0.0,
        furthest / (largest or 1.0),
        decibels(signal, noise),
        in_bytes.layers,
        len(in_bytes.left_float),
        tuple(_layers(graph, in_bytes, power)),
        in_bytes.storage,
    )


def add_power(so_far: tuple[float, float], exact: Array, array: Array) -> tuple[float, float]:
    """Adds one more array to the powers of signal and noise, which are sums over elements."""
    wide = exact.astype(np.float64)
    return so_far[0] + float((wide**2).sum()), so_far[1] + float(((array - wide) ** 2).sum())


def _layers(graph: Graph, in_bytes: QuantisedGraph, power: Mapping[str, tuple[float, float]]) -> Iterable[Layer]:
    order = [*graph.inputs, *graph.constants, *(node.name for node in graph.nodes)]
    for name in order:
        if name in in_bytes.names:
            node = graph.node(name)
            op = "input" if node is None else node.op
            yield Layer(name, op, str(in_bytes.formats[name]), decibels(*power[name]))
