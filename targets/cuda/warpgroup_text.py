"""CUDA text of warpgroups: `wgmma.mma_async`, its fences and waits."""

from __future__ import annotations

from functools import partial

from search_space.ir.stmt import Intrinsic, Operand
from search_space.warpgroup_intrinsics import DEPTH, ROWS, THREADS, WGMMAS, Wgmma
from targets.cuda.emit import INTRINSIC_EMITTERS, KernelText
from targets.cuda.prelude import PARTS
from targets.cuda.warpgroups import COMMIT, FENCE, WAIT, descriptor

_PTX = {"float16": "f16", "bfloat16": "bf16"}
_FUNCTIONS = """__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N> __device__ __forceinline__ void hold(float (&sums)[N]) {
  #pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
"""
DESCRIPTOR = """typedef unsigned long long Tile;
__device__ __forceinline__ Tile matrix_descriptor(const void* tile, unsigned leading, unsigned stride) {
  Tile place = __cvta_generic_to_shared(tile);
  return (place & 0x3ffff) >> 4 | leading >> 4 << 16 | (Tile)(stride >> 4) << 32 | 1ull << 62;
}
"""


def _function(wgmma: Wgmma) -> str:
    """Writes the instruction as a function of its sums and two descriptors; the right factor is MN-major."""
    count, kind = ROWS * wgmma.columns // THREADS, _PTX[wgmma.dtype]
    sums = ", ".join(f"%{i}" for i in range(count))
    operands = ", ".join(f'"+f"(sums[{i}])' for i in range(count))
    return (
        f"__device__ __forceinline__ void {function_name(wgmma)}(float* sums, Tile a, Tile b) {{\n"
        f'  asm volatile("{{.reg .pred add; setp.ne.b32 add, %{count + 2}, 0; "\n'
        f'               "wgmma.mma_async.sync.aligned.m{ROWS}n{wgmma.columns}k{DEPTH}.f32.{kind}.{kind} '
        f'{{{sums}}}, %{count}, %{count + 1}, add, 1, 1, 0, 1;}}"\n'
        f'               : {operands} : "l"(a), "l"(b), "r"(1));\n}}\n'
    )


def function_name(wgmma: Wgmma) -> str:
    return f"wgmma_n{wgmma.columns}_{_PTX[wgmma.dtype]}"


def _tile(text: KernelText, operand: Operand, across: bool) -> str:
    """Writes the descriptor of a factor's tile."""
    buffer = text.buffers[operand.buffer]
    start = text.values.offset(buffer, operand.indices)
    found = descriptor(buffer, operand, across, start, text.simplify)
    place = f"{text.names(buffer.name)} + {text.values.index(found.start)}"
    return f"matrix_descriptor({place}, {found.leading}, {found.stride})"


def _multiply(wgmma: Wgmma, text: KernelText, call: Intrinsic) -> None:
    left, right = (_tile(text, o, across) for o, across in zip(call.inputs, (False, True), strict=True))
    sums = text.buffers[call.output.buffer]
    first = text.values.offset(sums, call.output.indices)
    text.line(f"{function_name(wgmma)}({text.names(sums.name)} + {text.values.index(first)}, {left}, {right});")


def _fence(text: KernelText, call: Intrinsic) -> None:
    """Writes a fence in front of products; it makes the compiler keep the sums in the instructions' registers."""
    text.line(f"hold({text.names(call.output.buffer)});")
    text.line("wgmma_fence();")


def _commit(text: KernelText, call: Intrinsic) -> None:
    text.line("wgmma_commit();")


def _wait(text: KernelText, call: Intrinsic) -> None:
    """Writes a wait for products; it keeps the compiler from using the sums before."""
    left = int(call.name.partition(":")[2])
    text.line(f"wgmma_wait<{left}>();")
    if not left:
        text.line(f"hold({text.names(call.output.buffer)});")


def register() -> None:
    """Makes the instructions known to the emitter, and their functions to the prelude."""
    PARTS["wgmma_"] = _FUNCTIONS + DESCRIPTOR
    for wgmma in WGMMAS:
        PARTS[f"{function_name(wgmma)}("] = _function(wgmma)
        INTRINSIC_EMITTERS[wgmma.product.name] = partial(_multiply, wgmma)
    for name, emitter in ((FENCE, _fence), (COMMIT, _commit), (WAIT, _wait)):
        INTRINSIC_EMITTERS[name] = emitter


register()
