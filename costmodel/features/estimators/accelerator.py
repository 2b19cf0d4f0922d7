"""The estimate for machines whose memories are filled by the program: computation, copies, and their overlap.

Products and element-wise work run one after another on one unit, copies on another. With virtual threads one works
while the other copies, so that the longer of both counts. The first copies always precede any work, and copies
outside of virtual threads overlap with nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodel.features.estimators.base import OVERLAP, Estimate, Terms
from costmodel.features.nest import Nest
from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes
from search_space.ir.stmt import LoopProgram
from search_space.ir.tape import Value


def estimate(program: LoopProgram, nests: Sequence[Nest], hardware: Hardware, cold_constants: bool) -> Estimate:
    terms = [_terms(nest, hardware) for nest in nests]
    seconds = _seconds(nests, terms, hardware)
    return Estimate(terms, seconds, seconds)


def _terms(nest: Nest, hardware: Hardware) -> Terms:
    """Computes one statement's terms; of a copy, `traffic` are its bytes and `misses` cycles of the copying unit."""
    tape, statement = nest.tape, nest.statement
    nothing, one = tape.const(0), tape.const(1)
    tensor = nest.total_extent("tensor")
    is_product = any(loop.kind == "tensor" for loop in statement.loops)
    lanes = tensor if is_product else tape.const(hardware.float_lanes)
    instructions = nest.iterations / lanes
    operations = 1.0 if is_product else float(sum(statement.operations.values()))
    arithmetic = instructions * operations
    bytes_ = _count_copied_bytes(nest)
    transfer = nothing
    if bytes_ is not None:
        arithmetic = nothing
        rows = nest.iterations / _run(nest)
        rate = dict(hardware.fill).get(statement.output.buffer.scope, hardware.bandwidth)
        transfer = (bytes_ / rate + rows * hardware.row_seconds) * hardware.clock_hz
    traffic = (nothing, nothing, bytes_ if bytes_ is not None else nothing)
    terms = Terms(
        instructions, one, one, one, one, arithmetic, nothing, nothing, traffic, (nothing, nothing, transfer), one, one
    )
    return replace(terms, seconds=(arithmetic + transfer) / hardware.clock_hz)


def _seconds(nests: Sequence[Nest], terms: Sequence[Terms], hardware: Hardware) -> Value:
    """Computes the seconds of a whole program."""
    tape = nests[0].tape
    threads = tape.const(1)
    work, hidden, exposed, first = (tape.const(0) for _ in range(4))
    for nest, each in zip(nests, terms, strict=True):
        work = work + each.arithmetic
        threads = threads.most(nest.total_extent("vthread"))
        if _count_copied_bytes(nest) is None:
            continue
        cycles = each.misses[-1]
        if any(loop.kind == "vthread" for loop in nest.statement.loops):
            hidden = hidden + cycles
            first = first + cycles / tape.product(nest.extents[: nest.statement.allocation]).most(1)
        else:
            exposed = exposed + cycles
    least = work.least(hidden)
    together = work.most(hidden) + least * (OVERLAP * OVERLAP) + first
    cycles = exposed + (threads <= 1).otherwise(work + hidden, together)
    return cycles / hardware.clock_hz


def _count_copied_bytes(nest: Nest) -> Value | None:
    """Returns the bytes that a statement copies from memory to a memory on the chip; None if it copies none."""
    output, inputs = nest.statement.output.buffer, [access.buffer for access in nest.statement.inputs]
    coming = output.scope != "global" and bool(inputs) and all(buffer.scope == "global" for buffer in inputs)
    if not coming:
        return None
    return nest.iterations * dtype_bytes(output.dtype)


def _run(nest: Nest) -> Value:
    """Returns the number of consecutive elements in memory that a copy reads."""
    tape = nest.tape
    source = nest.statement.inputs[0]
    run, going = tape.const(1), tape.const(1)
    for loop, extent in reversed(
        list(zip(nest.statement.loops, nest.extents, strict=True))[nest.statement.allocation :]
    ):
        if not source.depends(loop.var):
            continue
        goes_on = nest.stride(source, loop.var).equals(run).least(going)
        run = run * goes_on.otherwise(extent, tape.const(1))
        going = goes_on
    return run
