"""CUDA text of copies by the TMA unit: `cp.async.bulk.tensor` and the mbarriers that await them."""

from __future__ import annotations

from functools import partial

from search_space.ir.expr import const
from search_space.ir.stmt import Intrinsic, Operand
from targets.cuda.bulk import ARRIVE, BEGIN, CONVERGE, COPY, EXPECT, FENCES, MOST_DIMENSIONS, make_tensor_map
from targets.cuda.emit import INTRINSIC_EMITTERS, KernelText
from targets.cuda.prelude import PARTS

_MAP = """struct alignas(64) TensorMap { unsigned char bytes[128]; };
"""
_MBARRIERS = """__device__ __forceinline__ bool one_thread() { return threadIdx.x + threadIdx.y + threadIdx.z == 0; }
__device__ __forceinline__ void begin_arrivals(long long* slots, int count) {
  for (int i = 0; i < count; ++i)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(slots + i))
                 : "memory");
}
__device__ __forceinline__ void fence_begin() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void expect_bytes(long long* slot, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(slot)),
               "r"(bytes) : "memory");
}
__device__ __forceinline__ void await_bytes(long long* slot, unsigned parity) {
  unsigned place = (unsigned)__cvta_generic_to_shared(slot), done;
  do
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(place), "r"(parity) : "memory");
  while (!done);
}
"""
_FENCE_FUNCTIONS = ("fence_begin", "fence_proxy")


def _function(dimensions: int) -> str:
    """Writes the function that copies a box; it takes so many coordinates, the last dimension first."""
    names = [f"c{i}" for i in range(dimensions)]
    given = ", ".join(f"int {n}" for n in names)
    coordinates = ", ".join(f"%{i + 3}" for i in range(dimensions))
    operands = ", ".join(f'"r"({n})' for n in names)
    parameters = f"void* to, const TensorMap& map, long long* slot, {given}"
    instruction = f"cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    return (
        f"__device__ __forceinline__ void copy_box{dimensions}({parameters}) {{\n"
        f'  asm volatile("{instruction} [%0], [%1, {{{coordinates}}}], [%2];"\n'
        f'               ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(&map),\n'
        f'               "r"((unsigned)__cvta_generic_to_shared(slot)), {operands} : "memory");\n}}\n'
    )


def _slot(text: KernelText, operand: Operand) -> str:
    return text.values.pointer(text.buffers[operand.buffer], operand.indices)


def _by_one(text: KernelText, call: Intrinsic, lines: list[str]) -> None:
    """Writes lines that one thread of the block runs."""
    tests = ["one_thread()"]
    if call.predicate is not None:
        tests.append(text.values.condition(text.simplify_condition(call.predicate)))
    text.open(f"if ({' && '.join(tests)}) {{")
    for line in lines:
        text.line(line)
    text.close()


def _begin(text: KernelText, call: Intrinsic) -> None:
    count = int(text.buffers[call.output.buffer].shape[0].value)
    _by_one(text, call, [f"begin_arrivals({_slot(text, call.output)}, {count});"])


def _fence(function: str, text: KernelText, call: Intrinsic) -> None:
    _by_one(text, call, [f"{function}();"])


def _converge(text: KernelText, call: Intrinsic) -> None:
    text.line("__syncwarp();")


def _expect(text: KernelText, call: Intrinsic) -> None:
    _by_one(text, call, [f"expect_bytes({_slot(text, call.output)}, {call.name.partition(':')[2]});"])


def _copy(text: KernelText, call: Intrinsic) -> None:
    """Writes one copy for each block of 64 columns of the tile."""
    tile, (origin, slot) = text.buffers[call.output.buffer], call.inputs
    source = text.buffers[origin.buffer]
    described = make_tensor_map(call, tile, source)
    line = int(tile.shape[-1].value)
    lines = []
    for block in range(int(tile.shape[-3].value)):
        *lead, _, row, column = call.output.indices
        start = text.values.index(text.values.offset(tile, (*lead, const(block), row, column)))
        *outer, last = origin.indices
        at = [text.values.index(text.simplify(e)) for e in (last + block * line, *reversed(outer))]
        places = ", ".join([f"{text.names(tile.name)} + {start}", text.names(described.name), _slot(text, slot), *at])
        lines.append(f"copy_box{len(described.shape)}({places});")
    _by_one(text, call, lines)


def _arrive(text: KernelText, call: Intrinsic) -> None:
    parity = text.values.index(text.simplify(call.output.indices[1]))
    text.line(f"await_bytes({_slot(text, call.output)}, {parity});")


def register() -> None:
    """Makes the instructions known to the emitter, and their functions to the prelude."""
    PARTS["TensorMap"] = _MAP
    PARTS["one_thread("] = _MBARRIERS
    for dimensions in range(2, MOST_DIMENSIONS + 1):
        PARTS[f"copy_box{dimensions}("] = _function(dimensions)
    for name, function in zip(FENCES, _FENCE_FUNCTIONS, strict=True):
        INTRINSIC_EMITTERS[name] = partial(_fence, function)
    emitters = ((BEGIN, _begin), (EXPECT, _expect), (COPY, _copy), (ARRIVE, _arrive), (CONVERGE, _converge))
    INTRINSIC_EMITTERS.update(emitters)


register()
