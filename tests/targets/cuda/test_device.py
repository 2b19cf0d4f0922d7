"""Members of `cuda.core` that the runner uses exist in the installed version, as far as that shows without a GPU."""

from __future__ import annotations

import ctypes

import pytest

from targets.cuda.packed import _DTYPES, _SWIZZLES, MAP_ALIGNMENT, Arguments, Map

core = pytest.importorskip("cuda.core", reason="no cuda-core: the extra `gpu` is not installed")


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (core.Device, ["set_current", "create_stream", "allocate", "arch", "name", "properties"]),
        (core.Stream, ["sync", "record", "handle", "create_graph_builder"]),
        (core.Buffer, ["handle", "fill"]),
        (core.ObjectCode, ["from_cubin", "get_kernel"]),
        (core.Kernel, ["handle"]),
        (core.graph.GraphBuilder, ["begin_building", "end_building", "complete", "close"]),
        (core.graph.Graph, ["upload", "launch"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_called_exists(owner: type, names: list[str]) -> None:
    assert [name for name in names if not hasattr(owner, name)] == []


def test_arguments_are_packed_as_launches_take_them() -> None:
    """A pointer to each; maps lie where the driver may write them."""
    maps = [Map() for _ in range(7)]
    assert {m.address % MAP_ALIGNMENT for m in maps} == {0} and len({m.address for m in maps}) == 7
    wanted: list[int | Map] = [0x7F1234567890, maps[0], 1 << 40, 256]
    packed = Arguments(wanted)
    places = (ctypes.c_void_p * len(wanted)).from_address(packed.address)
    assert places[1] == maps[0].address
    words = [ctypes.c_uint64.from_address(places[i]).value for i in (0, 2, 3)]
    assert words == [0x7F1234567890, 1 << 40, 256]


def test_numbers_of_tensor_maps_are_the_drivers() -> None:
    from cuda.bindings import driver

    for name in ("FLOAT16", "BFLOAT16", "FLOAT32"):
        assert _DTYPES[name.lower()] == getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    for width in (32, 64, 128):
        assert _SWIZZLES[width] == getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{width}B")
