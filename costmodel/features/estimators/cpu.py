"""The estimate for CPUs, statement by statement: arithmetic, loads, loop overhead and the traffic of each cache level.

Cycles, and the number of instructions that a core starts in each, are those of `Hardware.rates`, which the target has
probed or describes. Multiply-adds at that rate make `Hardware.peak_flops`. The constants below describe the emitted
code, not a processor: how many instructions something takes, or which share of a term is hidden by others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from costmodel.features.borders import executed_share
from costmodel.features.estimators.base import COST, OVERLAP, Estimate, Terms
from costmodel.features.estimators.conflicts import content, crowding
from costmodel.features.nest import Nest
from costmodel.features.spans import step
from costmodel.features.statement import Access, Loop, Statement
from search_space.dtypes import NARROW
from search_space.hardware import COLUMNS, LINE, CpuRates, Hardware, fragment_columns
from search_space.ir.expr import Expr, dtype_bytes, lift, var, variables, walk
from search_space.ir.flat import flat_index
from search_space.ir.polynomial import canon, poly
from search_space.ir.simplify import Simplifier
from search_space.ir.sizes import is_sized
from search_space.ir.stmt import LoopProgram
from search_space.ir.tape import Value

LOOP_INSTRUCTIONS = 6.0  # to count, compare and move addresses at a loop's end
OVERHEAD = 0.5  # cycles of one pass through a loop's end that nothing hides: its branch is predicted
DIVISION = 20.0  # cycles of a quotient of two numbers of 64 bits that are unknown when the code is emitted
SPILL = 3.0  # cycles to reload and store an accumulator that has no register, mostly hidden
LIBRARY = (1.15, 20.0, 12.0, 10.0)
"""Time of a library's product (m, n, k) relative to its multiply-adds at peak: a constant, and coefficients of 1 / m, 1
/ n and 1 / k. A repacked constant is used m times, the other operand n times, and results are loaded and stored every
k. Packing is vector instructions, too, so that the ratio is similar on all processors."""
LIBRARY_TILE = 24  # vectors of results that a library keeps in registers
PERMUTED_LOADS, PERMUTED_ANYWHERE = 2.0, 3.0  # loads that a load and a permutation count for, aligned or not
ELEMENTS = (2, 4)  # bytes of elements whose neighbours in rows are loaded at once
ACROSS = 0.5  # loads that each lane of 4 bytes then counts for: a quarter of one, and as many shuffles
GUARD = 3.0  # instructions that choose the address of an element that may be out of range
HORIZONTAL = 8.0  # cycles to combine the lanes of a vector: shuffles and sums, one after the other
WAIT = 40.0
"""Cycles until that result is in all lanes of its user; vectors that are combined meanwhile share them."""
WIDENED_VECTOR, WIDENED_ELEMENT = 2.0, 3.0
"""Instructions that make float32 of a vector of 16-bit floats, or of a register of pairs, and of one for all lanes."""
PAIRS_OF_FOUR_BITS, PAIRS = 2.0, 5.0
"""Instructions that a dot of bytes counts for, if there are some that add up two products: fitted to times of products
of one row and of 128 on an AMD EPYC (znver3)."""
INTEGER = 3.0  # instructions of a product of bytes that is added up in 32 bits: widened, multiplied, added
LOOP_SECONDS = 1.4e-6  # of a parallel loop after its start: lines in other cores' caches, and late threads
LATE = 0.1
"""Iterations of a parallel loop by which a core is late on a machine that does other things as well: the pool takes
work from a late thread, but no part of an iteration. Of 0, 0.1 and 0.25, this had the least geometric mean of
the times of seven networks, in turns on a shared AMD EPYC (znver3)."""
REACHED_SHARES = (0.5, 1.0, 1.0)
"""Share of a level's bandwidth that tiles reach. Lines from the second level take cycles of the first from loads of
lines that are there already. This has no effect on code that reads each line once."""
USABLE_SHARE = 0.75
"""Share of a cache up to which its content is reused: lines are not spread evenly over its sets."""
WRITE_PASSES = 2.0  # times that written lines pass between caches: they are fetched first, and written back
CONTENTION = 0.19
"""Share of the time that is added if multiply-adds and loads both keep their ports busy all the time: 2 ** (1 / 4) - 1.
Tiles that read an operand for each product do so. Otherwise it falls with the fourth power of the lesser's share."""


def estimate(program: LoopProgram, nests: Sequence[Nest], hardware: Hardware, cold_constants: bool) -> Estimate:
    """Estimates a program whose statements run one after another, see `base.Estimator`."""
    key = ("cpu", hardware, cold_constants)
    terms = [nest.once(key, partial(_terms, nest, hardware, cold_constants)) for nest in nests]
    total = nests[0].tape.total
    busy = [of.seconds * (_late_share(nest, hardware) + 1) for nest, of in zip(nests, terms, strict=True)]
    return Estimate(terms, total(of.seconds for of in terms), total(busy))


def _terms(nest: Nest, hardware: Hardware, cold: bool) -> Terms:
    """Computes the terms of one statement.

    Args:
        cold: whether constants come from memory each time, as weights do within a network.
    """
    statement, tape = nest.statement, nest.tape
    call = nest.library
    lanes = _lanes(nest, hardware)
    instructions = nest.iterations / lanes * executed_share(nest)
    body = nest.total_extent("unroll").most(1)
    tile = nest.product(lambda loop: loop.kind == "unroll" and statement.output.depends(loop.var))
    transfers = [(nest.over_lanes(a), _loads(nest, a)) for a in nest.accesses]
    loads = tape.total(count for _, count in transfers)
    elements = tape.total(count for vectors, count in transfers if not vectors)
    stores = _transfers(nest, statement.output) if statement.output.memory else tape.const(0)
    if call is not None:
        tile, loads, stores = tape.const(LIBRARY_TILE), tape.const(0), tape.const(0)
        elements = tape.const(0)
    operands = [_vectors_in_registers(nest, a) for a in statement.inputs if nest.over_lanes(a)]
    if len(operands) > 1:
        # One of two multiplied vectors is loaded from memory by its use: the one with fewer uses.
        operands = [operands[0].least(operands[1]), *operands[2:]]
    registers = tile + tape.total(operands) + 1
    slid = window(statement)
    if slid is not None:  # the window's weights, and as many vectors of data
        registers = registers.most(tile + nest.product(lambda loop: loop is slid) * 2 + 1)
    registers = registers if statement.reducing else tape.const(4)
    # Cycles per instruction: ports, then the wait for the sum so far, then spills.
    costs = COST | _byte_dots(statement, hardware)
    work = sum(n * costs.get(kind, 1.0) for kind, n in statement.operations.items() if kind != "guard")
    if statement.output.buffer.dtype == "int32" and not any(loop.kind == "tensor" for loop in statement.loops):
        work += statement.operations.get("fma", 0.0) * (INTEGER - 1)
    alike = nest.product(lambda loop: loop.kind == "unroll" and loop.var not in statement.guard_variables)
    guards = tape.const(statement.operations.get("guard", 0.0) * GUARD) / alike.most(1)
    rates = hardware.rates
    ports = ((loads - elements) / rates.loads + elements / rates.elements) / body
    ports = ports.most(stores / body / rates.stores)
    started, latency = _instruction_rates(statement, rates)
    arithmetic = tape.const(work / started)
    if conversions := _conversions(nest):
        arithmetic = arithmetic + tape.total(conversions) / body / rates.fma
    if statement.reducing:
        # If just enough sums hide each other's latency, they never make up for a delay of one of them.
        # Dots of bytes start a new sum in each step, so that only the last addition waits for the one before.
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
    carried = [
        nest.compute_loaded_bytes(footprint, again) for footprint, again in zip(nest.footprints, rounds, strict=True)
    ]
    everywhere = _everywhere(nest, rounds, busy)
    occupied = [size / USABLE_SHARE for size in nest.working_sets]
    of_all = [(size + more) / USABLE_SHARE for size, more in zip(nest.working_sets, everywhere, strict=True)]
    traffic = tuple(
        _traffic(nest, carried, of_all if ways else occupied, capacity, ways, busy if ways else None)
        for capacity, ways in zip(capacities, (*hardware.ways, 0), strict=True)
    )
    if cold:
        traffic = (*traffic[:-1], traffic[-1].most(_constants(nest)))
    alone = _parallel(nest) <= 1
    misses = tuple(
        t / ((alone.otherwise(one, each) if one != each else each) * share)
        for t, one, each, share in zip(traffic, rates.one, rates.each, REACHED_SHARES, strict=True)
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
    """Counts quotients of the parallel loop's index by open sizes, which cannot become multiplications."""
    parallel = {loop.var for loop in statement.loops if loop.kind == "parallel"}
    divisions = {
        node.args
        for access in statement.accesses
        for index in access.indices
        for node in walk(index)
        if node.op in ("floordiv", "mod") and is_sized(node.args[1]) and variables(node.args[0]) & parallel
    }
    return len(divisions)


def _byte_dots(statement: Statement, hardware: Hardware) -> dict[str, float]:
    """Returns the cost of four byte products in each lane on processors that have instructions for them."""
    one, pairs = ("avx512vnni", "avx512bw") if hardware.float_lanes == 16 else ("avxvnni", "avx2")
    if one in hardware.features:
        return {"bytedot": hardware.rates.fma / hardware.rates.dot_rates({"int8"})[0]}
    if pairs not in hardware.features:
        return {}
    # Bytes are masked where they are numbers of 4 bits. Then sums of two products fit in 16 bits.
    return {"bytedot": PAIRS_OF_FOUR_BITS if statement.operations.get("bitand") else PAIRS}


def _instruction_rates(statement: Statement, rates: CpuRates) -> tuple[float, float]:
    """Returns how many instructions of a statement's kind start in a cycle, and the cycles until a result is ready."""
    inside = statement.reducing and _is_instruction(statement)
    return rates.dot_rates({a.buffer.dtype for a in statement.inputs}) if inside else (rates.fma, rates.fma_latency)


def _loads(nest: Nest, access: Access) -> Value:
    """Counts loads and stores of a body: one in each step of an instruction, if all lanes share an element of each."""
    statement, count = nest.statement, _transfers(nest, access)
    steps = statement.operations.get("fma", 1.0) if access.memory and _is_instruction(statement) else 1.0
    return count * steps if steps > 1 and not access.depends("#0") else count


def _is_instruction(statement: Statement) -> bool:
    return any(loop.kind == "tensor" for loop in statement.loops)


def _conversions(nest: Nest) -> list[Value]:
    """Counts the instructions of a body that make float32 of each 16-bit factor of a sum, as it is loaded."""
    statement = nest.statement
    instruction = _is_instruction(statement)
    if not statement.reducing or (instruction and statement.operations.get("fma", 1.0) == 1):
        return []
    narrow = [a for a in statement.inputs if a.buffer.dtype in NARROW]
    return [
        _transfers(nest, a) * (WIDENED_VECTOR if instruction or nest.over_lanes(a) else WIDENED_ELEMENT) for a in narrow
    ]


def _together(arithmetic: Value, loading: Value) -> Value:
    """Combines two terms that hide behind each other, in cycles: more than the greater if they are similar."""
    greater = arithmetic.most(loading)
    share = arithmetic.least(loading) / greater.most(1e-9)
    square = share * share
    return greater * (square * square * CONTENTION + 1)


def _lanes(nest: Nest, hardware: Hardware) -> Value:
    """Returns the elements that one instruction computes: a longer vector loop takes several."""
    vector = nest.total_extent("vectorize").most(1)
    widest = max(dtype_bytes(a.buffer.dtype) for a in nest.statement.accesses)
    held = hardware.vector_bytes // widest
    whole = vector / vector.ceildiv(held)
    if nest.library is not None:
        return nest.tape.const(held)
    return whole * nest.total_extent("tensor")


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
            scattered = nest.total_extent("vectorize")
            together = _count_permuted_loads(nest, access) if permutes(access, loop.var) else nest.tape.const(1)
            if rows := taken_in_turns(access, loop.var):
                times = times * (2 * rows - 1)  # a load of each, and the permutations that join them
                continue
            if wraps(access, loop):
                times = times * scattered
                continue
            times = times * (nest.stride(access, loop.var) <= 1).otherwise(together, scattered * _across(nest, access))
        elif loop.kind == "tensor" and permutes(access, loop.var, lanes=int(loop.extent.value)):
            times = times * _count_permuted_loads(nest, access)
    return times


def _across(nest: Nest, access: Access) -> float:
    """Returns the loads that a lane in a row of its own counts for: fewer if the row's neighbours are read, too."""
    together = fragment_columns(access.buffer.dtype)
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
    """Finds the unrolled reduction loop inside the loops of the tile, whose positions share loads; None if absent."""
    unrolled = [loop for loop in statement.loops if loop.kind == "unroll"]
    tiled = any(statement.output.depends(loop.var) for loop in unrolled)
    return unrolled[-1] if tiled and statement.is_reduction(unrolled[-1]) else None


def _shared(nest: Nest, access: Access, slid: Loop) -> Value:
    """Returns the share of distinct elements among those that a window's positions read along a row of the tile."""
    output, share = nest.statement.output, nest.tape.const(1)
    for index in access.indices:
        names = variables(index)
        for loop in nest.statement.loops:
            if slid.var in names and loop.var in names and loop.kind == "unroll" and output.depends(loop.var):
                row, positions = (nest.product([of].__contains__).most(1) for of in (loop, slid))
                moves = [step(index, of.var, nest.columns).magnitude() for of in (loop, slid)]
                distinct = (row - 1) * moves[0] + (positions - 1) * moves[1] + 1
                share = share * (distinct / (row * positions)).least(1)
    return share


def permutes(access: Access, var: str, lanes: int = 0) -> bool:
    """Tells whether neighbouring lanes read elements close to each other, but not adjacent, as with groups of channels.

    Args:
        lanes: lanes of an instruction that broadcasts an element that all of them read; 0: lanes are permuted anyway.
    """
    divisions = [n for index in access.indices for n in walk(index) if n.op == "floordiv" and var in variables(n)]
    return any(not lanes or not n.args[1].is_const or int(n.args[1].value) % lanes != 0 for n in divisions)


def wraps(access: Access, loop: Loop) -> bool:
    """Tells whether some vectors continue at the beginning of a row, so that all vectors are gathered.

    This applies to a row's constants if vectors run over all elements of an array whose rows are not a multiple of a
    vector. The array itself is contiguous.
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
    """Returns between how many rows neighbouring lanes alternate, as in pairs of 16-bit floats and words of bytes."""
    if not access.indices or dtype_bytes(access.buffer.dtype) > 2:
        return 0
    *rows, last = access.indices

    def divisors(index: Expr, op: str) -> set[Expr]:
        return {node.args[1] for node in walk(index) if node.op == op and var in variables(node.args[0])}

    turns = {d for index in rows for d in divisors(index, "mod")} & divisors(last, "floordiv")
    return max((int(d.value) for d in turns if d.is_const), default=0)


def _count_permuted_loads(nest: Nest, access: Access) -> Value:
    """Returns the loads that a vector with permuted lanes counts for; more if blocks begin at any offset."""
    cost = nest.tape.const(PERMUTED_LOADS)
    for loop, extent in zip(nest.levels, nest.level_extents, strict=True):
        if content(access.indices[-1], loop.var) == 1:
            cost = (extent <= 1).otherwise(cost, PERMUTED_ANYWHERE)
    return cost


def _vectors_in_registers(nest: Nest, access: Access) -> Value:
    """Counts the vectors of an operand that stay in registers while a tile is updated."""
    statement = nest.statement
    return nest.product(
        lambda loop: loop.kind == "unroll" and access.depends(loop.var) and statement.output.depends(loop.var)
    )


def _loop_passes(nest: Nest) -> Value:
    """Counts the passes through the ends of all runtime loops; a loop that runs once has no end in the code."""
    passes = nest.tape.const(0)
    for extent, trips in zip(nest.level_extents, nest.trips[1:], strict=True):
        passes = passes + (extent <= 1).otherwise(0, trips)
    return passes


def _traffic(
    nest: Nest,
    loaded_bytes: Sequence[Sequence[Value]],
    occupied_bytes: Sequence[Value],
    capacity: int,
    ways: int,
    busy: Value | None,
) -> Value:
    """Returns the bytes loaded into a cache; 0 if all data fits, as an earlier statement or run has left it there.

    Of data that is reused outside the parallel loop, each private cache holds its core's share. Accesses whose lines
    crowd on few sets, of `ways` lines each, need more room than their bytes; 0 ways: lines are spread evenly.

    Args:
        loaded_bytes: bytes loaded, by access and level, see `Nest.compute_loaded_bytes`.
        occupied_bytes: bytes of a cache that the working set takes, by level.
    """
    parallel = [i for i, loop in enumerate(nest.levels) if loop.kind == "parallel"]
    last = len(nest.trips) - 1
    capacities = []
    for i in range(last + 1):
        shared = busy is not None and parallel and i <= parallel[0]
        capacities.append(
            nest.tape.const(capacity) * busy if shared and busy is not None else nest.tape.const(capacity)
        )
    fits_level = [taken <= room for taken, room in zip(occupied_bytes, capacities, strict=True)]
    brought = []
    for access, footprint, loaded in zip(nest.accesses, nest.footprints, loaded_bytes, strict=True):
        lost = crowding(nest, access, capacity // ways) if ways else None
        out = footprint[last] * nest.trips[last]
        if lost is not None:  # lines that a body reads again were evicted in between
            fits = nest.working_sets[last] + lost[last] <= capacities[last]
            out = fits.otherwise(out, out.most(_transfers(nest, access) * LINE * nest.trips[last]))
        for i in range(last, -1, -1):
            here = loaded[i] if i else nest.tape.const(0)
            fits = fits_level[i]
            if lost is not None:
                fits = occupied_bytes[i].most(nest.working_sets[i] + lost[i]) <= capacities[i]
            out = fits.otherwise(here, out)
        brought.append(out * (WRITE_PASSES if access.writes else 1.0))
    return nest.tape.total(brought)


def _everywhere(nest: Nest, rounds: Sequence[Sequence[Value]], busy: Value) -> list[Value]:
    """Returns the bytes, by level, of further copies in private caches, as several cores pass through the same data.

    Args:
        rounds: number of passes, by access and runtime loop, see `Nest.rounds`.
        busy: number of busy cores.
    """
    parallel = next((i for i, loop in enumerate(nest.levels) if loop.kind == "parallel"), None)
    replicated = [nest.tape.const(0)] * len(nest.trips)
    if parallel is None:
        return replicated
    for footprint, again in zip(nest.footprints, rounds, strict=True):
        others = (again[parallel] - 1).least(busy - 1).most(0)
        for level in range(parallel + 1):
            replicated[level] = replicated[level] + footprint[level] * others
    return replicated


def _constants(nest: Nest) -> Value:
    """Returns the bytes of the constants that are read, each counted once."""
    pairs = zip(nest.accesses, nest.footprints, strict=True)
    return nest.tape.total(footprint[0] for access, footprint in pairs if access.buffer.constant)


def _parallel(nest: Nest) -> Value:
    return nest.total_extent("parallel").most(1)


def _balance(nest: Nest, hardware: Hardware) -> Value:
    """Returns the useful share of the cores' time if the parallel iterations are dealt out evenly."""
    count = _parallel(nest)
    return count / (count.ceildiv(hardware.cores) * hardware.cores)


def _late_share(nest: Nest, hardware: Hardware) -> Value:
    """Returns the share of the time that is added if a core is late, and others take over what it has not begun."""
    if hardware.cores == 1:
        return nest.tape.const(0)
    iterations = _parallel(nest)
    return (iterations <= 1).otherwise(0, nest.tape.const(LATE * hardware.cores) / iterations)


def _starts(nest: Nest) -> Value:
    """Returns how often a parallel loop is started."""
    for i, loop in enumerate(nest.levels):
        if loop.kind == "parallel":
            return (nest.level_extents[i] <= 1).otherwise(0, nest.trips[i])
    return nest.tape.const(0)
