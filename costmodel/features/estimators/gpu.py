"""The estimate for GPUs: computation and traffic of each kernel, its utilisation of the machine, exposed latencies.

Traffic is counted at each level. Shared memory has wavefronts with bank conflicts. The second-level cache has sectors
by a warp's simultaneous reads. Memory has the bytes that a kernel must load once. The slowest of these sets the pace,
if there are enough blocks to keep all multiprocessors busy and enough threads to hide latency. Every step that waits
for its own copies adds the latency of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.features.estimators.base import COST, Estimate, Terms
from costmodel.features.nest import Nest
from costmodel.features.statement import HOLDING_THREADS, Access, Loop, Statement
from search_space.hardware import GpuLimits, Hardware
from search_space.ir.expr import dtype_bytes
from search_space.ir.stmt import Allocate, For, LoopProgram, Stmt, walk_stmt
from search_space.ir.tape import Value
from search_space.lower.blocks import PIPELINE, kernels, shared_bytes

LATENCY_CYCLES = 800.0
"""Latency of memory, as seen by a multiprocessor."""
SHARED_CYCLES = 32.0
"""Latency of a load of shared memory."""
ADDRESS = 2.0
"""Instructions that compute the address of an access to device memory."""
GUARD = 1.5
"""Instructions of a comparison that decides whether an element exists."""
WRITTEN_OUT = 256.0
"""Multiply-adds up to which the emitter unrolls a step's loops."""
MMA_CYCLES = 8.0
"""Cycles between two instructions of the tensor cores in a quarter of a multiprocessor."""
MMA_SHARE = 0.63
"""Share of the peak of compute capability 9.0 that instructions of one warp reach; those of four reach the peak."""
HINDRANCE = 0.15
"""Share of the lesser of instructions, shared memory and traffic that the greatest of them does not hide."""
BLOCK_SECONDS = 0.5e-9
"""Seconds between the starts of two blocks, anywhere on the device."""
STEP_CYCLES = 60.0
"""Additional cycles of a step, for barriers and for starting its copies."""
DRAIN_CYCLES = 60.0
"""Additional cycles between the products of two steps if warpgroups wait in between; an assumption."""
FLIGHT_BYTES = 32768.0
"""Bytes in flight to one multiprocessor that keep the memory busy."""
MOST_IN_FLIGHT = 128.0
"""Maximum bytes that one thread requests at once."""
LOADS_TOGETHER, LOADS_LONG = 32.0, 4.0
"""Steps up to which the emitter unrolls a loop of loads fully, and the unrolling factor of a longer one."""
FMA_IN_FLIGHT = 512.0
"""Multiply-adds in flight in one multiprocessor that keep its pipelines busy."""
LANES = 128
"""Multiply-adds that a multiprocessor starts in a cycle."""
ISSUE = 128
"""Instructions of threads that a multiprocessor issues in a cycle."""
REGISTERS = 24
"""Registers that a thread needs besides its arrays, for addresses and loop counters."""
MATRIX_ROW = 16
"""Bytes of a row of the matrices that the tensor cores read."""
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


@dataclass(frozen=True)
class _KernelStatements:
    """One kernel: its statements, and the resources of its blocks.

    Attributes:
        nests: indices of its statements.
        shared: bytes of shared memory of a block.
        registers: 32-bit registers of a thread's arrays.
        steps: number of times that a block waits for copies.
        stages: steps whose tiles are in shared memory at once; 0: no step waits.
        by_groups: whether warpgroups multiply; their products of two steps overlap if there are more than two stages.
    """

    nests: tuple[int, ...]
    shared: Value
    registers: Value
    steps: Value
    stages: int
    by_groups: bool

    def waiting(self, step: Value) -> Value:
        """Returns the cycles that a block waits in a step, which takes `step` cycles of work when all data is ready.

        Copies are requested some steps ahead. So each step waits for an equal part of the latency of memory, as far as
        its work does not hide it.
        """
        tape = step.tape
        if self.stages < 2:
            return tape.const(LATENCY_CYCLES if self.stages else 0.0)
        overlapping = self.by_groups and self.stages > 2
        ahead = self.stages - 2 if overlapping else self.stages - 1
        late = (tape.const(LATENCY_CYCLES / ahead) - step).most(0)
        if overlapping:  # products of the previous step continue at the barrier
            return late
        return late + STEP_CYCLES + (DRAIN_CYCLES if self.by_groups else 0.0)


def _terms(nest: Nest, hardware: Hardware) -> Terms:
    """Computes the terms of one statement.

    Traffic is in bytes: through shared memory, from the second-level cache, from memory. Misses and arithmetic are
    cycles of one multiprocessor doing all of it.
    """
    tape, statement, gpu = nest.tape, nest.statement, _gpu(hardware)
    lanes = nest.total_extent("vectorize").most(1)
    tensor = nest.total_extent("tensor")
    by_warp = any(loop.kind == "tensor" for loop in statement.loops)
    is_tensor = statement.reducing and by_warp
    work = sum(n * COST.get(kind, 1.0) for kind, n in statement.operations.items() if kind != "guard")
    arithmetic = nest.iterations * work / LANES
    if is_tensor:
        arithmetic = nest.iterations * 2 / _tensor_rate(nest, gpu) * hardware.cores * hardware.clock_hz
    shared, sectors, unique = tape.const(0), tape.const(0), tape.const(0)
    moved = tape.const(0)
    for access in nest.accesses:
        instructions = tape.const(1) if by_warp else _vector(nest, access)[1] / _count_reuses(nest, access)
        if access.buffer.scope == "shared":
            shared = shared + _wavefronts(nest, access, gpu) * (gpu.banks * 4)
        else:
            sectors = sectors + _count_requested_bytes(nest, access, gpu)
            unique = unique + nest.elements(access)[0] * dtype_bytes(access.buffer.dtype)
            instructions = instructions * (1 + ADDRESS + GUARD * statement.tests)
        moved = moved + instructions
    instructions = nest.iterations * work / tensor + nest.iterations / lanes / tensor * moved
    if by_warp:
        instructions = instructions * gpu.warp
    if statement.output.buffer.scope == "shared" and any(loop.bulk for loop in statement.loops):
        arithmetic, instructions, moved = tape.const(0), tape.const(0), tape.const(0)  # no thread moves them
    hertz = hardware.clock_hz * hardware.cores
    misses = (
        shared / gpu.shared_bandwidth * hertz,
        sectors / gpu.l2_bandwidth * hertz,
        unique / hardware.bandwidth * hertz,
    )
    tile = nest.product(lambda loop: loop.kind in ("unroll", "vthread") and statement.output.depends(loop.var))
    if is_tensor:
        tile = tile * gpu.warp
    body = nest.total_extent("unroll").most(1)
    issue = instructions / ISSUE
    slowest = arithmetic.most(issue)
    for term in misses:
        slowest = slowest.most(term)
    one = tape.const(1)
    return Terms(
        instructions,
        tile,
        tile,
        body,
        nest.iterations / lanes * moved / nest.trips[-1].most(1),
        arithmetic,
        issue,
        tape.const(0),
        (shared, sectors, unique),
        misses,
        one,
        slowest / hertz,
    )


def estimate(program: LoopProgram, nests: Sequence[Nest], hardware: Hardware, cold_constants: bool) -> Estimate:
    """Estimates a program, see `base.Estimator`; each statement's seconds are its share of its kernel's time."""
    terms = [_terms(nest, hardware) for nest in nests]
    gpu, tape = _gpu(hardware), nests[0].tape
    done, seconds = list(terms), tape.const(0)
    for kernel in _kernels(program, nests, gpu):
        mine = [terms[i] for i in kernel.nests]
        if not mine:
            continue
        blocks, threads = (_largest([nests[i] for i in kernel.nests], kinds) for kinds in (BLOCKS, THREADS))
        taken = (kernel.registers + REGISTERS).least(gpu.registers_thread) * threads
        # The scarcest resource limits the resident blocks; the system takes 1 KiB of shared memory for each.
        resident = (tape.const(gpu.threads_sm) // threads).least(gpu.blocks_sm)
        resident = resident.least(tape.const(gpu.registers_sm) // taken.most(1))
        resident = resident.least(tape.const(gpu.shared_sm) // (kernel.shared + 1024)).most(1)
        waves = blocks.ceildiv(resident * gpu.sms)
        active = blocks.ceildiv(gpu.sms).least(resident) * threads  # threads at work on one multiprocessor
        balance = blocks / (blocks.ceildiv(gpu.sms) * gpu.sms)
        sums, hidden = tape.const(1), tape.const(1)
        for i in kernel.nests:
            sums = sums.most(terms[i].accumulators)
            hidden = hidden.least(_hidden(nests[i], active))
        flight = active * sums / FMA_IN_FLIGHT
        computing = balance * flight.least(1) * hidden
        wide = tape.const(4)
        for i in kernel.nests:
            wide = wide.most(_in_flight(nests[i]))
        moving = balance * (active * wide / FLIGHT_BYTES).least(1)
        hertz = hardware.clock_hz * hardware.cores
        work = tape.total(t.arithmetic.most(t.loading) for t in mine) / computing
        parts = [work, tape.total(t.misses[0] for t in mine) / balance]
        parts += [tape.total(t.misses[level] for t in mine) / moving for level in (1, 2)]
        slowest = parts[0]
        for part in parts[1:]:
            slowest = slowest.most(part)
        slowest = slowest.most(blocks * (BLOCK_SECONDS * hertz))
        cycles = slowest + (tape.total(parts) - slowest).most(0) * HINDRANCE
        if not kernel.stages:  # a block computes after its loads, while the next blocks load, if there are any
            cycles = cycles + (parts[0] + parts[1]).least(parts[2].most(parts[3])) / blocks.ceildiv(gpu.sms)
        together = blocks.ceildiv(gpu.sms).least(resident)  # resident blocks, which work while one waits
        working = cycles / hardware.cores / together
        waits = waves * kernel.steps * kernel.waiting(working / (waves * kernel.steps))
        alone = working + waits
        waiting = (alone - cycles / hardware.cores).most(waits / 4) + LATENCY_CYCLES
        kernel_seconds = cycles / hertz + waiting / hardware.clock_hz + gpu.launch_seconds
        seconds = seconds + kernel_seconds
        total = tape.total(t.seconds for t in mine).most(1e-12)
        for i in kernel.nests:
            share = terms[i].seconds / total
            done[i] = replace(
                terms[i],
                registers=kernel.registers,
                overhead=waiting * hardware.cores * share,
                balance=computing,
                seconds=kernel_seconds * share,
            )
    return Estimate(done, seconds, seconds)


def _hidden(nest: Nest, active: Value) -> Value:
    """Returns the share of the time in which warps that read tiles of shared memory compute rather than wait for it.

    Scheduled instructions begin with loads, once per unrolled body; meanwhile the other `active` threads of a
    multiprocessor work.
    """
    tape, statement = nest.tape, nest.statement
    if not statement.reducing or statement.output.memory or _by_groups(statement):
        return tape.const(1)  # for warpgroups the tensor cores read the tiles
    body = nest.product(_is_unrolled)
    if any(loop.kind == "tensor" for loop in statement.loops):
        body = body * MMA_CYCLES
    body = body.most((body * nest.total_extent("serial")).least(WRITTEN_OUT))
    return (active / LANES * body / (body + SHARED_CYCLES)).least(1)


def _is_unrolled(loop: Loop) -> bool:
    return loop.kind in ("unroll", "vthread")


def _gpu(hardware: Hardware) -> GpuLimits:
    assert hardware.gpu is not None, hardware.name
    return hardware.gpu


def _kernels(program: LoopProgram, nests: Sequence[Nest], gpu: GpuLimits) -> list[_KernelStatements]:
    """Lists the kernels with their resources; a kernel's statements are those inside its loops."""
    columns, tape = nests[0].columns, nests[0].tape
    bodies = list(kernels(program.body))
    out = []
    for body in bodies:
        loops = {node.var for node in walk_stmt(body) if isinstance(node, For)}
        mine = tuple(
            i
            for i, nest in enumerate(nests)
            if len(bodies) == 1 or any(loop.var in loops for loop in nest.statement.loops)
        )
        steps, stages = tape.const(1), 0
        for node in walk_stmt(body):
            if isinstance(node, For) and node.kind == "serial" and _copies_in(node.body):
                steps = steps * columns(node.extent)
                stages = int(dict(node.pragmas).get(PIPELINE, 1))
                break
        by_groups = any(_by_groups(nests[i].statement) for i in mine)
        held = tape.total(_registers(body, nests[0], gpu))
        out.append(_KernelStatements(mine, columns(shared_bytes(body)), held, steps, stages, by_groups))
    return out


def _copies_in(stmt: Stmt) -> bool:
    """Tells whether a loop's body begins with a buffer in shared memory."""
    return isinstance(stmt, Allocate) and stmt.buffer.scope == "shared"


def _registers(stmt: Stmt, nest: Nest, gpu: GpuLimits) -> list[Value]:
    """Lists the 32-bit registers of each thread's arrays, those of virtual threads included."""
    counts: list[Value] = []

    def visit(node: Stmt, times: Value) -> None:
        if isinstance(node, For):
            visit(node.body, times * nest.columns(node.extent) if node.kind == "vthread" else times)
            return
        if isinstance(node, Allocate) and node.buffer.scope in HOLDING_THREADS:
            size = nest.tape.product(nest.columns(e) for e in node.buffer.shape)
            counts.append(size * times * (dtype_bytes(node.buffer.dtype) / 4 / HOLDING_THREADS[node.buffer.scope]))
        body = getattr(node, "body", ())
        for child in body if isinstance(body, tuple) else (body,):
            visit(child, times)

    visit(stmt, nest.tape.const(1))
    return counts


def _largest(nests: Sequence[Nest], kinds: tuple[str, ...]) -> Value:
    """Returns the maximum number of blocks, or threads, among the statements of a kernel."""
    out = nests[0].tape.const(1)
    for nest in nests:
        out = out.most(nest.total_extent(*kinds))
    return out


def _thread_loops(nest: Nest, access: Access) -> list[tuple[Loop, Value, Value]]:
    """Lists the loops of threads, x first, each with its extent and the stride of an access along it."""
    found = {loop.kind: (loop, e) for loop, e in _threads(nest)}
    return [(*found[kind], nest.stride(access, found[kind][0].var)) for kind in THREADS if kind in found]


def _threads(nest: Nest) -> list[tuple[Loop, Value]]:
    return [pair for pair in zip(nest.statement.loops, nest.extents, strict=True) if pair[0].kind in THREADS]


def _vector(nest: Nest, access: Access) -> tuple[Value, Value]:
    """Returns the elements of an access that a thread moves at once, and the number of moves per vector execution."""
    one = nest.tape.const(1)
    for loop, extent in zip(nest.statement.loops, nest.extents, strict=True):
        if loop.kind == "vectorize":
            if not access.depends(loop.var):
                return one, one
            together = nest.stride(access, loop.var).equals(1)
            return together.otherwise(extent, one), together.otherwise(one, extent)
    return one, one


def _wavefronts(nest: Nest, access: Access, gpu: GpuLimits) -> Value:
    """Returns the cycles of the pipeline of shared memory for all executions; a cycle moves one 4-byte value per lane.

    A vector of n values takes n cycles, each for a part of the lanes, and more if these conflict in banks. It takes
    half of them if lanes in pairs read the same, as in tiles (`targets.cuda.lanes`).
    """
    tape = nest.tape
    if any(loop.kind == "tensor" for loop in nest.statement.loops):
        return _matrices(nest, access, gpu)
    width, moves = _vector(nest, access)
    words = (width * (dtype_bytes(access.buffer.dtype) / 4)).most(1)
    vectors = tape.const(gpu.banks) / words  # vectors that the banks hold, and lanes of a part
    lanes, conflict = vectors, tape.const(1)
    for _, extent, stride in _thread_loops(nest, access):
        along = extent.least(lanes)
        lanes = (lanes // along).most(1)
        still = stride <= 0
        apart = stride / width
        met = tape.const(1)
        for power in (2, 4, 8, 16, 32):
            met = _divides(power, apart).otherwise(vectors.least(power), met)
        conflict = conflict * still.otherwise(1, along.ceildiv(vectors / met))
    halved = (tape.const(1) < words).otherwise(_in_pairs(nest, access), 0).otherwise(2, 1)
    warps = nest.iterations / nest.total_extent("vectorize").most(1) / gpu.warp
    return warps * moves * (words / halved).most(1) * conflict / _count_reuses(nest, access)


def _in_pairs(nest: Nest, access: Access) -> Value:
    """Returns 1 if all lanes whose numbers differ only in bit 0, or only in bit 1, read the same elements, else 0."""
    tape, one = nest.tape, nest.tape.const(1)
    found = {loop.kind: (e, nest.stride(access, loop.var) <= 0) for loop, e in _threads(nest)}
    (x, still), (y, below) = (found.get(kind, (one, tape.const(1))) for kind in THREADS[:2])
    even = _divides(2, y)
    in_squares = _divides(4, x) * even * still.most(below)
    return in_squares.most(_divides(2, x) * still).most(x.equals(2) * even * below)


def _divides(n: int, value: Value) -> Value:
    return ((value / n) // 1).equals(value / n)


def _matrices(nest: Nest, access: Access, gpu: GpuLimits) -> Value:
    """Returns the cycles of fragments: rows of 16 bytes, eight of which are read at once unless banks conflict."""
    tape, size = nest.tape, dtype_bytes(access.buffer.dtype)
    pitch = tape.const(1)
    for loop in nest.statement.loops:
        if loop.kind == "tensor":
            pitch = pitch.most(nest.stride(access, loop.var))
    rows, met = pitch * size / MATRIX_ROW, tape.const(1)
    for power in () if _by_groups(nest.statement) else (2, 4, 8):  # warpgroups' tiles are swizzled
        met = _divides(power, rows).otherwise(power, met)
    again = nest.product(lambda loop: loop.kind == "tensor" and not access.depends(loop.var))
    return nest.iterations / again * met * size / (gpu.banks * 4)


def _count_requested_bytes(nest: Nest, access: Access, gpu: GpuLimits) -> Value:
    """Returns the bytes of the sectors that all executions request."""
    tape, size = nest.tape, dtype_bytes(access.buffer.dtype)
    width, _ = _vector(nest, access)
    run, lanes, shared = width, tape.const(gpu.warp), tape.const(1)
    for _, extent, stride in _thread_loops(nest, access):
        along = extent.least(lanes)
        lanes = (lanes // along).most(1)
        shared = shared * (stride <= 0).otherwise(along, 1)
        run = stride.equals(run).otherwise(run * along, run)
    row = nest.dims(access)[-1][1][0] + 1 if access.indices else tape.const(1)
    run = run.least(row) * size
    sectors = run.ceildiv(gpu.sector) * gpu.sector
    return nest.iterations / shared * size * sectors / run / _count_reuses(nest, access)


def _count_reuses(nest: Nest, access: Access) -> Value:
    """Returns how many executions of an unrolled body share one read."""
    if access.writes and access.reads:
        return nest.tape.const(1)
    return nest.product(lambda loop: loop.kind in ("unroll", "vectorize") and not access.depends(loop.var))


def _in_flight(nest: Nest) -> Value:
    """Returns the bytes that a thread requests from memory before it waits; for a tile, all that it copies."""
    statement = nest.statement
    reads = [a for a in statement.inputs if a.buffer.scope == "global"]
    if not reads:
        return nest.tape.const(0)
    size = dtype_bytes(reads[0].buffer.dtype)
    if statement.output.buffer.scope != "shared":
        serial = nest.total_extent("serial").most(1)
        together = (serial <= LOADS_TOGETHER).otherwise(serial, LOADS_LONG)
        return (nest.total_extent("vectorize", "unroll").most(1) * together * size).least(MOST_IN_FLIGHT)
    copied = nest.tape.product(nest.extents[statement.allocation :]) / nest.total_extent(*THREADS).most(1)
    return (copied * size).least(MOST_IN_FLIGHT)


def _by_warps(statement: Statement) -> bool:
    """Tells whether single warps multiply."""
    return statement.output.buffer.scope == "warp"


def _by_groups(statement: Statement) -> bool:
    """Tells whether four warps multiply together."""
    return statement.output.buffer.scope == "warpgroup"


def _tensor_rate(nest: Nest, gpu: GpuLimits) -> float:
    """Returns the operations per second of the tensor cores for the statement's operands."""
    rates = dict(gpu.tensor_flops)
    dtypes = [a.buffer.dtype for a in nest.statement.inputs]
    found = [rates.get("tfloat32" if d == "float32" else d) for d in dtypes]
    share = MMA_SHARE if gpu.arch.startswith("sm_90") and _by_warps(nest.statement) else 1.0
    return share * min((r for r in found if r is not None), default=rates["float16"])
