"""The estimate for CPUs, statement by statement: arithmetic, loads, loop overhead and the traffic of each cache level.

Cycles, and what a core starts in each, are those of `Hardware.rates`, which the target has probed or describes; as
many multiply-adds as it starts in a cycle make `Hardware.peak_flops`. The constants below are of the code that is
emitted, not of a processor: how many instructions something takes, or which share of a term others hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from costmodel.features.borders import made
from costmodel.features.estimators.base import COST, OVERLAP, Estimate, Terms
from costmodel.features.estimators.conflicts import content, crowding
from costmodel.features.nest import Nest
from costmodel.features.spans import step
from costmodel.features.statement import Access, Loop, Statement
from search_space.hardware import COLUMNS, LINE, CpuRates, Hardware, columns_of
from search_space.ir.expr import Expr, dtype_bytes, lift, var, variables, walk
from search_space.ir.flat import flat_index
from search_space.ir.polynomial import canon, poly
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized
from search_space.ir.stmt import LoopProgram
from search_space.ir.tape import Value

LOOP_INSTRUCTIONS = 6.0  # to count, compare and move addresses at a loop's end
OVERHEAD = 0.5  # cycles of one pass through a loop's end that nothing hides: its branch is predicted
DIVISION = 20.0  # cycles of a quotient of two numbers of 64 bits that are not known when code is written
SPILL = 3.0  # cycles to reload and store an accumulator that has no register, mostly hidden
LIBRARY = (1.15, 20.0, 12.0, 10.0)
"""Time of a library's product (m, n, k) by that of its multiply-adds at peak: the first, and so much / m, / n and / k,
for constants laid out anew are used m times, the other operand n times, and results come and go every k. Packing is
vector instructions, too, so that the ratio is much the same on all processors."""
LIBRARY_TILE = 24  # vectors of results that it keeps in registers
PERMUTED, PERMUTED_ANYWHERE = 2.0, 3.0  # loads that a load and a permutation count for, aligned or not
ELEMENTS = (2, 4)  # bytes of elements whose neighbours in rows are loaded at once
ACROSS = 0.5  # loads that each lane of 4 bytes then counts for: a quarter of one, and as many shuffles
GUARD = 3.0  # instructions that choose the address of an element that may not be there
HORIZONTAL = 8.0  # cycles to combine the lanes of a vector: shuffles and sums, one after the other
WAIT = 40.0
"""Cycles until the result of that is in all lanes of what waits for it; others combined meanwhile share them."""
INTEGER = 3.0  # instructions of a product of bytes that is added up in 32 bits: widened, multiplied, added
LOOP_SECONDS = 1.4e-6  # of a parallel loop besides its start: lines that other cores have, and threads that end last
REACHED = (0.5, 1.0, 1.0)
"""Share of a level's bandwidth that tiles reach: lines that come from the second level take cycles of the first from
the loads of those that are there already, which whoever reads each line once does not feel."""
KEPT = 0.75
"""Share of a cache up to which what is touched again is still there: lines are not spread evenly over its sets."""
WRITTEN = 2.0  # times that what is written passes between caches: it is fetched first, and put back
CONTENDED = 0.19
"""Share of its time that is added where multiply-adds and loads both keep their ports busy all the time, as tiles do
that read an operand for each product: 2 ** (1 / 4) - 1, and by the fourth power of the lesser's share otherwise."""


def estimate(program: LoopProgram, nests: Sequence[Nest], hardware: Hardware, cold_constants: bool) -> Estimate:
    """See `base.Estimator`; statements run one after another."""
    key = ("cpu", hardware, cold_constants)
    terms = [nest.once(key, partial(_terms, nest, hardware, cold_constants)) for nest in nests]
    return Estimate(terms, nests[0].tape.total(of.seconds for of in terms))


def _terms(nest: Nest, hardware: Hardware, cold: bool) -> Terms:
    """The terms of one statement.

    Args:
        cold: whether constants come from memory each time, as weights do within a network.
    """
    statement, tape = nest.statement, nest.tape
    call = nest.library
    lanes = _lanes(nest, hardware)
    instructions = nest.iterations / lanes * made(nest)
    body = nest.extent_of("unroll").most(1)
    tile = nest.product(lambda loop: loop.kind == "unroll" and statement.output.depends(loop.var))
    transfers = [(nest.over_lanes(a), _transfers(nest, a)) for a in nest.accesses]
    loads = tape.total(count for _, count in transfers)
    elements = tape.total(count for vectors, count in transfers if not vectors)
    stores = _transfers(nest, statement.output) if statement.output.memory else tape.const(0)
    if call is not None:
        tile, loads, stores = tape.const(LIBRARY_TILE), tape.const(0), tape.const(0)
        elements = tape.const(0)
    kept = [_kept(nest, a) for a in statement.inputs if nest.over_lanes(a)]
    if len(kept) > 1:
        # Of two vectors that are multiplied one comes from memory as it is used: the one that is used less.
        kept = [kept[0].least(kept[1]), *kept[2:]]
    registers = tile + tape.total(kept) + 1
    slid = window(statement)
    if slid is not None:  # its weights, and as many vectors of data
        registers = registers.most(tile + nest.product(lambda loop: loop is slid) * 2 + 1)
    registers = registers if statement.reducing else tape.const(4)
    # By instruction: ports, then the wait for the sum so far, then what does not fit the registers.
    costs = COST | _byte_dots(hardware)
    work = sum(n * costs.get(kind, 1.0) for kind, n in statement.operations.items() if kind != "guard")
    if statement.output.buffer.dtype == "int32" and not any(loop.kind == "tensor" for loop in statement.loops):
        work += statement.operations.get("fma", 0.0) * (INTEGER - 1)
    alike = nest.product(lambda loop: loop.kind == "unroll" and loop.var not in statement.guarded)
    guards = tape.const(statement.operations.get("guard", 0.0) * GUARD) / alike.most(1)
    rates = hardware.rates
    ports = ((loads - elements) / rates.loads + elements / rates.elements) / body
    ports = ports.most(stores / body / rates.stores)
    started, latency = _rates_of(statement, rates)
    arithmetic = tape.const(work / started)
    if statement.reducing:
        # Sums that are as many as hide each other's latency, and no more, never catch up with what delays one of them.
        # What dots of bytes add up begins anew with each step, and only the last sum waits for the one before.
        waits = 1.0 if statement.operations.get("bytedot") else max(1.0, work)
        arithmetic = _together(arithmetic, tape.const(latency * waits) / tile.most(1))
        excess = (registers - hardware.vector_registers).most(0).least(tile)
        arithmetic = arithmetic + excess / tile.most(1) * SPILL
        if any(loop.kind == "vectorize" and statement.is_reduction(loop) for loop in statement.loops):
            others = nest.product(lambda loop: loop.kind in ("serial", "unroll") and not statement.is_reduction(loop))
            arithmetic = arithmetic + HORIZONTAL + tape.const(WAIT) / others.most(1)
    if call is not None:
        arithmetic = arithmetic * tape.total(
            [LIBRARY[0], *(tape.const(cost) / extent for cost, extent in zip(LIBRARY[1:], call, strict=True))]
        )
    passes = _loop_passes(nest)
    overhead = passes * OVERHEAD + _parallel(nest) * (_divisions(statement) * DIVISION)
    issue = (instructions * (guards + work) + instructions * loads / body + passes * LOOP_INSTRUCTIONS) / rates.issue
    capacities = (hardware.l1_bytes, hardware.l2_bytes, hardware.l3_bytes)
    busy = _parallel(nest).least(hardware.cores)
    rounds = [nest.rounds(access) for access in nest.accesses]
    carried = [nest.carried(footprint, again) for footprint, again in zip(nest.footprints, rounds, strict=True)]
    everywhere = _everywhere(nest, rounds, busy)
    occupied = [size / KEPT for size in nest.working_sets]
    of_all = [(size + more) / KEPT for size, more in zip(nest.working_sets, everywhere, strict=True)]
    traffic = tuple(
        _traffic(nest, carried, of_all if ways else occupied, capacity, ways, busy if ways else None)
        for capacity, ways in zip(capacities, (*hardware.ways, 0), strict=True)
    )
    if cold:
        traffic = (*traffic[:-1], traffic[-1].most(_constants(nest)))
    alone = _parallel(nest) <= 1
    misses = tuple(
        t / ((alone.otherwise(one, each) if one != each else each) * share)
        for t, one, each, share in zip(traffic, rates.one, rates.each, REACHED, strict=True)
    )
    arithmetic, loading = arithmetic * instructions, ports * instructions
    compute = _together(arithmetic, loading).most(issue) + overhead
    slowest, everything = compute, compute
    for term in misses:
        slowest, everything = slowest.most(term), everything + term
    cycles = slowest + (everything - slowest) * OVERLAP
    balance = _balance(nest, hardware)
    hertz = hardware.peak_flops / (hardware.cores * 2 * rates.fma * hardware.float_lanes)
    seconds = cycles / (balance * hardware.cores * hertz) + _starts(nest) * (rates.start_seconds + LOOP_SECONDS)
    return Terms(
        instructions, tile, registers, body, loads, arithmetic, loading, overhead, traffic, misses, balance, seconds
    )


def _divisions(statement: Statement) -> int:
    """Quotients of the parallel loop's index and what sizes say, which no multiplication stands for."""
    parallel = {loop.var for loop in statement.loops if loop.kind == "parallel"}
    found = {
        node.args
        for access in statement.accesses
        for index in access.indices
        for node in walk(index)
        if node.op in ("floordiv", "mod") and is_sized(node.args[1]) and variables(node.args[0]) & parallel
    }
    return len(found)


def _byte_dots(hardware: Hardware) -> dict[str, float]:
    """What four products of bytes in each lane count for, where an instruction of the processor adds them up."""
    feature = "avx512vnni" if hardware.float_lanes == 16 else "avxvnni"
    return {"bytedot": hardware.rates.fma / hardware.rates.dots_of({"int8"})[0]} if feature in hardware.features else {}


def _rates_of(statement: Statement, rates: CpuRates) -> tuple[float, float]:
    """Instructions of a statement's kind that are started in a cycle, and cycles until a result can be used."""
    inside = statement.reducing and any(loop.kind == "tensor" for loop in statement.loops)
    return rates.dots_of({a.buffer.dtype for a in statement.inputs}) if inside else (rates.fma, rates.fma_latency)


def _together(arithmetic: Value, loading: Value) -> Value:
    """Cycles of two that each could be hidden behind the other: more than the greater where they are alike."""
    greater = arithmetic.most(loading)
    share = arithmetic.least(loading) / greater.most(1e-9)
    square = share * share
    return greater * (square * square * CONTENDED + 1)


def _lanes(nest: Nest, hardware: Hardware) -> Value:
    """Elements computed by one instruction: a longer vector loop takes several."""
    vector = nest.extent_of("vectorize").most(1)
    widest = max(dtype_bytes(a.buffer.dtype) for a in nest.statement.accesses)
    held = hardware.vector_bytes // widest
    whole = vector / vector.ceildiv(held)
    if nest.library is not None:
        return nest.tape.const(held)
    return whole * nest.extent_of("tensor")


def _transfers(nest: Nest, access: Access) -> Value:
    """Loads and stores of one body: reused over register-tile loops it does not depend on, not over reductions."""
    output = nest.statement.output

    def counts(loop: Loop) -> bool:
        return loop.kind == "unroll" and (access.depends(loop.var) or not output.depends(loop.var))

    times = nest.product(counts) * (2 if access.reads and access.writes else 1)
    slid = window(nest.statement)
    if slid is not None and access.depends(slid.var):
        times = times * _shared(nest, access, slid)
    for loop in nest.statement.loops:
        if loop.kind == "vectorize" and access.depends(loop.var):
            scattered = nest.extent_of("vectorize")
            together = _permuted(nest, access) if permutes(access, loop.var) else nest.tape.const(1)
            if rows := taken_in_turns(access, loop.var):
                times = times * (2 * rows - 1)  # a load of each, and as many permutations as join them
                continue
            if wraps(access, loop):
                times = times * scattered
                continue
            times = times * (nest.stride(access, loop.var) <= 1).otherwise(together, scattered * _across(nest, access))
        elif loop.kind == "tensor" and permutes(access, loop.var, lanes=int(loop.extent.value)):
            times = times * _permuted(nest, access)
    return times


def _across(nest: Nest, access: Access) -> float:
    """Loads that a lane counts for which lies in a row of its own: fewer where its neighbours are read, too."""
    together = columns_of(access.buffer.dtype)
    if dtype_bytes(access.buffer.dtype) not in ELEMENTS or not access.indices:
        return 1.0
    row = poly(canon(access.indices[-1]))
    for loop in nest.statement.loops:
        if loop.kind == "unroll" and loop.extent.is_const and int(loop.extent.value) % together == 0:
            moving = {m: c for m, c in row.items() if any(loop.var in variables(atom) for atom in m)}
            if moving == {(var(loop.var),): 1}:
                return ACROSS * COLUMNS / together
    return 1.0


def window(statement: Statement) -> Loop | None:
    """The unrolled loop of a reduction that runs inside those of the tile, whose positions share what they read."""
    unrolled = [loop for loop in statement.loops if loop.kind == "unroll"]
    tiled = any(statement.output.depends(loop.var) for loop in unrolled)
    return unrolled[-1] if tiled and statement.is_reduction(unrolled[-1]) else None


def _shared(nest: Nest, access: Access, slid: Loop) -> Value:
    """Share of distinct elements among those that the positions of a window read along a row of the tile."""
    output, share = nest.statement.output, nest.tape.const(1)
    for index in access.indices:
        names = variables(index)
        for loop in nest.statement.loops:
            if slid.var in names and loop.var in names and loop.kind == "unroll" and output.depends(loop.var):
                row, positions = (nest.product([of].__contains__).most(1) for of in (loop, slid))
                moves = [step(index, of.var, nest.columns) for of in (loop, slid)]
                distinct = (row - 1) * moves[0] + (positions - 1) * moves[1] + 1
                share = share * (distinct / (row * positions)).least(1)
    return share


def permutes(access: Access, var: str, lanes: int = 0) -> bool:
    """Whether neighbouring lanes read elements close to each other, but not side by side, as groups of channels do.

    Args:
        lanes: of an instruction that takes what all of them read from one place; 0: it is permuted all the same.
    """
    divisions = [n for index in access.indices for n in walk(index) if n.op == "floordiv" and var in variables(n)]
    return any(not lanes or not n.args[1].is_const or int(n.args[1].value) % lanes != 0 for n in divisions)


def wraps(access: Access, loop: Loop) -> bool:
    """Whether lanes of some vectors go on at the beginning of a row: all are then gathered.

    So are the constants of a row where vectors run over all elements of an array whose rows are no whole vectors; the
    array itself lies one element after the other.
    """
    if not any(n.op == "mod" and loop.var in variables(n) for index in access.indices for n in walk(index)):
        return False
    if not loop.extent.is_const:
        return False
    lanes = int(loop.extent.value)
    strides = list(accumulate(reversed(access.buffer.shape[1:]), lambda a, b: lift(a) * b, initial=lift(1)))[::-1]
    flat = flat_index(access.indices, tuple(strides), Simplifier({loop.var: loop.extent}))
    atoms = {atom for monomial in poly(flat) for atom in monomial if atom.op == "mod" and loop.var in variables(atom)}
    return any(a.args[1].is_const and int(a.args[1].value) > lanes and int(a.args[1].value) % lanes for a in atoms)


def taken_in_turns(access: Access, var: str) -> int:
    """Of how many rows neighbouring lanes read elements in turns, as pairs of 16-bit floats and words of bytes do; 0
    where of none."""
    if not access.indices or dtype_bytes(access.buffer.dtype) > 2:
        return 0
    *rows, last = access.indices

    def divisors(index: Expr, op: str) -> set[Expr]:
        return {node.args[1] for node in walk(index) if node.op == op and var in variables(node.args[0])}

    turns = {d for index in rows for d in divisors(index, "mod")} & divisors(last, "floordiv")
    return max((int(d.value) for d in turns if d.is_const), default=0)


def _permuted(nest: Nest, access: Access) -> Value:
    """Loads that a vector counts for whose lanes are put in order in a register; more where blocks begin anywhere."""
    cost = nest.tape.const(PERMUTED)
    for loop, extent in zip(nest.levels, nest.level_extents, strict=True):
        if content(access.indices[-1], loop.var) == 1:
            cost = (extent <= 1).otherwise(cost, PERMUTED_ANYWHERE)
    return cost


def _kept(nest: Nest, access: Access) -> Value:
    """Vectors of an operand that stay in registers while a tile is updated."""
    statement = nest.statement
    return nest.product(
        lambda loop: loop.kind == "unroll" and access.depends(loop.var) and statement.output.depends(loop.var)
    )


def _loop_passes(nest: Nest) -> Value:
    """Passes through the ends of all runtime loops; a loop that runs once is no loop."""
    passes = nest.tape.const(0)
    for extent, trips in zip(nest.level_extents, nest.trips[1:], strict=True):
        passes = passes + (extent <= 1).otherwise(0, trips)
    return passes


def _traffic(
    nest: Nest,
    carried: Sequence[Sequence[Value]],
    occupied: Sequence[Value],
    capacity: int,
    ways: int,
    busy: Value | None,
) -> Value:
    """Bytes brought into a cache; none if it holds all there is, which an earlier statement or run has left there.

    A private cache holds, of what stands outside the parallel loop, a share a core. Accesses whose lines crowd on few
    sets, of `ways` lines each, need more room than their bytes; 0 ways: lines are spread evenly.

    Args:
        carried: by access and level, see `Nest.carried`.
        occupied: by level, bytes of a cache that the working set takes.
    """
    parallel = [i for i, loop in enumerate(nest.levels) if loop.kind == "parallel"]
    last = len(nest.trips) - 1
    capacities = []
    for i in range(last + 1):
        shared = busy is not None and parallel and i <= parallel[0]
        capacities.append(
            nest.tape.const(capacity) * busy if shared and busy is not None else nest.tape.const(capacity)
        )
    held = [taken <= room for taken, room in zip(occupied, capacities, strict=True)]
    brought = []
    for access, footprint, loaded in zip(nest.accesses, nest.footprints, carried, strict=True):
        lost = crowding(nest, access, capacity // ways) if ways else None
        out = footprint[last] * nest.trips[last]
        if lost is not None:  # what one body reads again has been pushed out by what it reads in between
            fits = nest.working_sets[last] + lost[last] <= capacities[last]
            out = fits.otherwise(out, out.most(_transfers(nest, access) * LINE * nest.trips[last]))
        for i in range(last, -1, -1):
            here = loaded[i] if i else nest.tape.const(0)
            fits = held[i]
            if lost is not None:
                fits = occupied[i].most(nest.working_sets[i] + lost[i]) <= capacities[i]
            out = fits.otherwise(here, out)
        brought.append(out * (WRITTEN if access.writes else 1.0))
    return nest.tape.total(brought)


def _everywhere(nest: Nest, rounds: Sequence[Sequence[Value]], busy: Value) -> list[Value]:
    """Bytes, by level, that private caches hold in each core beside what one has: all cores go through them.

    Args:
        rounds: by access and runtime loop, see `Nest.rounds`.
        busy: cores.
    """
    parallel = next((i for i, loop in enumerate(nest.levels) if loop.kind == "parallel"), None)
    found = [nest.tape.const(0)] * len(nest.trips)
    if parallel is None:
        return found
    for footprint, again in zip(nest.footprints, rounds, strict=True):
        others = (again[parallel] - 1).least(busy - 1).most(0)
        for level in range(parallel + 1):
            found[level] = found[level] + footprint[level] * others
    return found


def _constants(nest: Nest) -> Value:
    """Bytes of the constants that are read, each once."""
    pairs = zip(nest.accesses, nest.footprints, strict=True)
    return nest.tape.total(footprint[0] for access, footprint in pairs if access.buffer.constant)


def _parallel(nest: Nest) -> Value:
    return nest.extent_of("parallel").most(1)


def _balance(nest: Nest, hardware: Hardware) -> Value:
    """Useful share of the cores' time when the parallel iterations are dealt out evenly."""
    count = _parallel(nest)
    return count / (count.ceildiv(hardware.cores) * hardware.cores)


def _starts(nest: Nest) -> Value:
    """How often a parallel loop is started."""
    for i, loop in enumerate(nest.levels):
        if loop.kind == "parallel":
            return (nest.level_extents[i] <= 1).otherwise(0, nest.trips[i])
    return nest.tape.const(0)
