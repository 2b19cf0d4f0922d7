"""Instructions of warpgroups in the emulator: tiles found in the bytes of shared memory, as descriptors say.

A product's sum is known at once, but nobody may see it, nor overwrite the tiles it is made of, before the group of the
product has been waited for. Tiles must have been made seen by a fence after they were written.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from search_space.ir.expr import const, dtype_bytes
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import Buffer, Intrinsic, Operand
from search_space.warpgroup_intrinsics import DEPTH, ROWS, THREADS, WGMMAS, Wgmma
from targets.cuda.warpgroups import COMMIT, FENCE, LINE_BYTES, LINES, WAIT, Descriptor, descriptor, encode
from tests.targets.cuda.emulator.emulator import INTRINSICS, Launch, require_converged
from tests.targets.cuda.emulator.memory import Mask, SharedMemory, SumsMemory
from tests.targets.cuda.emulator.races import DivergenceError, RaceError
from tests.targets.cuda.emulator.warps import lane_elements


def _together(launch: Launch, name: str, mask: Mask) -> None:
    """Raises DivergenceError where threads of a warpgroup are missing."""
    if mask is not None and not mask.all():
        raise DivergenceError(f"{name} must be reached by all threads of a warpgroup, but is in a branch")
    require_converged(launch, name)
    if launch.kernel.block[0] != THREADS:
        raise DivergenceError(f"{name} needs {THREADS} threads along threadIdx.x, but got {launch.kernel.block[0]}")


def _sums(launch: Launch, call: Intrinsic) -> SumsMemory:
    memory = launch.memory[call.output.buffer]
    assert isinstance(memory, SumsMemory), call.output.buffer
    return memory


@cache
def _offsets(extent: int, across: bool, leading: int, stride: int) -> NDArray[np.int64]:
    """Bytes from the beginning of a tile to its elements (extent, depth), the exchange of parts left out.

    PTX ISA, canonical layouts with 128-byte swizzle of 16-bit elements: K-major, ((8, n), 2 parts of 8) in rows of the
    reduction; MN-major ((64, n), (8, k)) in rows across it.
    """
    x, k = np.arange(extent)[:, None], np.arange(DEPTH)[None, :]
    if across:
        line = LINE_BYTES // 2
        return x % line * 2 + x // line * leading + k % LINES * LINE_BYTES + k // LINES * stride
    return x % LINES * LINE_BYTES + x // LINES * stride + k * 2


def decode(bits: NDArray[np.int64], extent: int, across: bool) -> NDArray[np.int64]:
    """Byte addresses of a tile's elements, by its descriptors: (...,) → (..., extent, depth)."""
    (leading, stride, mode) = (
        int(np.unique(part).item()) for part in (bits >> 16 & 0x3FFF, bits >> 32 & 0x3FFF, bits >> 62 & 3)
    )
    if mode != 1:
        raise ValueError(f"a descriptor must be of the 128-byte swizzle, but got mode {mode}")
    place = (bits & 0x3FFF)[..., None, None] * 16 + _offsets(extent, across, leading * 16, stride * 16)
    return np.asarray(place ^ (place >> 7 & 7) << 4, np.int64)


def _tile(launch: Launch, operand: Operand, extent: int, across: bool, mask: Mask) -> NDArray[np.float32]:
    """A factor of every warpgroup: (blocks, warpgroups, extent, depth)."""
    memory = launch.memory[operand.buffer]
    assert isinstance(memory, SharedMemory), operand.buffer
    buffer, lanes = memory.buffer, launch.lanes
    where = _descriptor(launch, buffer, operand, across)
    begin = next(start for b, start in launch.kernel.shared if b.name == buffer.name)
    size = dtype_bytes(buffer.dtype)
    place = np.broadcast_to(np.asarray(launch.value(where.start, mask)), lanes.shape)
    groups = place.reshape(lanes.blocks, -1, THREADS)
    if (groups != groups[:, :, :1]).any():
        raise DivergenceError(f"threads of a warpgroup must agree on a tile, but read {buffer.name} at {where.start}")
    bits = np.array([encode(int(p), where.leading, where.stride) for p in (groups[:, :, 0] * size + begin).flat])
    at = (decode(bits.reshape(groups.shape[:2]), extent, across) - begin) // size
    if at.min() < 0 or at.max() >= memory.size:
        raise IndexError(
            f"a tile must lie in {buffer.name} of {memory.size} elements, but got {at.min()} to {at.max()}"
        )
    flat = at + (lanes.rows * memory.size)[:, :, None, None]
    assert memory.shadow is not None
    launch.tiles.append((launch.clock.products, memory.shadow, flat.reshape(-1)))
    memory.shadow.multiplies(flat.reshape(-1))
    return np.asarray(memory.flat()[flat], np.float32)


def _descriptor(launch: Launch, buffer: Buffer, operand: Operand, across: bool) -> Descriptor:
    """Returns the descriptor of an operand, equal to the one in the text."""
    ranges = {name: const(int(np.max(value)) + 1) for name, value in launch.env.items()}
    start = const(0)
    for index, stride in zip(operand.indices, buffer.strides, strict=True):
        start = start + index * stride
    return descriptor(buffer, operand, across, start, Regrouping(ranges))


def _multiply(wgmma: Wgmma, launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """The product of each warpgroup's tiles, added to its sums."""
    _together(launch, call.name, mask)
    memory = _sums(launch, call)
    if not memory.is_fenced:
        raise RaceError(f"{memory.buffer.name} must be fenced after it was written, before products add to it")
    a = _tile(launch, call.inputs[0], ROWS, False, mask)
    b = _tile(launch, call.inputs[1], wgmma.columns, True, mask)
    fragment = wgmma.product.fragments[-1]
    assert fragment is not None
    rows, columns = lane_elements(fragment)
    product = (a @ b.swapaxes(-1, -2))[:, :, rows, columns].reshape(*launch.lanes.shape, fragment.registers)
    at = memory.flat_index(tuple(launch.value(i, mask) for i in call.output.indices), mask)
    assert not isinstance(at, np.ndarray)
    memory.data[at : at + fragment.registers] += np.moveaxis(product, -1, 0)
    memory.group = launch.clock.products


def _fence(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    _together(launch, call.name, mask)
    _sums(launch, call).is_fenced = True


def _commit(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    _together(launch, call.name, mask)
    launch.clock.products += 1


def _wait(launch: Launch, call: Intrinsic, mask: Mask) -> None:
    """Tiles have been read until now; of later groups they still are."""
    _together(launch, call.name, mask)
    clock = launch.clock
    clock.last_multiplied = clock.products - 1 - int(call.name.partition(":")[2])
    for group, shadow, elements in launch.tiles:
        if group <= clock.last_multiplied:
            shadow.read_together(elements)
    launch.tiles = [tile for tile in launch.tiles if tile[0] > clock.last_multiplied]


for _wgmma in WGMMAS:
    INTRINSICS[_wgmma.product.name] = partial(_multiply, _wgmma)
INTRINSICS |= {FENCE: _fence, COMMIT: _commit, WAIT: _wait}
