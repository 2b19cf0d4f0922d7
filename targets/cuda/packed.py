"""Arguments of a launch as the driver takes them, packed once; tensor maps, encoded where the driver may write them.

Both lie in memory of our own. `cuTensorMapEncodeTiled` needs a map at a multiple of 64 bytes, which Python's objects do
not guarantee. Packing arguments for each launch would cost more than the launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from targets.base import RunError

MAP_BYTES, MAP_ALIGNMENT = 128, 128
"""Of a tensor map; the driver asks for 64."""
_DTYPES = {"float16": 6, "float32": 7, "bfloat16": 9}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""`CUtensorMapDataType` and `CUtensorMapSwizzle`."""


class Map:
    """An encoded tensor map.

    Attributes:
        address: address of its 128 bytes on the host.
        bytes: a view of them.
    """

    def __init__(self) -> None:
        self._raw = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        self.address = -(-ctypes.addressof(self._raw) // MAP_ALIGNMENT) * MAP_ALIGNMENT

    @property
    def bytes(self) -> bytes:
        return ctypes.string_at(self.address, MAP_BYTES)


def encode(library: Any, address: int, facts: Mapping[str, Any]) -> Map:
    """Encodes the tensor map of an array.

    Args:
        library: the driver, as `ctypes` loads it.
        address: address of the array on the device.
        facts: facts of `Device.tensor_map`; the driver counts dimensions from the last.

    Raises:
        RunError: the driver refuses them.
    """
    out, rank = Map(), len(facts["shape"])
    shape = (ctypes.c_uint64 * rank)(*reversed(facts["shape"]))
    strides = (ctypes.c_uint64 * max(1, rank - 1))(*reversed(facts["strides"]))
    box = (ctypes.c_uint32 * rank)(*reversed(facts["box"]))
    apart = (ctypes.c_uint32 * rank)(*[1] * rank)
    interleave, promotion, outside = 0, 0, 0  # none of the first two; zeros where there is no element
    status = library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(out.address),
        ctypes.c_int(_DTYPES[facts["dtype"]]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        shape,
        strides,
        box,
        apart,
        ctypes.c_int(interleave),
        ctypes.c_int(_SWIZZLES[facts["swizzle"]]),
        ctypes.c_int(promotion),
        ctypes.c_int(outside),
    )
    if status:
        raise RunError(f"an array must have a tensor map, but the driver says error {status} of {dict(facts)}")
    return out


class Arguments:
    """Addresses and tensor maps in the order of a kernel's parameters.

    Args:
        values: addresses on the device, and maps.

    Attributes:
        address: address of the pointers to each of them, which `cuLaunchKernel` takes.
    """

    def __init__(self, values: Sequence[int | Map]) -> None:
        self._maps = [v for v in values if isinstance(v, Map)]  # kept
        self._words = (ctypes.c_uint64 * max(1, len(values)))(*(0 if isinstance(v, Map) else v for v in values))
        first, size = ctypes.addressof(self._words), ctypes.sizeof(ctypes.c_uint64)
        places = [v.address if isinstance(v, Map) else first + i * size for i, v in enumerate(values)]
        self._pointers = (ctypes.c_void_p * max(1, len(values)))(*places)
        self.address = ctypes.addressof(self._pointers)
