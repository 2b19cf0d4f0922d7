"""Kernels written by hand, each about one thing a GPU does, and the modules that they are compiled to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from targets.base import Module, Parameter

BLOCKS, THREADS = 64, 256
SHARED_BLOCKS, SHARED_FLOATS = 16, 96 << 8
"""96 KiB a block: twice what a kernel has without asking."""
TILE, ROWS, COLUMNS = 64, 100, 120
"""Side of a box that the TMA unit moves; the array, which ends within boxes."""

_HEAD = 'extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{\n{body}}}\n'
_INDEX = f"  const int i = blockIdx.x * {THREADS} + threadIdx.x;\n"


@dataclass(frozen=True)
class HandwrittenKernel:
    """A kernel in CUDA C++.

    Attributes:
        inputs, output: name, shape and dtype of arrays.
        body: body of the function; functions of the prelude that it calls are included.
        blocks, threads: along x.
        shared: bytes that a launch asks for.
        maps: maps of arrays that the TMA unit reads, in the form of `Device.tensor_map`, with `argument` and `name`.
    """

    name: str
    inputs: tuple[Parameter, ...]
    output: Parameter
    body: str
    blocks: int = BLOCKS
    threads: int = THREADS
    shared: int = 0
    maps: tuple[Mapping[str, Any], ...] = ()

    def text(self) -> str:
        """Returns the function with the functions of the prelude that it calls."""
        from targets.cuda import bulk_text  # noqa: F401  (its functions are in the prelude then)
        from targets.cuda.prelude import prelude

        function = self.function()
        return prelude(function) + function

    def function(self) -> str:
        """Returns the function alone."""
        from targets.cuda.values import C_TYPES

        parameters = [f"const {C_TYPES[p.dtype]}* __restrict__ {p.name}" for p in self.inputs]
        parameters.append(f"{C_TYPES[self.output.dtype]}* __restrict__ {self.output.name}")
        parameters += [f"const __grid_constant__ TensorMap {each['name']}" for each in self.maps]
        return _HEAD.format(threads=self.threads, name=self.name, parameters=", ".join(parameters), body=self.body)

    def module(self, arch: str) -> Module:
        """Compiles machine code for `arch`.

        Raises:
            BuildError: NVRTC is missing or does not take the text.
        """
        from targets.cuda.nvrtc import compile_cubin, version

        compiled = compile_cubin(self.text(), arch)
        launch = {
            "name": self.name,
            "grid": [self.blocks, 1, 1],
            "block": [self.threads, 1, 1],
            "arguments": [p.name for p in (*self.inputs, self.output)],
            "tensor_maps": [{k: v for k, v in each.items() if k != "name"} for each in self.maps],
            "dynamic_shared_bytes": self.shared,
            "barriers": 0,
            **asdict(compiled.resources[self.name]),
        }
        launches: dict[str, Any] = {"kernels": [launch], "workspace": []}
        facts = {"arch": arch, "nvrtc": version(), "notes": [], "launches": launches, "prologues": []}
        arrays = (*self.inputs, self.output)
        return Module(self.name, f"cuda:{arch}", compiled.cubin, "", arrays, (self.output.name,), self.inputs, facts)


def _floats(name: str, *shape: int) -> Parameter:
    return Parameter(name, shape, "float32")


def make_copy_kernel(nbytes: int) -> HandwrittenKernel:
    """Makes a kernel of asynchronous copies of `nbytes` each; every third thread copies nothing and gets zeros."""
    floats = nbytes // 4
    count = THREADS * floats
    body = (
        f"  __shared__ __align__(16) float tile[{count}];\n"
        f"  const float* from = x + blockIdx.x * {count} + threadIdx.x * {floats};\n"
        f"  copy_async<{nbytes}>(tile + threadIdx.x * {floats}, from, threadIdx.x % 3 != 0);\n"
        "  end_of_copies();\n  copies_but<0>();\n  __syncthreads();\n"
        f"  for (int i = threadIdx.x; i < {count}; i += {THREADS})\n"
        f"    out[blockIdx.x * {count} + i] = tile[{count - 1} - i];\n"
    )
    shape = (BLOCKS, count)
    return HandwrittenKernel(f"copy_async_{nbytes}", (_floats("x", *shape),), _floats("out", *shape), body)


def make_stream_kernel(floats: int) -> HandwrittenKernel:
    """Makes a kernel that copies an array plainly, as fast as memory is."""
    blocks, threads = 1056, 512
    body = (
        f"  for (long long i = (long long)blockIdx.x * {threads} + threadIdx.x; i < {floats // 4}; "
        f"i += {blocks * threads})\n"
        "    ((Vec<float, 4>*)out)[i] = ((const Vec<float, 4>*)x)[i];\n"
    )
    return HandwrittenKernel("stream", (_floats("x", floats),), _floats("out", floats), body, blocks, threads)


AXPY = HandwrittenKernel(
    "axpy",
    (_floats("x", BLOCKS * THREADS), _floats("y", BLOCKS * THREADS)),
    _floats("out", BLOCKS * THREADS),
    _INDEX + "  out[i] = 3.0f * x[i] + y[i];\n",
)
SUMS = HandwrittenKernel(
    "sums",
    (_floats("x", BLOCKS, THREADS),),
    _floats("out", BLOCKS),
    _INDEX
    + f"  __shared__ float parts[{THREADS // 32}];\n"
    + "  float sum = x[i];\n"
    + "  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);\n"
    + "  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;\n"
    + "  __syncthreads();\n"
    + "  if (threadIdx.x == 0) {\n"
    + f"    for (int w = 1; w < {THREADS // 32}; ++w) sum += parts[w];\n"
    + "    out[blockIdx.x] = sum;\n  }\n",
)
SHARED = HandwrittenKernel(
    "shared_memory_96k",
    (_floats("x", SHARED_BLOCKS, SHARED_FLOATS),),
    _floats("out", SHARED_BLOCKS, SHARED_FLOATS),
    "  extern __shared__ __align__(16) unsigned char shared_memory[];\n"
    "  float* memory = (float*)shared_memory;\n"
    f"  const float* from = x + blockIdx.x * {SHARED_FLOATS};\n"
    f"  for (int i = threadIdx.x; i < {SHARED_FLOATS}; i += {THREADS}) memory[i] = from[i];\n"
    "  __syncthreads();\n"
    f"  for (int i = threadIdx.x; i < {SHARED_FLOATS}; i += {THREADS})\n"
    f"    out[blockIdx.x * {SHARED_FLOATS} + i] = memory[{SHARED_FLOATS - 1} - i];\n",
    blocks=SHARED_BLOCKS,
    shared=4 * SHARED_FLOATS,
)
COPY_ASYNC = tuple(make_copy_kernel(nbytes) for nbytes in (4, 8, 16))
_BOXES = (-(-ROWS // TILE), -(-COLUMNS // TILE))
MAP: Mapping[str, Any] = {
    "name": "boxes",
    "argument": 0,
    "dtype": "float16",
    "shape": (ROWS, COLUMNS),
    "strides": (2 * COLUMNS,),
    "box": (TILE, TILE),
    "swizzle": 128,
}
BULK_COPY = HandwrittenKernel(
    "bulk_copy",
    (Parameter("x", (ROWS, COLUMNS), "float16"),),
    Parameter("out", (*_BOXES, TILE * TILE), "float16"),
    "  extern __shared__ __align__(1024) unsigned char tile_memory[];\n"
    "  half_t* tile = (half_t*)tile_memory;\n"
    f"  long long* slot = (long long*)(tile_memory + {2 * TILE * TILE});\n"
    "  if (one_thread()) begin_arrivals(slot, 1);\n"
    "  __syncthreads();\n"
    f"  const int row = blockIdx.x / {_BOXES[1]} * {TILE}, column = blockIdx.x % {_BOXES[1]} * {TILE};\n"
    "  if (one_thread()) {\n"
    f"    expect_bytes(slot, {2 * TILE * TILE});\n"
    "    copy_box2(tile, boxes, slot, column, row);\n"
    "  }\n"
    "  __syncthreads();\n"
    "  await_bytes(slot, 0);\n"
    f"  for (int i = threadIdx.x; i < {TILE * TILE}; i += {THREADS}) out[blockIdx.x * {TILE * TILE} + i] = tile[i];\n",
    blocks=_BOXES[0] * _BOXES[1],
    shared=2 * TILE * TILE + 16,
    maps=(MAP,),
)


def swizzled_boxes(array: Any) -> Any:
    """Computes the output of `bulk_copy`: (boxes down, boxes across, elements) in swizzled rows of 128 bytes."""
    import numpy as np

    padded = np.zeros((_BOXES[0] * TILE, _BOXES[1] * TILE), array.dtype)
    padded[:ROWS, :COLUMNS] = array
    out = np.empty((*_BOXES, TILE, TILE), array.dtype)
    for row in range(TILE):
        for part in range(8):  # of 16 bytes, whose place is its number and the row's, bit by bit unequal
            place = (part ^ row % 8) * 8
            found = padded[row::TILE, part * 8 :].reshape(_BOXES[0], -1)
            for across in range(_BOXES[1]):
                out[:, across, row, place : place + 8] = found[:, across * TILE : across * TILE + 8]
    return out.reshape(*_BOXES, TILE * TILE)
