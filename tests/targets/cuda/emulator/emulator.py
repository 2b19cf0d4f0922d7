"""The emulator: device programs on the host, every statement for all threads of many blocks at once, in NumPy.

Between two barriers the order in which threads run decides nothing unless two of them reach one element, one of them
writing. Each access is checked for that, of shared and of device memory, so a program that runs to its end gives on a
device what it gives here, in whatever order its threads come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import Expr
from search_space.ir.rounding import match_clamp
from search_space.ir.semantics import apply_function
from search_space.ir.stmt import THREAD_TAGS, Allocate, Barrier, Buffer, For, Intrinsic, Seq, Stmt, Store, walk_stmt
from targets.base import RunError
from targets.buffers import constant_shape, elements
from targets.cuda.crossing import WARP_REDUCE, warp_reduce
from targets.cuda.pipeline import ASYNC
from targets.cuda.program import DeviceKernel, DeviceProgram
from targets.cuda.warpgroups import PRODUCTS
from tests.targets.cuda.emulator.memory import (
    DeviceMemory,
    Lanes,
    Mask,
    Memory,
    PrivateMemory,
    SharedMemory,
    SumsMemory,
    make_undefined,
)
from tests.targets.cuda.emulator.races import Clock, CopyError, DivergenceError, Shadow
from tests.targets.cuda.emulator.values import COMBINE, combine, evaluate_cast

if TYPE_CHECKING:
    from tests.targets.cuda.emulator.bulk import Slot

Arrays = dict[str, NDArray[Any]]
GRID, BLOCK, THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024
SHARED_BYTES = 227 << 10
"""Most shared memory of a block."""
LANES = 1 << 14
"""Threads that run side by side, as far as there are as many: whole blocks."""
INTRINSICS: dict[str, Callable[[Launch, Intrinsic, Mask], None]] = {}  # by name, or what stands before the colon


def emulate(program: DeviceProgram, arrays: Mapping[str, NDArray[Any]], seed: int = 0) -> Arrays:
    """Runs a device program.

    Args:
        program: program to run.
        arrays: inputs by the name of the original (unpacked) parameter.
        seed: seed of the order in which blocks run.

    Returns:
        Every parameter by name, the outputs computed.

    Raises:
        RaceError: threads that reach one element with no barrier in between, one of them writing.
        DivergenceError: a barrier that not all threads of a block reach.
        IndexError: an access out of bounds.
        RunError: inputs of other shapes than the program takes.
    """
    memory: Arrays = dict(arrays)
    for prologue in program.prologues:
        memory |= emulate(prologue, {b.name: memory[b.name] for b in prologue.program.inputs}, seed)
    for buffer in (*program.program.params, *program.workspace):
        if buffer.name not in memory:
            memory[buffer.name] = make_undefined(constant_shape(buffer), buffer.dtype)
        elif memory[buffer.name].shape != constant_shape(buffer):
            raise RunError(
                f"`{buffer.name}` must have shape {constant_shape(buffer)}, but got shape={memory[buffer.name].shape}"
            )
    rng = np.random.default_rng(seed)
    flat = {b.name: _flatten(b, memory[b.name]) for b in (*program.program.params, *program.workspace)}
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            launch(kernel, flat, rng)
    for buffer in program.program.params:
        if buffer.name in program.program.outputs:
            memory[buffer.name] = _reshape(buffer, flat[buffer.name])
    return memory


def _flatten(buffer: Buffer, array: NDArray[Any]) -> NDArray[Any]:
    """A copy of the elements as they lie in memory."""
    out = make_undefined((elements(buffer),), buffer.dtype)
    _reshape(buffer, out)[...] = array
    return out


def _reshape(buffer: Buffer, flat: NDArray[Any]) -> NDArray[Any]:
    """The buffer's view of its memory."""
    strides = [int(s.value) * flat.itemsize for s in buffer.strides]
    return np.lib.stride_tricks.as_strided(flat, constant_shape(buffer), strides)


def require_launchable(kernel: DeviceKernel) -> None:
    """Holds a launch against what every device of compute capability 8.0 to 9.0 takes (CUDA's programming guide).

    Raises:
        RunError: the driver would refuse it.
    """
    for what, given, most in (("blocks", kernel.grid, GRID), ("threads", kernel.block, BLOCK)):
        for axis, size, limit in zip("xyz", given, most, strict=True):
            if not 1 <= size <= limit:
                raise RunError(f"{what} along {axis} must be 1 to {limit}, but {kernel.name} has {size}")
    if kernel.threads > THREADS:
        raise RunError(f"a block must have at most {THREADS} threads, but {kernel.name} has {kernel.threads}")
    if kernel.shared_bytes > SHARED_BYTES:
        raise RunError(
            f"a block must take at most {SHARED_BYTES} bytes of shared memory, but {kernel.name} takes "
            f"{kernel.shared_bytes}"
        )


def require_converged(launch: Launch, name: str) -> None:
    """Holds an instruction that whole warps run (`.aligned` in PTX) against threads that may be elsewhere.

    Raises:
        DivergenceError: one of a warp waited or worked alone, with nothing behind by which they meet again.
    """
    if not launch.is_converged:
        raise DivergenceError(f"the threads of a warp must run {name} together, but may have come apart before")


def launch(kernel: DeviceKernel, arrays: Arrays, rng: np.random.Generator) -> None:
    """Runs one kernel on flat arrays, blocks in random order, as many side by side as `LANES` holds.

    Raises:
        RunError: no device takes it; and what `emulate` says.
    """
    require_launchable(kernel)
    clock = Clock()
    order = rng.permutation(kernel.blocks)
    shadows = {
        b.name: Shadow(b, arrays[b.name].size, clock, kernel.block) for b in kernel.params if b.name in kernel.writes
    }
    step = max(1, LANES // kernel.threads)
    for start in range(0, kernel.blocks, step):
        blocks = np.sort(order[start : start + step])
        Launch(kernel, blocks, arrays, shadows, clock).run()
        clock.now += 1


class Launch:
    """Some blocks of a kernel, running side by side.

    Attributes:
        memory: memory of each buffer, by its name.
        env: loop variables: numbers, or an array of one row or one column.
        lanes: the threads.
        sums: buffers that warpgroups add products to.
        tiles: elements of shared memory that products still read, with the group of these.
        slots: mbarriers by name of their buffer.
        is_converged: whether the threads of each warp are known to be at the same place.
    """

    def __init__(
        self,
        kernel: DeviceKernel,
        blocks: NDArray[np.int64],
        arrays: Arrays,
        shadows: Mapping[str, Shadow],
        clock: Clock,
    ) -> None:
        self.kernel, self.clock = kernel, clock
        self.lanes = Lanes(blocks, kernel.threads)
        self.memory: dict[str, Memory] = {
            b.name: DeviceMemory(b, self.lanes, arrays[b.name], shadows.get(b.name)) for b in kernel.params
        }
        for buffer, _ in kernel.shared:
            self.memory[buffer.name] = SharedMemory(buffer, self.lanes, clock, kernel.block)
        self.env: dict[str, Any] = {}
        self.copying, self.is_converged = False, True
        self.sums = {n.output.buffer for n in walk_stmt(kernel.body) if isinstance(n, Intrinsic) and n.name in PRODUCTS}
        self.tiles: list[tuple[int, Shadow, NDArray[np.int64]]] = []
        self.slots: dict[str, list[Slot]] = {}
        self.tags = _coordinates("blockIdx", kernel.grid, blocks[:, None])
        self.tags |= _coordinates("threadIdx", kernel.block, np.arange(kernel.threads)[None, :])

    def run(self) -> None:
        self.stmt(self.kernel.body, None)
        for name, slots in self.slots.items():
            if any(slot.awaited_bytes is not None for slot in slots):
                raise CopyError(f"copies must be waited for before a kernel ends, but {self.kernel.name} leaves {name}")

    # ------------------------------------------------------------------ statements
    def stmt(self, stmt: Stmt, mask: Mask) -> None:
        """Runs a statement for the threads that `mask` lets."""
        if isinstance(stmt, Seq):
            for s in stmt.body:
                self.stmt(s, mask)
        elif isinstance(stmt, For):
            self._loop(stmt, mask)
        elif isinstance(stmt, Allocate):
            if stmt.buffer.scope != "shared":
                self.memory[stmt.buffer.name] = self._private(stmt.buffer)
            self.stmt(stmt.body, mask)
        elif isinstance(stmt, Store):
            self._store(stmt, mask)
        elif isinstance(stmt, Barrier):
            if mask is not None and not mask.all():
                raise DivergenceError(
                    f"a barrier must be reached by all threads of a block, but {self.kernel.name} has one in a branch"
                )
            self.clock.now += 1
            self.is_converged = True
            if stmt.pending is not None:
                self.clock.last_arrived = self.clock.group - 1 - stmt.pending
            if stmt.proxy:
                self.clock.fences += 1
                self.clock.last_fenced = self.clock.last_arrived
        else:
            assert isinstance(stmt, Intrinsic), stmt
            family = stmt.name.partition(":")[0]
            if family not in INTRINSICS:
                raise RunError(f"`intrinsic` must be one of {', '.join(INTRINSICS) or 'none'}, but got {stmt.name}")
            INTRINSICS[family](self, stmt, mask)

    def _private(self, buffer: Buffer) -> PrivateMemory:
        if buffer.name in self.sums:
            return SumsMemory(buffer, self.lanes, self.clock)
        return PrivateMemory(buffer, self.lanes)

    def _loop(self, loop: For, mask: Mask) -> None:
        extent = int(loop.extent.value)
        if loop.kind in THREAD_TAGS:
            self.env[loop.var] = self.tags[loop.kind]
            if extent < self.kernel.extent(loop.kind):
                mask = both(mask, self.tags[loop.kind] < extent)
            self.stmt(loop.body, mask)
            return
        self.copying = self.copying or ASYNC in dict(loop.pragmas)
        for i in range(extent):
            self.env[loop.var] = i
            self.stmt(loop.body, mask)
        if ASYNC in dict(loop.pragmas):
            self.copying = False
            self.clock.group += 1

    def _store(self, store: Store, mask: Mask) -> None:
        if store.predicate is not None:
            mask = both(mask, self.value(store.predicate, mask))
            if not mask.any():
                return
        target = self.memory[store.buffer]
        at = tuple(self.value(i, mask) for i in store.indices)
        value = self.value(store.value, mask)
        if store.reducer is not None:
            value = combine(COMBINE[store.reducer], target.read(at, mask), value)
        target.write(at, value, mask, self.copying and target.buffer.scope == "shared")

    # ------------------------------------------------------------------ expressions
    def value(self, e: Expr, mask: Mask) -> Any:
        """The value of an expression for every thread; what masked ones get means nothing."""
        op = e.op
        if op == "const":
            return e.value if e.dtype == "int64" else numpy_dtype(e.dtype).type(e.value)
        if op == "var":
            return self.env[e.args[0]]
        if op == "load":
            return self.memory[e.args[0]].read(tuple(self.value(i, mask) for i in e.args[1:]), mask)
        if op == "select":
            return self._select(e, mask)
        if op == "cast":
            within = match_clamp(e)
            value = self.value(e.args[0] if within is None else within.number, mask)
            if within is not None:  # NaN becomes the lower limit
                value = np.fmin(np.fmax(value, np.float32(within.low)), np.float32(within.high))
            return evaluate_cast(value, e.dtype)
        if op == "call":
            return apply_function(e.args[0], self.value(e.args[1], mask), e.dtype)
        a, b = (self.value(x, mask) for x in e.args)
        return combine(op, a, b)

    def _select(self, e: Expr, mask: Mask) -> Any:
        test = self.value(e.args[0], mask)
        if not isinstance(test, np.ndarray):
            return self.value(e.args[1] if test else e.args[2], mask)
        return np.where(test, self.value(e.args[1], both(mask, test)), self.value(e.args[2], both(mask, ~test)))


def _warp_reduce(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """The butterfly of shuffles that devices run, lane by lane the same sums."""
    if mask is not None and not mask.all():
        raise DivergenceError(f"{call.name} must be reached by all threads of a warp, but is in a branch")
    require_converged(launch, call.name)
    reducer, lanes = warp_reduce(call.name)
    memory = launch.memory[call.output.buffer]
    at = tuple(launch.value(i, mask) for i in call.output.indices)
    value = np.broadcast_to(memory.read(at, mask), launch.lanes.shape)
    numbers, step = np.arange(launch.lanes.threads), lanes // 2
    while step:
        value = combine(COMBINE[reducer], value, value[:, numbers ^ step])
        step //= 2
    memory.write(at, value, mask)


INTRINSICS[WARP_REDUCE] = _warp_reduce


def both(mask: Mask, test: Any) -> NDArray[np.bool_]:
    """Threads that a mask lets and a condition holds for."""
    test = np.asarray(test, bool)
    if test.ndim == 0:
        test = test.reshape(1, 1)
    return test if mask is None else np.asarray(mask & test)


def _coordinates(kind: str, dim: tuple[int, int, int], linear: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Returns coordinates along x, y and z of numbers that count x fastest."""
    x, y, _ = dim
    return {f"{kind}.x": linear % x, f"{kind}.y": linear // x % y, f"{kind}.z": linear // (x * y)}


__all__ = ["INTRINSICS", "LANES", "Launch", "both", "emulate", "launch", "require_converged", "require_launchable"]
