"""What the runner asks of `cuda.core` is there in the version that is installed, as far as that shows without a GPU."""

from __future__ import annotations

import ctypes

import pytest

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
        (core.utils.StridedMemoryView, ["from_cuda_array_interface", "as_tensor_map"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_called_exists(owner: type, names: list[str]) -> None:
    assert [name for name in names if not hasattr(owner, name)] == []


def test_integers_are_passed_as_addresses() -> None:
    """Arguments of launches lie within larger allocations: see `CudaDevice.part`."""
    from cuda.core._kernel_arg_handler import ParamHolder

    wanted = [0x7F1234567890, 1 << 40, 256]
    holder = ParamHolder(tuple(wanted))
    places = (ctypes.c_void_p * len(wanted)).from_address(holder.ptr)
    assert [ctypes.c_uint64.from_address(place).value for place in places] == wanted


def test_a_launch_takes_three_sizes() -> None:
    config = core.LaunchConfig(grid=(4, 2, 1), block=(32, 4, 1), shmem_size=65536)
    assert (config.grid, config.block, config.shmem_size) == ((4, 2, 1), (32, 4, 1), 65536)


def test_tensor_maps_have_the_names_that_are_used() -> None:
    """The enumerations are the driver's; launches take what `as_tensor_map` gives."""
    from cuda.bindings import driver
    from cuda.core import _tensor_map as maps

    for name in ("FLOAT16", "BFLOAT16"):
        assert maps.TensorMapDataType[name] == getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
    assert maps.TensorMapSwizzle["SWIZZLE_128B"] == driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
