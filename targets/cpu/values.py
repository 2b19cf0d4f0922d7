"""Expressions as LLVM values: scalars, vectors over the vectorized loop, masks under conditions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from search_space.hardware import LINE, fragment_columns
from search_space.ir.expr import Expr, const, dtype_bytes, make, substitute, var, variables, walk
from search_space.ir.polynomial import Poly, canon, poly_add
from search_space.ir.rounding import match_clamp
from search_space.ir.sizes import is_sized, span
from search_space.ir.stmt import For
from targets.base import BuildError
from targets.cpu import byte_dots, tables, wide_math
from targets.cpu.across import columns, neighbours
from targets.cpu.addresses import Addresses, Plan, Terms, holds_load
from targets.cpu.integers import Integers
from targets.cpu.memory import FIRST_CACHE, SECOND_CACHE, Memory
from targets.cpu.operations import Operations
from targets.cpu.panels_ahead import find_panel_ahead
from targets.cpu.rounding import float_of_byte, match_byte_form
from targets.cpu.storage import Loops, Storage
from targets.cpu.text import LLVM_TYPE, Text, Value
from targets.cpu.vector_math import VectorMath
from targets.cpu.windows import Window, apart, make_mask, merge_blocks, runs, shuffle, window

INDEX_OPS = {"const", "var", "add", "sub", "mul", "floordiv", "mod", "min", "max", "select"}
INDEX_OPS |= {"lt", "le", "eq", "ne", "and", "or"}


class Values:
    """An emitter of scalar and vector expressions of one function."""

    def __init__(
        self,
        text: Text,
        loops: Loops,
        storage: dict[str, Storage],
        features: frozenset[str] = frozenset(),
        panel_bytes: int = 0,
    ) -> None:
        self.text, self.loops, self.storage = text, loops, storage
        self.integers = Integers(text)
        self.math = VectorMath(text, features)
        self.ops = Operations(text, self.math)
        self.memory = Memory(text, self.math.declarations)
        self.env: dict[str, int] = {}
        self.addresses = Addresses(self.integers, loops, storage, self.env, self.fixed)
        self.lane: tuple[str, int] | None = None
        self.mask: Value | None = None
        self.masked_by: Expr | None = None  # what the mask is the value of, where that is known
        self.registers: dict[tuple[str, int], Value] = {}
        self.versions: dict[str, int] = {}
        self.epoch = 0
        self.constants: set[str] = set()
        self.prefetch_bytes, self.panel_bytes = 0, panel_bytes
        self.around: list[For] = []  # counted loops, outermost first
        self.sums_over: Callable[[For], bool] = lambda loop: False
        self._facts: dict[Expr, tuple[tuple[str, ...], tuple[str, ...], bool]] = {}
        self._indices: dict[Expr, bool] = {}
        self._apart: dict[Any, tuple[Poly, tuple[int, ...]] | None] = {}
        self._numbers: dict[tuple[Expr, tuple[int, ...]], Expr] = {}

    # ------------------------------------------------------------------ facts about nodes
    def facts(self, e: Expr) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        """Returns the unrolled variables and the buffers of `e`, and whether it depends on the vectorized loop."""
        facts = self._facts.get(e)
        if facts is None:
            names = variables(e)
            unrolled = tuple(sorted(names & self.loops.unrolled_variables))
            buffers = tuple(sorted({n.args[0] for n in walk(e) if n.op == "load"}))
            facts = (unrolled, buffers, bool(names & self.loops.lanes.keys()))
            self._facts[e] = facts
        return facts

    def fixed(self, e: Expr) -> Expr:
        """Replaces unrolled variables of `e` by their numbers."""
        unrolled = self.facts(e)[0]
        if not unrolled:
            return e
        if len(unrolled) == len(variables(e)):  # a number, whatever the loops around do
            key = (e, tuple(self.env[n] for n in unrolled))
            if key not in self._numbers:
                self._numbers[key] = substitute(e, {n: self.env[n] for n in unrolled})
            return self._numbers[key]
        return self.integers.simplify(substitute(e, {n: self.env[n] for n in unrolled}))

    # ------------------------------------------------------------------ values
    def value(self, e: Expr) -> Value:
        """Emits `e` at the current unrolled point: a vector if it varies over the lanes."""
        unrolled, buffers, varies = self.facts(e)
        key = (
            # Reused only at the same unrolled point, while nothing was stored to what it reads, and under the same
            # mask.
            "value",
            e,
            tuple(self.env[n] for n in unrolled),
            tuple(self.versions.get(b, 0) for b in buffers),
            (self.mask, self.epoch) if buffers else None,
            self.lane if varies else None,
        )
        value: Value | None = self.text.lookup(key)
        if value is None:
            value = self._value(e)
            self.text.remember(key, value)
        return value

    def _value(self, e: Expr) -> Value:
        if e.op == "const":
            return self.ops.literal(e.value, e.dtype)
        if e.op == "load":
            return self.load(e)
        if e.dtype == "int64" and self.is_index(e):
            return self.index_value(e)
        if e.op == "select":
            return self.select(e)
        if e.op == "cast":
            if (table := tables.match_lookup(e)) is not None:
                entry = tables.looked_up(self.math, self.value(table.word), table.entries)
                if entry is not None:
                    return entry
            if (difference := float_of_byte(e)) is not None:
                form, taken = difference
                added = None if form.addend is None else self.value(form.addend)
                limits = form.low, form.high
                return self.ops.float_of_byte(self.value(form.number), added, limits, self.value(taken))
            byte_form = match_byte_form(e)
            if byte_form is None and (within := match_clamp(e)) is not None:
                limits = within.low, within.high
                return self.ops.cast(self.ops.clamp(self.value(within.number), limits), e.dtype)
            if byte_form is None:
                inner = e.args[0]
                value = self.short(inner) if e.dtype == "bfloat16" else None
                return self.ops.cast(value or self.value(inner), e.dtype)
            number = self.value(byte_form.number)
            added = None if byte_form.addend is None else self.value(byte_form.addend)
            return self.ops.byte(number, added, (byte_form.low, byte_form.high), e.dtype)
        if (made := self.function_form(e)) is not None:
            return made
        return self.call(e.args[0], self.value(e.args[1])) if e.op == "call" else self.binary(e)

    def function_form(self, e: Expr) -> Value | None:
        """Emits an expression that is the form of one function, if vectors here have code for that; None otherwise."""
        form = wide_math.match_form(e)
        if form is None:
            return None
        x = self.value(form.argument)
        return wide_math.apply(self.math, form.function, x) if wide_math.has(self.math, x.lanes) else None

    def short(self, e: Expr) -> Value | None:
        """Emits a float32 that is rounded to bfloat16 at once with only the digits that remain, or returns None.

        It is a function with a short form, or a product or quotient with one, as relative errors stay the same there.
        """
        form = wide_math.match_short_form(e)
        if form is not None:
            x = self.value(form.argument)
            if not wide_math.has(self.math, x.lanes):
                return None
            key = ("short", form.function, x.text)
            known: Value | None = self.text.lookup(key)
            return known or self.text.remember(key, wide_math.apply(self.math, form.function, x, short=True))
        for place, factor in enumerate(e.args if e.op in ("mul", "div") and e.dtype == "float32" else ()):
            if (value := self.short(factor)) is not None:
                other = self.value(e.args[1 - place])
                a, b = self.ops.same_lanes(*((value, other) if place == 0 else (other, value)))
                return self.ops.combine(e.op, a, b, e.dtype)
        return None

    def is_index(self, e: Expr) -> bool:
        """Tells whether `e` is integer arithmetic over loop variables alone."""
        is_index = self._indices.get(e)
        if is_index is None:
            is_index = all(n.op in INDEX_OPS and n.dtype in ("int64", "bool") for n in walk(e))
            self._indices[e] = is_index
        return is_index

    def index_value(self, e: Expr) -> Value:
        """Emits a loop-index expression: i64, or <lanes x i32> if it varies over the lanes and fits."""
        if not self.is_index(e):
            raise BuildError(f"an index must be arithmetic over loop variables, but got {e}")
        if not self.facts(e)[2]:
            return Value(self.integers.scalar(self.fixed(e)), "int64")
        # 64 bits would take two registers for as many lanes.
        return self._lane_index(e, "int32" if self._fits(e) else "int64")

    def extent(self, e: Expr) -> str:
        """Returns the i64 text of the number of iterations of a loop, which may be read from a constant."""
        return self.value(e).text if holds_load(e) else self.integers.scalar(e)

    def _fits(self, e: Expr) -> bool:
        """Tells whether every step of an index expression fits 32 bits."""
        simplify = self.integers.simplify
        for node in walk(self.fixed(e)):
            if node.dtype == "int64":
                for side in (node, canon(const(0) - node)):
                    bound = simplify.upper(side)
                    known = bound is not None and (bound.is_const or is_sized(bound))
                    if not known or span(bound)[1] >= 1 << 31:
                        return False
        return True

    def _lane_index(self, e: Expr, dtype: str) -> Value:
        assert self.lane is not None
        width = self.lane[1]
        if not self.facts(e)[2]:
            return self._broadcast_index(Value(self.integers.scalar(self.fixed(e)), "int64"), width, dtype)
        if e.op == "var":
            return Value("<" + ", ".join(f"{LLVM_TYPE[dtype]} {i}" for i in range(width)) + ">", dtype, width)
        a, b = (self._lane_index(x, dtype) for x in (e.args[1:] if e.op == "select" else e.args))
        if e.op == "select":
            condition = self.ops.vector(self.condition(e.args[0]), width)
            return self.ops.choose(condition, a, b)
        if e.op in ("min", "max"):
            return self.ops.minmax(e.op, a, b)
        if e.op in ("floordiv", "mod"):
            return self._lane_division(e, a, b)
        return self.text.value(f"{e.op} {a.type} {a.text}, {b.text}", dtype, width)

    def _lane_division(self, e: Expr, a: Value, b: Value) -> Value:
        """Emits a floor division or its remainder; the divisor is positive."""
        dtype, width = a.dtype, a.lanes
        if self.integers.simplify.nonnegative(self.fixed(e.args[0])):
            # Division rounds to zero; below, where the dividend may be negative, that is put right to floor.
            name = "udiv" if e.op == "floordiv" else "urem"
            return self.text.value(f"{name} {a.type} {a.text}, {b.text}", dtype, width)
        rest = self.text.value(f"srem {a.type} {a.text}, {b.text}", dtype, width)
        negative = self.text.value(f"icmp slt {a.type} {rest.text}, zeroinitializer", "bool", width)
        if e.op == "mod":
            moved = self.text.value(f"add {a.type} {rest.text}, {b.text}", dtype, width)
            return self.ops.choose(negative, moved, rest)
        quotient = self.text.value(f"sdiv {a.type} {a.text}, {b.text}", dtype, width)
        less = self.text.value(f"sext {negative.type} {negative.text} to {a.type}", dtype, width)
        return self.text.value(f"add {a.type} {quotient.text}, {less.text}", dtype, width)

    def _broadcast_index(self, x: Value, lanes: int, dtype: str) -> Value:
        """Broadcasts an index to every lane, as integers of another width."""
        if x.dtype != dtype:
            x = self.ops.cast(x, dtype) if x.text.startswith("%") else Value(x.text, dtype, x.lanes)
        return self.ops.vector(x, lanes)

    def _narrow(self, x: Value, lanes: int) -> Value:
        return self._broadcast_index(x, lanes, "int32")

    def load(self, e: Expr) -> Value:
        name = e.args[0]
        storage, plan = self.storage[name], self.addresses.plan(name, e.args[1:])
        terms, constant = self.addresses.offset(plan)
        if storage.kind == "register":
            assert not terms, e
            known = self.registers.get((name, constant))
            if known is None:
                raise BuildError(f"a register must be written before it is read, but got {e}")
            return known
        if plan.gather or plan.lane not in (0, 1):
            # The cheapest first: a block permuted in its register, rows transposed by fours, a few runs merged; a
            # gather loads each lane by itself.
            lanes_at = self.even_lanes(plan, terms, constant)
            if lanes_at is not None and (self.mask is None or not self.mask.lanes):
                close = window(*lanes_at, storage.grain)
                if close is not None:
                    return self._load_window(name, close)
            if (across := self._across(name, e.args[-1], plan, terms, constant)) is not None:
                return across
            parts = None if lanes_at is None else runs(*lanes_at)
            if parts is not None:
                return self._load_windows(name, parts)
            pointers = self.lane_pointers(name, plan, terms, constant)
            return self.memory.gather(pointers, storage.dtype, self.lane[1] if self.lane else 1, self.mask)
        lanes = self.lane[1] if plan.lane and self.lane else 0
        pointer = self.pointer(name, plan, terms, constant)
        if lanes and self.mask is None:
            self.prefetch(name, pointer, () if plan.loaded_terms else terms, constant)
        return self.memory.load(pointer, storage.dtype, lanes, self.mask)

    def even_lanes(self, plan: Plan, terms: Terms, constant: int) -> tuple[Terms, int, tuple[int, ...]] | None:
        """Returns terms and constant of the first lane's element, and the lanes' distances from it; None if unknown."""
        if plan.loaded_terms or self.lane is None:
            return None
        if any(holds_load(atom) for monomial, _ in plan.gather for atom in monomial):
            return None
        names = {v for monomial, _ in plan.gather for atom in monomial for v in variables(atom)}
        # Distances between lanes follow from the ranges of loops, so that a new range of any loop asks for them again.
        numbers = tuple((v, self.env[v]) for v in sorted(names & self.loops.unrolled_variables))
        key = (plan.gather, self.lane, numbers, self.integers.extents)
        if key not in self._apart:
            self._apart[key] = apart(plan.gather, self.lane, lambda e: self.integers.simplify(self.fixed(e)))
        found = self._apart[key]
        if found is None:
            return None
        first, offsets = found
        whole = poly_add(dict(terms), first)
        constant += whole.pop((), 0)
        return tuple(whole.items()), constant, tuple(o + plan.lane * i for i, o in enumerate(offsets))

    def _load_windows(self, name: str, parts: tuple[Window, ...]) -> Value:
        """Loads the lanes' elements of several runs, zero where the mask is off; elements that no lane takes are not
        read.
        """
        blocks = []
        for part in parts:
            pointer, mask = self.addresses.pointer(name, part.terms, part.constant), self._mask_over(part)
            blocks.append(self.memory.load(pointer, self.storage[name].dtype, part.size if part.size > 1 else 0, mask))
        return merge_blocks(self.math, blocks, parts)

    def _mask_over(self, part: Window) -> Value | None:
        """Returns the mask of a block's load: the condition of its elements, if evenly distant lanes take them."""
        spaced = part.spacing()
        if self.lane is None or self.masked_by is None or self.mask is None or spaced is None or not self.mask.lanes:
            return make_mask(self.math, self.mask, part)
        (variable, _), outer, (first, step) = self.lane, (self.lane, self.mask), spaced
        condition = self.integers.simplify(substitute(self.masked_by, {variable: var(variable) * step + first}))
        self.lane, self.mask = (variable, part.size), None
        found = self.ops.vector(self.condition(condition), part.size)
        self.lane, self.mask = outer
        return found

    def _load_window(self, name: str, close: Window) -> Value:
        """Loads a block at once and permutes it into the lanes' elements."""
        storage = self.storage[name]
        pointer = self.addresses.pointer(name, close.terms, close.constant)
        if close.size == 1:
            return self.memory.load(pointer, storage.dtype, 0, self.mask)
        # Kept apart from the order of its lanes: the positions of a window take theirs from one block in several
        # orders.
        # A block of the same place and size of which fewer elements exist is another one: its last lanes hold zeros.
        where = (name, close.terms, close.constant, close.size, close.there)
        key = ("block", where, self.versions.get(name, 0), self.mask, self.epoch)
        block: Value | None = self.text.lookup(key)
        if block is None:
            mask = self.mask
            if close.there < close.size:
                bits = ", ".join(f"i1 {int(i < close.there)}" for i in range(close.size))
                inside = Value(f"<{bits}>", "bool", close.size)
                mask = inside if mask is None else self.ops.both(mask, inside)
            block = self.text.remember(key, self.memory.load(pointer, storage.dtype, close.size, mask))
        places = close.positions
        order = ("lanes", block.text, places)
        known: Value | None = self.text.lookup(order)
        return known if known is not None else self.text.remember(order, shuffle(self.math, block, places))

    def _across(self, name: str, index: Expr, plan: Plan, terms: Terms, constant: int) -> Value | None:
        """Loads the lanes' elements with their neighbours, for several vectors at once; None if these are not all
        wanted.
        """
        storage, width = self.storage[name], self.lane[1] if self.lane else 1
        numbers = {v: self.env[v] for v in self.facts(index)[0]}
        if self.mask is not None or not neighbours(plan, storage, width, index, numbers, self.integers.simplify):
            return None
        # All of the vectors are made when the first is asked for; the other copies of the unrolled loop find theirs.
        together = fragment_columns(storage.dtype)
        column = numbers[plan.unrolled_terms[0][0]] % together
        where = (name, terms, constant - column, plan.lane, width)
        key = ("across", where, self.versions.get(name, 0), self.epoch)
        vectors: list[Value] | None = self.text.lookup(key)
        if vectors is None:
            starts = [self.addresses.pointer(name, terms, constant - column + i * plan.lane) for i in range(width)]
            rows = [self.memory.load(start, storage.dtype, together) for start in starts]
            vectors = self.text.remember(key, columns(self.text, rows))
        return vectors[column]

    def pointer(self, name: str, plan: Plan, terms: Terms, constant: int) -> str:
        """Emits the pointer of an access; elements of other buffers that it depends on are read under the mask."""
        pointer = self.addresses.pointer(name, terms, constant)
        for monomial, c in plan.loaded_terms:
            offset = Value(str(c), "int64")
            for atom in monomial:
                factor = self.ops.cast(self.value(atom), "int64")
                offset = self.text.value(f"mul i64 {offset.text}, {factor.text}", "int64")
            element = LLVM_TYPE[self.storage[name].dtype]
            pointer = self.text.value(f"getelementptr {element}, ptr {pointer}, i64 {offset.text}", "ptr").text
        return pointer

    def prefetch(self, name: str, pointer: str, terms: Terms, constant: int) -> None:
        """Asks for constants that are read later, inside loops with the pragma `prefetch_bytes`.

        Once an iteration, that is a share of the panel that the next tiles read, of at most `panel_bytes`. Without
        such a panel, it is the line so many bytes behind this vector, if the vector begins one.

        Args:
            pointer: place of the vector.
            terms, constant: its element, as far as it depends on loops alone.
        """
        if not self.prefetch_bytes or name not in self.constants:
            return
        key, size = ("panel ahead", name, terms), dtype_bytes(self.storage[name].dtype)
        if self.text.lookup(key) is None:
            ahead = find_panel_ahead(terms, self.around, self.sums_over, size, self.panel_bytes)
            self.text.remember(key, ahead is not None)
            if ahead is not None:
                for start in ahead.starts(size):
                    self.memory.prefetch(self.addresses.pointer(name, ahead.terms, start), 0, SECOND_CACHE)
        # Numbers that are taken out of words read these again and again: once asked for is enough.
        at = ("prefetch", pointer, self.prefetch_bytes)
        if not self.text.lookup(key) and constant * size % LINE == 0 and self.text.lookup(at) is None:
            self.text.remember(at, True)
            self.memory.prefetch(pointer, self.prefetch_bytes, FIRST_CACHE)

    def lane_pointers(self, name: str, plan: Plan, terms: Terms, constant: int) -> str:
        """Emits pointers of the single lanes, as a vector."""
        assert self.lane is not None
        width = self.lane[1]
        base = self.pointer(name, plan, terms, constant)
        offsets = Value("<" + ", ".join(f"i32 {i * plan.lane}" for i in range(width)) + ">", "int32", width)
        for monomial, c in plan.gather:
            value = Value(f"splat (i32 {c})", "int32", width)
            for atom in monomial:
                index = self.value(atom) if holds_load(atom) else self.index_value(self.fixed(atom))
                factor = self._narrow(index, width)
                value = self.text.value(f"mul {value.type} {value.text}, {factor.text}", "int32", width)
            offsets = self.text.value(f"add {value.type} {value.text}, {offsets.text}", "int32", width)
        element = LLVM_TYPE[self.storage[name].dtype]
        line = f"getelementptr {element}, ptr {base}, <{width} x i32> {offsets.text}"
        return self.text.value(line, "ptr", width).text

    def select(self, e: Expr) -> Value:
        condition = self.condition(e.args[0])
        if condition.text in ("true", "false"):
            return self.value(e.args[1] if condition.text == "true" else e.args[2])
        # Both branches are computed. A load of the one not taken may lie outside of its array, so that it is made under
        # the condition.
        then = self._under(condition, e.args[0], e.args[1])
        otherwise = e.args[2]
        if self.facts(otherwise)[1]:
            other = self._under(self.ops.negate(condition), None, otherwise)
        else:
            other = self.value(otherwise)
        # A masked load gives zero where the mask is off, which is the other branch already.
        if other.text in ("0x0000000000000000", "0") and self._masked_load(e.args[1], condition, then):
            return then
        lanes = condition.lanes or then.lanes or other.lanes
        if then.dtype != other.dtype:  # an index that varies over the lanes may be kept in 32 bits
            then, other = self.ops.cast(then, e.dtype), self.ops.cast(other, e.dtype)
        return self.ops.choose(condition, self.ops.vector(then, lanes), self.ops.vector(other, lanes))

    def _masked_load(self, e: Expr, condition: Value, value: Value) -> bool:
        """Tells whether `value` is a load that already yields zero where the condition fails."""
        if e.op != "load" or self.storage[e.args[0]].kind == "register" or self.mask is not None:
            return False
        return not condition.lanes or bool(value.lanes)

    def _under(self, condition: Value, source: Expr | None, e: Expr) -> Value:
        """Emits `e`, read where a condition holds, which is the value of `source` if that is known."""
        outer = self.mask, self.masked_by
        self.masked_by = source if self.mask is None else None
        self.mask = condition if self.mask is None else self.ops.both(self.mask, condition)
        try:
            return self.value(e)
        finally:
            self.mask, self.masked_by = outer

    def condition(self, e: Expr) -> Value:
        """Emits a condition: one bit, or one a lane."""
        _, buffers, varies = self.facts(e)
        if not varies and self.is_index(e):
            return Value(self.integers.condition(self.fixed(e)), "bool")
        return self.value(self.fixed(e) if not buffers else e)

    def call(self, function: str, x: Value) -> Value:
        """Emits a math function, computed in float32."""
        single = self.ops.cast(x, "float32")
        return self.ops.cast(wide_math.apply(self.math, function, single, x.dtype == "bfloat16"), x.dtype)

    def binary(self, e: Expr) -> Value:
        op = e.op
        if op in ("add", "sub") and e.dtype == "float32":
            fused = self.emit_fma(e)
            if fused is not None:
                return fused
        if op == "bytedot":
            return byte_dots.add_products(self.math, None, [self.dot(e)])
        if op == "add" and e.dtype == "int32":
            others, dots = byte_dots.split_sum(e, self.math.features)
            if dots:
                total = self.value(reduce(lambda so_far, x: make("add", so_far, x), others)) if others else None
                return byte_dots.add_products(self.math, total, [self.dot(x) for x in dots])
        a, b = self.condition_or_value(e.args[0]), self.condition_or_value(e.args[1])
        if {a.dtype, b.dtype} == {"int32", "int64"}:  # an index that varies over the lanes may be kept in 32 bits
            narrow = all(self.is_index(x) and self._fits(x) for x in e.args)
            a, b = (self._broadcast_index(x, a.lanes or b.lanes, "int32" if narrow else "int64") for x in (a, b))
        a, b = self.ops.same_lanes(a, b)
        return self.ops.combine(op, a, b, e.args[0].dtype)

    def dot(self, e: Expr) -> byte_dots.Dot:
        """Emits the factors of a dot of bytes."""
        return byte_dots.Dot(self.value(e.args[0]), self.value(e.args[1]), byte_dots.greatest_byte(e.args[0]))

    def condition_or_value(self, e: Expr) -> Value:
        return self.condition(e) if e.dtype == "bool" else self.value(e)

    def emit_fma(self, e: Expr) -> Value | None:
        """Emits a * b + c as one operation; None for another expression."""
        left, right = e.args
        if e.op == "add" and right.op == "mul" and left.op != "mul":
            left, right = right, left
        if e.op != "add" or left.op != "mul":
            return None
        return self.ops.fma(self.value(left.args[0]), self.value(left.args[1]), self.value(right))
