"""Bytes made of floats, four vectors at a time: x86 narrows two registers to one, and saturates as it does.

A single vector takes an addition that rounds, both limits, and an instruction that narrows it to a quarter. That
instruction takes two steps of the one unit that moves bytes on Intel's processors. For four vectors, the two narrowing
steps imply the lower limit and a byte's upper end, and contiguous results are one store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from search_space.ir.expr import walk
from search_space.ir.stmt import For, Seq, Stmt, Store, walk_stmt
from targets.cpu.addresses import Terms
from targets.cpu.reductions import by_comparison
from targets.cpu.rounding import ENDS, ByteForm
from targets.cpu.text import Text, Value
from targets.cpu.vector_math import VectorMath

TOGETHER = 4
"""Vectors of 32 bits whose bytes fill a register."""

FAR = 1024.0
"""Beyond all bytes even with another byte added, and within int32."""


@dataclass(frozen=True)
class _Machine:
    """x86's instructions on whole registers of 32-bit numbers.

    Attributes:
        feature: instruction set by LLVM's name.
        rounds: name of the conversion of floats to int32, to nearest, ties to even; the least int32 if out of range.
        rest: types and values of its operands besides the floats.
        narrows: name of the instructions that narrow with saturation, `{}` in place of the kind.
    """

    feature: str
    rounds: str
    rest: tuple[tuple[str, str], ...]
    narrows: str


MACHINES = {
    16: _Machine(
        "avx512bw",
        "llvm.x86.avx512.mask.cvtps2dq.512",
        (("<16 x i32>", "zeroinitializer"), ("i16", "-1"), ("i32", "4")),
        "llvm.x86.avx512.{}.512",
    ),
    8: _Machine("avx2", "llvm.x86.avx.cvt.ps2dq.256", (), "llvm.x86.avx2.{}"),
}
"""Instructions by the lanes of a register."""


def saturates(form: ByteForm, dtype: str) -> bool:
    """Tells whether a byte's limits are those of narrowing, but for an upper limit that is applied to the float."""
    low, high = ENDS[dtype]
    if form.addend is not None:  # which must not bring the least int32 back to the other end
        return (form.low, form.high) == (low, high) and form.addend.dtype == "uint8"
    return form.low == low


def packable(stmt: Stmt) -> frozenset[str]:
    """Finds the buffers whose stores in an unrolled nest may wait for each other.

    No statement in the nest reads them, so delayed stores are not missed. Loops that run, whose stores would leave
    their block, and instructions, which do not list what they read, are in no such nest.
    """
    stored: set[str] = set()
    read: set[str] = set()
    for inner in walk_stmt(stmt):
        if isinstance(inner, Store):
            stored.add(inner.buffer)
            exprs = [*inner.indices, inner.value, *([] if inner.predicate is None else [inner.predicate])]
            read |= {str(n.args[0]) for e in exprs for n in walk(e) if n.op == "load"}
            read |= {inner.buffer} if inner.reducer is not None else set()
        elif not isinstance(inner, Seq) and not (isinstance(inner, For) and inner.kind in ("unroll", "vectorize")):
            return frozenset()
    return frozenset(stored - read)


@dataclass(frozen=True)
class Waiting:
    """One store of a vector of bytes that has not been written.

    Attributes:
        target: buffer, and the terms and the constant of the first element there.
        number: float32, not rounded.
        addend: int32, which is added to the rounded number; None where nothing is.
        high: upper limit.
    """

    target: tuple[str, Terms, int]
    number: Value
    addend: Value | None
    high: float
    dtype: str

    @property
    def kind(self) -> tuple[str, int]:
        """Key that stores have in common if they may be narrowed together."""
        return self.dtype, self.number.lanes

    def before(self, other: Waiting) -> bool:
        """Tells whether the other store's bytes directly follow."""
        buffer, terms, constant = self.target
        return other.target == (buffer, terms, constant + self.number.lanes)


class PackedBytes:
    """The vectors of bytes of one function that wait for others.

    Args:
        text: text of the function.
        math: its functions of float32.
        features: instruction sets of the machine.
        pointer: function that returns a pointer to an element, by its place.
        alone: writes one for which no other was found.
    """

    def __init__(
        self,
        text: Text,
        math: VectorMath,
        features: frozenset[str],
        pointer: Callable[[str, Terms, int], str],
        alone: Callable[[Waiting], None],
    ) -> None:
        self.text, self.math, self.pointer, self.alone = text, math, pointer, alone
        self._machines = {lanes: of for lanes, of in MACHINES.items() if of.feature in features}
        self._waiting: list[Waiting] = []

    def takes(self, lanes: int) -> bool:
        """Tells whether the machine narrows vectors of so many floats."""
        return lanes in self._machines

    def add(self, store: Waiting) -> None:
        """Writes it with three others as soon as there are four."""
        if self._waiting and self._waiting[0].kind != store.kind:
            self.flush()
        self._waiting.append(store)
        if len(self._waiting) == TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Writes all waiting stores."""
        stores, self._waiting = self._waiting, []
        if len(stores) == 1:
            self.alone(stores[0])
        elif stores:
            self._together(stores)

    def _together(self, stores: list[Waiting]) -> None:
        """Narrows and stores two to four vectors; of an odd number the last one is narrowed twice."""
        dtype, lanes = stores[0].kind
        machine = self._machines[lanes]
        whole = [self._clamped_number(store, machine) for store in stores]
        pairs = [(whole[i], whole[min(i + 1, len(whole) - 1)]) for i in range(0, len(whole), 2)]
        words = [self._narrow(machine, "packssdw", pair, 2 * lanes, 16) for pair in pairs]
        name = "packuswb" if dtype == "uint8" else "packsswb"
        found = self._narrow(machine, name, (words[0], words[-1]), 4 * lanes, 8)
        # Each lane of 128 bits holds four bytes of every vector: they change places as words of 32 bits.
        parts = lanes // TOGETHER
        words32 = self.text.value(f"bitcast <{4 * lanes} x i8> {found} to <{lanes} x i32>", "int32", lanes)
        order = [part * TOGETHER + vector for vector in range(TOGETHER) for part in range(parts)]
        ordered = self._permute(words32, order)
        start = 0
        while start < len(stores):
            count = _run(stores[start:], start)
            piece = ordered
            if count < TOGETHER:
                piece = self._permute(ordered, range(start * parts, (start + count) * parts))
            pointer = self.pointer(*stores[start].target)
            self.text.emit(f"  store {piece.type} {piece.text}, ptr {pointer}, align 1")
            start += count

    def _clamped_number(self, store: Waiting, machine: _Machine) -> str:
        """Converts the number, limited from above, to int32."""
        limit = self.math.number(store.high if store.addend is None else FAR, store.number)
        # NaN goes through as the second operand, and is the least int32 then, as are those below all.
        number = by_comparison(self.text, "min", limit, store.number)
        operands = [(number.type, number.text), *machine.rest]
        result = f"<{number.lanes} x i32>"
        self.math.declarations.add(f"declare {result} @{machine.rounds}({', '.join(kind for kind, _ in operands)})")
        given = ", ".join(f"{kind} {value}" for kind, value in operands)
        found = self.text.value(f"call {result} @{machine.rounds}({given})", "int32", number.lanes)
        if store.addend is not None:
            found = self.text.value(f"add {found.type} {found.text}, {store.addend.text}", "int32", found.lanes)
        return found.text

    def _narrow(self, machine: _Machine, which: str, pair: tuple[str, str], lanes: int, bits: int) -> str:
        """Narrows two registers to one of twice as many elements, `lanes`, of half as many bits, `bits`."""
        name = machine.narrows.format(which)
        source, result = f"<{lanes // 2} x i{2 * bits}>", f"<{lanes} x i{bits}>"
        self.math.declarations.add(f"declare {result} @{name}({source}, {source})")
        self.text.emit(
            f"  {(found := self.text.name())} = call {result} @{name}({source} {pair[0]}, {source} {pair[1]})"
        )
        return found

    def _permute(self, x: Value, positions: Sequence[int]) -> Value:
        """Permutes the elements of a register to these places."""
        indices = ", ".join(f"i32 {place}" for place in positions)
        line = f"shufflevector {x.type} {x.text}, {x.type} poison, <{len(positions)} x i32> <{indices}>"
        return self.text.value(line, x.dtype, len(positions))


def _run(stores: Sequence[Waiting], index: int) -> int:
    """Counts the stores from `index` on that are contiguous and fill an aligned part of a register: 4, 2 or 1."""
    for count in (4, 2):
        if index % count == 0 and len(stores) >= count:
            if all(one.before(other) for one, other in pairwise(stores[:count])):
                return count
    return 1
