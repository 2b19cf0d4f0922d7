"""Machine code of GPU kernels read as text: how often instructions run, and the bound of the time by that.

A model, not a measurement: the greatest of the times for issuing instructions, reading shared memory, multiplying in
tensor cores, and loading memory once. Latencies, bank conflicts and the start of a kernel are not in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path

from costmodel.features.estimators.gpu import MMA_SHARE
from search_space.hardware import GpuLimits, Hardware
from search_space.ir.expr import dtype_bytes, walk
from search_space.ir.stmt import THREAD_TAGS, Allocate, Barrier, For, Intrinsic, Seq, Stmt, Store, walk_stmt
from search_space.warp_intrinsics import MMAS
from targets.buffers import buffer_bytes
from targets.cuda.program import DeviceKernel

_FUNCTION = re.compile(r"^\.text\.(\S+):")
_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_GUARD = re.compile(r"^@!?U?P\w+\s+")
_TARGET = re.compile(r"(\.L_\w+)")
_WARPGROUP = re.compile(r"[HQI]GMMA\.(\d+)x(\d+)x(\d+)")
TENSOR = ("HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA")
MATH = ("FFMA", "HFMA2", "IDP", *TENSOR)
ISSUE_SLOTS = 4
"""Instructions of warps that a multiprocessor starts in a cycle."""
_PRODUCTS = {mma.product.name: mma for mma in MMAS}


class MissingDisassembler(Exception):
    """Absence of `nvdisasm`."""


@dataclass(frozen=True)
class Loop:
    """Instructions `first` to `last` of a function, the last one a branch back."""

    first: int
    last: int

    def holds(self, other: Loop) -> bool:
        return other is not self and self.first <= other.first and other.last <= self.last


@dataclass(frozen=True)
class Function:
    """One kernel's instructions, operation first, without predicates; and its loops, outermost first."""

    instructions: tuple[str, ...]
    loops: tuple[Loop, ...]

    def count(self, loop: Loop | None = None) -> Counter[str]:
        """Counts instructions by operation, of a loop or of all, without the loops inside."""
        places = range(len(self.instructions)) if loop is None else range(loop.first, loop.last + 1)
        inner = [each for each in self.loops if loop is None or loop.holds(each)]
        kept = (i for i in places if not any(each.first <= i <= each.last for each in inner))
        return Counter(self.instructions[i].split()[0] for i in kept)


def disassembler() -> str:
    """Finds `nvdisasm` in the wheel nvidia-cuda-nvdisasm, or on the search path.

    Raises:
        MissingDisassembler: it is in neither.
    """
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob("*/bin/nvdisasm"):
            return str(path)
    found = shutil.which("nvdisasm")
    if found is None:
        raise MissingDisassembler("`nvdisasm` must be installed: pip install nvidia-cuda-nvdisasm")
    return found


def disassemble(cubin: bytes, program: str) -> dict[str, Function]:
    """Reads the machine code of a cubin's functions, by name."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([program, "-c", file.name], check=True, capture_output=True, text=True).stdout
    return read(text)


def read(text: str) -> dict[str, Function]:
    """Parses the functions of `nvdisasm -c`."""
    functions: dict[str, Function] = {}
    name, instructions, labels = "", list[str](), dict[str, int]()
    for line in [*text.splitlines(), ".text.end:"]:
        if match := _FUNCTION.match(line):
            if name:
                functions[name] = Function(tuple(instructions), _loops(instructions, labels))
            name, instructions, labels = match[1], [], {}
        elif match := _LABEL.match(line):
            labels[match[1]] = len(instructions)
        elif match := _INSTRUCTION.match(line):
            instructions.append(_GUARD.sub("", match[1]))
    return functions


def _loops(instructions: list[str], labels: dict[str, int]) -> tuple[Loop, ...]:
    loops = []
    for last, text in enumerate(instructions):
        target = _TARGET.search(text) if text.startswith("BRA") else None
        if target and labels.get(target[1], last) < last:
            loops.append(Loop(labels[target[1]], last))
    return tuple(sorted(loops, key=lambda loop: (loop.first, -loop.last)))


@dataclass(frozen=True)
class Work:
    """Work of one thread of a kernel, by its loops.

    Attributes:
        products: multiply-adds of a thread, or instructions of the tensor cores of its warp; operations of each.
        steps: times it passes the loops around barriers.
        read: bytes that it reads of device memory.
    """

    products: int
    operations: int
    steps: int
    read: int


def count_work(kernel: DeviceKernel) -> Work:
    """Counts a kernel's loops."""
    products, operations, steps, read = 0, 2, 1, 0
    names = {b.name for b in kernel.params}
    for stmt, loops in _under(kernel.body, ()):
        times = prod(int(loop.extent.value) for loop in loops if loop.kind not in THREAD_TAGS)
        if isinstance(stmt, Intrinsic) and stmt.name in _PRODUCTS:
            products, operations = products + times, 2 * prod(_PRODUCTS[stmt.name].product.extents)
        elif isinstance(stmt, Store) and stmt.reducer == "sum" and any(n.op == "mul" for n in walk(stmt.value)):
            products += times
        elif isinstance(stmt, Barrier):
            steps = max(steps, times)
        if isinstance(stmt, Store):
            loads = [n for n in walk(stmt.value) if n.op == "load" and n.args[0] in names]
            read += times * sum(dtype_bytes(n.dtype) for n in loads)
    return Work(products, operations, steps, read)


def _under(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[Stmt, tuple[For, ...]]]:
    if isinstance(stmt, Seq):
        for each in stmt.body:
            yield from _under(each, loops)
    elif isinstance(stmt, For):
        yield from _under(stmt.body, (*loops, stmt))
    elif isinstance(stmt, Allocate):
        yield from _under(stmt.body, loops)
    else:
        yield stmt, loops


@dataclass(frozen=True)
class Bound:
    """Lower bound of a kernel's time by its code.

    Attributes:
        seconds: least seconds, the greatest of `parts`, which are seconds by resource.
        loop: instructions of the innermost main loop, by operation; passes: how often a warp runs it.
        instruction_count: instructions that a warp runs, all loops together.
    """

    parts: dict[str, float]
    loop: Counter[str]
    passes: float
    instruction_count: float

    @property
    def seconds(self) -> float:
        return max(self.parts.values())

    @property
    def by(self) -> str:
        return max(self.parts, key=lambda name: self.parts[name])

    def share(self, *operations: str) -> float:
        """Computes the share of the main loop's instructions that begin with one of these names."""
        return sum(n for name, n in self.loop.items() if name.startswith(operations)) / max(1, self.loop.total())


def bound(function: Function, kernel: DeviceKernel, hardware: Hardware) -> Bound:
    """Computes the bound of one kernel.

    The trip count of a loop follows from its contents: barriers, multiply-adds, or loads of the kernel's inputs.
    """
    assert hardware.gpu is not None
    gpu, work = hardware.gpu, count_work(kernel)
    passes = {loop: _passes(function, loop, work) for loop in function.loops}
    counts = [(1.0, function.count())] + [(passes[loop], function.count(loop)) for loop in function.loops]
    total: dict[str, float] = {}
    for times, found in counts:
        for name, n in found.items():
            total[name] = total.get(name, 0.0) + times * n
    main = max(function.loops, key=lambda loop: passes[loop] * function.count(loop).total(), default=None)
    warps = -(-kernel.blocks // gpu.sms) * -(-kernel.threads // gpu.warp)  # on the multiprocessor that has the most
    pairs = _pairs(kernel)
    shared = sum(n * _values(name, pairs) for name, n in total.items())
    executed = sum(total.values())
    cycles = {"issue": executed * warps / ISSUE_SLOTS, "shared memory": shared * warps}
    tensor = sum(n * _operations(name, work.operations, gpu) for name, n in total.items())
    if tensor:
        rate = dict(gpu.tensor_flops)["float16"]
        cycles["tensor cores"] = tensor * warps / (rate / gpu.sms / hardware.clock_hz)
    parts = {name: n / hardware.clock_hz for name, n in cycles.items()}
    parts["memory"] = sum(map(buffer_bytes, kernel.params)) / hardware.bandwidth
    return Bound(parts, function.count(main), passes[main] if main else 1.0, executed)


def _passes(function: Function, loop: Loop, work: Work) -> float:
    """Computes how often a warp runs a loop."""
    inside = function.count(loop)
    for each in function.loops:
        if loop.holds(each):
            inside["inner"] += 1
    products = sum(n for name, n in inside.items() if name.startswith(MATH))
    if any(name.startswith("BAR") for name in inside):
        return work.steps
    if products and work.products and not inside["inner"]:
        return work.products / products
    loaded = sum(n * _bytes(name) for name, n in inside.items() if name.startswith(("LDG.", "LDGSTS")))
    return max(1.0, work.read / loaded) if loaded else 1.0


def _operations(name: str, operations: int, gpu: GpuLimits) -> float:
    """Counts the operations at full rate that a warp's instruction costs the tensor cores.

    Instructions of one warp have `operations`, and reach only a share of the rate. Instructions of four warps have
    their shape in the name, and each of the warps is counted a quarter.
    """
    if shape := _WARPGROUP.match(name):
        return 2.0 * prod(map(int, shape.groups())) / 4
    if name.startswith(("HMMA", "IMMA")):
        return operations / (MMA_SHARE if gpu.arch.startswith("sm_90") else 1.0)
    return 0.0


def _pairs(kernel: DeviceKernel) -> bool:
    """Tells whether neighbouring lanes read the same elements of tiles, see `targets.cuda.lanes`."""
    x, y, z = kernel.block
    tensor = any(isinstance(n, Intrinsic) for n in walk_stmt(kernel.body))
    return z == 1 and x % 4 == 0 and y % 2 == 0 and bool(kernel.shared) and not tensor


def _bytes(name: str) -> int:
    """Returns the bytes that one lane moves by an instruction."""
    for width in (128, 64, 16, 8):
        if re.search(rf"\.[US]?{width}\b", name):
            return width // 8
    return 4


def _values(name: str, pairs: bool) -> float:
    """Computes cycles of shared memory for a warp's instruction: 4-byte values for all lanes."""
    if name.startswith("LDSM"):
        return float(name.rsplit(".", 1)[-1]) if name[-1] in "24" else 1.0
    if name.startswith(("LDS", "STS", "LDGSTS")):
        values = max(1.0, _bytes(name) / 4)
        return values / 2 if pairs and name.startswith("LDS") and values > 1 else values
    return 0.0
