"""Offload of layers to an accelerator, in its blocked layout, with conversions around them.

Layers that only shift (`ops.fixed_point`) and whose channels fill the blocks of the device's matrix instruction become
blocked layers, which are tasks for the device. All other nodes stay on the CPU. Element-wise nodes work in the layout
of their inputs, so that consecutive layers, and residual additions between them, exchange blocks. A node that needs
channels last (pooling, the outputs) reads a conversion, a transposition on the CPU. If the device reads and writes
blocks of different numbers of channels, each is a separate layout.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, GraphBuilder, GraphError, Node, without_unread_constants
from autotune.graph.ops import Kind, find
from autotune.graph.passes.dead_code import dead_code
from search_space.hardware import Hardware
from search_space.intrinsics import GEMM_TILE
from search_space.workloads import Workload

ENDING = {"shift": 8, "relu": True}
"""Attributes of the task that all layers of the same sizes share."""

Block = tuple[int, int, int]
"""Batch, output channels and input channels of one instruction."""

_TO_BLOCKS = {4: (0, 4, 2, 3, 1, 5), 2: (0, 2, 1, 3)}
_FROM_BLOCKS = {6: (0, 4, 2, 3, 1, 5), 4: (0, 2, 1, 3)}
"""Axes of a transposition by the rank of the converted value, between splitting and joining axes."""


def matrix_block(hardware: Hardware) -> Block | None:
    """Returns the block of a device's matrix instruction; None for processors, which accept any layout."""
    for feature in hardware.features:
        name, _, sizes = feature.partition(":")
        if name == GEMM_TILE:
            batch, outs, ins = map(int, sizes.split("x"))
            return batch, outs, ins
    return None


def is_offloaded(workload: Workload) -> bool:
    """Tells whether a workload of an offloaded graph runs on the device."""
    return workload.operator in ("conv2d_blocked", "dense_blocked")


def tuned_as(workload: Workload) -> Workload:
    """Returns the workload whose schedules a kernel uses: layers of the device share one for all shifts and limits.

    Shifts and limits are immediate operands of the same instructions: schedules and their times do not depend on them.
    """
    return Workload(workload.operator, {**workload.args, **ENDING}) if is_offloaded(workload) else workload


def is_covered(graph: Graph, node: Node, block: Block) -> bool:
    """Tells whether the device computes a node: a layer with constant weights whose channels fill blocks."""
    if node.op not in ("shift_conv2d", "shift_matmul") or any(name not in graph.constants for name in node.inputs[1:]):
        return False
    batch, outs, ins = block
    shape = graph.type(node.inputs[0]).shape
    return shape[0] % batch == shape[-1] % ins == node.type.shape[-1] % outs == 0


def offload(graph: Graph, block: Block) -> Graph:
    """Moves the layers that the device covers to blocks.

    Args:
        graph: graph quantised by `quantise_shift`.
        block: block of the device.

    Raises:
        GraphError: the device covers no layer of the graph.
    """
    if not any(is_covered(graph, node, block) for node in graph.nodes):
        raise GraphError(
            "a network for an accelerator must have layers whose channels fill its blocks of "
            f"{'x'.join(map(str, block))}, but {graph.name} has none"
        )
    return _Offload(graph, block).run()


class _Offload:
    """A walk over a graph that builds the offloaded one.

    A value has a form for each layout in which it exists, first the one in which it was computed. A layout is the
    number of channels in a block; 0: channels last.
    """

    def __init__(self, graph: Graph, block: Block) -> None:
        self.graph, self.block = graph, block
        self.builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
        self.forms: dict[str, dict[int, str]] = {name: {0: name} for name in graph.inputs}
        for name, array in graph.constants.items():
            self.forms[name] = {0: self.builder.constant(array, name)}

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if is_covered(self.graph, node, self.block):
                layout, name = self.block[1], self._layer(node)
            else:
                layout = self._layout(node)
                inputs = [self._operand(value, node, layout) for value in node.inputs]
                name = self.builder.add(node.op, inputs, node.name, **node.attrs)
            self.forms[node.name] = {layout: name}
        outputs = [self._form(name, 0) for name in self.graph.outputs]
        return without_unread_constants(dead_code(self.builder.finish(outputs)))

    def _layer(self, node: Node) -> str:
        data, weight, bias = node.inputs
        batch, outs, ins = self.block
        values, biases = self.graph.constants[weight], self.graph.constants[bias]
        *window, c, k = values.shape
        split = values.reshape(*window, c // ins, ins, k // outs, outs)
        axes = len(window)
        order = (
            axes + 2,
            axes,
            *range(axes),
            axes + 3,
            axes + 1,
        )  # k, c, window, outputs in a block, inputs in a block
        constants = [
            self.builder.constant(np.ascontiguousarray(split.transpose(order)), weight),
            self.builder.constant(np.repeat(biases.reshape(k // outs, 1, outs), batch, axis=1), bias),
        ]
        op = "conv2d_blocked" if node.op == "shift_conv2d" else "dense_blocked"
        return self.builder.add(op, [self._form(data, ins), *constants], node.name, **node.attrs)

    def _layout(self, node: Node) -> int:
        """Returns the layout of an element-wise node: blocks if an input was computed so and all inputs allow it."""
        shape = node.type.shape
        if find(node.op).kind is not Kind.elementwise or len(shape) not in _TO_BLOCKS:
            return 0
        layout = 0
        for name in node.inputs:
            kind = self.graph.type(name)
            if name in self.graph.constants:
                if kind.size != 1 and kind.shape[-1:] != (kind.size,):
                    return 0  # varies along other axes than channels
            elif kind.shape != shape:
                return 0
            else:
                layout = layout or next(iter(self.forms[name]))
        return layout

    def _operand(self, name: str, node: Node, layout: int) -> str:
        array = self.graph.constants.get(name)
        if not layout or array is None or array.size == 1:
            return self._form(name, layout if array is None else 0)
        return self.builder.constant(_spread(array, layout, len(node.type.shape)), name)

    def _form(self, name: str, layout: int) -> str:
        forms = self.forms[name]
        if layout not in forms:
            if layout:
                forms[layout] = self._to_blocks(self._form(name, 0), layout)
            else:
                forms[0] = self._from_blocks(next(iter(forms.values())), self.graph.type(name).shape)
        return forms[layout]

    def _to_blocks(self, name: str, layout: int) -> str:
        n, *space, c = self.builder.type(name).shape
        batch = self.block[0]
        split = self.builder.add("reshape", [name], shape=(n // batch, batch, *space, c // layout, layout))
        if not space and batch == 1:  # the elements are in this order already
            return self.builder.add("reshape", [name], shape=(n, c // layout, 1, layout))
        return self.builder.add("transpose", [split], axes=_TO_BLOCKS[len(space) + 2])

    def _from_blocks(self, name: str, shape: tuple[int, ...]) -> str:
        blocks = self.builder.type(name).shape
        if len(blocks) > 4 or self.block[0] > 1:
            name = self.builder.add("transpose", [name], axes=_FROM_BLOCKS[len(blocks)])
        return self.builder.add("reshape", [name], shape=shape)


def _spread(array: Array, layout: int, rank: int) -> Array:
    """Reshapes a constant per channel for values in blocks: (blocks, 1..., 1, channels in a block)."""
    return array.reshape(array.size // layout, *(1,) * (rank - 1), layout)


__all__ = ["Block", "matrix_block", "is_covered", "is_offloaded", "offload", "tuned_as"]
