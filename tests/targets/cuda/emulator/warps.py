"""The tensor cores' instructions in the emulator: for whole warps, by the layouts of their fragments."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.expr import dtype_bytes
from search_space.ir.rounding import TFLOAT32
from search_space.ir.stmt import Intrinsic, Operand
from search_space.operators.arithmetic import factor
from search_space.schedule.intrinsics import Fragment, TensorIntrin
from search_space.warp_intrinsics import MMAS, Mma
from targets.cuda.crossing import WARP
from targets.cuda.warps import WORD, registers
from tests.targets.cuda.emulator.emulator import INTRINSICS, Launch, require_converged
from tests.targets.cuda.emulator.memory import Mask
from tests.targets.cuda.emulator.races import DivergenceError


@cache
def lane_elements(fragment: Fragment) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns (lanes, elements) of what each lane holds."""
    lane: Any = fragment.lane
    register: Any = fragment.register
    i, j = np.indices(fragment.shape)
    at = lane(i, j), register(i, j)
    rows = np.zeros((int(at[0].max()) + 1, fragment.registers), np.int64)
    columns = np.zeros_like(rows)
    rows[at], columns[at] = i, j
    return rows, columns


def _together(launch: Launch, name: str, mask: Mask) -> None:
    """Raises DivergenceError where lanes are missing."""
    if mask is not None and not mask.all():
        raise DivergenceError(f"{name} must be reached by all threads of a warp, but is in a branch")
    require_converged(launch, name)
    if launch.kernel.block[0] != WARP:
        raise DivergenceError(f"{name} needs {WARP} threads along threadIdx.x, but got {launch.kernel.block[0]}")


def _get(launch: Launch, operand: Operand, fragment: Fragment, dtype: str, mask: Mask) -> NDArray[Any]:
    """A fragment's tile for every warp: (blocks, warps, rows, columns)."""
    memory, lanes = launch.memory[operand.buffer], launch.lanes
    at = tuple(launch.value(i, mask) for i in operand.indices)
    words = [
        np.broadcast_to(memory.read((*at[:-1], at[-1] + r), mask), lanes.shape)
        for r in range(registers(fragment, dtype))
    ]
    kind = numpy_dtype(memory.buffer.dtype)
    held = np.stack(words, -1).astype(kind).view(numpy_dtype(dtype))
    held = held.reshape(lanes.blocks, -1, WARP, fragment.registers)
    tile = np.zeros((*held.shape[:2], *fragment.shape), held.dtype)
    rows, columns = lane_elements(fragment)
    tile[:, :, rows, columns] = held
    return tile


def _put(launch: Launch, operand: Operand, fragment: Fragment, elements: NDArray[Any], mask: Mask) -> None:
    """Sets a fragment from what each lane holds: (blocks, threads, elements)."""
    memory = launch.memory[operand.buffer]
    at = tuple(launch.value(i, mask) for i in operand.indices)
    words = np.ascontiguousarray(elements).view(numpy_dtype(memory.buffer.dtype))
    for r in range(words.shape[-1]):
        memory.write((*at[:-1], at[-1] + r), words[..., r], mask)


def _load(intrinsic: TensorIntrin, dtype: str, launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """Every lane takes its elements of a tile in shared memory, rounded to `dtype`."""
    _together(launch, call.name, mask)
    fragment = intrinsic.fragments[-1]
    assert fragment is not None
    (source,) = call.inputs
    memory = launch.memory[source.buffer]
    lane = np.arange(launch.lanes.threads) % WARP
    rows, columns = lane_elements(fragment)
    held = np.zeros((*launch.lanes.shape, fragment.registers), numpy_dtype(memory.buffer.dtype))
    for e in range(fragment.registers):
        launch.env |= {"#0": rows[lane, e][None, :], "#1": columns[lane, e][None, :]}
        held[..., e] = memory.read(tuple(launch.value(i, mask) for i in source.elements), mask)
    assert held.shape[-1] * dtype_bytes(memory.buffer.dtype) % WORD == 0
    _put(launch, call.output, fragment, factor(held, dtype), mask)


def _truncate(tile: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Returns factors as tensor cores see them: of tfloat32 without the bits that rounding should have made 0."""
    return (tile.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if dtype == TFLOAT32 else tile


def _multiply(mma: Mma, launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """The product of each warp's tiles, added to its sums."""
    _together(launch, call.name, mask)
    left, right, out = mma.product.fragments
    assert left is not None and right is not None and out is not None
    kind = numpy_dtype(mma.dtypes[2])
    a = _truncate(_get(launch, call.inputs[0], left, mma.register_dtypes[0], mask), mma.dtypes[0]).astype(kind)
    b = _truncate(_get(launch, call.inputs[1], right, mma.register_dtypes[1], mask), mma.dtypes[1]).astype(kind)
    c = _get(launch, call.output, out, mma.dtypes[2], mask)
    c = c + a @ (b.swapaxes(-1, -2) if mma.turned else b)
    rows, columns = lane_elements(out)
    held = c[:, :, rows, columns].reshape(*launch.lanes.shape, out.registers)
    _put(launch, call.output, out, held, mask)


for _mma in MMAS:
    INTRINSICS[_mma.left.name] = partial(_load, _mma.left, _mma.dtypes[0])
    INTRINSICS[_mma.right.name] = partial(_load, _mma.right, _mma.dtypes[1])
    INTRINSICS[_mma.product.name] = partial(_multiply, _mma)
