"""Features of every statement of a sketch, compiled to a function of decision columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features.roofline import Terms, estimate, real, total_float
from costmodel.features.statement import Access, Statement, statements
from search_space.hardware import Hardware
from search_space.ir.columns import compile_columns
from search_space.ir.expr import Expr, call, const, logical_and, product, select
from search_space.ir.stmt import LoopProgram

BUFFERS = 4
LEVELS = 6
OPERATIONS = ("fma", "add", "sub", "mul", "div", "max", "min", "select", "cast", "reduce", "exp", "tanh", "erf")


class FeatureExtractor:
    """Features of a population of one sketch.

    Args:
        program: the sketch's symbolic program.
        columns: names of the decision variables, in the order of the columns.
        hardware: limits that the roofline needs.
    """

    def __init__(self, program: LoopProgram, columns: Sequence[str], hardware: Hardware) -> None:
        self.statements = statements(program)
        terms = [estimate(s, hardware) for s in self.statements]
        hertz = hardware.peak_flops / (hardware.cores * 2 * 2 * hardware.float_lanes)
        seconds = total_float(t.cycles for t in terms) / hertz
        rows = [_features(s, t, seconds) for s, t in zip(self.statements, terms, strict=True)]
        self.names: tuple[str, ...] = tuple(name for name, _ in rows[0])
        self._features = compile_columns([e for row in rows for _, e in row], columns)
        self._roofline = compile_columns([seconds], columns)

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """Features of candidates: (columns, n) → float32 (n, statements, features)."""
        found = self._features(columns)
        shape = (len(self.statements), len(self.names), columns.shape[1])
        return np.ascontiguousarray(found.reshape(shape).transpose(2, 0, 1), np.float32)

    def roofline(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimated seconds: (columns, n) → (n,)."""
        seconds: NDArray[np.float64] = self._roofline(columns)[0]
        return seconds


def _log(e: Expr) -> Expr:
    """log2(1 + e)."""
    return call("log", real(e) + 1.0)


def _features(statement: Statement, terms: Terms, seconds: Expr) -> list[tuple[str, Expr]]:
    out: list[tuple[str, Expr]] = []
    loops = statement.loops
    count = statement.runtime_loops
    out += [(f"op_{kind}", const(float(statement.operations.get(kind, 0)), "float32")) for kind in OPERATIONS]
    out.append(("reducing", const(float(statement.reducing), "float32")))
    for kind in ("vectorize", "unroll", "parallel"):
        out.append((f"{kind}_product", _log(product(x.extent for x in loops if x.kind == kind))))
        out.append((f"{kind}_loops", const(float(sum(x.kind == kind for x in loops)), "float32")))
    out += [
        ("instructions", _log(terms.instructions)),
        ("accumulators", _log(terms.accumulators)),
        ("body", _log(terms.body)),
        ("loads", _log(terms.loads)),
        ("loads_per_instruction", real(terms.loads) / real(terms.body)),
        ("balance", terms.balance),
        ("spill", terms.spill),
        ("arithmetic", _log(terms.arithmetic_cycles)),
        ("overhead", _log(terms.overhead_cycles)),
    ]
    for level, traffic in enumerate(terms.traffic, 1):
        out.append((f"traffic_{level}", _log(traffic)))
        out.append((f"intensity_{level}", _log(terms.instructions / (real(traffic) + 1.0) * 64.0)))
    memory = sorted((a for a in statement.accesses if a.memory), key=lambda a: (a.write, a.buffer.name))
    for i in range(LEVELS):
        at = max(0, count - i)
        exists = i <= count
        extent = loops[at].extent if exists and at < len(loops) and i else const(1)
        out.append((f"extent_{i}", _log(extent)))
        prints = [real(a.footprint(statement.running(at))) for a in memory] if exists else []
        out.append((f"footprint_{i}", _log(total_float(prints))))
        trips = product(x.extent for x in loops[:at]) if exists else const(0)
        out.append((f"trips_{i}", _log(trips)))
        for b in range(BUFFERS):
            out.append((f"footprint_{i}_{b}", _log(prints[b]) if b < len(prints) else const(0.0, "float32")))
    for b in range(BUFFERS):
        out += _buffer(statement, memory[b] if b < len(memory) else None, b)
    out.append(("statement_estimate", call("log", terms.cycles + 1.0)))
    out.append(("program_estimate", call("log", seconds)))
    return out


def _buffer(statement: Statement, access: Access | None, b: int) -> list[tuple[str, Expr]]:
    """Access type, unit stride along the lanes, and the innermost loop that reuses the buffer."""
    zero = const(0.0, "float32")
    if access is None:
        return [(f"{n}_{b}", zero) for n in ("write", "unit", "broadcast", "reuse", "reuse_bytes")]
    lanes = [x.var for x in statement.loops if x.kind == "vectorize"]
    broadcast = float(not any(access.depends(v) for v in lanes))
    unit = float(any(v in access.dims[-1].coefficients for v in lanes)) if access.dims else 0.0
    reuse, distance = zero, zero
    for i, loop in enumerate(statement.loops):
        if loop.kind not in ("unroll", "vectorize"):
            inside = access.footprint(statement.running(i + 1))
            reused = logical_and(access.footprint(statement.running(i)) <= inside, const(1) < loop.extent)
            reuse = select(reused, _log(loop.extent), reuse)
            distance = select(reused, _log(inside), distance)
    return [
        (f"write_{b}", const(float(access.write), "float32")),
        (f"unit_{b}", const(unit, "float32")),
        (f"broadcast_{b}", const(broadcast, "float32")),
        (f"reuse_{b}", reuse),
        (f"reuse_bytes_{b}", distance),
    ]
