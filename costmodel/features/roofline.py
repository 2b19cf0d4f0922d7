"""An analytic estimate of a statement's seconds: the slowest of arithmetic, loads and traffic of each cache level."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.features.statement import Access, Statement
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, ceildiv, const, maximum, product, select, total

FMA_PORTS = 2
LOAD_PORTS = 2
LATENCY = 4  # cycles of a fused multiply-add
L1_MISS, L2_MISS, L3_MISS = 32.0, 8.0, 5.0  # bytes a cycle from the next level, one core
COST = {"div": 16.0, "exp": 24.0, "tanh": 40.0, "erf": 40.0, "sigmoid": 40.0, "log": 30.0, "sqrt": 18.0, "rsqrt": 30.0}
OVERHEAD = 3.0  # cycles of one pass through a loop's end


@dataclass(frozen=True)
class Terms:
    """A statement's analytic quantities; cycles are of one core doing all the work."""

    instructions: Expr
    accumulators: Expr
    body: Expr
    loads: Expr
    arithmetic_cycles: Expr
    overhead_cycles: Expr
    traffic: tuple[Expr, ...]
    memory_cycles: tuple[Expr, ...]
    balance: Expr
    spill: Expr
    cycles: Expr


def real(e: Expr) -> Expr:
    return e.astype("float32")


def estimate(statement: Statement, hardware: Hardware) -> Terms:
    """The terms of a statement's roofline, as expressions in the decision variables."""
    loops = statement.loops
    lanes = product(x.extent for x in loops if x.kind == "vectorize")
    iterations = product(x.extent for x in loops)
    instructions = real(iterations) / real(maximum(lanes, 1))
    unrolled = [x for x in loops if x.kind == "unroll"]
    written = next(a for a in statement.accesses if a.write)
    tile = [x for x in unrolled if written.depends(x.var)]
    accumulators = product(x.extent for x in tile)
    body = product(x.extent for x in unrolled)
    loads = total(_register_loads(a, statement) for a in statement.accesses if a.memory)
    per_instruction = real(loads) / real(body)
    work = sum(n * COST.get(kind, 1.0) for kind, n in statement.operations.items()) or 1.0
    cost = maximum(const(work / FMA_PORTS, "float32"), per_instruction / float(LOAD_PORTS))
    if statement.reducing:
        cost = maximum(cost, const(float(LATENCY), "float32") / real(accumulators))
    registers = real(accumulators) + 2.0
    spill = maximum(registers - float(hardware.vector_registers), const(0.0, "float32")) / registers
    arithmetic = instructions * cost * (spill * 2.0 + 1.0)
    overhead = instructions / real(body) * OVERHEAD
    traffic = tuple(
        _traffic(statement, capacity) for capacity in (hardware.l1_bytes, hardware.l2_bytes, hardware.l3_bytes // 4)
    )
    memory = tuple(t / rate for t, rate in zip(traffic, (L1_MISS, L2_MISS, L3_MISS), strict=True))
    parallel = [x.extent for x in loops if x.kind == "parallel"]
    balance = const(1.0 / hardware.cores, "float32")
    if parallel:
        count = product(parallel)
        balance = real(count) / (real(ceildiv(count, hardware.cores)) * float(hardware.cores))
    slowest = arithmetic + overhead
    for term in memory:
        slowest = maximum(slowest, term)
    cycles = slowest / (balance * float(hardware.cores))
    return Terms(instructions, accumulators, body, loads, arithmetic, overhead, traffic, memory, balance, spill, cycles)


def _register_loads(access: Access, statement: Statement) -> Expr:
    """Loads or stores of one body: reused over the register tile's loops it does not depend on, not over reductions."""
    written = next(a for a in statement.accesses if a.write)
    out = const(1)
    for loop in statement.loops:
        if loop.kind == "unroll" and (access.depends(loop.var) or not written.depends(loop.var)):
            out = out * loop.extent
    return out


def _traffic(statement: Statement, capacity: int) -> Expr:
    """Bytes brought into a cache: footprints at the outermost loop whose data fits, times how often it runs."""
    memory = [a for a in statement.accesses if a.memory]
    count = statement.runtime_loops
    prints = [[real(a.footprint(statement.running(i))) for a in memory] for i in range(count + 1)]
    sums = [total_float(p) for p in prints]
    times = [product(x.extent for x in statement.loops[:i]) for i in range(count + 1)]
    out = total_float(p * real(times[count]) for p in prints[count])
    for i in range(count - 1, -1, -1):
        here = total_float(p * real(times[i]) for p in prints[i])
        out = select(sums[i] <= float(capacity), here, out)
    return out


def total_float(values: object) -> Expr:
    out = const(0.0, "float32")
    for value in values:  # type: ignore[attr-defined]
        out = out + value
    return out
