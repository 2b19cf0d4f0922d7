"""The estimate for GPUs: what each kernel computes and moves, how well it fills the machine, what nothing hides.

Traffic is counted where it goes through: wavefronts of shared memory with their bank conflicts, sectors from the
second-level cache by what a warp reads at once, and what a kernel must bring from memory once. The slowest of these
sets the pace, as far as the blocks are many enough to keep all multiprocessors busy and their threads enough to hide
latency; every step that waits for its own copies adds the time of the way to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costmodel.features.estimators.base import COST, Estimate, Terms
from costmodel.features.nest import Nest
from costmodel.features.statement import HELD, Access, Loop, Statement
from search_space.hardware import GpuLimits, Hardware
from search_space.ir.expr import dtype_bytes
from search_space.ir.stmt import Allocate, For, LoopProgram, Stmt, walk_stmt
from search_space.ir.tape import Value
from search_space.lower.blocks import PIPELINE, kernels, shared_bytes

LATENCY_CYCLES = 800.0
"""From a multiprocessor to memory and back."""
SHARED_CYCLES = 32.0
"""From a load of shared memory to its value."""
ADDRESS = 2.0
"""Instructions by which the address of an access to device memory is made."""
GUARD = 1.5
"""Instructions of a comparison by which it is decided whether an element is there."""
WRITTEN_OUT = 256.0
"""Multiply-adds up to which the emitter writes a step's loops out."""
MMA_CYCLES = 8.0
"""From one instruction of the tensor cores of a quarter of a multiprocessor to the next."""
MMA_SHARE = 0.63
"""Of the peak of compute capability 9.0, what instructions of one warp reach; those of four reach it."""
HINDERED = 0.15
"""Share of the lesser of instructions, shared memory and traffic that the greatest of them does not hide."""
BLOCK_SECONDS = 0.5e-9
"""From the start of one block to that of the next, somewhere on the device."""
STEP_CYCLES = 60.0
"""What a step costs besides, in barriers and in starting its copies."""
DRAIN_CYCLES = 60.0
"""From the last product of a step that warpgroups wait for to the first of the next, besides; an assumption."""
FLIGHT_BYTES = 32768.0
"""Bytes on their way to one multiprocessor that keep the memory busy."""
MOST_IN_FLIGHT = 128.0
"""Bytes that one thread asks for at once at most."""
LOADS_TOGETHER, LOADS_LONG = 32.0, 4.0
"""Steps of a loop of loads that the emitter writes out as a whole, and those of a longer one."""
FMA_IN_FLIGHT = 512.0
"""Multiply-adds of one multiprocessor that keep its pipelines busy."""
LANES = 128
"""Multiply-adds a multiprocessor starts in a cycle."""
ISSUE = 128
"""Instructions of threads that it issues in a cycle."""
REGISTERS = 24
"""Those that a thread needs besides its arrays."""
MATRIX_ROW = 16
"""Bytes of a row of the matrices that the tensor cores are given."""
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


@dataclass(frozen=True)
class _Kernel:
    """One kernel: its statements, and what its blocks take.

    Attributes:
        nests: of its statements.
        shared: bytes of shared memory of a block; registers: 32-bit ones of a thread's arrays.
        steps: how often a block waits for copies.
        stages: steps whose tiles are there at once; 0: none waits.
        by_groups: whether warpgroups multiply, whose products of two steps go on at once where there are more stages
            than two.
    """

    nests: tuple[int, ...]
    shared: Value
    registers: Value
    steps: Value
    stages: int
    by_groups: bool

    def waiting(self, step: Value) -> Value:
        """Cycles of a step of a block that it waits in, where it would work for so many if it had all it needs.

        Copies are asked for some steps ahead, so in each of these steps a part of the way to memory remains.
        """
        tape = step.tape
        if self.stages < 2:
            return tape.const(LATENCY_CYCLES if self.stages else 0.0)
        overlapping = self.by_groups and self.stages > 2
        ahead = self.stages - 2 if overlapping else self.stages - 1
        late = (tape.const(LATENCY_CYCLES / ahead) - step).most(0)
        if overlapping:  # products of the step before go on at the barrier
            return late
        return late + STEP_CYCLES + (DRAIN_CYCLES if self.by_groups else 0.0)


def _terms(nest: Nest, hardware: Hardware) -> Terms:
    """The terms of one statement.

    Traffic is in bytes: through shared memory, from the second-level cache, from memory; misses and arithmetic are
    cycles of one multiprocessor doing all of it.
    """
    tape, statement, gpu = nest.tape, nest.statement, _gpu(hardware)
    lanes = nest.extent_of("vectorize").most(1)
    tensor = nest.extent_of("tensor")
    by_warp = any(loop.kind == "tensor" for loop in statement.loops)
    is_tensor = statement.reducing and by_warp
    work = sum(n * COST.get(kind, 1.0) for kind, n in statement.operations.items() if kind != "guard")
    arithmetic = nest.iterations * work / LANES
    if is_tensor:
        arithmetic = nest.iterations * 2 / _tensor_rate(nest, gpu) * hardware.cores * hardware.clock_hz
    shared, sectors, unique = tape.const(0), tape.const(0), tape.const(0)
    moved = tape.const(0)
    for access in nest.accesses:
        instructions = tape.const(1) if by_warp else _vector(nest, access)[1] / _reused(nest, access)
        if access.buffer.scope == "shared":
            shared = shared + _wavefronts(nest, access, gpu) * (gpu.banks * 4)
        else:
            sectors = sectors + _requested(nest, access, gpu)
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
    body = nest.extent_of("unroll").most(1)
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
    """See `base.Estimator`; the terms have their kernel's share of the machine in them."""
    terms = [_terms(nest, hardware) for nest in nests]
    gpu, tape = _gpu(hardware), nests[0].tape
    done, seconds = list(terms), tape.const(0)
    for kernel in _kernels(program, nests, gpu):
        mine = [terms[i] for i in kernel.nests]
        if not mine:
            continue
        blocks, threads = (_largest([nests[i] for i in kernel.nests], kinds) for kinds in (BLOCKS, THREADS))
        taken = (kernel.registers + REGISTERS).least(gpu.registers_thread) * threads
        # What runs out first says how many blocks are resident; of shared memory the system takes 1 KiB for each.
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
        cycles = slowest + (tape.total(parts) - slowest).most(0) * HINDERED
        if not kernel.stages:  # a block loads and then computes: while the next ones load, where there are some
            cycles = cycles + (parts[0] + parts[1]).least(parts[2].most(parts[3])) / blocks.ceildiv(gpu.sms)
        together = blocks.ceildiv(gpu.sms).least(resident)  # blocks of a multiprocessor, which work while one waits
        working = cycles / hardware.cores / together
        waits = waves * kernel.steps * kernel.waiting(working / (waves * kernel.steps))
        alone = working + waits
        waiting = (alone - cycles / hardware.cores).most(waits / 4) + LATENCY_CYCLES
        whole = cycles / hertz + waiting / hardware.clock_hz + gpu.launch_seconds
        seconds = seconds + whole
        total = tape.total(t.seconds for t in mine).most(1e-12)
        for i in kernel.nests:
            share = terms[i].seconds / total
            done[i] = replace(
                terms[i],
                registers=kernel.registers,
                overhead=waiting * hardware.cores * share,
                balance=computing,
                seconds=whole * share,
            )
    return Estimate(done, seconds)


def _hidden(nest: Nest, active: Value) -> Value:
    """Share of the time in which warps that read tiles of shared memory compute rather than wait for it.

    A schedule of instructions begins with loads, once in every body that is written out; the others of the `active`
    threads of a multiprocessor work meanwhile.
    """
    tape, statement = nest.tape, nest.statement
    if not statement.reducing or statement.output.memory or _by_groups(statement):
        return tape.const(1)  # warpgroups leave it to the tensor cores to read tiles
    body = nest.product(_unrolled)
    if any(loop.kind == "tensor" for loop in statement.loops):
        body = body * MMA_CYCLES
    body = body.most((body * nest.extent_of("serial")).least(WRITTEN_OUT))
    return (active / LANES * body / (body + SHARED_CYCLES)).least(1)


def _unrolled(loop: Loop) -> bool:
    return loop.kind in ("unroll", "vthread")


def _gpu(hardware: Hardware) -> GpuLimits:
    assert hardware.gpu is not None, hardware.name
    return hardware.gpu


def _kernels(program: LoopProgram, nests: Sequence[Nest], gpu: GpuLimits) -> list[_Kernel]:
    """What each kernel takes; statements are known by the loops around them."""
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
        out.append(_Kernel(mine, columns(shared_bytes(body)), held, steps, stages, by_groups))
    return out


def _copies_in(stmt: Stmt) -> bool:
    """Whether a loop's body begins with a buffer in shared memory."""
    return isinstance(stmt, Allocate) and stmt.buffer.scope == "shared"


def _registers(stmt: Stmt, nest: Nest, gpu: GpuLimits) -> list[Value]:
    """32-bit registers of the arrays that each thread has, those of virtual threads included."""
    found: list[Value] = []

    def visit(node: Stmt, times: Value) -> None:
        if isinstance(node, For):
            visit(node.body, times * nest.columns(node.extent) if node.kind == "vthread" else times)
            return
        if isinstance(node, Allocate) and node.buffer.scope in HELD:
            size = nest.tape.product(nest.columns(e) for e in node.buffer.shape)
            found.append(size * times * (dtype_bytes(node.buffer.dtype) / 4 / HELD[node.buffer.scope]))
        body = getattr(node, "body", ())
        for child in body if isinstance(body, tuple) else (body,):
            visit(child, times)

    visit(stmt, nest.tape.const(1))
    return found


def _largest(nests: Sequence[Nest], kinds: tuple[str, ...]) -> Value:
    """The most blocks, or threads, of the statements of a kernel."""
    out = nests[0].tape.const(1)
    for nest in nests:
        out = out.most(nest.extent_of(*kinds))
    return out


def _thread_loops(nest: Nest, access: Access) -> list[tuple[Loop, Value, Value]]:
    """The loops of threads, x first: each with its extent and how far an access moves along it."""
    found = {loop.kind: (loop, e) for loop, e in _threads(nest)}
    return [(*found[kind], nest.stride(access, found[kind][0].var)) for kind in THREADS if kind in found]


def _threads(nest: Nest) -> list[tuple[Loop, Value]]:
    return [pair for pair in zip(nest.statement.loops, nest.extents, strict=True) if pair[0].kind in THREADS]


def _vector(nest: Nest, access: Access) -> tuple[Value, Value]:
    """Elements of an access that a thread moves at once, and how many such moves one execution of the vector takes."""
    one = nest.tape.const(1)
    for loop, extent in zip(nest.statement.loops, nest.extents, strict=True):
        if loop.kind == "vectorize":
            if not access.depends(loop.var):
                return one, one
            together = nest.stride(access, loop.var).equals(1)
            return together.otherwise(extent, one), together.otherwise(one, extent)
    return one, one


def _wavefronts(nest: Nest, access: Access, gpu: GpuLimits) -> Value:
    """Cycles of the pipeline of shared memory that all executions take, each of one 4-byte value for every lane.

    A vector of n values takes n cycles, each for a part of the lanes, and more where these meet in banks; half of them
    where neighbours in pairs read the same, as those of a tile do (`targets.cuda.lanes`).
    """
    tape = nest.tape
    if any(loop.kind == "tensor" for loop in nest.statement.loops):
        return _matrices(nest, access, gpu)
    width, moves = _vector(nest, access)
    words = (width * (dtype_bytes(access.buffer.dtype) / 4)).most(1)
    places = tape.const(gpu.banks) / words  # vectors that the banks hold, and lanes of a part
    lanes, conflict = places, tape.const(1)
    for _, extent, stride in _thread_loops(nest, access):
        along = extent.least(lanes)
        lanes = (lanes // along).most(1)
        still = stride <= 0
        apart = stride / width
        met = tape.const(1)
        for power in (2, 4, 8, 16, 32):
            met = _divides(power, apart).otherwise(places.least(power), met)
        conflict = conflict * still.otherwise(1, along.ceildiv(places / met))
    halved = (tape.const(1) < words).otherwise(_in_pairs(nest, access), 0).otherwise(2, 1)
    warps = nest.iterations / nest.extent_of("vectorize").most(1) / gpu.warp
    return warps * moves * (words / halved).most(1) * conflict / _reused(nest, access)


def _in_pairs(nest: Nest, access: Access) -> Value:
    """Whether lanes whose numbers differ in bit 0, or those that differ in bit 1, read the same: 1 or 0."""
    tape, one = nest.tape, nest.tape.const(1)
    found = {loop.kind: (e, nest.stride(access, loop.var) <= 0) for loop, e in _threads(nest)}
    (x, still), (y, below) = (found.get(kind, (one, tape.const(1))) for kind in THREADS[:2])
    even = _divides(2, y)
    in_squares = _divides(4, x) * even * still.most(below)
    return in_squares.most(_divides(2, x) * still).most(x.equals(2) * even * below)


def _divides(n: int, value: Value) -> Value:
    return ((value / n) // 1).equals(value / n)


def _matrices(nest: Nest, access: Access, gpu: GpuLimits) -> Value:
    """The same of fragments: rows of 16 bytes, eight of which are read at once unless they begin in the same banks."""
    tape, size = nest.tape, dtype_bytes(access.buffer.dtype)
    pitch = tape.const(1)
    for loop in nest.statement.loops:
        if loop.kind == "tensor":
            pitch = pitch.most(nest.stride(access, loop.var))
    rows, met = pitch * size / MATRIX_ROW, tape.const(1)
    for power in () if _by_groups(nest.statement) else (2, 4, 8):  # whose tiles are swizzled
        met = _divides(power, rows).otherwise(power, met)
    again = nest.product(lambda loop: loop.kind == "tensor" and not access.depends(loop.var))
    return nest.iterations / again * met * size / (gpu.banks * 4)


def _requested(nest: Nest, access: Access, gpu: GpuLimits) -> Value:
    """Bytes of the sectors that all executions ask for."""
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
    return nest.iterations / shared * size * sectors / run / _reused(nest, access)


def _reused(nest: Nest, access: Access) -> Value:
    """Executions of an unrolled body for which one read serves."""
    if access.writes and access.reads:
        return nest.tape.const(1)
    return nest.product(lambda loop: loop.kind in ("unroll", "vectorize") and not access.depends(loop.var))


def _in_flight(nest: Nest) -> Value:
    """Bytes that a thread asks memory for before it waits; of a tile, all that it copies."""
    statement = nest.statement
    reads = [a for a in statement.inputs if a.buffer.scope == "global"]
    if not reads:
        return nest.tape.const(0)
    size = dtype_bytes(reads[0].buffer.dtype)
    if statement.output.buffer.scope != "shared":
        serial = nest.extent_of("serial").most(1)
        together = (serial <= LOADS_TOGETHER).otherwise(serial, LOADS_LONG)
        return (nest.extent_of("vectorize", "unroll").most(1) * together * size).least(MOST_IN_FLIGHT)
    copied = nest.tape.product(nest.extents[statement.allocation :]) / nest.extent_of(*THREADS).most(1)
    return (copied * size).least(MOST_IN_FLIGHT)


def _by_warps(statement: Statement) -> bool:
    """Whether single warps multiply."""
    return statement.output.buffer.scope == "warp"


def _by_groups(statement: Statement) -> bool:
    """Whether four warps multiply together."""
    return statement.output.buffer.scope == "warpgroup"


def _tensor_rate(nest: Nest, gpu: GpuLimits) -> float:
    """Operations a second of the tensor cores for the statement's operands."""
    rates = dict(gpu.tensor_flops)
    dtypes = [a.buffer.dtype for a in nest.statement.inputs]
    found = [rates.get("tfloat32" if d == "float32" else d) for d in dtypes]
    share = MMA_SHARE if gpu.arch.startswith("sm_90") and _by_warps(nest.statement) else 1.0
    return share * min((r for r in found if r is not None), default=rates["float16"])
