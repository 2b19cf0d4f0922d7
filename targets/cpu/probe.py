"""A probe of this host's processor; `python -m targets.cpu.probe` with the arguments of `probe` prints its figures.

It runs in a process of its own, whose threads and memory end with it, in about a second. Other programs can only make
the machine slower, so each figure is the best of many short runs. Counts of instructions are whole or half numbers,
times and bandwidths have two digits, so that they come out alike the next time.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from search_space.hardware import CpuRates
from targets.arrays import allocate_aligned
from targets.cpu.probe_text import ROW, UNROLL, probe_text
from targets.cpu.runtime import initialise
from targets.jit import LinkedObjects

Levels = tuple[float, float, float]

RUN_SECONDS = 3e-4
"""Seconds of one run: less than the time slices of other processes, so that some runs are not disturbed."""

FIGURE_SECONDS = 0.015
"""Seconds spent on one figure at a time."""

ROUNDS = 3
"""Rounds that measure all figures anew: a program that shares a core slows it for a while."""

LEAST_FAR, MOST_FAR = 64 << 20, 512 << 20
"""Bytes that are read to find the bandwidth of memory: four times the last cache, but within these."""

SHARED = 8
"""Divisor of the last cache's size for the part that is read to find its bandwidth.

Programs on other cores, and on other virtual machines, occupy most of that cache.
"""

SCATTER = 0x9E3779B1
"""Odd, so that its multiples come to every row: one after the other, far apart."""

_SLOW: Levels = (0.0, 0.0, 0.0)

FASTEST = 1.5e11
"""Bytes a second that a core may read from its caches.

Runs are sized by it: long enough that the start of the threads hardly counts, and not too long.
"""

UNDISTURBED_SHARE = 0.8
"""Share of the cores' time that a probe must get for its figures of all cores to hold."""

SLEEP_SECONDS, SLEEPS = 2e-3, 15
"""After which threads of the pool that have nothing to do sleep, and how often they are woken."""


@dataclass(frozen=True)
class ProbeFigures:
    """Figures that were measured on a processor.

    Attributes:
        clock_hz: cycles a second of a core, where all of them multiply and add.
        peak_flops: float32 operations a second, all cores at once.
        fma, loads, stores: vector instructions of that kind that a core starts in a cycle.
        fma_latency: cycles until the result of a multiply-add can be used.
        issue: instructions that a core starts in a cycle, of a mix of integers, loads and products.
        one: bytes a second that one core alone reads. From the second level and the third it reads scattered rows of
            256 bytes, like tiles; from memory it reads in order, like constants.
        each: the same of every core while all of them read.
        start_seconds: seconds of a parallel loop of which every thread is awake, from its start to its end.
        wake_seconds: the same where all threads but the caller's sleep.
        elements: loads of one element each that a core starts in a cycle.
        dots, dot_latency: instructions that add two products of bfloat16 to each sum, as `fma` and `fma_latency`; on a
            processor without them the figures of multiply-adds.
        byte_dots, byte_dot_latency: the same of instructions that add four products of bytes to each sum.
        disturbed: whether other programs took part of the cores meanwhile. The figures of all cores are then derived
            from those of one, and those of loops are usual ones.
    """

    clock_hz: float
    peak_flops: float
    fma: float
    loads: float
    stores: float
    fma_latency: float
    issue: float
    one: Levels
    each: Levels
    start_seconds: float
    wake_seconds: float
    elements: float
    dots: float
    dot_latency: float
    byte_dots: float
    byte_dot_latency: float
    disturbed: bool = False


def probe(lanes: int, registers: int, cores: int, physical: int, caches: Sequence[int]) -> ProbeFigures:
    """Measures all figures, in this process.

    Args:
        lanes: float32 elements of a vector register.
        registers: vector registers.
        cores: threads that run at a time.
        physical: cores with units of their own among them, fewer where two threads share one.
        caches: bytes of the three levels, of which the first two are a core's own.
    """
    code = _Code(lanes, 24 if registers >= 32 else 12)
    near = allocate_aligned((UNROLL * lanes * 4,), "uint8")
    buffer_address = near.ctypes.data
    alone: dict[str, Callable[[int], Any]] = {
        "chain": lambda n: code.chain(n, 3, 5),
        "products": lambda n: code.products(n, 0.0),
        "latency": lambda n: code.latency(n, 0.0),
        "dots": lambda n: code.dots(n, 0.0),
        "dot_latency": lambda n: code.dot_latency(n, 0.0),
        "byte_dots": lambda n: code.byte_dots(n, 0.0),
        "byte_dot_latency": lambda n: code.byte_dot_latency(n, 0.0),
        "loads": lambda n: code.loads(n, buffer_address),
        "elements": lambda n: code.elements(n, buffer_address),
        "stores": lambda n: code.stores(n, buffer_address),
        "mixed": lambda n: code.run_mix(n, buffer_address, 0.0, 3, 5),
    }
    memory = allocate_aligned((min(MOST_FAR, max(LEAST_FAR, 4 * caches[-1])),), "uint8")
    memory[::4096] = 1  # pages that were never written are all the same one
    best = dict.fromkeys(alone, 0.0)
    together, one, each, start, shares = 0.0, _SLOW, _SLOW, float("inf"), []
    for _ in range(ROUNDS):
        for name, run in alone.items():
            best[name] = max(best[name], _rate(run))
        before, began = time.process_time(), time.perf_counter()
        together = max(together, _rate(lambda n: code.all_products(_words(n), cores)) * cores)
        shares.append((time.process_time() - before) / (time.perf_counter() - began) / cores)
        one = _faster(one, _bandwidths(code, memory, 1, caches))
        each = _faster(each, _bandwidths(code, memory, cores, caches))
        start = min(start, _start(code, cores))
    each, wake = _slower(one, each), _wake(code, cores)
    if disturbed := max(shares) < UNDISTURBED_SHARE:
        together = max(together, best["products"] * physical)
        each = one
        start, wake = min(start, CpuRates.start_seconds), min(wake, CpuRates.wake_seconds)
    clock = best["chain"]
    fma = _halves(best["products"] / clock)
    return ProbeFigures(
        clock_hz=digits(together / (cores * fma)),
        peak_flops=digits(together * lanes * 2, 3),
        fma=fma,
        loads=_halves(best["loads"] / clock),
        stores=_halves(best["stores"] / clock),
        fma_latency=max(1.0, float(round(clock / best["latency"]))),
        issue=_halves(best["mixed"] / clock),
        one=_round_levels(one),
        each=_round_levels(each),
        start_seconds=digits(start),
        wake_seconds=digits(wake),
        elements=_halves(best["elements"] / clock),
        dots=_halves(best["dots"] / clock),
        dot_latency=max(1.0, float(round(clock / best["dot_latency"]))),
        byte_dots=_halves(best["byte_dots"] / clock),
        byte_dot_latency=max(1.0, float(round(clock / best["byte_dot_latency"]))),
        disturbed=disturbed,
    )


FUNCTIONS = (
    "chain",
    "latency",
    "products",
    "dot_latency",
    "dots",
    "byte_dot_latency",
    "byte_dots",
    "loads",
    "elements",
    "stores",
    "mixed",
    "all_products",
    "all_stream",
    "together",
)
_LIVE_OBJECTS: list[object] = []


class _Code:
    """The functions of `probe_text`, loaded."""

    def __init__(self, lanes: int, chains: int) -> None:
        initialise()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=2,
            reloc="pic",
            codemodel="default",
        )
        features = llvm.get_host_cpu_features()
        pairs, in_bytes = (lanes == 16 and bool(features.get(name)) for name in ("avx512bf16", "avx512vnni"))
        module = llvm.parse_assembly(probe_text(machine.triple, lanes, chains, pairs, in_bytes))
        self._linked_objects = LinkedObjects([machine.emit_object(module)], FUNCTIONS)
        _LIVE_OBJECTS.append(self._linked_objects)  # the threads of its pool run in it
        number, floating, pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
        self.chain = self._function("chain", number, number, number, gives=number)
        self.latency = self._function("latency", number, floating, gives=floating)
        self.products = self._function("products", number, floating, gives=floating)
        self.dot_latency = self._function("dot_latency", number, floating, gives=floating)
        self.dots = self._function("dots", number, floating, gives=floating)
        self.byte_dot_latency = self._function("byte_dot_latency", number, floating, gives=floating)
        self.byte_dots = self._function("byte_dots", number, floating, gives=floating)
        self.loads = self._function("loads", number, pointer)
        self.elements = self._function("elements", number, pointer)
        self.stores = self._function("stores", number, pointer)
        self.run_mix = self._function("mixed", number, pointer, floating, number, number)
        self.all_products = self._function("all_products", pointer, number)
        self.all_stream = self._function("all_stream", pointer, number)
        self.together = self._function("together", pointer, number, number, gives=number)

    def _function(self, name: str, *takes: Any, gives: Any = None) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(gives, *takes)(self._linked_objects.address(name))


def _rate(run: Callable[[int], Any]) -> float:
    """Steps a second: of the fastest run of a loop that does `UNROLL` of them `n` times."""
    count = 64
    while (took := min(_seconds(run, count) for _ in range(4))) < RUN_SECONDS / 2:
        count *= 2
    count = max(1, round(count * RUN_SECONDS / took))
    return count * UNROLL / _best(run, count)


def _best(run: Callable[..., Any], *arguments: Any) -> float:
    """Returns the seconds of the fastest of many runs."""
    end, fastest = time.perf_counter() + FIGURE_SECONDS, float("inf")
    while True:
        fastest = min(fastest, _seconds(run, *arguments))
        if time.perf_counter() > end:
            return fastest


def _seconds(run: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def _bandwidths(code: _Code, memory: NDArray[Any], threads: int, caches: Sequence[int]) -> Levels:
    """Measures the bytes a second that each of so many threads reads from the second level, the third and memory."""
    first, second, third = caches
    own = _again(code, memory, max(2 * first, second // 2), threads)
    shared = _again(code, memory, max(2 * second, third // SHARED), threads)
    return own, shared, _onwards(code, memory, threads)


def _faster(left: Levels, right: Levels) -> Levels:
    return max(left[0], right[0]), max(left[1], right[1]), max(left[2], right[2])


def _slower(left: Levels, right: Levels) -> Levels:
    return min(left[0], right[0]), min(left[1], right[1]), min(left[2], right[2])


def _round_levels(rates: Levels) -> Levels:
    return digits(rates[0]), digits(rates[1]), digits(rates[2])


def _again(code: _Code, memory: NDArray[Any], part: int, threads: int) -> float:
    """Measures the bytes a second of each thread that reads a part of its own again and again."""
    part = _power(min(part, memory.nbytes // threads))
    times = max(1, round(RUN_SECONDS * FASTEST / part))
    rows = part // ROW
    given = _words(rows, part, times, memory.ctypes.data, SCATTER, rows - 1)
    return part * times / _best(code.all_stream, given, threads)


def _onwards(code: _Code, memory: NDArray[Any], threads: int) -> float:
    """Measures the bytes a second of each thread when all read data that no cache holds: of the faster fifth of the
    runs.
    """
    window = 2 << 20
    parts = memory.nbytes // (window * threads)
    seconds: list[float] = []
    end = time.perf_counter() + FIGURE_SECONDS
    while time.perf_counter() < end or len(seconds) < 2 * parts:
        base = memory.ctypes.data + len(seconds) % parts * window * threads
        given = _words(window // ROW, window, 1, base, 1, window // ROW - 1)
        seconds.append(_seconds(code.all_stream, given, threads))
    return window / float(np.quantile(seconds[parts:], 0.2))


def _start(code: _Code, threads: int) -> float:
    """Measures the seconds of a parallel loop beyond its work; all threads are awake, each takes its eight chunks."""
    held = 2_000
    given = _words(held)
    took = [code.together(given, 8 * threads, threads) - 8 * held for _ in range(200)]
    return max(1.0, float(np.quantile(took, 0.25))) * 1e-9


def _wake(code: _Code, threads: int) -> float:
    """Measures the seconds of a parallel loop beyond its work when the other threads sleep."""
    spin, took = 500_000, []
    given = _words(spin)
    for _ in range(SLEEPS):
        time.sleep(SLEEP_SECONDS)
        took.append(code.together(given, threads, threads) - spin)
    return float(np.quantile(took, 0.25)) * 1e-9


def _power(size: int) -> int:
    """Returns the largest power of two that is no greater."""
    return 1 << size.bit_length() - 1


def _words(*values: int) -> Any:
    """Packs the arguments of a loop's body, 64 bits each."""
    return ctypes.byref((ctypes.c_int64 * len(values))(*values))


def _halves(value: float) -> float:
    """Rounds to the nearest half, at least one half."""
    return max(0.5, round(value * 2) / 2)


def digits(value: float, count: int = 2) -> float:
    """Rounds a figure to its first digits, two by default."""
    return float(f"{value:.{count - 1}e}")


if __name__ == "__main__":
    numbers = list(map(int, sys.argv[1:]))
    print(json.dumps(asdict(probe(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4:]))), flush=True)
    os._exit(0)  # threads of the pool still run in code that would be taken away
