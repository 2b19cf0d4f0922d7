"""Loop programs as LLVM text: vectors and register tiles in SSA form already, so that no pass is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from search_space.ir.expr import Expr, const, var, variables
from search_space.ir.sizes import may_be_empty
from search_space.ir.stmt import Allocate, For, Intrinsic, LoopProgram, Seq, Stmt, Store, walk_stmt
from search_space.lower.borders import borders
from targets.base import BuildError
from targets.cpu.addresses import Terms
from targets.cpu.last_uses import LastUses
from targets.cpu.outputs_ahead import outputs_ahead, outputs_beside
from targets.cpu.own_names import with_own_names
from targets.cpu.packed_bytes import PackedBytes, Waiting, packable, saturates
from targets.cpu.rounding import ENDS, match_byte_form
from targets.cpu.storage import Storage, collect_loops, free_variables, plan_storage
from targets.cpu.text import Induction, Text, Value
from targets.cpu.values import Values

MAX_UNROLLED_STORES = 8192  # bounds the text, which grows with every copy of a statement
NEVER = 1 << 62
"""Bytes that no output has."""
IntrinsicEmitter = Callable[["Function", Intrinsic], None]  # by name, or by what stands before the colon
INTRINSIC_EMITTERS: dict[str, IntrinsicEmitter] = {}


@dataclass(frozen=True)
class ProgramText:
    """LLVM text of a program, and the workspace it needs (bytes: shared by all threads, and for each)."""

    text: str
    shared_bytes: int
    scratch_bytes: int


def emit_program(
    program: LoopProgram,
    name: str,
    attributes: str,
    features: frozenset[str] = frozenset(),
    cached_bytes: int = NEVER,
    panel_bytes: int = 0,
) -> ProgramText:
    """Emits LLVM functions for a concrete program: `void name(ptr arguments, i32 threads, ptr workspace)`.

    Args:
        program: concrete loop program.
        name: name of the kernel.
        attributes: attributes of every function, as LLVM writes them.
        features: instruction sets that may be named in the text.
        cached_bytes: bytes of an output beyond which caches no longer hold it when it is written again.
        panel_bytes: bytes of the largest panel of constants that is requested before it is read.

    Raises:
        BuildError: an expression or loop the CPU has no code for.
    """
    program = with_own_names(program)
    storage, shared, scratch = plan_storage(program)
    unit = _Unit(program, name, storage, shared, scratch, features, cached_bytes, panel_bytes)
    functions = [unit.kernel()]
    functions += unit.bodies
    head = sorted(unit.declarations)
    text = "\n".join([*head, "", *functions])
    return ProgramText(text.replace("#attributes", attributes), shared, scratch)


class _Unit:
    """One program being emitted: the kernel and the bodies of its parallel loops."""

    def __init__(
        self,
        program: LoopProgram,
        name: str,
        storage: dict[str, Storage],
        shared: int,
        scratch: int,
        features: frozenset[str],
        cached_bytes: int,
        panel_bytes: int,
    ) -> None:
        self.program, self.name, self.storage, self.loops = program, name, storage, collect_loops(program)
        self.shared, self.scratch, self.features, self.unrolled_count = shared, scratch, features, 0
        self.panel_bytes = panel_bytes
        self.bodies: list[str] = []
        self.ahead, self.beside, self.borders = (
            outputs_ahead(program),
            outputs_beside(program, cached_bytes),
            borders(program),
        )
        self.declarations = {
            "declare i64 @llvm.smin.i64(i64, i64)",
            "declare i64 @llvm.smax.i64(i64, i64)",
            "declare void @autotune_parallel_for(ptr, ptr, i64, i32)",
        }

    def kernel(self) -> str:
        function = Function(self, "%workspace", "%workspace")
        function.parameters("%arguments")
        function.stmt(self.program.body)
        lines = function.finish()
        head = f"define void @{self.name}(ptr %arguments, i32 %threads, ptr %workspace) #attributes {{\nentry:"
        return "\n".join([head, *function.entry, *lines, "  ret void", "}"])

    def parallel(self, caller: Function, loop: For) -> str:
        """Emits the body function of a parallel loop; its context: arguments, workspace, the loops around."""
        around = {v for s in caller.text.scopes for v in s.variables} - self.program.sizes.keys()
        captured = sorted(free_variables(loop) & around)
        name = f"{self.name}.parallel{len(self.bodies)}"
        self.bodies.append("")
        slot = len(self.bodies) - 1
        function = Function(self, "%workspace", "%scratch")
        # What is known of the loops around holds in the body, too: without, its divisions could not be unsigned.
        function.values.integers.ranges.update(caller.values.integers.ranges)
        function.values.env.update(caller.values.env)
        entry = function.entry
        entry.append("  %arguments = load ptr, ptr %context")
        entry.append("  %workspace.at = getelementptr ptr, ptr %context, i64 1")
        entry.append("  %workspace = load ptr, ptr %workspace.at")
        for i, variable in enumerate(captured):
            entry.append(f"  %captured.at{i} = getelementptr i64, ptr %context, i64 {2 + i}")
            entry.append(f"  %captured{i} = load i64, ptr %captured.at{i}")
            function.text.scopes[0].variables[variable] = Value(f"%captured{i}", "int64")
        entry += [
            # The workspace: the area of all, then one for each thread.
            "  %thread64 = sext i32 %thread to i64",
            f"  %scratch.offset = mul i64 %thread64, {self.scratch}",
            f"  %scratch.start = add i64 %scratch.offset, {self.shared}",
            "  %scratch = getelementptr i8, ptr %workspace, i64 %scratch.start",
            "  %any = icmp ult i64 %low, %high",
        ]
        function.parameters("%arguments")
        function.values.prefetch_bytes = caller.values.prefetch_bytes
        function.serial(loop, low="%low", high="%high", guard="%any")
        lines = function.finish()
        head = f"define internal void @{name}(ptr %context, i32 %thread, i64 %low, i64 %high) #attributes {{\nentry:"
        self.bodies[slot] = "\n".join([head, *entry, *lines, "  ret void", "}"])
        caller.call_parallel(name, captured, caller.values.integers.scalar(loop.extent))
        return name


class Function:
    """An emitter of statements into one LLVM function."""

    def __init__(self, unit: _Unit, shared: str, scratch: str) -> None:
        self.unit = unit
        self.text = Text()
        self.entry: list[str] = []
        self.text.push()
        self.values = Values(self.text, unit.loops, unit.storage, unit.features, unit.panel_bytes)
        self.values.sums_over = lambda loop: not self._indexes_stores(loop)
        self.last_uses = LastUses(self.text, unit.features)
        pointer = self.values.addresses.pointer
        self.bytes = PackedBytes(self.text, self.values.math, unit.features, pointer, self._alone)
        self._packed_buffers: frozenset[str] = frozenset()
        self.areas = {"shared": shared, "scratch": scratch}
        self._labels = 0
        self._written_buffers: dict[int, set[str]] = {}
        self._indexing: dict[int, bool] = {}
        self._tiles: dict[int, bool] = {}

    def finish(self) -> list[str]:
        self.unit.declarations |= self.values.math.declarations | self.last_uses.finish()
        return self.text.flat()

    def parameters(self, arguments: str) -> None:
        """Loads pointers to the parameters and the sizes behind them, and finds pointers into the workspace."""
        for i, buffer in enumerate(self.unit.program.params):
            self.entry.append(f"  %argument.at{i} = getelementptr ptr, ptr {arguments}, i64 {i}")
            self.entry.append(f"  %argument{i} = load ptr, ptr %argument.at{i}")
            self.values.addresses.pointers[buffer.name] = f"%argument{i}"
            if buffer.constant:
                self.values.constants.add(buffer.name)
        for i, size in enumerate(self.unit.program.sizes):
            place = len(self.unit.program.params) + i
            self.entry.append(f"  %size.at{i} = getelementptr i64, ptr {arguments}, i64 {place}")
            self.entry.append(f"  %size{i} = load i64, ptr %size.at{i}")
            self.text.scopes[0].variables[size] = Value(f"%size{i}", "int64")
        placed = [(n, s) for n, s in self.unit.storage.items() if s.kind in self.areas]
        for i, (name, storage) in enumerate(placed):
            area = self.areas[storage.kind]
            self.entry.append(f"  %buffer{i} = getelementptr i8, ptr {area}, i64 {storage.offset}")
            self.values.addresses.pointers[name] = f"%buffer{i}"

    def label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}{self._labels}"

    # ------------------------------------------------------------------ statements
    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, Seq):
            for s in stmt.body:
                self.stmt(s)
        elif isinstance(stmt, For):
            self.loop(stmt)
        elif isinstance(stmt, Allocate):
            self.stmt(stmt.body)
            # An unrolled loop around allocates it once more, and must not see what was left.
            for key in [k for k in self.values.registers if k[0] == stmt.buffer.name]:
                del self.values.registers[key]
        elif isinstance(stmt, Store):
            self.store(stmt)
        else:
            assert isinstance(stmt, Intrinsic), stmt
            family = stmt.name.partition(":")[0]
            if family not in INTRINSIC_EMITTERS:
                raise BuildError(f"`intrinsic` must be one of {', '.join(INTRINSIC_EMITTERS)}, but got {stmt.name}")
            INTRINSIC_EMITTERS[family](self, stmt)

    def loop(self, loop: For) -> None:
        outside = self.values.prefetch_bytes
        self.values.prefetch_bytes = dict(loop.pragmas).get("prefetch_bytes", outside)
        self._loop(loop)
        self.values.prefetch_bytes = outside

    def _loop(self, loop: For) -> None:
        if loop.kind == "vectorize":
            self.vectorize(loop, int(loop.extent.value))
        elif loop.kind == "unroll":
            reduced = not self._indexes_stores(loop) and self._is_tiled(loop)
            outermost = not self._packed_buffers
            if outermost:
                self._packed_buffers = packable(loop)
            self.values.integers.run_over(loop.var, loop.extent)
            for i in range(int(loop.extent.value)):
                self.values.env[loop.var] = i
                if reduced and i:
                    self._forget_reads()
                self.stmt(loop.body)
            del self.values.env[loop.var]
            if outermost:
                self.bytes.flush()
                self._packed_buffers = frozenset()
        # The body of a parallel loop has an area of its own as scratch; loops in it run on its thread.
        elif loop.kind == "parallel" and self.areas["scratch"] == "%workspace" and self.values.lane is None:
            self.unit.parallel(self, loop)
            self._bump(loop)
        else:
            self.serial(loop)

    def vectorize(self, loop: For, extent: int) -> None:
        if self.values.lane is not None:
            raise BuildError(f"vectorized loops must not nest, but got {loop.var} inside {self.values.lane[0]}")
        if any(isinstance(s, Allocate) for s in walk_stmt(loop.body)):
            raise BuildError(f"nothing must be computed at a vectorized loop, but got a buffer inside {loop.var}")
        self.values.lane = (loop.var, extent)
        self.values.integers.run_over(loop.var, const(extent))
        self.stmt(loop.body)
        self.values.lane = None

    def serial(self, loop: For, low: str = "0", high: str | None = None, guard: str | None = None) -> None:
        """Emits a counted loop; registers written in it are carried by phis."""
        text, registers = self.text, self.values.registers
        skipped = high is None and may_be_empty(loop.extent)
        high = high or self.values.extent(loop.extent)
        if skipped:
            guard = text.value(f"icmp sgt i64 {high}, 0", "bool").text
        outside = dict(registers) if skipped else {}
        body, after, latch = self.label("loop"), self.label("after"), self.label("latch")
        before = text.label
        text.emit(f"  br i1 {guard}, label %{body}, label %{after}" if guard else f"  br label %{body}")
        text.start_block(body)
        induction = Induction(loop.var, before, latch)
        phis = induction.phis
        # Only at the end is it known what the loop carries; the list stands in its place, and is filled then.
        text.lines.append(phis)
        # Not even the first iteration may reuse what was read before the loop: the code is that of the others, which
        # read what the loop has stored.
        self._bump(loop)
        scope = text.push()
        # A carried pointer begins at index 0; a thread's part of a parallel loop begins anywhere.
        scope.induction = induction if low == "0" else None
        index = text.name("i")
        scope.variables[loop.var] = Value(index, "int64")
        self.values.integers.run_over(loop.var, loop.extent)
        carried: dict[tuple[str, int], tuple[Value, Value]] = {}
        for key, value in registers.items():
            if key[0] in self._writes(loop):
                phi = Value(text.name("acc"), value.dtype, value.lanes)
                carried[key] = (value, phi)
        for key, (_, phi) in carried.items():
            registers[key] = phi
        self.values.around.append(loop)
        self.stmt(loop.body)
        self.values.around.pop()
        text.emit(f"  br label %{latch}")
        text.start_block(latch)
        text.lines.append(induction.steps)
        # Tested at the end: `cleanup` has removed loops of no iteration, and what may be empty for some sizes, or is a
        # thread's part, is guarded.
        text.emit(f"  {index}.next = add nuw nsw i64 {index}, 1")
        text.emit(f"  {index}.more = icmp slt i64 {index}.next, {high}")
        text.emit(f"  br i1 {index}.more, label %{body}, label %{after}")
        phis.append(f"  {index} = phi i64 [ {low}, %{before} ], [ {index}.next, %{latch} ]")
        for key, (start, phi) in carried.items():
            end = registers[key]
            phis.append(f"  {phi.text} = phi {phi.type} [ {start.text}, %{before} ], [ {end.text}, %{latch} ]")
        text.pop()
        self._bump(loop)
        text.start_block(after)
        if skipped:
            self._merge_registers(outside, f"%{before}", f"%{latch}")

    def _merge_registers(self, outside: Mapping[tuple[str, int], Value], before: str, latch: str) -> None:
        """Registers after a loop that may not have run: as it has left them, or as they were."""
        for key, value in list(self.values.registers.items()):
            # What the loop alone has written is undefined where it has not run.
            old = outside[key].text if key in outside else "poison"
            if value.text != old:
                ends = f"[ {old}, {before} ], [ {value.text}, {latch} ]"
                self.values.registers[key] = self.text.value(f"phi {value.type} {ends}", value.dtype, value.lanes)

    def _writes(self, loop: Stmt) -> set[str]:
        buffers = self._written_buffers.get(id(loop))
        if buffers is None:
            buffers = set()
            for s in walk_stmt(loop):
                if isinstance(s, Store):
                    buffers.add(s.buffer)
                elif isinstance(s, Intrinsic):
                    buffers.add(s.output.buffer)
            self._written_buffers[id(loop)] = buffers
        return buffers

    def _forget_reads(self) -> None:
        """Forgets what was read before: reading again from cache is free, keeping it alive over a whole tile spills it.

        An empty instruction that may touch memory stops LLVM from reusing earlier reads, as the epoch stops us.
        """
        self.values.epoch += 1
        self.text.emit('  call void asm sideeffect "", "~{memory}"()')

    def _indexes_stores(self, loop: For) -> bool:
        """Tells whether the loop's variable says which element is stored (false for the loops of a reduction)."""
        indexes = self._indexing.get(id(loop))
        if indexes is None:
            inside = [s for s in walk_stmt(loop.body) if isinstance(s, Store | Intrinsic)]
            stores = [s if isinstance(s, Store) else s.output for s in inside]
            indexes = self._indexing[id(loop)] = any(loop.var in variables(i) for s in stores for i in s.indices)
        return indexes

    def _is_tiled(self, loop: For) -> bool:
        """Tells whether more than one element, or one vector, is stored in each of the loop's iterations."""
        tiled = self._tiles.get(id(loop))
        if tiled is None:
            inner = [s for s in walk_stmt(loop.body) if isinstance(s, For) and s.kind == "unroll"]
            tiled = self._tiles[id(loop)] = any(self._indexes_stores(s) for s in inner)
        return tiled

    def _bump(self, stmt: Stmt) -> None:
        """Marks earlier reads of the buffers that `stmt` writes as stale."""
        for name in self._writes(stmt):
            self.values.versions[name] = self.values.versions.get(name, 0) + 1

    def call_parallel(self, name: str, captures: list[str], extent: str) -> None:
        count = 2 + len(captures)
        context = f"%context.{len(self.unit.bodies)}.{self._labels}"
        # In the entry block: in a loop, every iteration would take more of the stack.
        self.entry.append(f"  {context} = alloca [{count} x i64], align 16")
        text = self.text
        text.emit(f"  store ptr %arguments, ptr {context}")
        at = text.value(f"getelementptr i64, ptr {context}, i64 1", "ptr").text
        text.emit(f"  store ptr %workspace, ptr {at}")
        for i, variable in enumerate(captures):
            at = text.value(f"getelementptr i64, ptr {context}, i64 {2 + i}", "ptr").text
            value = self.values.integers.scalar(var(variable))
            text.emit(f"  store i64 {value}, ptr {at}")
        text.emit(f"  call void @autotune_parallel_for(ptr @{name}, ptr {context}, i64 {extent}, i32 %threads)")

    # ------------------------------------------------------------------ stores
    def store(self, stmt: Store) -> None:
        self.unit.unrolled_count += 1
        if self.unit.unrolled_count > MAX_UNROLLED_STORES:
            raise BuildError(f"unrolled statements must be at most {MAX_UNROLLED_STORES}, but got more")
        values = self.values
        if stmt.predicate is None:
            self._store(stmt, None)
            return
        condition = values.condition(stmt.predicate)
        if condition.text == "true":
            self._store(stmt, None)
        elif condition.text == "false":
            return
        # A branch around a register would need a phi where it joins, a select needs nothing else.
        elif condition.lanes or values.storage[stmt.buffer].kind == "register":
            values.mask = condition
            self._store(stmt, condition)
            values.mask = None
        else:
            self._branch(stmt, condition)

    def _branch(self, stmt: Store, condition: Value) -> None:
        text = self.text
        inside, after = self.label("then"), self.label("join")
        text.emit(f"  br i1 {condition.text}, label %{inside}, label %{after}")
        text.start_block(inside)
        text.push()
        packed, self._packed_buffers = self._packed_buffers, frozenset()  # none waits for what may not be stored at all
        self._store(stmt, None)
        self._packed_buffers = packed
        text.pop()
        text.emit(f"  br label %{after}")
        text.start_block(after)

    def _store(self, stmt: Store, mask: Value | None) -> None:
        values = self.values
        storage, plan = values.storage[stmt.buffer], values.addresses.plan(stmt.buffer, stmt.indices)
        over_lanes = bool(values.lane) and (plan.lane != 0 or bool(plan.gather))
        lanes = values.lane[1] if over_lanes and values.lane else 0
        if stmt.buffer in self._packed_buffers and mask is None and lanes and plan.lane == 1 and not plan.gather:
            place = (stmt.buffer, *values.addresses.offset(plan))
            if storage.kind != "register" and self._waits(stmt, place, lanes):
                return
        across = values.lane is not None and not over_lanes and stmt.reducer is not None
        # A product is left to `_updated`, which makes one instruction of it and the sum so far.
        value = None if self._is_product(stmt) and not across else self._emit_stored_value(stmt)
        if across and values.lane and value:
            value = values.ops.vector(value, values.lane[1])
        terms, constant = values.addresses.offset(plan)
        if value is not None and value.lanes and not over_lanes:
            if stmt.reducer is None:
                raise BuildError(f"a vectorized loop must index what it stores, but got {stmt.buffer}[...]")
            value = values.ops.horizontal(stmt.reducer, value)
        if mask is not None and mask.lanes and not over_lanes:
            raise BuildError(f"a vectorized loop must index what it stores under a mask, but got {stmt.buffer}[...]")
        if storage.kind == "register":
            self._to_register(stmt, (stmt.buffer, constant), value, mask, over_lanes)
        elif over_lanes and (plan.gather or plan.lane != 1):
            pointers = values.lane_pointers(stmt.buffer, plan, terms, constant)
            self._scatter(stmt, pointers, value, mask, lanes)
        else:
            pointer = values.pointer(stmt.buffer, plan, terms, constant)
            self._to_memory(stmt, pointer, value, mask, lanes)
            if over_lanes and (ahead := self.unit.ahead.get(stmt.buffer)) is not None:
                self._ask_for(ahead.output, ahead.element(stmt.indices))
        if over_lanes and (beside := self.unit.beside.get(id(stmt))) is not None:
            self._ask_for(*beside)
        values.versions[stmt.buffer] = values.versions.get(stmt.buffer, 0) + 1

    def _ask_for(self, output: str, element: tuple[Expr, ...]) -> None:
        """Asks for the line of an output that a vector will be written to."""
        addresses = self.values.addresses
        plan = addresses.plan(output, element)
        if plan.lane == 1 and not plan.gather:
            self.values.memory.prefetch_to_write(addresses.pointer(output, *addresses.offset(plan)))

    def _waits(self, stmt: Store, target: tuple[str, Terms, int], lanes: int) -> bool:
        """Leaves a vector of bytes made of floats to `PackedBytes`, if it is one."""
        values, dtype = self.values, self.values.storage[stmt.buffer].dtype
        form = match_byte_form(stmt.value) if stmt.value.op == "cast" and stmt.value.dtype == dtype else None
        if form is None or not self.bytes.takes(lanes) or not saturates(form, dtype):
            return False
        number, added = values.ops.vector(values.value(form.number), lanes), None
        if form.addend is not None:
            added = values.ops.vector(values.ops.cast(values.value(form.addend), "int32"), lanes)
        self.bytes.add(Waiting(target, number, added, form.high, dtype))
        values.versions[stmt.buffer] = values.versions.get(stmt.buffer, 0) + 1
        return True

    def _alone(self, store: Waiting) -> None:
        value = self.values.ops.byte(store.number, store.addend, (ENDS[store.dtype][0], store.high), store.dtype)
        self.values.memory.store(value, self.values.addresses.pointer(*store.target))

    def _is_product(self, stmt: Store) -> bool:
        return stmt.reducer == "sum" and stmt.value.op == "mul" and stmt.value.dtype == "float32"

    def _emit_stored_value(self, stmt: Store) -> Value:
        return self.values.ops.cast(self.values.value(stmt.value), self.values.storage[stmt.buffer].dtype)

    def _combine(self, stmt: Store, old: Value, value: Value | None) -> Value:
        """Combines `old` with the stored value; a product is fused into one operation."""
        values = self.values
        if value is None:
            a, b = (values.value(x) for x in stmt.value.args)
            total = values.ops.fma(a, b, old)
            factors = values.ops.vector(a, total.lanes), values.ops.vector(b, total.lanes)
            self.last_uses.of_product(factors, (a.lanes < total.lanes, b.lanes < total.lanes))
            return total
        assert stmt.reducer is not None
        op = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}[stmt.reducer]
        # Of a maximum `old` is the second: all but one instruction then wait for the new value alone.
        a, b = values.ops.same_lanes(*((value, old) if op in ("min", "max") else (old, value)))
        return values.ops.combine(op, a, b, a.dtype)

    def _to_register(
        self, stmt: Store, key: tuple[str, int], value: Value | None, mask: Value | None, over_lanes: bool
    ) -> None:
        values = self.values
        old = values.registers.get(key)
        if stmt.reducer is not None:
            if old is None:
                raise BuildError(f"a register must be initialised before it is updated, but got {stmt.buffer}")
            value = self._combine(stmt, old, value)
        assert value is not None
        if over_lanes and values.lane:
            value = values.ops.vector(value, values.lane[1])
        if mask is not None and old is not None:
            line = f"select {mask.type} {mask.text}, {value.type} {value.text}, {old.type} {old.text}"
            value = self.text.value(line, value.dtype, value.lanes)
        values.registers[key] = value

    def _to_memory(self, stmt: Store, pointer: str, value: Value | None, mask: Value | None, lanes: int) -> None:
        memory, dtype = self.values.memory, self.values.storage[stmt.buffer].dtype
        if stmt.reducer is not None:
            value = self._combine(stmt, memory.load(pointer, dtype, lanes, mask), value)
        assert value is not None
        memory.store(self.values.ops.vector(value, lanes), pointer, mask)

    def _scatter(self, stmt: Store, pointers: str, value: Value | None, mask: Value | None, lanes: int) -> None:
        """Stores lanes that are apart in memory."""
        memory, dtype = self.values.memory, self.values.storage[stmt.buffer].dtype
        if stmt.reducer is not None:
            value = self._combine(stmt, memory.gather(pointers, dtype, lanes, mask), value)
        assert value is not None
        memory.scatter(self.values.ops.vector(value, lanes), pointers, mask)
