"""The functional simulator's inner loops as LLVM, made for one configuration's block sizes.

Numbers of inp and wgt are widened to 16 bits on the simulated chip, weights as [pair of inputs][output][2]. One
micro-operation is then a few products of 16-bit pairs added to 32 bits. On x86 (pmaddwd) and others that is one
instruction. Fields and indices must have been verified, except indices that micro-operations compute. These are checked
against the buffers here, an instruction at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from targets.vta.hardware import VtaHardware
from targets.vta.isa import ACC, ACC_8BIT, ALU, COLUMN, GEMM, INP, LOAD, NAMES, STORE, UOP, WGT, uop_widths
from targets.vta.native import I1, I8, I16, I32, I64, Code, Value, i64, new_module
from targets.vta.semantics import OPERATIONS, POPS, PUSHES

ENTRY = "vta_run"
ORDER = "vta_order"
MOST_SHUFFLED = 256  # pairs of weights that one shuffle brings into the order on the chip


def functional_module(hardware: VtaHardware) -> ir.Module:
    """Builds a module with `vta_run` and `vta_order`."""
    module = new_module("vta_functional")
    _order(module)
    _Core(module, hardware).run()
    return module


def _order(module: ir.Module) -> None:
    """Emits vta_order(n, table, modules, order): executes tokens alone, each module as far as it gets, load first.

    Returns how many instructions can run; their numbers are in `order`.
    """
    c = Code(module, ORDER, "n table* modules* order*")
    heads, tokens = c.array(3, -1), c.array(4)
    count, progress = c.variable(i64(0)), c.variable(ir.Constant(I1, 1))

    def advance(number: int) -> None:
        """Moves a module's head on to its next instruction, or to the end."""
        following = c.variable(c.add(c.take(heads, i64(number)), i64(1)))

        def other() -> Value:
            inside = c.is_(c.get(following), "<", c["n"])
            index = c.build.select(inside, c.get(following), i64(0))
            return c.build.and_(inside, c.is_(c.take(c["modules"], index), "!=", i64(number)))

        with c.while_(other):
            c.set(following, c.add(c.get(following), i64(1)))
        c.put(heads, i64(number), c.get(following))

    for number in range(3):
        with c.when(c.is_(c["n"], ">", i64(0))):
            advance(number)
    with c.while_(lambda: c.get(progress, I1)):
        c.set(progress, ir.Constant(I1, 0))
        for number in range(3):

            def free(number: int = number) -> Value:
                """Tests whether the head exists and finds its tokens."""
                head = c.take(heads, i64(number))
                can = c.is_(head, "<", c["n"])
                row = c.mul(c.build.select(can, head, i64(0)), i64(len(NAMES)))
                for flag, queue in zip(("pop_prev", "pop_next"), POPS[number], strict=True):
                    if queue >= 0:
                        wanted = c.take(c["table"], c.add(row, i64(COLUMN[flag])))
                        can = c.build.and_(can, c.is_(wanted, "<=", c.take(tokens, i64(queue))))
                return can

            with c.while_(free):
                head = c.take(heads, i64(number))
                row = c.mul(head, i64(len(NAMES)))
                for flags, queues, sign in (
                    (("pop_prev", "pop_next"), POPS[number], -1),
                    (("push_prev", "push_next"), PUSHES[number], 1),
                ):
                    for flag, queue in zip(flags, queues, strict=True):
                        if queue >= 0:
                            change = c.mul(c.take(c["table"], c.add(row, i64(COLUMN[flag]))), i64(sign))
                            c.put(tokens, i64(queue), c.add(c.take(tokens, i64(queue)), change))
                c.put(c["order"], c.get(count), head)
                c.set(count, c.add(c.get(count), i64(1)))
                c.set(progress, ir.Constant(I1, 1))
                advance(number)
    c.finish(c.get(count))


class _Core:
    """vta_run(n, order, table, uop, inp, wgt, acc, dram, fault): executes a stream in the order given.

    Returns -1, or the number of the instruction whose micro-operations lead out of a buffer; `fault` then holds the
    largest dst, src and wgt.
    """

    def __init__(self, module: ir.Module, hardware: VtaHardware) -> None:
        self.h = hardware
        self.c = Code(module, ENTRY, "n order* table* uop* inp* wgt* acc* dram* fault*")
        self.pairs = max(1, hardware.block_in // 2)
        self.lanes = hardware.batch * hardware.block_out
        self.vector = ir.VectorType(I32, self.lanes)
        self.row: Value = None

    def field(self, name: str) -> Value:
        """Reads a field of the present instruction."""
        return self.c.take(self.c["table"], self.c.add(self.row, i64(COLUMN[name])))

    def run(self) -> None:
        """Emits the loop over instructions."""
        c = self.c
        result = c.variable(i64(-1))
        position = c.variable(i64(0))
        with c.while_(lambda: c.is_(c.get(position), "<", c["n"])) as leave:
            index = c.take(c["order"], c.get(position))
            self.row = c.mul(index, i64(len(NAMES)))

            def guard(body: Callable[[], None], opcode: int) -> Callable[[], None]:
                """Guards the body by a test that the indices are inside."""

                def run() -> None:
                    with c.when(c.build.not_(self.inside(opcode))):
                        c.set(result, index)
                        c.build.branch(leave)
                    body()

                return run

            c.cases(
                self.field("opcode"),
                {
                    LOAD: self.load,
                    STORE: self.store,
                    GEMM: guard(self.gemm, GEMM),
                    ALU: guard(self.alu, ALU),
                },
            )
            c.set(position, c.add(c.get(position), i64(1)))
        c.finish(c.get(result))

    def uop(self, index: Value) -> list[Value]:
        """Decodes dst, src and wgt of a micro-operation."""
        word = self.c.build.zext(self.c.take(self.c["uop"], index, I32), I64)
        fields, low = [], 0
        for _, width in uop_widths(self.h):
            shifted = self.c.build.lshr(word, i64(low))
            fields.append(self.c.build.and_(shifted, i64((1 << width) - 1)))
            low += width
        return fields

    def inside(self, opcode: int) -> Value:
        """Tests whether all indices of the loops are in their buffers; leaves the largest ones in `fault`."""
        c = self.c
        most = [c.variable(i64(-1)) for _ in range(3)]
        some = c.is_(c.mul(self.field("iter_out"), self.field("iter_in")), ">", i64(0))
        with c.when(some), c.range(self.field("uop_begin"), self.field("uop_end")) as index:
            for place, value in zip(most, self.uop(index), strict=True):
                c.set(place, c.largest(c.get(place), value))
        depths = [self.h.acc_depth, self.h.inp_depth, self.h.wgt_depth]
        if opcode == ALU:
            depths = [self.h.acc_depth, self.h.acc_depth, 0]
        good: Value = ir.Constant(I1, 1)
        reset = c.is_(self.field("reset"), "!=", i64(0)) if opcode == GEMM else ir.Constant(I1, 0)
        for number, (name, depth) in enumerate(zip(("dst", "src", "wgt"), depths, strict=True)):
            if not depth:
                continue
            last = c.get(most[number])
            for loop in ("out", "in"):
                steps = c.build.sub(self.field(f"iter_{loop}"), i64(1))
                last = c.add(last, c.mul(steps, self.field(f"{name}_{loop}")))
            empty = c.is_(c.get(most[number]), "<", i64(0))
            c.put(c["fault"], i64(number), last)
            fits = c.build.or_(empty, c.is_(last, "<", i64(depth)))
            good = c.build.and_(good, c.build.or_(fits, reset) if number else fits)
        return good

    def loops(self, names: tuple[str, ...], body: Callable[[list[Value]], None]) -> None:
        """Emits the loop nest of GEMM and ALU around `body`, which gets the indices."""
        c = self.c
        factors = {(name, loop): self.field(f"{name}_{loop}") for name in names for loop in ("out", "in")}
        begin, end, inner = self.field("uop_begin"), self.field("uop_end"), self.field("iter_in")
        with c.range(i64(0), self.field("iter_out")) as i, c.range(i64(0), inner) as j:
            base = [c.add(c.mul(i, factors[name, "out"]), c.mul(j, factors[name, "in"])) for name in names]
            with c.range(begin, end) as index:
                body([c.add(field, start) for field, start in zip(self.uop(index), base, strict=False)])

    def gemm(self) -> None:
        """Emits acc[dst] += inp[src] * transpose(wgt[wgt]), or zero."""
        c = self.c
        reset = c.is_(self.field("reset"), "!=", i64(0))
        zero = ir.Constant(self.vector, None)
        with c.build.if_else(reset) as (then, otherwise):
            with then:
                self.loops(("dst",), lambda at: c.put(c["acc"], at[0], zero, align=4))
            with otherwise:
                self.loops(("dst", "src", "wgt"), self.multiply)

    def multiply(self, at: list[Value]) -> None:
        """Emits one micro-operation of GEMM."""
        c, b, batch, out = self.c, self.c.build, self.h.batch, self.h.block_out
        single = ir.VectorType(I32, out)
        halves, wide = ir.VectorType(I16, 2 * out), ir.VectorType(I32, 2 * out)
        target = c.mul(at[0], i64(batch))
        sums = [c.take(c["acc"], c.add(target, i64(n)), single, align=4) for n in range(batch)]
        source, weight = c.mul(at[1], i64(batch * self.pairs)), c.mul(at[2], i64(self.pairs))
        everywhere = ir.Constant(ir.VectorType(I32, out), [0] * out)
        undefined = ir.Constant(single, ir.Undefined)
        even = ir.Constant(single, list(range(0, 2 * out, 2)))
        odd = ir.Constant(single, list(range(1, 2 * out, 2)))
        for pair in range(self.pairs):
            w = b.sext(c.take(c["wgt"], c.add(weight, i64(pair)), halves, align=4), wide)
            for n in range(batch):
                x = c.take(c["inp"], c.add(source, i64(n * self.pairs + pair)), I32, align=4)
                splat = b.shuffle_vector(b.insert_element(undefined, x, i64(0)), undefined, everywhere)
                product = b.mul(b.sext(b.bitcast(splat, halves), wide), w)
                pairs = [b.shuffle_vector(product, product, choice) for choice in (even, odd)]
                sums[n] = b.add(sums[n], b.add(*pairs))
        for n in range(batch):
            c.put(c["acc"], c.add(target, i64(n)), sums[n], align=4)

    def alu(self) -> None:
        """Emits acc[dst] = operation(acc[dst], imm or acc[src])."""
        c = self.c

        def with_imm(emit: Callable[[Value, Value, Value], Value]) -> None:
            imm = c.build.trunc(self.field("imm"), I32)
            first = c.build.insert_element(ir.Constant(self.vector, ir.Undefined), imm, i64(0))
            y = c.build.shuffle_vector(first, first, ir.Constant(self.vector, [0] * self.lanes))

            def body(at: list[Value]) -> None:
                x = c.take(c["acc"], at[0], self.vector, align=4)
                c.put(c["acc"], at[0], emit(c.build, x, y), align=4)

            self.loops(("dst",), body)

        def with_tensor(emit: Callable[[Value, Value, Value], Value]) -> None:
            def body(at: list[Value]) -> None:
                x, y = (c.take(c["acc"], place, self.vector, align=4) for place in at)
                c.put(c["acc"], at[0], emit(c.build, x, y), align=4)

            self.loops(("dst", "src"), body)

        bodies: dict[int, Callable[[], None]] = {}
        for number, operation in enumerate(OPERATIONS):
            bodies[2 * number] = lambda emit=operation.emit: with_tensor(emit)  # type: ignore[misc]
            bodies[2 * number + 1] = lambda emit=operation.emit: with_imm(emit)  # type: ignore[misc]
        c.cases(c.add(c.mul(self.field("alu_op"), i64(2)), self.field("use_imm")), bodies)

    def rows(self, size: int, element: Callable[[Value, Value], None], zero: Callable[[Value], None] | None) -> None:
        """Emits the loops over a transfer's elements: `element(sram, dram bytes)` for data, `zero(sram)` for pads."""
        c = self.c
        x_size, stride = self.field("x_size"), self.field("x_stride")
        position = c.variable(self.field("sram_base"))

        def pad(count: Value) -> None:
            assert zero is not None
            with c.range(i64(0), count):
                zero(c.get(position))
                c.set(position, c.add(c.get(position), i64(1)))

        with c.when(c.is_(x_size, ">", i64(0))):
            width = c.add(self.field("x_pad_0"), x_size, self.field("x_pad_1"))
            if zero:
                pad(c.mul(width, self.field("y_pad_0")))
            with c.range(i64(0), self.field("y_size")) as y:
                if zero:
                    pad(self.field("x_pad_0"))
                start, first = c.add(self.field("dram_base"), c.mul(y, stride)), c.get(position)
                with c.range(i64(0), x_size) as x:
                    source = c.at(c["dram"], c.mul(c.add(start, x), i64(size)), I8)
                    element(c.add(first, x), source)
                c.set(position, c.add(first, x_size))
                if zero:
                    pad(self.field("x_pad_1"))
            if zero:
                pad(c.mul(width, self.field("y_pad_1")))

    def load(self) -> None:
        """Emits transfers from DRAM to a buffer."""
        c, b, h = self.c, self.c.build, self.h
        accumulator, bytes_ = self.vector, ir.VectorType(I8, self.lanes)

        def uop(sram: Value, source: Value) -> None:
            c.put(c["uop"], sram, b.load(source, align=1, typ=I32))

        def acc(sram: Value, source: Value) -> None:
            c.put(c["acc"], sram, b.load(source, align=1, typ=accumulator), align=4)

        def acc_8bit(sram: Value, source: Value) -> None:
            c.put(c["acc"], sram, b.sext(b.load(source, align=1, typ=bytes_), accumulator), align=4)

        def wgt(sram: Value, source: Value) -> None:
            count = self.pairs * h.block_out
            if h.block_in > 1 and count <= MOST_SHUFFLED:
                pairs, wide = ir.VectorType(I16, count), ir.VectorType(I16, 2 * count)
                order = [o * self.pairs + k for k in range(self.pairs) for o in range(h.block_out)]
                found = b.load(source, align=1, typ=pairs)
                turned = b.shuffle_vector(found, found, ir.Constant(ir.VectorType(I32, count), order))
                c.put(c["wgt"], sram, b.sext(b.bitcast(turned, ir.VectorType(I8, 2 * count)), wide), align=4)
                return
            base = c.mul(sram, i64(self.pairs * h.block_out))
            with c.range(i64(0), i64(h.block_out)) as o, c.range(i64(0), i64(self.pairs)) as k:
                pair = self.widened_pair(source, c.add(c.mul(o, i64(self.pairs)), k))
                c.put(c["wgt"], c.add(base, c.mul(k, i64(h.block_out)), o), pair, align=4)

        def inp(sram: Value, source: Value) -> None:
            count = h.batch * self.pairs
            base = c.mul(sram, i64(count))
            with c.range(i64(0), i64(count)) as k:
                c.put(c["inp"], c.add(base, k), self.widened_pair(source, k), align=4)

        def zeros(name: str, kind: Value, count: int = 1) -> Callable[[Value], None]:
            def zero(sram: Value) -> None:
                with c.range(i64(0), i64(count)) as k:
                    c.put(c[name], c.add(c.mul(sram, i64(count)), k), ir.Constant(kind, None), align=4)

            return zero

        clear = zeros("acc", accumulator)
        bodies: dict[int, Callable[[], None]] = {
            UOP: lambda: self.rows(4, uop, lambda sram: c.put(c["uop"], sram, ir.Constant(I32, 0))),
            WGT: lambda: self.rows(h.wgt_bytes, wgt, zeros("wgt", ir.VectorType(I16, 2), self.pairs * h.block_out)),
            INP: lambda: self.rows(h.inp_bytes, inp, zeros("inp", ir.VectorType(I16, 2), h.batch * self.pairs)),
            ACC: lambda: self.rows(h.acc_bytes, acc, clear),
            ACC_8BIT: lambda: self.rows(h.out_bytes, acc_8bit, clear),
        }
        c.cases(self.field("memory"), bodies)

    def widened_pair(self, source: Value, index: Value) -> Value:
        """Loads two neighbouring bytes as 16-bit numbers; if a block has one input only, the second is 0."""
        b, pair = self.c.build, ir.VectorType(I16, 2)
        if self.h.block_in > 1:
            place = self.c.at(source, self.c.mul(index, i64(2)), I8)
            return b.sext(b.load(place, align=1, typ=ir.VectorType(I8, 2)), pair)
        one = b.sext(b.load(self.c.at(source, index, I8), align=1, typ=I8), I16)
        return b.insert_element(ir.Constant(pair, None), one, i64(0))

    def store(self) -> None:
        """Emits transfers of the accumulator's low bytes to DRAM."""
        c, b = self.c, self.c.build
        kind = ir.VectorType(I8, self.lanes)

        def element(sram: Value, target: Value) -> None:
            b.store(b.trunc(c.take(c["acc"], sram, self.vector, align=4), kind), target, align=1)

        self.rows(self.h.out_bytes, element, None)
