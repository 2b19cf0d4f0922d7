"""Addresses: a part that varies with a loop is computed in that loop, or carried along by it as a pointer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from search_space.ir.expr import Expr, const, var, variables, walk
from search_space.ir.flat import flat_index
from search_space.ir.polynomial import Monomial, Poly, canon, from_poly, poly
from search_space.ir.sizes import is_sized
from targets.cpu.integers import Integers
from targets.cpu.storage import Loops, Storage
from targets.cpu.text import LLVM_TYPE, Scope

Terms = tuple[tuple[Monomial, int], ...]
LANE = "#0"
"""The loop of an instruction's lanes, as its operands name it."""
MAX_POINTERS = 5
"""Pointers that a loop carries.

x86-64 has 16 registers for them and for all else. In a loop that needs more, further pointers are computed from its
index: each would cost an addition an iteration, and soon a spill.
"""


@dataclass(frozen=True)
class Plan:
    """An access's offset, sorted by when each part is known (elements).

    Attributes:
        constant, unrolled_terms: known while emitting; lane: the coefficient of the vectorized loop.
        runtime: known in the loops; mixed: divisions or minima that hold unrolled variables; gather: that hold lanes.
        loaded_terms: terms that contain elements of other buffers, the same for all lanes.
    """

    constant: int
    unrolled_terms: tuple[tuple[str, int], ...]
    lane: int
    runtime: Terms
    mixed_terms: Terms
    gather: Terms
    loaded_terms: Terms


def holds_load(e: Expr) -> bool:
    """Tells whether an index depends on the contents of a buffer."""
    return any(node.op == "load" for node in walk(e))


class Addresses:
    """An emitter of the addresses of one function.

    Args:
        integers: emits index arithmetic.
        loops, storage: loops and storage of the program.
        env: numbers of the unrolled variables; changes as the program is emitted.
        fixed: function that replaces unrolled variables in an expression by their numbers.

    Attributes:
        pointers: first element of each buffer.
    """

    def __init__(
        self,
        integers: Integers,
        loops: Loops,
        storage: dict[str, Storage],
        env: dict[str, int],
        fixed: Callable[[Expr], Expr],
    ) -> None:
        self.text, self.integers, self.loops, self.storage, self.env = integers.text, integers, loops, storage, env
        self.pointers: dict[str, str] = {}
        self._fixed = fixed
        self._plans: dict[tuple[str, tuple[Expr, ...], int], Plan] = {}
        self._lanes = {LANE, *loops.lanes}

    def plan(self, buffer: str, indices: tuple[Expr, ...]) -> Plan:
        key = (buffer, indices, self.integers.extents)
        plan = self._plans.get(key)
        if plan is None:
            # Where lanes lie within a row of several vectors, which of them it is does not depend on the lane.
            flat = flat_index(indices, self.storage[buffer].strides, self.integers.simplify)
            plan = self._plans[key] = self._make_plan(flat)
        return plan

    def _make_plan(self, flat: Expr) -> Plan:
        constant, lane = 0, 0
        unrolled, runtime, mixed, gather, loaded = [], [], [], [], []
        for monomial, c in poly(flat).items():
            # A term is known when the last of its factors is: lanes are asked for before loads, these before unrolled
            # numbers.
            names = {v for atom in monomial for v in variables(atom)}
            bare = monomial[0].args[0] if len(monomial) == 1 and monomial[0].op == "var" else None
            if not monomial:
                constant = c
            elif bare in self._lanes:
                lane = c
            elif names & self._lanes:
                gather.append((monomial, c))
            elif any(holds_load(atom) for atom in monomial):
                loaded.append((monomial, c))
            elif bare in self.loops.unrolled_variables:
                unrolled.append((str(bare), c))
            elif names & self.loops.unrolled_variables:
                mixed.append((monomial, c))
            else:
                runtime.append((monomial, c))
        return Plan(constant, tuple(unrolled), lane, tuple(runtime), tuple(mixed), tuple(gather), tuple(loaded))

    def offset(self, plan: Plan) -> tuple[Terms, int]:
        """Returns the terms that are computed at run time, and the constant, at the current unrolled point."""
        constant = plan.constant + sum(c * self.env[v] for v, c in plan.unrolled_terms)
        if not plan.mixed_terms:
            return plan.runtime, constant
        terms = dict(plan.runtime)
        for monomial, c in plan.mixed_terms:
            # Numbers put in, divisions fall away, and what is left may add up with the other terms.
            whole = const(c)
            for atom in monomial:
                whole = whole * self._fixed(atom)
            for m, d in poly(canon(whole)).items():
                if m:
                    terms[m] = terms.get(m, 0) + d
                else:
                    constant += d
        return tuple((m, c) for m, c in terms.items() if c), constant

    def pointer(self, buffer: str, terms: Terms, constant: int) -> str:
        """Returns a pointer to element (terms + constant); its varying part is reused per loop level."""
        lookup = self.text.lookup
        key: tuple[Any, ...] = ("at", buffer, terms, constant)
        pointer = lookup(key)
        if pointer is None:
            varying = ("base", buffer, terms)
            base = lookup(varying)
            if base is None:
                base = self.text.remember(varying, self._base(buffer, terms))
            pointer = base
            if constant:
                element = LLVM_TYPE[self.storage[buffer].dtype]
                pointer = self.text.value(f"getelementptr {element}, ptr {base}, i64 {constant}", "ptr").text
            self.text.remember(key, pointer)
        return str(pointer)

    def _base(self, buffer: str, terms: Terms) -> str:
        """Returns the varying part of an address: one step a loop level, each computed at the head of its loop."""
        base = self.pointers[buffer]
        element = LLVM_TYPE[self.storage[buffer].dtype]
        levels: dict[int, list[tuple[Monomial, int]]] = {}
        for monomial, c in terms:
            depth = max(self.integers.depth(atom) for atom in monomial)
            levels.setdefault(depth, []).append((monomial, c))
        key: tuple[Any, ...] = ("pointer", buffer)
        for depth in sorted(levels):
            # In one order, or the same address would not be found again.
            part = sorted(levels[depth], key=lambda t: str(list(t[0])))
            key = (*key, tuple(part))
            step_pointer = self.text.lookup(key)
            if step_pointer is None:
                scope = self.text.scopes[depth]
                step_pointer = self._carry_pointer(scope, element, base, part)
                if step_pointer is None:
                    step = self.integers.sum(dict(part), scope)
                    line = f"getelementptr {element}, ptr {base}, i64 {step}"
                    step_pointer = self.text.value(line, "ptr", at=scope).text
                scope.memo[key] = step_pointer
            base = step_pointer
        return base

    def _carry_pointer(self, scope: Scope, element: str, base: str, part: list[tuple[Monomial, int]]) -> str | None:
        """Lets a loop increment a pointer, `base` at first; None if the address is no multiple of the loop's index.

        A multiple may be one of sizes.

        One register and a constant are the cheapest address. With an index register beside it, the processor splits an
        operation that reads memory in two.
        """
        loop = scope.induction
        if loop is None or loop.pointers == MAX_POINTERS:
            return None
        step = self._step(var(loop.variable), part)
        if step is None:
            return None
        loop.pointers += 1
        name = self.text.name("p")
        loop.phis.append(f"  {name} = phi ptr [ {base}, %{loop.before} ], [ {name}.next, %{loop.latch} ]")
        loop.steps.append(f"  {name}.next = getelementptr {element}, ptr {name}, i64 {step}")
        return name

    def _step(self, index: Expr, part: list[tuple[Monomial, int]]) -> str | None:
        """Returns the elements that an iteration advances by, from sizes and numbers alone; None if it varies."""
        terms: Poly = {}
        for monomial, c in part:
            left = list(monomial)
            if index not in left:
                return None
            left.remove(index)
            if not all(map(is_sized, left)):
                return None
            terms[tuple(left)] = c
        return self.integers.scalar(from_poly(terms))
