"""Cost of a graph: callables from graph to seconds, modelled or measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.graph.ir import Graph, Node, TensorType
from autotune.graph.ops import find
from autotune.graph.partition import group_nodes
from autotune.graph.views import locate

Cost = Callable[[Graph], float]
"""Graph → seconds."""

Structure = tuple[Any, ...]
"""Key of a kernel: operations, attributes, types of its inputs, and whether these are weights."""


def structure(graph: Graph, nodes: Sequence[Node], weights: Collection[str]) -> Structure:
    """Returns the key of the kernel that computes some nodes, in order: its seconds are looked up by it."""
    place = {node.name: i for i, node in enumerate(nodes)}

    def read(name: str) -> Any:
        return place[name] if name in place else (graph.type(name), name in weights)

    return tuple((node.op, tuple(node.attrs.items()), tuple(map(read, node.inputs))) for node in nodes)


@dataclass
class Analytic:
    """Sum over the compiled kernels of a graph: FLOP over peak, bytes over bandwidth and an overhead.

    Kernels are those of `partition`: element-wise operations end the kernel before them; views, concatenations written
    in place and slices read in place cost nothing. Operations on weights alone are folded. The figures are fixed, not
    measured, so that searches give the same graph on every machine.

    Attributes:
        peak: FLOP a second.
        bandwidth: bytes a second.
        overhead: seconds a kernel.
        lanes: output channels are computed in vectors of so many; the rest of the last one is wasted.
        winograd: times less work that convolutions take which Winograd's algorithm can compute.
        measured_seconds: seconds by structure, instead of the model's.
        network_inputs: inputs of the whole network; other inputs of a part of it are computed by kernels outside the
            part.
            None: every input is one of the network.
    """

    peak: float = 220e9
    bandwidth: float = 40e9
    overhead: float = 4e-6
    lanes: int = 16
    winograd: float = 2.25
    measured_seconds: Mapping[Structure, float] = field(default_factory=dict)
    network_inputs: Collection[str] | None = None
    _costs: dict[Structure, float] = field(default_factory=dict, repr=False)

    def __call__(self, graph: Graph) -> float:
        """Estimates the seconds of one run of the graph."""
        weights = depends_on_weights(graph)
        computed = (
            () if self.network_inputs is None else [name for name in graph.inputs if name not in self.network_inputs]
        )
        groups = group_nodes(graph, locate(graph, computed_inputs=computed), weights)
        return sum(self._kernel(graph, nodes, weights) for nodes, nothing in groups if not nothing)

    def _kernel(self, graph: Graph, nodes: Sequence[Node], weights: set[str]) -> float:
        key = structure(graph, nodes, weights)
        if key in self.measured_seconds:
            return self.measured_seconds[key]
        if key not in self._costs:
            self._costs[key] = self._model_seconds(graph, nodes)
        return self._costs[key]

    def _model_seconds(self, graph: Graph, nodes: Sequence[Node]) -> float:
        first, last = nodes[0], nodes[-1]
        inside = {node.name for node in nodes}
        read = dict.fromkeys(name for node in nodes for name in node.inputs if name not in inside)
        # A slice reads no more than it gives.
        moved = sum(
            min(graph.type(n).nbytes, first.type.nbytes) if first.op == "slice" else graph.type(n).nbytes for n in read
        )
        moved += last.type.nbytes
        return (
            self._flops(first, [graph.type(n) for n in first.inputs]) / self.peak
            + moved / self.bandwidth
            + self.overhead
        )

    def _flops(self, node: Node, types: list[TensorType]) -> float:
        op = find(node.op)
        if op.workload is None:
            return float(node.type.size)
        weights = [place > 0 for place in range(len(types))]  # as constants, of which there are more algorithms
        workload = op.workload(node.attrs, types, weights)
        flops = float(workload.flops)
        if node.op in ("conv2d", "matmul", "depthwise_conv2d"):
            channels = node.type.shape[-1]
            flops *= -(-channels // self.lanes) * self.lanes / channels
        if "winograd2" in workload.algorithms and workload.args["kernel"] == (3, 3):
            flops /= self.winograd
        return flops


def depends_on_weights(graph: Graph) -> set[str]:
    """Lists values that depend on constants alone, constants included."""
    constant = set(graph.constants)
    for node in graph.nodes:
        if node.inputs and all(name in constant for name in node.inputs):
            constant.add(node.name)
    return constant
