"""Lower bound of the estimates of all schedules of a definition, computed without lowering a sketch of it.

A product of matrices or a convolution executes all its multiply-adds, at most at the rate of the processor. If its
constants are cold, it loads them from memory at least once. Algorithms differ in both: Winograd's multiplies less and
has larger weights. Other costs depend on the schedule, and are not included.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, walk
from search_space.schedule.state import operations
from search_space.tags import Tag
from search_space.tensor import Operation, Tensor

WIDE = "float32"
"""Type whose products one instruction computes in each lane; instructions for narrow types compute several per lane."""


def least_seconds(tensors: Sequence[Tensor], hardware: Hardware, cold_constants: bool) -> float:
    """Returns a lower bound of the CPU's estimate (`cpu.estimate`), in seconds, for all schedules of a definition.

    Args:
        tensors: tensors of the definition, its output last.
        hardware: limits of the machine; the bound is 0 unless it is a CPU.
        cold_constants: whether constants come from memory at each execution.
    """
    if hardware.kind != "cpu":
        return 0.0
    stages = operations(tensors[-1:])
    made = (op for op in stages if op.body is not None and op.tag != Tag.CONSTANT)
    return sum(_of_stage(op, hardware, cold_constants) for op in made)


def _of_stage(op: Operation, hardware: Hardware, cold: bool) -> float:
    """Returns the bound of one sum of products in float32; 0 for any other operation."""
    assert op.body is not None
    extents = {axis.name: axis.extent for axis in (*op.axis, *op.reduce_axis)}
    reads = [node for node in walk(op.body) if node.op == "load"]
    narrow = any(node.dtype != WIDE for node in reads) or op.dtype != WIDE
    if op.reducer != "sum" or op.body.op != "mul" or narrow or any(isinstance(e, Expr) for e in extents.values()):
        return 0.0
    products = 2 * prod(extents.values()) / hardware.peak_flops
    return float(max(products, _constants(reads, extents) / _bandwidth(hardware) if cold else 0.0))


def _constants(reads: Sequence[Expr], extents: dict[str, int]) -> int:
    """Returns the bytes of constants whose elements are all read: each index is an axis as long as the dimension."""
    sizes = {}
    for node in reads:
        source: Operation = node.args[0].op
        indices = [str(index.args[0]) if index.op == "var" else "" for index in node.args[1:]]
        if source.constant or source.tag == Tag.CONSTANT:
            if len(set(indices)) == len(indices) and [extents.get(i) for i in indices] == list(source.shape):
                sizes[source] = prod(source.shape) * dtype_bytes(source.dtype)
    return sum(sizes.values())


def _bandwidth(hardware: Hardware) -> float:
    """Returns the bytes per second from memory that a kernel reaches at most, on one core or on all."""
    rates = hardware.rates
    hertz = hardware.peak_flops / (hardware.cores * 2 * rates.fma * hardware.float_lanes)
    return max(rates.one[-1], rates.each[-1] * hardware.cores) * hertz
