"""The features of a statement, in Ansor's groups and by the roofline's terms.

All programs have the same names of features, so that a model can learn from many. `COUNTS` are transformed by
log2(1 + x), `SHARES` are not.
"""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.features.estimators.base import COST, Terms
from costmodel.features.nest import Nest
from costmodel.features.statement import Access
from search_space.hardware import LINE
from search_space.ir.expr import dtype_bytes
from search_space.ir.tape import Value

BUFFERS = 5  # number described: the output, then inputs in order, memory before registers
INNERMOST = 4  # number of runtime loops described, from the inside
CAPACITIES = tuple(1 << k for k in range(10, 30, 2))  # bytes at which arithmetic intensity is sampled
OPERATIONS = ("fma", "add", "mul", "div", "math", "compare", "other")
KINDS = {
    "vectorize": ("vectorize",),
    "unroll": ("unroll",),
    "parallel": ("parallel",),
    "serial": ("serial",),
    "block": ("blockIdx.x", "blockIdx.y", "blockIdx.z"),
    "thread": ("threadIdx.x", "threadIdx.y", "threadIdx.z"),
    "vthread": ("vthread",),
    "tensor": ("tensor",),
    "library": ("library",),
}
POSITIONED_KINDS = ("vectorize", "unroll", "parallel")  # kinds whose position in the nest is described
_KIND_OF = {
    "sub": "add",
    "min": "compare",
    "max": "compare",
    "select": "compare",
    "guard": "compare",
    "fma": "fma",
    "add": "add",
}
_KIND_OF |= {"mul": "mul", "div": "div"}
_ACCESS: tuple[str, ...] = ("bytes", "unique", "lines", "unique_lines", "distance", "distance_bytes", "reuse")
_ACCESS += ("bytes_a_reuse", "unique_a_reuse", "lines_a_reuse", "unique_lines_a_reuse", "stride")
_FLAGS = ("read", "write", "registers", "reused")
_TERMS = ("instructions", "accumulators", "registers", "body", "loads", "arithmetic", "loading", "overhead")

COUNTS: tuple[str, ...] = (
    *(f"operations.{k}" for k in OPERATIONS),
    "iterations",
    *(f"{kind}.{x}" for kind in KINDS for x in ("product", "length")),
    *(f"{kind}.{x}" for kind in POSITIONED_KINDS for x in ("inside", "reduced")),
    *(f"inner{i}.{x}" for i in range(INNERMOST) for x in ("extent", "working_set", "trips")),
    *(f"buffer{b}.{x}" for b in range(BUFFERS) for x in _ACCESS),
    *(f"intensity.{c}" for c in CAPACITIES),
    "allocation.bytes",
    "allocation.trips",
    *(f"roofline.{x}" for x in _TERMS),
    *(f"roofline.{x}{i}" for i in (1, 2, 3) for x in ("traffic", "misses")),
    "roofline.nanoseconds",
    "program.nanoseconds",
)
SHARES: tuple[str, ...] = (
    "reducing",
    *(f"buffer{b}.{x}" for b in range(BUFFERS) for x in _FLAGS),
    "roofline.balance",
    "roofline.loads_an_instruction",
    "roofline.share",
)
NAMES = COUNTS + SHARES
SECONDS = NAMES.index("program.nanoseconds")
Feature = tuple[str, Value | float]


def describe(nest: Nest, terms: Terms, program_seconds: Value) -> dict[str, Value | float]:
    """Computes the features by name; a missing feature is 0."""
    found = nest.once(("features", terms), lambda: _of_statement(nest, terms))
    return found | dict(_share(terms, program_seconds))


def _of_statement(nest: Nest, terms: Terms) -> dict[str, Value | float]:
    """Computes the features of a statement that do not depend on the rest of the program."""
    features: dict[str, Value | float] = {}
    for group in (_computation, _annotation, _innermost, _buffers, _intensity, _allocation):
        features.update(group(nest))
    features.update(_roofline(terms))
    return features


def _computation(nest: Nest) -> Iterator[Feature]:
    """Yields the operations and iterations of the whole program."""
    counts = dict.fromkeys(OPERATIONS, 0.0)
    for kind, count in nest.statement.operations.items():
        counts[_KIND_OF.get(kind, "math" if kind in COST else "other")] += count
    yield from ((f"operations.{kind}", nest.iterations * count) for kind, count in counts.items())
    yield "iterations", nest.iterations
    yield "reducing", float(nest.statement.reducing)


def _annotation(nest: Nest) -> Iterator[Feature]:
    """Yields product and innermost length of each kind of loops; for some, iterations inside and reduction extents."""
    for name, kinds in KINDS.items():
        yield f"{name}.product", nest.total_extent(*kinds)
        length, inside = nest.tape.const(1), nest.tape.const(1)
        for i, (loop, extent) in enumerate(zip(nest.statement.loops, nest.extents, strict=True)):
            if loop.kind in kinds:
                length = (extent <= 1).otherwise(length, extent)
                inside = (extent <= 1).otherwise(inside, nest.tape.product(nest.extents[i + 1 :]))
        yield f"{name}.length", length
        if name in POSITIONED_KINDS:
            yield f"{name}.inside", inside
            reduced = [x for x in nest.statement.loops if x.kind in kinds and nest.statement.is_reduction(x)]
            yield f"{name}.reduced", nest.product(reduced.__contains__)


def _innermost(nest: Nest) -> Iterator[Feature]:
    """Yields extent, bytes touched and trips of the innermost runtime loops that run more than once."""
    one = nest.tape.const(1)
    shift = [(one, nest.working_sets[-1], nest.trips[-1])] * INNERMOST
    for i, extent in enumerate(nest.level_extents):
        here = (extent, nest.working_sets[i], nest.trips[i])
        once = extent <= 1
        moved = [here, *shift[:-1]]
        shift = [
            tuple(once.otherwise(a, b) for a, b in zip(old, new, strict=True))  # type: ignore[misc]
            for old, new in zip(shift, moved, strict=True)
        ]
    for i, values in enumerate(shift):
        yield from zip((f"inner{i}.{x}" for x in ("extent", "working_set", "trips")), values, strict=True)


def _buffers(nest: Nest) -> Iterator[Feature]:
    accesses = sorted(nest.statement.accesses, key=lambda a: not a.memory)[:BUFFERS]
    for b, access in enumerate(accesses):
        for name, value in _access(nest, access):
            yield f"buffer{b}.{name}", value


def _access(nest: Nest, access: Access) -> Iterator[Feature]:
    """Yields the use of one buffer; for registers, only its flags."""
    yield "read", float(access.reads)
    yield "write", float(access.writes)
    yield "registers", float(not access.memory)
    if not access.memory:
        return
    tape, size = nest.tape, dtype_bytes(access.buffer.dtype)
    footprint = nest.footprints[nest.accesses.index(access)]
    stride = tape.const(0)
    for loop, extent in zip(nest.statement.loops, nest.extents, strict=True):
        if access.depends(loop.var):
            moved = nest.stride(access, loop.var)
            stride = (extent <= 1).most(moved <= 0).otherwise(stride, moved)
    brought = nest.iterations * size
    lines = nest.iterations * (stride * size).least(LINE) / LINE
    unique = nest.elements(access)[0] * size
    # The innermost runtime loop that touches nothing new reuses all of it after one pass of its body.
    distance, distance_bytes, reuse = tape.const(0), tape.const(0), tape.const(1)
    for i, extent in enumerate(nest.level_extents):
        again = footprint[i].equals(footprint[i + 1]).least(tape.const(1) < extent)
        distance = again.otherwise(nest.iterations / nest.trips[i + 1].most(1), distance)
        distance_bytes = again.otherwise(nest.working_sets[i + 1], distance_bytes)
        reuse = again.otherwise(extent, reuse)
    yield "bytes", brought
    yield "unique", unique
    yield "lines", lines
    yield "unique_lines", footprint[0] / LINE
    yield "distance", distance
    yield "distance_bytes", distance_bytes
    yield "reuse", reuse
    yield "reused", (reuse <= 1).otherwise(0, 1)
    yield "bytes_a_reuse", brought / reuse
    yield "unique_a_reuse", unique / reuse
    yield "lines_a_reuse", lines / reuse
    yield "unique_lines_a_reuse", footprint[0] / LINE / reuse
    yield "stride", stride


def _intensity(nest: Nest) -> Iterator[Feature]:
    """Yields the arithmetic-intensity curve: operations per byte loaded into a cache of each capacity."""
    operations = nest.iterations * (sum(nest.statement.operations.values()) or 1)
    innermost = nest.tape.total(f[-1] for f in nest.footprints) * nest.trips[-1]
    brought = [nest.compute_loaded_bytes(f) for f in nest.footprints]
    by_level = [operations / nest.tape.total(b[i] for b in brought).most(1) for i in range(len(nest.trips))]
    for capacity in CAPACITIES:
        value = operations / innermost.most(1)
        for i in range(len(nest.trips) - 1, -1, -1):
            value = (nest.working_sets[i] <= capacity).otherwise(by_level[i], value)
        yield f"intensity.{capacity}", value


def _allocation(nest: Nest) -> Iterator[Feature]:
    """Yields the size of the written buffer, and how often it is allocated."""
    buffer, loops = nest.statement.output.buffer, nest.statement.loops[: nest.statement.allocation]
    yield "allocation.bytes", nest.tape.product(nest.columns(s) for s in buffer.shape) * dtype_bytes(buffer.dtype)
    yield "allocation.trips", nest.tape.product(nest.extents[: len(loops)])


def _roofline(terms: Terms) -> Iterator[Feature]:
    for name in _TERMS:
        yield f"roofline.{name}", getattr(terms, name)
    for i, (traffic, misses) in enumerate(zip(terms.traffic, terms.misses, strict=True), 1):
        yield f"roofline.traffic{i}", traffic
        yield f"roofline.misses{i}", misses
    yield "roofline.nanoseconds", terms.seconds * 1e9
    yield "roofline.balance", terms.balance
    yield "roofline.loads_an_instruction", terms.loads / terms.body.most(1)


def _share(terms: Terms, program_seconds: Value) -> Iterator[Feature]:
    """Yields the program's seconds, and the statement's share of them."""
    yield "program.nanoseconds", program_seconds * 1e9
    yield "roofline.share", terms.seconds / program_seconds.most(1e-12)
