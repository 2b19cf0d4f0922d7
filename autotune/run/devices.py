"""Devices of this machine that run kernels: its processor with probed figures, C compiler, GPUs, simulators."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from measure.host import cpu_name
from measure.hostlock import alone
from search_space.hardware import Hardware
from targets import registry
from targets.c.compiler import Compiler
from targets.c.target import CTarget
from targets.cpu import figures
from targets.cpu.caches import host_caches
from targets.cpu.figures import FiguresError
from targets.cpu.host import make_limits
from targets.cuda.driver import devices as gpu_devices
from targets.cuda.driver import missing_device
from targets.threads import allowed_cores

__all__ = ["FiguresError", "as_json", "facts", "text"]

Facts = dict[str, Any]


def facts(again: bool = False, source: Path | None = None) -> Facts:
    """Collects the facts of this machine, as plain data for JSON.

    Args:
        again: whether the processor is probed anew.
        source: file of figures to take from now on: `processor.json` of a run on such a processor.

    Raises:
        FiguresError: a file that holds no figures of this processor.
    """
    missing = missing_device()
    return {
        "processor": _processor(again, source),
        "c": _c_compiler(),
        "gpus": [] if missing else [asdict(device) for device in gpu_devices()],
        "no_gpu": missing,
        "simulators": [_simulator(name) for name in registry.TARGETS if registry.get(name).simulated],
    }


def _processor(again: bool, source: Path | None) -> Facts:
    target = registry.get("cpu")
    limits = make_limits(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), is_host=True)
    machine = (limits.vector_bytes // 4, limits.vector_registers, allowed_cores())
    path = figures.figures_path(*machine)
    if source is not None:
        figures.save(figures.load(source), path)
    if again:
        with alone():
            rates = figures.probe_again(*machine)
    else:
        rates = figures.load_or_probe(*machine)
    return {
        "name": cpu_name(),
        "target": target.name,
        "llvm": limits.cpu,
        "identity": figures.processor_identity(),
        "cores": limits.cores,
        "vector_bytes": limits.vector_bytes,
        "vector_registers": limits.vector_registers,
        "features": list(limits.features),
        "caches": _caches(),
        "figures": asdict(rates),
        "file": str(path) if path.exists() else "",
    }


def _caches() -> list[Facts]:
    caches = host_caches()
    rows = zip((1, 2, 3), caches.sizes, caches.ways, caches.sources, strict=True)
    return [{"level": level, "bytes": size, "ways": ways, "source": by} for level, size, ways, by in rows]


def _c_compiler() -> Facts:
    """Describes the target `c`: its compiler, and the processor that kernels are made for; or why it is missing."""
    target = CTarget(Compiler())
    if missing := target.unavailable():
        return {"target": target.name, "missing": missing}
    hardware = target.hardware
    return {
        "target": target.name,
        "missing": "",
        "compiler": target.compiler.version,
        "machine": target.compiler.machine,
        "flags": list(target.compiler.flags),
        "vector_bytes": hardware.vector_bytes,
        "vector_registers": hardware.vector_registers,
    }


def _simulator(name: str) -> Facts:
    hardware: Hardware = registry.get(name).hardware
    return {
        "target": name,
        "clock_hz": hardware.clock_hz,
        "peak_ops": hardware.peak_flops,
        "memories": dict(hardware.memories),
        "features": list(hardware.features),
    }


def text(facts: Facts) -> str:
    """Formats the facts for people, a line each."""
    processor = facts["processor"]
    cores, lanes = processor["cores"], processor["vector_bytes"] // 4
    head = f"{processor['target']}: {processor['name']} ({processor['llvm']}), {cores} core{'s' * (cores != 1)}"
    lines = [
        head,
        f"  vectors      {processor['vector_registers']} registers of {lanes} float32",
        f"  features     {' '.join(processor['features'])}",
        *(_cache_line(cache) for cache in processor["caches"]),
        *_figure_lines(processor["figures"], cores),
    ]
    if processor["figures"]["disturbed"]:
        lines.append(
            "  other programs disturbed the probe; `autotune devices --probe-again` on an idle machine mends it"
        )
    if processor["file"]:
        lines.append(f"  kept in      {processor['file']}")
    lines.append(_c_line(facts["c"]))
    lines += [f"{gpu['target']}: {gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB" for gpu in facts["gpus"]]
    lines += [facts["no_gpu"]] if facts["no_gpu"] else []
    for simulator in facts["simulators"]:
        sizes = ", ".join(f"{name} {size / 1024:.0f} KiB" for name, size in simulator["memories"].items())
        lines.append(f"{simulator['target']}: simulated at {simulator['clock_hz'] / 1e6:.0f} MHz, {sizes}")
    return "\n".join(lines)


def _c_line(facts: Facts) -> str:
    if facts["missing"]:
        return f"target {facts['target']} must have a C compiler for this machine: {facts['missing']}"
    vectors = f"vectors of {facts['vector_bytes'] // 4} float32"
    return f"{facts['target']}: {facts['compiler']}, for {facts['machine']}, {vectors}, one thread"


def _cache_line(cache: Facts) -> str:
    size = cache["bytes"] / 1024
    shown = f"{size / 1024:g} MiB" if size >= 1024 else f"{size:g} KiB"
    usual = "" if cache["source"] != "usual" else " (a usual one: the system does not tell)"
    return f"  L{cache['level']} cache     {shown}, {cache['ways']} ways{usual}"


def _figure_lines(facts: Facts, cores: int) -> list[str]:
    one, each = ([f"{rate * 1e-9:g}" for rate in facts[name]] for name in ("one", "each"))
    return [
        f"  peak         {facts['peak_flops'] * 1e-9:.0f} GFLOP/s in float32, at {facts['clock_hz'] * 1e-9:g} GHz",
        f"  in a cycle   {facts['fma']:g} multiply-adds, {facts['loads']:g} loads, {facts['stores']:g} stores of "
        f"whole vectors, {facts['elements']:g} loads of elements; {facts['issue']:g} instructions",
        f"  latency      {facts['fma_latency']:g} cycles of a multiply-add",
        f"  bfloat16     {facts['dots']:g} sums of two products in a cycle, {facts['dot_latency']:g} cycles of one",
        f"  int8         {facts['byte_dots']:g} sums of four products in a cycle, "
        f"{facts['byte_dot_latency']:g} cycles of one",
        f"  one core     {one[0]} GB/s from L2, {one[1]} from L3, {one[2]} from memory",
        f"  all {cores} cores  {each[0]} GB/s each from L2, {each[1]} from L3, {each[2]} from memory",
        f"  pool         {facts['start_seconds'] * 1e6:g} µs a loop, {facts['wake_seconds'] * 1e6:g} µs from sleep",
    ]


def as_json(facts: Facts) -> str:
    """Formats the facts as a JSON document."""
    return json.dumps(facts, indent=2, allow_nan=False)
