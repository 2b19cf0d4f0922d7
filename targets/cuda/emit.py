"""Device programs as CUDA C++ text for NVRTC.

One function a kernel, no header. Buffers of a thread are arrays whose loops are unrolled, so that they become
registers. Vectorized loops over neighbouring elements become accesses of up to 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from search_space.ir.expr import Expr, const, dtype_bytes, substitute, var, variables
from search_space.ir.polynomial import poly
from search_space.ir.regroup import pulled_apart
from search_space.ir.stmt import THREAD_TAGS, Allocate, Barrier, For, Intrinsic, Seq, Stmt, Store, walk_stmt
from targets.accesses import all_accesses
from targets.base import BuildError
from targets.buffers import elements
from targets.cstyle.statements import COMBINE, Text
from targets.cuda.crossing import WARP_REDUCE, synchronises, warp_reduce
from targets.cuda.names import Names
from targets.cuda.pipeline import ASYNC
from targets.cuda.program import ALIGNMENT, DeviceKernel
from targets.cuda.values import C_TYPES, Values

STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may declare; more is asked for at the launch."""
MOST_UNROLLED = 32
"""Statements of an unrolled loop, where nothing but the latency of memory asks for it."""
MOST_OF_TILES = 256
"""Statements of an unrolled loop that loads fragments from shared memory, whose latency a warp itself must hide."""
COPY_BYTES = (4, 8, 16)
"""Bytes that an asynchronous copy may move."""
IntrinsicEmitter = Callable[["KernelText", Intrinsic], None]
INTRINSIC_EMITTERS: dict[str, IntrinsicEmitter] = {}
LOOP_EMITTERS: dict[str, Callable[[KernelText, For, Intrinsic], bool]] = {}
"""Emitters of instructions that several steps of an unrolled loop may share; False if they cannot."""


class KernelText(Text[Values]):
    """The text of one kernel as it is written.

    Attributes:
        kernel: kernel to write.
    """

    def __init__(self, kernel: DeviceKernel) -> None:
        self.kernel = kernel
        buffers = {b.name: b for b in kernel.params}
        buffers |= {n.buffer.name: n.buffer for n in walk_stmt(kernel.body) if isinstance(n, Allocate)}
        # Indices of 64 bits take several instructions each, and two registers.
        super().__init__(Names(), buffers, Values, any(elements(b) >= 2**31 for b in buffers.values()))
        self.asynchronous = False
        self._registers = {name for name, b in self.buffers.items() if b.scope == "local"}

    def function(self) -> str:
        """Writes the kernel: its head, its shared memory and its body."""
        kernel = self.kernel
        params = [self.parameter(b, b.name in kernel.writes) for b in kernel.params]
        params += [f"const __grid_constant__ TensorMap {self.names(each.name)}" for each in kernel.maps]
        # The bound lets the compiler use all registers that so many threads leave to each.
        head = f'extern "C" __global__ void __launch_bounds__({kernel.threads}) {kernel.name}({", ".join(params)}) {{'
        dynamic = dynamic_shared_bytes(kernel)
        memory = "tile_memory" if kernel.alignment > ALIGNMENT else "shared_memory"
        if dynamic:
            self.line(f"extern __shared__ __align__({kernel.alignment}) unsigned char {memory}[];")
        for buffer, start in kernel.shared:
            kind = C_TYPES[buffer.dtype]
            if dynamic:
                self.line(f"{kind}* const {self.names(buffer.name)} = ({kind}*)({memory} + {start});")
            else:
                self.line(f"__shared__ __align__({ALIGNMENT}) {self.declaration(buffer)}")
        self.stmt(kernel.body)
        return "\n".join([head, *self.lines, "}\n"])

    # ------------------------------------------------------------------ statements
    def allocate(self, stmt: Allocate) -> None:
        if stmt.buffer.scope == "shared":
            self.stmt(stmt.body)
        else:
            super().allocate(stmt)

    def barrier(self, stmt: Barrier) -> None:
        # A thread waits for its own copies alone; the barrier behind shows them to the others.
        if stmt.pending is not None:
            self.line(f"copies_but<{stmt.pending}>();")
        if stmt.proxy:
            self.line("proxy_fence();")
        self.line("__syncthreads();")

    def intrinsic(self, call: Intrinsic) -> None:
        family = call.name.partition(":")[0]
        if family not in INTRINSIC_EMITTERS:
            known = ", ".join(INTRINSIC_EMITTERS) or "none"
            raise BuildError(f"`intrinsic` must be one of {known}, but got {call.name}")
        INTRINSIC_EMITTERS[family](self, call)

    def loop(self, loop: For) -> None:
        self.run_over(loop)
        name, extent = self.names(loop.var), int(loop.extent.value)
        if ASYNC in dict(loop.pragmas):
            self.asynchronous = True
            self.stmt(loop.body)
            self.line("end_of_copies();")
            self.asynchronous = False
            return
        if loop.kind in THREAD_TAGS:
            narrower = extent < self.kernel.extent(loop.kind)
            self.open(f"if ({loop.kind} < {extent}) {{" if narrower else "{")
            self.line(f"const {self.values.index_type} {name} = {loop.kind};")
            self.stmt(loop.body)
            self.close()
            return
        # A vector of anything else than one store is an unrolled loop.
        if loop.kind == "vectorize" and isinstance(loop.body, Store):
            self.vector(loop, loop.body)
            return
        if isinstance(loop.body, Intrinsic) and loop.kind == "unroll":
            together = LOOP_EMITTERS.get(loop.body.name)
            if together is not None and together(self, loop, loop.body):
                return
        pragma = self._unrolling(loop)
        if pragma:
            self.line(pragma)
        if pragma == "#pragma unroll":
            self.values.unrolled_variables.add(loop.var)
        super().loop(loop)
        self.values.unrolled_variables.discard(loop.var)

    def _unrolling(self, loop: For) -> str:
        """Registers have no addresses: a loop whose variable chooses one is written out."""
        if loop.kind in ("unroll", "vectorize", "vthread"):
            return "#pragma unroll"
        steps = dict(loop.pragmas).get("unroll")
        if steps:
            return f"#pragma unroll {steps}"
        chooses = any(
            a.buffer in self._registers and any(loop.var in variables(i) for i in a.indices)
            for a in all_accesses(loop.body)
        )
        if chooses:
            return "#pragma unroll"
        return unrolling(loop)

    # ------------------------------------------------------------------ stores
    def store(self, store: Store) -> None:
        if not self.try_copy(store, None):
            super().store(store)

    def simplify_condition(self, condition: Expr) -> Expr:
        return pulled_apart(super().simplify_condition(condition), self.simplify)

    # ------------------------------------------------------------------ vectors
    def vector(self, loop: For, store: Store) -> None:
        """Writes a vectorized loop around one store, with wide accesses if neighbours are neighbours in memory."""
        if self.try_copy(store, loop):
            return
        lanes = int(loop.extent.value)
        target = self.buffers[store.buffer]
        predicate = None if store.predicate is None else self.simplify_condition(store.predicate)
        uniform = predicate is None or loop.var not in variables(predicate)
        if predicate is not None and uniform:
            self.open(f"if ({self.values.condition(predicate)}) {{")
        else:
            self.open("{")
        wide = self.width(store.buffer, store.indices, loop) if uniform and store.reducer is None else 1
        loads = self._wide_loads(store.value, loop) if uniform and not self._copies_by_lane(store) else {}
        texts = {
            serial: self._fetch(load, width, loop, conditions) for serial, (load, width, conditions) in loads.items()
        }
        for start in range(0, lanes, wide):
            if wide > 1:
                kind = f"Vec<{C_TYPES[target.dtype]}, {wide}>"
                part = self.fresh("v")
                self.line(f"{kind} {part};")
            for lane in range(start, start + wide):
                one = self._lane(
                    store, loop, lane, uniform, {s: (loads[s][0], text(lane)) for s, text in texts.items()}
                )
                if wide > 1:
                    self.line(f"{part}.x[{lane - start}] = {self.format_stored_value(one, '')};")
                else:
                    self.store(one)
                self.values.replacements.clear()
                self.values.lane = None
            if wide > 1:
                place = tuple(substitute(i, {loop.var: const(start)}) for i in store.indices)
                self.line(f"*({kind}*)({self.values.pointer(target, place)}) = {part};")
        self.close()

    def _lane(
        self, store: Store, loop: For, lane: int, uniform: bool, wide_loads: dict[int, tuple[Expr, str]]
    ) -> Store:
        """Returns the store of one lane, which reads `wide_loads` values in place of loads.

        If the loop's variable does nothing but move accesses along, their offsets need not be simplified again.
        """
        if uniform and self._only_moves(store, loop.var):
            self.values.lane = (loop.var, lane)
            self.values.replacements.update(wide_loads)
            return replace(store, predicate=None)
        at = {loop.var: const(lane)}
        copies = [(substitute(load, at), text) for load, text in wide_loads.values()]
        self.values.replacements.update({copy.serial: (copy, text) for copy, text in copies})
        return Store(
            store.buffer,
            tuple(substitute(i, at) for i in store.indices),
            substitute(store.value, at),
            store.reducer,
            None if uniform or store.predicate is None else substitute(self.simplify_condition(store.predicate), at),
        )

    def _only_moves(self, store: Store, name: str) -> bool:
        """Tells whether a variable is nowhere but in indices, and moves them evenly."""
        even = self.values.steps_evenly(self.buffers[store.buffer], store.indices, name)
        return even and self._moves(store.value, name)

    def _moves(self, e: Expr, name: str) -> bool:
        if name not in variables(e):
            return True
        if e.op == "load":
            return self.values.steps_evenly(self.buffers[e.args[0]], e.args[1:], name)
        return e.op != "var" and all(self._moves(a, name) for a in e.operands)

    def _source(self, store: Store) -> tuple[Expr, list[Expr]] | None:
        """Returns the load and the conditions of a store that may be an asynchronous copy; None for other stores.

        Elements outside of the source are filled with zeros: `select(inside, source, 0)`.
        """
        if not self.asynchronous or store.reducer is not None or self.buffers[store.buffer].scope != "shared":
            return None
        value, tests = store.value, []
        while value.op == "select" and value.args[2].op == "const" and value.args[2].value == 0:
            tests.append(self.simplify_condition(value.args[0]))
            value = value.args[1]
        if value.op != "load" or self.buffers[value.args[0]].scope in ("shared", "local"):
            return None
        return value, tests

    def _copies_by_lane(self, store: Store) -> bool:
        """Tells whether each lane of a vector that is not copied as a whole is a copy."""
        source = self._source(store)
        return source is not None and dtype_bytes(source[0].dtype) in COPY_BYTES

    def try_copy(self, store: Store, loop: For | None) -> bool:
        """Writes a store, or a vector of them, as an asynchronous copy into shared memory, if it can be one."""
        found = self._source(store)
        if found is None:
            return False
        value, tests = found
        source, target = self.buffers[value.args[0]], self.buffers[store.buffer]
        conditions = [*tests, *(() if store.predicate is None else (self.simplify_condition(store.predicate),))]
        lanes = 1
        if loop is not None:
            lanes = int(loop.extent.value)
            widths = (self.width(store.buffer, store.indices, loop), self.width(value.args[0], value.args[1:], loop))
            if set(widths) != {lanes} or any(loop.var in variables(c) for c in conditions):
                return False
        size = lanes * dtype_bytes(source.dtype)
        if size not in COPY_BYTES:
            return False
        at = {} if loop is None else {loop.var: const(0)}
        addresses = []
        for buffer, indices in ((target, store.indices), (source, value.args[1:])):
            addresses.append(self.values.pointer(buffer, tuple(substitute(i, at) for i in indices) if at else indices))
        inside = self.values.conditions([substitute(t, at) for t in tests])
        copy = f"copy_async<{size}>({addresses[0]}, {addresses[1]}, {inside});"
        if store.predicate is None:
            self.line(copy)
        else:
            self.line(f"if ({self.values.condition(substitute(conditions[-1], at))}) {copy}")
        return True

    def fresh(self, hint: str) -> str:
        """Returns an unused identifier."""
        return self.names(f"{hint}{len(self.names)}")

    def width(self, name: str, indices: tuple[Expr, ...], loop: For) -> int:
        """Counts the lanes of one access: neighbours in memory that begin at a multiple of their size."""
        buffer = self.buffers[name]
        if buffer.scope == "local":
            return 1
        lanes = int(loop.extent.value)
        place = self.values.offset(buffer, indices)
        # Aligned whatever the loops around are at: each term must be a multiple of the access.
        terms = dict(poly(place))
        if terms.pop((var(loop.var),), 0) != 1 or any(loop.var in variables(a) for m in terms for a in m):
            return 1
        most = ALIGNMENT // dtype_bytes(buffer.dtype)
        widths = [w for w in (16, 8, 4, 2) if w <= most and lanes % w == 0 and all(c % w == 0 for c in terms.values())]
        return widths[0] if widths else 1

    def _wide_loads(self, value: Expr, loop: For) -> dict[int, tuple[Expr, int, tuple[Expr, ...]]]:
        """Lists loads of a value that read several lanes at a time: expression, lanes, and conditions."""
        found: dict[int, tuple[Expr, int, tuple[Expr, ...] | None]] = {}
        self._collect(value, loop, (), found)
        return {serial: (e, width, tests) for serial, (e, width, tests) in found.items() if tests is not None}

    def _collect(
        self,
        e: Expr,
        loop: For,
        conditions: tuple[Expr, ...] | None,
        occurrences: dict[int, tuple[Expr, int, tuple[Expr, ...] | None]],
    ) -> None:
        """Adds the loads of `e`, which is used under `conditions`; None: of each lane, or not known."""
        if e.op == "load":
            width = self.width(e.args[0], e.args[1:], loop)
            if width > 1:
                if e.serial in occurrences and occurrences[e.serial][2] != conditions:
                    # what is used under two conditions is loaded always where it may be, else lane by lane
                    conditions = () if () in (conditions, occurrences[e.serial][2]) else None
                occurrences[e.serial] = (e, width, conditions)
            return
        if e.op == "select":
            test = self.simplify_condition(e.args[0])
            uniform = conditions is not None and loop.var not in variables(test)
            self._collect(e.args[0], loop, conditions, occurrences)
            self._collect(e.args[1], loop, (*(conditions or ()), test) if uniform else None, occurrences)
            # of the other branch the negation would be needed; there are hardly any loads there
            self._collect(e.args[2], loop, None, occurrences)
            return
        for a in e.operands:
            self._collect(a, loop, conditions, occurrences)

    def _fetch(self, load: Expr, width: int, loop: For, conditions: tuple[Expr, ...]) -> Callable[[int], str]:
        """Writes the accesses of a load; the text of each lane."""
        buffer, lanes = self.buffers[load.args[0]], int(loop.extent.value)
        parts: list[str] = []
        for start in range(0, lanes, width):
            at = {loop.var: const(start)}
            place = tuple(substitute(i, at) for i in load.args[1:])
            kind, part = f"Vec<{C_TYPES[buffer.dtype]}, {width}>", self.fresh("v")
            access = f"{part} = *(const {kind}*)({self.values.pointer(buffer, place)});"
            tests = self.values.conditions([substitute(c, at) for c in conditions]) if conditions else ""
            self.line(f"{kind} {part}{{}};" if tests else f"const {kind} {access}")
            if tests:
                self.line(f"if ({tests}) {access}")
            parts.append(part)
        return lambda lane: self.values.widen(f"{parts[lane // width]}.x[{lane % width}]", buffer.dtype)


def unrolling(loop: For) -> str:
    """Returns the pragma for a loop that stays a loop: unrolled as far as independent loads can overlap.

    Loops that load fragments of a tile are unrolled further, so that later fragments arrive while earlier ones are
    used.
    """
    extent, size = int(loop.extent.value), statements(loop.body)
    # Nothing moves across a barrier, so that a second copy of the body would only be more code.
    if any(map(synchronises, walk_stmt(loop.body))):
        return "#pragma unroll 1"
    if extent * size <= MOST_UNROLLED:
        return "#pragma unroll"
    if any(isinstance(n, Allocate) and n.buffer.scope == "local" for n in walk_stmt(loop.body)):
        steps = max(n for n in range(1, extent + 1) if extent % n == 0 and (n == 1 or n * size <= MOST_OF_TILES))
        return "#pragma unroll" if steps == extent else f"#pragma unroll {steps}"
    return "#pragma unroll 4" if size <= MOST_UNROLLED // 8 else "#pragma unroll 1"


def statements(stmt: Stmt) -> int:
    """Counts the stores of a statement after its loops are written out; a vector counts once."""
    if isinstance(stmt, Seq):
        return sum(map(statements, stmt.body))
    if isinstance(stmt, Allocate):
        return statements(stmt.body)
    if isinstance(stmt, For):
        alone = stmt.kind in ("vectorize", *THREAD_TAGS)
        return statements(stmt.body) * (1 if alone else int(stmt.extent.value))
    return 1


def _emit_warp_reduce(text: KernelText, call: Intrinsic) -> None:
    """Writes a butterfly: each lane takes the value of the one whose number differs in one bit."""
    reducer, lanes = warp_reduce(call.name)
    buffer = text.buffers[call.output.buffer]
    element = text.values.element(buffer, call.output.indices)
    threads = text.kernel.threads
    # The mask must name lanes that exist; a block may be less than a warp.
    mask = "0xffffffffu" if threads >= 32 else f"{hex((1 << threads) - 1)}u"
    step = lanes // 2
    while step:
        other = f"__shfl_xor_sync({mask}, {element}, {step})"
        text.line(f"{element} = {text.values.combine(COMBINE[reducer], element, other, buffer.dtype)};")
        step //= 2


INTRINSIC_EMITTERS[WARP_REDUCE] = _emit_warp_reduce


def dynamic_shared_bytes(kernel: DeviceKernel) -> int:
    """Returns the bytes of shared memory that a launch must ask for; 0 if the kernel declares what it needs."""
    return kernel.shared_bytes if kernel.shared_bytes > STATIC_SHARED or kernel.alignment > ALIGNMENT else 0


__all__ = ["INTRINSIC_EMITTERS", "KernelText", "dynamic_shared_bytes"]
