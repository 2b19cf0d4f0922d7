"""Rungs of the ladder, lowest first: the module that each needs, and its trial on the device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.ladder import kernels
from benchmarks.gpu.ladder.kernels import HandwrittenKernel, make_stream_kernel
from search_space import workloads
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets.base import BuildError, Module
from targets.cuda.hardware import GPUS, own_arch

if TYPE_CHECKING:
    from targets.cuda.device import CudaDevice
    from targets.cuda.kernel import CudaBound

Facts = dict[str, Any]
TENSOR_MAPS, REPLAYS = 50, 10
"""Arrays that tensor maps are made of, and sets of inputs of a replayed rung."""
STREAM_BYTES = 256 << 20
"""Bytes of the largest array that is timed: more than caches hold."""
LARGER = 64
"""Times as much as one kernel does another does, and takes longer; of the arrays that are timed."""
ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("benchmarks/gpu/ladder", "search_space", "targets/cuda")


class WrongResult(Exception):
    """A kernel ran to its end, and computed something else."""


class NotHere(Exception):
    """A device of this architecture lacks the feature of a rung."""


@dataclass(frozen=True)
class Rung:
    """One trial on the device.

    Attributes:
        name: name of the rung, and of its module.
        make: compiles its module for an architecture; None: it needs none.
        climb: runs it with the module, and returns facts. Raises WrongResult, NotHere, or an error of the driver.
    """

    name: str
    make: Callable[[str], Module] | None
    climb: Callable[[CudaDevice, Module | None], Facts]


def _bound(device: CudaDevice, module: Module | None, inputs: Sequence[NDArray[Any]]) -> CudaBound:
    from targets.cuda.kernel import CudaKernel

    assert module is not None
    return CudaKernel(module, device).bind(inputs)


def _require_close(ours: NDArray[Any], expected: NDArray[Any], tolerance: tuple[float, float] = (0.0, 0.0)) -> Facts:
    """Raises WrongResult if elements are wrong, with the first of them: it tells layouts from rounding."""
    ours, expected = ours.astype(np.float64), np.asarray(expected, np.float64).reshape(ours.shape)
    apart = np.abs(ours - expected)
    wrong = ~(apart <= tolerance[1] + tolerance[0] * np.abs(expected))
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise WrongResult(
            f"{int(wrong.sum())} of {wrong.size} elements are wrong, the first at {first}: {ours[first]:g} instead of "
            f"{expected[first]:g}"
        )
    return {"error": float(apart.max(initial=0.0))}


# ---------------------------------------------------------------------- by hand
def _by_hand(kernel: HandwrittenKernel, reference: Callable[..., NDArray[Any]]) -> Rung:
    def climb(device: CudaDevice, module: Module | None) -> Facts:
        rng = np.random.default_rng(0)
        inputs = [rng.integers(-64, 64, p.shape).astype(p.dtype) for p in kernel.inputs]
        return _require_close(_bound(device, module, inputs).run(), reference(*inputs))

    return Rung(kernel.name, kernel.module, climb)


def _make_copy_reference(nbytes: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def reference(x: NDArray[Any]) -> NDArray[Any]:
        parts = x.reshape(len(x), -1, nbytes // 4).copy()
        parts[:, ::3] = 0
        return parts.reshape(len(x), -1)[:, ::-1]

    return reference


def _tensor_maps(device: CudaDevice, module: Module | None) -> Facts:
    """Checks tensor maps of many arrays, by the driver's rules for the TMA unit; nothing is launched."""
    from targets.cuda.packed import MAP_ALIGNMENT

    _hopper(device)
    memory, different = device.allocate(1 << 20), set()
    for i in range(TENSOR_MAPS):
        facts = {**kernels.MAP, "shape": (8 + i, 64 + 8 * i), "strides": (2 * (64 + 8 * i),)}
        found = device.tensor_map(device.part(memory, 16 * i), facts)
        if found.address % MAP_ALIGNMENT:
            raise WrongResult(f"a map must lie at a multiple of {MAP_ALIGNMENT} bytes, but lies at {found.address:#x}")
        different.add(found.bytes)
    if len(different) != TENSOR_MAPS:
        raise WrongResult(f"{TENSOR_MAPS} arrays must have different maps, but have {len(different)}")
    return {"maps": TENSOR_MAPS}


def _hopper(device: CudaDevice) -> None:
    if not device.arch.startswith("sm_9"):
        raise NotHere(f"there is no TMA unit in {device.arch}")


# ---------------------------------------------------------------------- by schedules
def _first_legal(sketch: Sketch, rng: np.random.Generator) -> NDArray[np.int32]:
    rows = np.stack([rng.integers(len(group.table), size=4096) for group in sketch.groups], 1).astype(np.int32)
    return np.asarray(rows[sketch.legal(rows)][0])


def build_module(workload: Workload, sketch_name: str, arch: str) -> Module:
    """Builds a candidate of a sketch, the same on every machine.

    Raises:
        NotHere: the architecture has no such sketch.
    """
    from targets.cuda.target import CudaTarget

    found = [s for s in generate(workload, GPUS[arch], ["direct"]).sketches if s.name == sketch_name]
    if not found:
        raise NotHere(f"{arch} has no sketch {sketch_name}")
    (sketch,) = found
    trace = sketch.trace(_first_legal(sketch, np.random.default_rng(0)))
    return CudaTarget(arch, f"cuda:{arch}").build(make_program(workload, "direct", trace))


def _make_scheduled_rung(name: str, workload: Workload, sketch: str, again: bool = False) -> Rung:
    """Makes a rung of a candidate's kernels.

    Args:
        again: whether its launches are recorded, and replayed on other numbers.
    """

    def climb(device: CudaDevice, module: Module | None) -> Facts:
        inputs = workload.make_inputs(0)
        bound = _bound(device, module, inputs)
        facts = _require_close(bound.run(), workload.reference(*inputs), workload.tolerance)
        if again:
            replay = device.capture(bound.start)
            for seed in range(1, REPLAYS):
                inputs = workload.make_inputs(seed)
                bound.feed(inputs, 0)
                replay()
                facts = _require_close(bound.fetch(), workload.reference(*inputs), workload.tolerance)
        return {**facts, **bound.metrics()}

    return Rung(name, lambda arch: build_module(workload, sketch, arch), climb)


def _timing(device: CudaDevice, module: Module | None) -> Facts:
    """Checks that memory is neither slower nor faster than it can be, and that more work takes longer."""
    from targets.cuda.stopwatch import Stopwatch

    del module
    memory, less = device.allocate(STREAM_BYTES), device.allocate(STREAM_BYTES // LARGER)
    whole = Stopwatch(device, lambda: device.fill(memory, 1), 1, cold=False)
    part = Stopwatch(device, lambda: device.fill(less, 1), 1, cold=False)
    seconds = {name: np.sort(watch.time(32)) for name, watch in (("whole", whole), ("part", part))}
    median = {name: float(np.median(s)) for name, s in seconds.items()}
    rate = STREAM_BYTES / median["whole"]
    facts = {
        "write_gb_per_second": rate / 1e9,
        "seconds": median,
        "spread": {name: float((s[-4] - s[3]) / s[16]) for name, s in seconds.items()},
        **device.telemetry(),
    }
    peak = GPUS[own_arch(device.arch)].bandwidth if own_arch(device.arch) in GPUS else np.inf
    if not 1e10 < rate < 1.2 * peak or not median["part"] < median["whole"]:
        raise WrongResult(
            f"memory must be written at 10 to {1.2e-9 * peak:g} GB/s, the more the longer, but got {facts}"
        )
    return facts


_DIVISIBLE = workloads.matmul(128, 256, 640, dtype="float16", constant_b=False)
_TENSOR = {
    "float16": workloads.matmul(192, 160, 256, dtype="float16", constant_b=False),
    "bfloat16": workloads.matmul(192, 160, 256, dtype="bfloat16", constant_b=False),
    "tfloat32": workloads.matmul(192, 160, 256, dtype="tfloat32", constant_b=False),
    "int8": workloads.matmul(192, 160, 256, dtype="int8"),
}
_STREAM = make_stream_kernel(STREAM_BYTES // 8)
RUNGS: tuple[Rung, ...] = (
    _by_hand(kernels.AXPY, lambda x, y: 3 * x + y),
    _by_hand(kernels.SUMS, lambda x: x.sum(1)),
    _by_hand(kernels.SHARED, lambda x: x[:, ::-1]),
    *(_by_hand(each, _make_copy_reference(n)) for each, n in zip(kernels.COPY_ASYNC, (4, 8, 16), strict=True)),
    _make_scheduled_rung("product_float32", workloads.matmul(130, 96, 77, constant_b=False), "direct:columns/double"),
    *(_make_scheduled_rung(f"mma_{dtype}", workload, "direct:tensor/2") for dtype, workload in _TENSOR.items()),
    Rung("tensor_maps", None, _tensor_maps),
    _by_hand(kernels.BULK_COPY, kernels.swizzled_boxes),
    *(_make_scheduled_rung(f"wgmma_n{n}", _DIVISIBLE, f"direct:wgmma{n}/2") for n in (64, 128, 256)),
    *(
        _make_scheduled_rung(f"bulk_wgmma_{stages}_stages", _DIVISIBLE, f"direct:wgmma128/bulk{stages}")
        for stages in (2, 3, 4)
    ),
    _make_scheduled_rung("replayed_maps", _DIVISIBLE, "direct:wgmma64/bulk3", again=True),
    _by_hand(_STREAM, lambda x: x),
    Rung("timing", None, _timing),
)
"""Rungs in order: each depends on the ones before it, so rungs above a broken one need no attention."""


def sources_digest() -> str:
    """Computes the digest of the sources that modules are made from."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def pack(folder: Path, arch: str, rungs: Sequence[Rung] = RUNGS) -> Mapping[str, int]:
    """Writes the modules of rungs, so that a device compiles nothing for them; bytes of each.

    Raises:
        BuildError: NVRTC is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {}
    for rung in rungs:
        if rung.make is not None:
            data = rung.make(arch).to_bytes()
            (folder / f"{rung.name}.module").write_bytes(data)
            sizes[rung.name] = len(data)
    (folder / "sources").write_text(sources_digest())
    return sizes


def module_for(rung: Rung, folder: Path, device: CudaDevice) -> Module | None:
    """Reads the packed module of a rung, or compiles one for this device and these sources.

    Raises:
        BuildError: it cannot be compiled.
    """
    if rung.make is None:
        return None
    path, sources, arch = folder / f"{rung.name}.module", folder / "sources", own_arch(device.arch)
    if path.exists() and sources.exists() and sources.read_text() == sources_digest():
        found = Module.from_bytes(path.read_bytes())
        if found.metadata["arch"] == arch:
            return found
    if arch not in GPUS:
        raise BuildError(f"`arch` must be one of {', '.join(GPUS)}, but this machine's GPU is {arch}")
    return rung.make(arch)
