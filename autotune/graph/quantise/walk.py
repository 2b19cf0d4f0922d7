"""Walk from a graph to one with integer nodes: the nodes that both quantisers add, however scales are chosen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from autotune.graph.ir import Graph, GraphBuilder, Node, without_unread_constants
from autotune.graph.ops.quantised import RANGES
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.site import pair
from autotune.graph.quantise.arithmetic import NotExact, Sum, plan_average
from autotune.graph.quantise.formats import Format
from autotune.graph.quantise.products import padded_bytes
from autotune.graph.quantise.units import window_of_means


class ByteWalk(ABC):
    """A walk over a graph that builds the graph with integer nodes.

    Attributes:
        graph: graph to convert.
        builder: builder of the new graph.
        floats: values in their original dtype → names in the new graph.
        left_float: names of layers that stay in floats → reasons.
        layers: number of layers that work on bytes.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
        self.floats: dict[str, str] = {name: name for name in graph.inputs}
        self.left_float: dict[str, str] = {}
        self.layers = 0
        for name, array in graph.constants.items():
            self.floats[name] = self.builder.constant(array, name)

    @abstractmethod
    def value(self, name: str, fresh: bool = False) -> str:
        """Returns the new name of a value in its original dtype.

        Args:
            name: name in the original graph.
            fresh: whether its only reader may get a node of its own, which can begin the reader's kernel.
        """

    def finish(self) -> Graph:
        """Returns the new graph, without nodes and constants that are not read."""
        outputs = [self.value(name) for name in self.graph.outputs]
        return without_unread_constants(dead_code(self.builder.finish(outputs)))

    def constant(self, array: ArrayLike, dtype: Any = np.int32) -> str:
        """Adds a one-dimensional constant."""
        return self.builder.constant(np.asarray(array).astype(dtype).reshape(-1), "constant")

    def numbers(self, at: Format, inverse: bool = False) -> list[str]:
        """Adds the scale of a format, or its inverse, and its zero as inputs of a node."""
        return [self.constant(at.inverse if inverse else at.scale, np.float32), self.constant(at.zero, at.dtype)]

    def keep(self, node: Node, fresh: bool = False) -> None:
        """Adds a node of the original graph unchanged."""
        inputs = [self.value(name, fresh) for name in node.inputs]
        self.floats[node.name] = self.builder.add(node.op, inputs, node.name, **node.attrs)

    def move(self, node: Node, inputs: Sequence[str], at: Format, name: str) -> str:
        """Adds a node that moves or compares bytes of a format."""
        if node.op == "pad":
            return padded_bytes(self.builder, inputs[0], node.attrs["before"], node.attrs["after"], at, name)
        return self.builder.add(node.op, inputs, name, **node.attrs)

    def add_limit(self, value: str, name: str, limits: tuple[int, int], dtype: str) -> str:
        """Adds a node that limits bytes by two others, which are its inputs."""
        return self.builder.add("limit", [value, *(self.constant(end, dtype) for end in limits)], name)

    def end(
        self,
        name: str,
        value: str,
        end: Sum,
        limits: tuple[float, float] = (-np.inf, np.inf),
        residuals: Sequence[str] = (),
        summands: Sequence[str] = (),
    ) -> str:
        """Adds the nodes from a sum to the bytes or the float `name`.

        Args:
            name: name of the result.
            value: sum in int32.
            end: operations on the sum.
            limits: limits at which a float is clipped; `end` clips bytes.
            residuals: bytes that are added, an operand for each factor of `end`.
            summands: floats of the original graph that are added to a float.
        """
        if np.any(end.left):
            value = self.builder.add("shift_left", [value, self.constant(end.left)])
        for residual, factor in zip(residuals, end.factors, strict=True):
            value = self.builder.add("add_widened", [value, residual, self.constant(factor)])
        if end.format is not None:
            dtype = end.format.dtype
            operands = [value, self.constant(end.bias), self.constant(end.scales, np.float32)]
            operands += [self.constant(end.zero, dtype)] if end.zero else []
            low, high = RANGES[dtype]
            if (end.low, end.high) == (low, high):
                return self.builder.add("requantise", operands, name, low=low, high=high, dtype=dtype)
            value = self.builder.add("requantise", operands, low=low, high=high, dtype=dtype)
            return self.add_limit(value, name, (end.low, end.high), dtype)
        if np.any(end.bias):
            value = self.builder.add("add", [value, self.constant(end.bias)])
        clipped = np.isfinite(limits).any()
        scales = self.constant(end.scales, np.float32)
        value = self.builder.add("dequantise_sum", [value, scales], "" if clipped or summands else name)
        for residual in summands:
            value = self.builder.add("add", [value, self.value(residual)], "" if clipped else name)
        return self.builder.add("clip", [value], name, low=limits[0], high=limits[1]) if clipped else value

    def average(self, node: Node, data: str, source: Format, output: Format | None) -> str:
        """Adds means of bytes, as bytes of another format or as floats.

        Args:
            node: node that computes the means in the original graph, see `window_of_means`.
            data: name of the bytes.
            source: format of the bytes.
            output: format of the means; None for floats.

        Raises:
            NotExact: sums may exceed int32, or padding would count.
        """
        window = window_of_means(self.graph, node)
        assert window is not None
        if source.zero and np.any(window["padding"]):
            raise NotExact("padding of signed values counts in its mean")
        factor, end = plan_average(prod(pair(window["kernel"])), source, output)
        value = self.builder.add("sum_pool2d", [data], **window)
        if factor != 1:
            value = self.builder.add("multiply", [value, self.constant([factor])])
        value = self.end(node.name, value, end)
        if self.builder.type(value).shape != node.type.shape:
            value = self.builder.add("reshape", [value], shape=node.type.shape)
        return value
