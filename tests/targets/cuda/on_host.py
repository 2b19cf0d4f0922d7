"""CUDA text on the host: the same C++ with a prelude of its own, threads as coroutines that switch at barriers.

The emulator runs what the text is written from; this runs the text, so that a wrong index, type or cast in it shows.
Threads of a block run one after another from barrier to barrier, the last one first; blocks run in turn.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from search_space.warpgroup_intrinsics import WGMMAS
from targets.buffers import buffer_bytes
from targets.cuda import bulk_text, warp_text, warpgroup_text  # noqa: F401  (makes the instructions known)
from targets.cuda.emit import KernelText
from targets.cuda.prelude import PARTS
from targets.cuda.program import DeviceProgram, TensorMap
from targets.cuda.values import CALLS

PRELUDE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <ucontext.h>
#include <vector>
#define __global__
#define __launch_bounds__(n)
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx;
static unsigned char shared_memory[1 << 18] __attribute__((aligned(16)));
static unsigned char tile_memory[1 << 18] __attribute__((aligned(1024)));
#define __device__
#define __forceinline__ static inline
static unsigned long long __cvta_generic_to_shared(const void* p) { return (const unsigned char*)p - tile_memory; }
// addresses that a device would fault on; the compiler is kept from concluding that there are none
static bool misaligned;
static void aligned(const void* p, unsigned bytes) {
  uintptr_t place = (uintptr_t)p;
  asm volatile("" : "+r"(place));
  misaligned |= place % bytes != 0;
}
template <class T, int N> struct alignas(sizeof(T) * N) Vec {
  T x[N];
  Vec() : x{} {}
  Vec(const Vec& from) { *this = from; }
  Vec& operator=(const Vec& from) {
    aligned(this, sizeof(T) * N), aligned(&from, sizeof(T) * N);
    memcpy(x, from.x, sizeof x);
    return *this;
  }
};
template <class T> static T floor_div(T a, T b) {
  T q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}
template <class T> static T floor_mod(T a, T b) { return a - floor_div(a, b) * b; }
template <class T> static T min(T a, T b) { return b < a ? b : a; }
template <class T> static T max(T a, T b) { return a < b ? b : a; }
static float min_nan(float a, float b) { return a < b || a != a ? a : b; }
static float max_nan(float a, float b) { return a > b || a != a ? a : b; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
struct half_t { _Float16 value; };
static float from_half(half_t h) { return (float)h.value; }
static half_t to_half(float f) { return {(_Float16)f}; }
struct bfloat_t { uint16_t bits; };
static float from_bfloat(bfloat_t b) { return __int_as_float((int)((uint32_t)b.bits << 16)); }
static bfloat_t to_bfloat(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  if (f != f) return {0x7fff};
  return {(uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}

static ucontext_t scheduler;
static std::vector<ucontext_t> threads;
static std::vector<bool> done;
static int current;
static Dim block;
static float lanes[1024];
static void here(int t) {
  current = t;
  threadIdx = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
}
static void __syncthreads() { swapcontext(&threads[current], &scheduler); }
template <class T> static T __shfl_xor_sync(unsigned, T value, int other) {
  int me = current;
  memcpy(&lanes[me], &value, 4);
  __syncthreads();
  memcpy(&value, &lanes[me ^ other], 4);
  __syncthreads();
  return value;
}
template <int N> static void copy_async(void* to, const void* from, bool inside) {
  aligned(to, N);
  if (inside) aligned(from, N);
  if (inside) memcpy(to, from, N); else memset(to, 0, N);
}
static void end_of_copies() {}
template <int N> static void copies_but() {}
// ldmatrix and mma.sync of the PTX ISA: what each lane of a warp gives and gets
static const void* rows[1024];
template <int N, bool turned> static void load_matrices(int* out, const void* from) {
  int me = current, first = me & ~31, lane = me & 31;
  if (lane < 8 * N) aligned(from, 16);
  rows[me] = from;
  __syncthreads();
  for (int m = 0; m < N; ++m) for (int half = 0; half < 2; ++half) {
    int row = turned ? lane % 4 * 2 + half : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + half;
    const uint16_t* at = (const uint16_t*)rows[first + m * 8 + row] + column;
    memcpy((char*)&out[m] + 2 * half, at, 2);
  }
  __syncthreads();
}
static void load_matrices4(int& a, int& b, int& c, int& d, const void* from) {
  int out[4];
  load_matrices<4, false>(out, from);
  a = out[0], b = out[1], c = out[2], d = out[3];
}
static void load_matrices4(float& a, float& b, float& c, float& d, const void* from) {
  float out[4];
  load_matrices<4, false>((int*)out, from);  // which fills it by memcpy
  a = out[0], b = out[1], c = out[2], d = out[3];
}
static void load_matrices2(int& a, int& b, const void* from) {
  int out[2];
  load_matrices<2, false>(out, from);
  a = out[0], b = out[1];
}
static void load_transposed2(int& a, int& b, const void* from) {
  int out[2];
  load_matrices<2, true>(out, from);
  a = out[0], b = out[1];
}
static void load_transposed4(int& a, int& b, int& c, int& d, const void* from) {
  int out[4];
  load_matrices<4, true>(out, from);
  a = out[0], b = out[1], c = out[2], d = out[3];
}
static float number(half_t x) { return from_half(x); }
static float number(bfloat_t x) { return from_bfloat(x); }
static int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
static float tfloat32(float x) { return x != x ? x : __int_as_float((__float_as_int(x) + 0x1000) & ~0x1fff); }
static float number(float x) { return __int_as_float(__float_as_int(x) & ~0x1fff); }  // of tfloat32
static int number(signed char x) { return x; }
static int number(unsigned char x) { return x; }
static int words[1024][6];
// A lane g * 4 + t holds, in a register, the elements at column t * E of row g (E to a word); the second register is 8
// rows further, the third and fourth half the depth further. Of B it holds column g; of C columns 2 t and 2 t + 1.
template <class L, class R, class T>
static void mma(T& c0, T& c1, T& c2, T& c3, int a0, int a1, int a2, int a3, int b0, int b1) {
  const int E = 4 / sizeof(L), me = current, first = me & ~31, lane = me & 31;
  int own[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(words[me], own, sizeof own);
  __syncthreads();
  T* sums[4] = {&c0, &c1, &c2, &c3};
  for (int c = 0; c < 4; ++c) for (int k = 0; k < 8 * E; ++k) {
    int row = lane / 4 + (c > 1) * 8, column = lane % 4 * 2 + c % 2, half = k / (4 * E), t = k / E % 4;
    L left;
    R right;
    memcpy(&left, (char*)&words[first + row % 8 * 4 + t][half * 2 + row / 8] + k % E * sizeof(L), sizeof(L));
    memcpy(&right, (char*)&words[first + column * 4 + t][4 + half] + k % E * sizeof(R), sizeof(R));
    *sums[c] += (T)number(left) * (T)number(right);
  }
  __syncthreads();
}
// wgmma.mma_async of the PTX ISA: what each thread of a warpgroup adds up of tiles that two descriptors find
static unsigned tile_address(unsigned long long bits, unsigned x, unsigned k, bool across) {
  unsigned start = (bits & 0x3fff) << 4, leading = (bits >> 16 & 0x3fff) << 4, stride = (bits >> 32 & 0x3fff) << 4;
  if (bits >> 62 != 1) throw "128-byte swizzle";
  unsigned at = across ? x / 64 * leading + x % 64 * 2 + k / 8 * stride + k % 8 * 128
                       : x / 8 * stride + x % 8 * 128 + k * 2;
  return (start + at) ^ ((start + at) >> 7 & 7) << 4;
}
template <int N, class T> static void wgmma(float* sums, unsigned long long a, unsigned long long b) {
  int warp = current % 128 / 32, lane = current % 32;
  for (int i = 0; i < N / 2; ++i) for (int k = 0; k < 16; ++k) {
    int row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    T left, right;
    memcpy(&left, tile_memory + tile_address(a, row, k, false), sizeof(T));
    memcpy(&right, tile_memory + tile_address(b, column, k, true), sizeof(T));
    sums[i] += number(left) * number(right);
  }
}
// the TMA unit: boxes by a map of our own, put into the swizzled tile when the phase of their mbarrier is waited for
#define __grid_constant__
struct TensorMap { const uint16_t* first; int64_t dimensions, shape[5], strides[5], box[5]; };
struct Box { unsigned char* to; const TensorMap* map; int at[5]; };
struct Phase { unsigned number = 0; long long awaited = -1, asked = 0; std::vector<Box> boxes; };
static std::map<long long*, Phase> phases;
static bool stuck;
static bool one_thread() { return current == 0; }
static void begin_arrivals(long long* slots, int count) { for (int i = 0; i < count; ++i) phases[slots + i] = Phase(); }
static void expect_bytes(long long* slot, unsigned bytes) {
  stuck |= phases[slot].awaited >= 0;
  phases[slot].awaited = bytes;
}
static void copy_box(void* to, const TensorMap& map, long long* slot, std::vector<int> at) {
  Box box = {(unsigned char*)to, &map};
  long long bytes = 2;
  for (int d = 0; d < map.dimensions; ++d) {
    box.at[d] = at[map.dimensions - 1 - d];
    bytes *= map.box[d];
  }
  phases[slot].boxes.push_back(box);
  phases[slot].asked += bytes;
}
static void copy_box2(void* to, const TensorMap& map, long long* slot, int a, int b) {
  copy_box(to, map, slot, {a, b});
}
static void copy_box3(void* to, const TensorMap& map, long long* slot, int a, int b, int c) {
  copy_box(to, map, slot, {a, b, c});
}
static void arrive(const Box& box) {
  const TensorMap& map = *box.map;
  int64_t count = 1;
  for (int d = 0; d < map.dimensions; ++d) count *= map.box[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, place = 0;
    bool inside = true;
    for (int d = map.dimensions - 1; d >= 0; --d) {
      int64_t x = box.at[d] + rest % map.box[d];
      rest /= map.box[d];
      inside &= x >= 0 && x < map.shape[d];
      place += x * map.strides[d];
    }
    uint16_t value = inside ? map.first[place] : 0;
    int64_t byte = box.to - tile_memory + 2 * i;
    memcpy(tile_memory + (byte ^ (byte >> 7 & 7) << 4), &value, 2);
  }
}
static void await_bytes(long long* slot, unsigned parity) {
  Phase& phase = phases[slot];
  if (phase.number % 2 != parity) return;
  stuck |= phase.awaited != phase.asked;
  for (const Box& box : phase.boxes) arrive(box);
  unsigned next = phase.number + 1;
  phase = Phase();
  phase.number = next;
}
static void proxy_fence() {}
static void fence_begin() {}
static void fence_proxy() {}
static void __syncwarp() {}
static void wgmma_fence() {}
static void wgmma_commit() {}
template <int N> static void wgmma_wait() {}
template <int N> static void hold(float (&sums)[N]) {}
static void (*body)(void**);
static void** arguments;
static void enter() { body(arguments); done[current] = true; }
extern "C" int run(void (*kernel)(void**), void** args, const unsigned* g, const unsigned* b) {
  block = {b[0], b[1], b[2]};
  int count = b[0] * b[1] * b[2];
  std::vector<std::vector<char>> stacks(count, std::vector<char>(1 << 16));
  body = kernel;
  arguments = args;
  for (unsigned z = 0; z < g[2]; ++z) for (unsigned y = 0; y < g[1]; ++y) for (unsigned x = 0; x < g[0]; ++x) {
    blockIdx = {x, y, z};
    threads.assign(count, ucontext_t());
    done.assign(count, false);
    for (int t = 0; t < count; ++t) {
      getcontext(&threads[t]);
      threads[t].uc_stack.ss_sp = stacks[t].data();
      threads[t].uc_stack.ss_size = stacks[t].size();
      threads[t].uc_link = &scheduler;
      makecontext(&threads[t], enter, 0);
    }
    for (int left = count; left;) {
      int finished = 0;
      for (int t = count - 1; t >= 0; --t) {
        if (done[t]) return 1;  // one thread has ended, another waits
        here(t);
        swapcontext(&scheduler, &threads[t]);
        finished += done[t];
      }
      if (finished && finished != count) return 1;
      left -= finished;
    }
  }
  return stuck ? 2 : misaligned ? 3 : 0;
}
"""


class HostPrograms:
    """Device programs compiled together by the host's compiler.

    Args:
        programs: programs whose kernels' names all differ.
        folder: folder for the library.
    """

    def __init__(self, programs: Sequence[DeviceProgram], folder: Path) -> None:
        kernels = [k for p in programs for each in (*p.prologues, p) for k in each.kernels]
        self._library = compile_texts([(KernelText(k).function(), k.name) for k in kernels], folder)

    def run(self, program: DeviceProgram, arrays: dict[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
        """Runs a program on arrays by name, those of its outputs included, which it writes."""
        memory: dict[str, NDArray[np.generic]] = dict(arrays)
        for prologue in program.prologues:
            self._launch(prologue, memory)
        self._launch(program, memory)
        return memory

    def _launch(self, program: DeviceProgram, memory: dict[str, NDArray[np.generic]]) -> None:
        for buffer in (*program.program.params, *program.workspace):
            if buffer.name not in memory:
                memory[buffer.name] = np.full(buffer_bytes(buffer), 0xFF, np.uint8)
        for kernel in program.kernels:
            maps = [host_map(each, memory[each.buffer]) for each in kernel.maps]
            places = [*(memory[b.name].ctypes.data for b in kernel.params), *(m.ctypes.data for m in maps)]
            run(self._library, kernel.name, kernel.grid, kernel.block, places)


def compile_texts(texts: Sequence[tuple[str, str]], folder: Path) -> ctypes.CDLL:
    """Kernels, each a text and its name, compiled together in a folder."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("running cuda text on the host needs g++")
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text(PRELUDE + _tiles() + "\n".join(entry(text, name) for text, name in texts))
    command = [compiler, "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def run(library: ctypes.CDLL, name: str, grid: Sequence[int], block: Sequence[int], addresses: Sequence[int]) -> None:
    """Runs a kernel, whose arguments lie at `addresses`."""
    pointers = (ctypes.c_void_p * len(addresses))(*addresses)
    dims = [(ctypes.c_uint * 3)(*dim) for dim in (grid, block)]
    function = ctypes.cast(getattr(library, f"{name}_entry"), ctypes.c_void_p)
    status = library.run(function, pointers, *dims)
    # 1: threads diverge at a barrier; 2: bytes are awaited that nobody copies; 3: a misaligned access
    assert status == 0, f"{name}: {status}"


_MMA = re.compile(
    r'asm volatile\("mma\.sync\.aligned\.m16n8k\d+\.row\.col\.\w+\.(\w+)\.(\w+)\.\w+ [^"]*" : (.*) : (.*)\);'
)
_TYPES = {"f16": "half_t", "bf16": "bfloat_t", "s8": "signed char", "u8": "unsigned char", "tf32": "float"}


def _tiles() -> str:
    """Products of warpgroups by their names, and the device's own functions of places in shared memory."""
    own = [PARTS[f"{name}("] for name in CALLS.values() if f"{name}(" in PARTS]
    own += [PARTS["swizzle("], warpgroup_text.DESCRIPTOR]
    types = {"float16": "half_t", "bfloat16": "bfloat_t"}
    for w in WGMMAS:
        name, sums = warpgroup_text.function_name(w), "float* s, unsigned long long a, unsigned long long b"
        own.append(f"static void {name}({sums}) {{ wgmma<{w.columns}, {types[w.dtype]}>(s, a, b); }}\n")
    return "".join(own)


def host_map(tensor_map: TensorMap, array: NDArray[np.generic]) -> NDArray[np.int64]:
    """The prelude's own tensor map: address, dimensions, and of each its extent, stride and box, in elements."""
    strides = (*(s // 2 for s in tensor_map.strides), 1)
    sides = [[*side, *[0] * (5 - len(side))] for side in (tensor_map.shape, strides, tensor_map.box)]
    return np.array([array.ctypes.data, len(strides), *sides[0], *sides[1], *sides[2]], np.int64)


def _format_call(match: re.Match[str]) -> str:
    """An instruction for tensor cores as a call."""
    left, right, *operands = match.groups()
    arguments = ", ".join(re.sub(r'"\+?\w"', "", each) for each in operands)
    return f"mma<{_TYPES[left]}, {_TYPES[right]}>({arguments});"


def entry(text: str, name: str) -> str:
    """A kernel's text, and a function that calls it with pointers from a table."""
    text = re.sub(r"extern __shared__ .*;", "", _MMA.sub(_format_call, text))
    header = text[: text.index("{")]
    params = header[header.index(f"{name}(") + len(name) + 1 : header.rindex(")")].split(", ")
    casts = [
        f"({p[: p.index('*') + 1]})table[{i}]" if "*" in p else f"*(const TensorMap*)table[{i}]"
        for i, p in enumerate(params)
    ]
    return f'{text}\nextern "C" void {name}_entry(void** table) {{ {name}({", ".join(casts)}); }}\n'
