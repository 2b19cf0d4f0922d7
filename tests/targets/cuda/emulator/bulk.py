"""The TMA unit in the emulator: boxes put where it would put their bytes, mbarriers with their phases and byte counts.

A copy's bytes arrive when its phase is waited for. Until then nobody may use the elements that it fills. An mbarrier
here awaits one thread, which says how many bytes shall arrive in a phase; the next phase begins when they have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import Expr
from search_space.ir.stmt import Intrinsic, Operand
from targets.cuda.bulk import ARRIVE, BEGIN, CONVERGE, COPY, EXPECT, FENCES, make_tensor_map
from targets.cuda.program import TensorMap
from tests.targets.cuda.emulator.emulator import INTRINSICS, Launch
from tests.targets.cuda.emulator.memory import DeviceMemory, Mask, SharedMemory
from tests.targets.cuda.emulator.races import CopyError, DivergenceError


@dataclass
class Slot:
    """One mbarrier, the same in all blocks that run side by side.

    Attributes:
        began: number of barriers before it was made.
        fences: fences that made it visible to the TMA unit.
        wait_clock: number of barriers before its last phase was waited for.
        phase: number of the phase that is not complete; awaited: its bytes, None before a thread has said how many.
        copies: copies of the phase: memory, elements, values.
    """

    began: int
    fences: set[str] = field(default_factory=set)
    wait_clock: int = 0
    phase: int = 0
    awaited_bytes: int | None = None
    asked_bytes: int = 0
    copies: list[tuple[SharedMemory, NDArray[np.int64], NDArray[Any]]] = field(default_factory=list)


def _together(launch: Launch, name: str, mask: Mask) -> None:
    """Raises DivergenceError where not all threads of a block come."""
    if mask is not None and not mask.all():
        raise DivergenceError(f"{name} must be reached by all threads of a block, but is in a branch")


def _is_skipped(launch: Launch, call: Intrinsic) -> bool:
    return call.predicate is not None and not _number(launch, call, call.predicate)


def _number(launch: Launch, call: Intrinsic, e: Expr) -> int:
    """An expression on which all threads of all blocks agree."""
    found = np.unique(np.asarray(launch.value(e, None)))
    if found.size != 1:
        raise DivergenceError(
            f"threads and blocks must agree on {e} of {call.name}, but get {found[0]} and {found[-1]}"
        )
    return int(found[0])


def _slot(launch: Launch, call: Intrinsic, operand: Operand) -> tuple[Slot, int, str]:
    """An mbarrier, the parity of the phase that is meant, and its name."""
    number, parity = (_number(launch, call, i) for i in operand.indices)
    slots = launch.slots.get(operand.buffer, [])
    if not 0 <= number < len(slots):
        raise CopyError(f"an mbarrier must be begun before {call.name}, but {operand.buffer}[{number}] is not")
    return slots[number], parity, f"{operand.buffer}[{number}]"


def _begin(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    _together(launch, call.name, mask)
    count = launch.memory[call.output.buffer].extents[0]
    if call.output.buffer in launch.slots:
        raise CopyError(f"mbarriers must begin once, but {call.output.buffer} begin again")
    launch.is_converged = False
    launch.slots[call.output.buffer] = [Slot(launch.clock.now) for _ in range(count)]


def _fence(fence: str, launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """Applies a fence of the one thread that made the mbarriers: its earlier work becomes visible."""
    _together(launch, call.name, mask)
    if call.output.buffer not in launch.slots:
        raise CopyError(f"mbarriers must be begun before they are fenced, but {call.output.buffer} are not")
    for slot in launch.slots[call.output.buffer]:
        slot.fences.add(fence)
    launch.is_converged = False


def _converge(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    _together(launch, call.name, mask)
    launch.is_converged = True


def _expect(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """The one thread arrives; a phase that no wait has seen complete yet cannot be followed by another.

    Nor may it be while threads of other warps, which may be any time behind, still wait for it: they would wait for
    ever where another phase of the same parity is over meanwhile.
    """
    _together(launch, call.name, mask)
    launch.is_converged = False
    if _is_skipped(launch, call):
        return
    slot, parity, name = _slot(launch, call, call.output)
    if missing := [fence for fence in FENCES if fence not in slot.fences]:
        raise CopyError(f"an mbarrier must be fenced before bytes are awaited, but {name} has no {missing[0]}")
    if slot.wait_clock == launch.clock.now:
        raise CopyError(
            f"a phase must be behind all threads when the next one begins, but no barrier is behind the wait for "
            f"phase {slot.phase - 1} of {name}"
        )
    if slot.awaited_bytes is not None or slot.phase % 2 != parity:
        raise CopyError(f"a phase must be waited for before the next one, but {name} is in phase {slot.phase}")
    slot.awaited_bytes = int(call.name.partition(":")[2])


def _copy(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """Boxes of the source, as its tensor map has it, for the rows of 128 bytes of the tile."""
    _together(launch, call.name, mask)
    launch.is_converged = False
    if _is_skipped(launch, call):
        return
    given, operand = call.inputs
    slot, parity, name = _slot(launch, call, operand)
    if slot.awaited_bytes is None or slot.phase % 2 != parity:
        raise CopyError(
            f"bytes must be awaited before they are asked for, but {name} awaits none in phase {slot.phase}"
        )
    memory, source = launch.memory[call.output.buffer], launch.memory[given.buffer]
    assert isinstance(memory, SharedMemory) and isinstance(source, DeviceMemory) and memory.shadow is not None
    wanted = make_tensor_map(call, memory.buffer, source.buffer)
    found = [m for m in launch.kernel.maps if m.name == wanted.name]
    if len(found) != 1:
        raise CopyError(f"a launch must hand over one map {wanted.name}, but the kernel has {len(found)}")
    (described,) = found
    blocks, (parts, rows, line) = launch.lanes.blocks, memory.extents[-3:]
    first = int(memory.flat_index(tuple(_number(launch, call, i) for i in call.output.indices), None))
    begin = [_of_blocks(launch, call, i) for i in given.indices]
    for part in range(parts):
        box = make_boxes(described, source.data, [*begin[:-1], begin[-1] + part * line])
        place = first + part * rows * line + swizzle(box.shape[-2], line)
        at = (launch.lanes.rows * memory.size + place.reshape(1, -1)).reshape(-1)
        threads = np.repeat(launch.lanes.number[:, 0], place.size)
        values = box.reshape(blocks, -1).reshape(-1)
        memory.shadow.writes(at, threads, memory.flat()[at], values)
        memory.shadow.moves(at)
        slot.copies.append((memory, at, values))
        slot.asked_bytes += described.box_bytes


def _of_blocks(launch: Launch, call: Intrinsic, index: Expr) -> NDArray[np.int64]:
    """A coordinate in every block."""
    found = np.broadcast_to(np.asarray(launch.value(index, None), np.int64), launch.lanes.shape)
    if (found != found[:, :1]).any():
        raise DivergenceError(f"threads of a block must agree on a box, but {call.name} begins at {index}")
    return found[:, 0]


def make_boxes(tensor_map: TensorMap, data: NDArray[Any], begin: list[NDArray[np.int64]]) -> NDArray[Any]:
    """Boxes of an array by its tensor map: (blocks, rows, columns), zero where there is no element."""
    place: Any = np.zeros((), np.int64)
    inside: Any = np.ones((), bool)
    strides = (*(s // data.itemsize for s in tensor_map.strides), 1)
    dimensions = len(tensor_map.shape)
    for d, (first, extent, stride, size) in enumerate(
        zip(begin, tensor_map.shape, strides, tensor_map.box, strict=True)
    ):
        at = first[:, None] + np.arange(size)[None, :]
        at = at.reshape(first.size, *(size if i == d else 1 for i in range(dimensions)))
        inside = inside & (at >= 0) & (at < extent)
        place = place + at * stride
    found = np.where(inside, data[np.where(inside, place, 0)], data.dtype.type(0))
    return np.asarray(found).reshape(begin[0].size, -1, tensor_map.box[-1])


def swizzle(rows: int, line: int) -> NDArray[np.int64]:
    """Returns where the unit puts the elements of a box, in elements: parts of a row exchanged by the row's number."""
    row, column = np.arange(rows)[:, None], np.arange(line)[None, :]
    part = line // 8
    return np.asarray(row * line + (column // part ^ row % 8) * part + column % part, np.int64)


def _arrive(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """All threads wait; a phase of the other parity is over, and so no reason to wait."""
    _together(launch, call.name, mask)
    launch.is_converged = False
    slot, parity, name = _slot(launch, call, call.output)
    if slot.began == launch.clock.now:
        raise CopyError(f"mbarriers must be waited for behind a barrier after they began, but {name} has none")
    if slot.phase % 2 != parity:
        return
    if slot.awaited_bytes is None or slot.awaited_bytes != slot.asked_bytes:
        raise CopyError(
            f"a phase must await the bytes that are copied, but {name} awaits {slot.awaited_bytes} of "
            f"{slot.asked_bytes} bytes in phase {slot.phase}"
        )
    for memory, at, values in slot.copies:
        assert memory.shadow is not None
        memory.flat()[at] = values
        memory.shadow.lands(at)
    slot.copies, slot.asked_bytes, slot.awaited_bytes = [], 0, None
    slot.phase += 1
    slot.wait_clock = launch.clock.now


INTRINSICS |= {BEGIN: _begin, EXPECT: _expect, COPY: _copy, ARRIVE: _arrive, CONVERGE: _converge}
INTRINSICS |= {fence: partial(_fence, fence) for fence in FENCES}
