"""What the estimate of any schedule of a definition must be at least: known before a sketch of it is lowered.

Of a product of matrices or a convolution all multiply-adds are done, at most as many a cycle as a processor starts, and
its constants come from memory at least once where nothing has kept them. Algorithms differ in both: Winograd's multiply
less and have larger weights. What else a schedule costs is not known without it, and counts nothing here.
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
"""The type whose products one instruction makes a vector of; instructions for narrow ones make several a lane."""


def least_seconds(tensors: Sequence[Tensor], hardware: Hardware, cold_constants: bool) -> float:
    """A lower bound of the CPU's estimate (`cpu.estimate`), in seconds, of all schedules of a definition.

    Args:
        tensors: the definition, its output last.
        hardware: the machine; 0 where it is no CPU, as of others nothing is known here.
        cold_constants: whether constants come from memory at each execution.
    """
    if hardware.kind != "cpu":
        return 0.0
    stages = operations(tensors[-1:])
    made = (op for op in stages if op.body is not None and op.tag != Tag.CONSTANT)
    return sum(_of_stage(op, hardware, cold_constants) for op in made)


def _of_stage(op: Operation, hardware: Hardware, cold: bool) -> float:
    """Of one sum of products in float32; 0 of all else."""
    assert op.body is not None
    extents = {axis.name: axis.extent for axis in (*op.axis, *op.reduce_axis)}
    reads = [node for node in walk(op.body) if node.op == "load"]
    narrow = any(node.dtype != WIDE for node in reads) or op.dtype != WIDE
    if op.reducer != "sum" or op.body.op != "mul" or narrow or any(isinstance(e, Expr) for e in extents.values()):
        return 0.0
    products = 2 * prod(extents.values()) / hardware.peak_flops
    return float(max(products, _constants(reads, extents) / _bandwidth(hardware) if cold else 0.0))


def _constants(reads: Sequence[Expr], extents: dict[str, int]) -> int:
    """Bytes of the constants of which every element is read: each index is an axis as long as the dimension."""
    whole = {}
    for node in reads:
        source: Operation = node.args[0].op
        indices = [str(index.args[0]) if index.op == "var" else "" for index in node.args[1:]]
        if source.constant or source.tag == Tag.CONSTANT:
            if len(set(indices)) == len(indices) and [extents.get(i) for i in indices] == list(source.shape):
                whole[source] = prod(source.shape) * dtype_bytes(source.dtype)
    return sum(whole.values())


def _bandwidth(hardware: Hardware) -> float:
    """Bytes a second from memory that a kernel reaches at most, on one core or on all."""
    rates = hardware.rates
    hertz = hardware.peak_flops / (hardware.cores * 2 * rates.fma * hardware.float_lanes)
    return max(rates.one[-1], rates.each[-1] * hardware.cores) * hertz
