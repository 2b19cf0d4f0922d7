"""What a graph costs: a callable from graph to seconds, modelled or measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.graph.ir import Graph, Node, TensorType
from autotune.graph.ops import Kind, find

Cost = Callable[[Graph], float]
"""Graph → seconds."""

Structure = tuple[Any, ...]
"""What tells kernels apart: operation, attributes, types of the inputs and which of them are weights."""


def structure(graph: Graph, node: Node, weights: set[str]) -> Structure:
    """What measured costs of a node are found by."""
    read = tuple((graph.type(name), name in weights) for name in node.inputs)
    return node.op, tuple(sorted(node.attrs.items())), read


@dataclass
class Analytic:
    """Sum over kernels of FLOP over peak, bytes over bandwidth and an overhead.

    Element-wise operations are free behind a kernel whose result nobody else reads: they become its end. Views are
    free, and so is a slice of the last axis, which is read with a stride. What depends on weights alone is folded.

    Attributes:
        peak: FLOP a second.
        bandwidth: bytes a second.
        overhead: seconds a kernel.
        lanes: output channels are computed in vectors of so many; the rest of the last one is wasted.
        measured: seconds by structure, instead of the model's.
    """

    peak: float = 220e9
    bandwidth: float = 40e9
    overhead: float = 4e-6
    lanes: int = 16
    measured: Mapping[Structure, float] = field(default_factory=dict)
    _known: dict[Structure, float] = field(default_factory=dict, repr=False)

    def __call__(self, graph: Graph) -> float:
        """Seconds for one run of the graph."""
        weights = depends_on_weights(graph)
        readers: dict[str, int] = {}
        for node in graph.nodes:
            for name in set(node.inputs):
                readers[name] = readers.get(name, 0) + 1
        for name in graph.outputs:
            readers[name] = readers.get(name, 0) + 1
        total = 0.0
        kernels: set[str] = set()  # Values at the end of a kernel that may go on.
        for node in graph.nodes:
            if node.name in weights:
                continue
            kind = find(node.op).kind
            if kind is Kind.elementwise and any(name in kernels and readers[name] == 1 for name in node.inputs):
                kernels.add(node.name)
                # The other operands are read all the same.
                extra = [n for n in node.inputs if n not in kernels and graph.type(n).size == node.type.size]
                total += sum(graph.type(name).nbytes for name in extra) / self.bandwidth
                continue
            seconds = self._kernel(graph, node, weights)
            if seconds:
                kernels.add(node.name)
            total += seconds
        return total

    def _kernel(self, graph: Graph, node: Node, weights: set[str]) -> float:
        key = structure(graph, node, weights)
        if key in self.measured:
            return self.measured[key]
        if key not in self._known:
            self._known[key] = 0.0 if is_view(node) else self._modelled(node, [graph.type(n) for n in node.inputs])
        return self._known[key]

    def _modelled(self, node: Node, types: list[TensorType]) -> float:
        moved = node.type.nbytes + sum(kind.nbytes for kind in types)
        if node.op == "slice":
            moved = 2 * node.type.nbytes
        return self._flops(node, types) / self.peak + moved / self.bandwidth + self.overhead

    def _flops(self, node: Node, types: list[TensorType]) -> float:
        op = find(node.op)
        if op.workload is None:
            return float(node.type.size)
        flops = float(op.workload(node.attrs, types, [False] * len(types)).flops)
        if node.op in ("conv2d", "matmul", "depthwise_conv2d"):
            channels = node.type.shape[-1]
            flops *= -(-channels // self.lanes) * self.lanes / channels
        return flops


def is_view(node: Node) -> bool:
    """Whether nothing is moved: a reshape, or a slice of the last axis, which is read with a stride."""
    if node.op == "slice":
        return node.attrs["size"][:-1] == node_shape_before_last(node) and set(node.attrs["step"]) == {1}
    return find(node.op).kind is Kind.view


def node_shape_before_last(node: Node) -> tuple[int, ...]:
    """Extents of the axes before the last, where a slice leaves them as they are; else nothing that a size equals."""
    whole = all(begin == 0 for begin in node.attrs["begin"][:-1])
    return node.type.shape[:-1] if whole else ()


def depends_on_weights(graph: Graph) -> set[str]:
    """Values that constants alone decide, constants included."""
    found = set(graph.constants)
    for node in graph.nodes:
        if node.inputs and all(name in found for name in node.inputs):
            found.add(node.name)
    return found
