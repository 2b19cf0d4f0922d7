"""Runs random kernels on arrays that end, or begin, at a page that must not be touched: an overrun kills the process.

Run as a program with the first seed and how many kernels to run: prints each case before it is run, and `ran` after.
With `open` behind them, the kernels' sizes are open, and each is run at some of them.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from search_space.ir.stmt import substitute_program
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from targets.base import BuildError
from targets.cpu.kernel import CpuKernel
from targets.registry import get
from tests.properties import open_programs
from tests.properties.programs import PROGRAMS, initial, inputs
from tests.properties.running import MOST_STORES, no_code, run_interpreter, same, stores
from tests.properties.traces import Dice, random_trace

PAGE = mmap.PAGESIZE
_maps: list[mmap.mmap] = []


def make_guarded(shape: tuple[int, ...], dtype: np.dtype[Any], at_end: bool) -> NDArray[Any]:
    """An array whose last (or first) byte touches a page without access rights."""
    size = int(np.prod(shape)) * dtype.itemsize
    pages = -(-size // PAGE)
    area = mmap.mmap(-1, (pages + 2) * PAGE)
    _maps.append(area)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for page in (0, pages + 1):
        if protect(ctypes.c_void_p(address + page * PAGE), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE + (pages * PAGE - size if at_end else 0)
    return np.frombuffer(area, np.uint8, size, start).view(dtype).reshape(shape)


def run_between_guards(
    kernel: CpuKernel, arrays: dict[str, NDArray[Any]], at_end: bool, sizes: Mapping[str, int] | None = None
) -> dict[str, NDArray[Any]]:
    """Every parameter, packed ones too, and the workspace between guards; the outputs by name."""
    module = kernel.module
    known = {name: (sizes or {})[name] for name in module.sizes}
    parameters = [p.at(known) for p in (*module.sources, *module.parameters)]
    placed = {p.name: make_guarded(p.shape, numpy_dtype(p.dtype), at_end) for p in parameters}
    for name, array in arrays.items():
        placed[name][...] = array
    packed = [p for p in module.parameters if p.packed_from]
    for index, parameter in enumerate(packed):
        kernel.pack(index, [placed[name] for name in parameter.packed_from], placed[parameter.name])
    threads = 2
    facts = module.metadata
    size = facts["shared_bytes"] + threads * facts["scratch_bytes"]
    space = make_guarded((max(64, size),), np.dtype(np.uint8), at_end)
    table = np.array([*(placed[p.name].ctypes.data for p in module.parameters), *known.values()], np.uint64)
    kernel.run(table.ctypes.data, threads, space.ctypes.data)
    return {name: placed[name] for name in module.outputs}


def check(seed: int) -> bool:
    """Runs a random schedule of a random program and checks it; returns False if it is illegal, and so not run."""
    dice = Dice(seed)
    name = dice.pick(list(PROGRAMS))
    dtype = dice.pick(PROGRAMS[name][1])
    state = initial(name, dtype)
    trace, scheduled = random_trace(dice, state)
    print(f"seed {seed}: {name} {dtype}\n{trace}", flush=True)
    target = get("cpu")
    try:
        program = cleanup(lower(scheduled))
    except ScheduleError:
        return False
    if stores(program.body) > MOST_STORES:
        return False
    try:
        kernel = target.load(target.build(program))
    except BuildError as error:
        if not no_code(error):
            raise
        return False
    assert isinstance(kernel, CpuKernel)
    arrays = inputs(state, seed)
    wanted = run_interpreter(program, arrays)
    for at_end in (True, False):
        for output, found in run_between_guards(kernel, arrays, at_end).items():
            same(found, wanted[output], program.buffers[output].dtype, f"seed {seed}")
    return True


def check_open(seed: int) -> bool:
    """Checks a program of open sizes like this, run at two of them."""
    dice = Dice(seed)
    name = dice.pick(list(open_programs.OPEN))
    state = open_programs.initial(name, dice.pick(open_programs.OPEN[name][1]))
    trace, scheduled = random_trace(dice, state)
    print(f"seed {seed}: {name}\n{trace}", flush=True)
    target = get("cpu")
    try:
        program = cleanup(lower(scheduled))
        kernel = target.load(target.build(program))
    except ScheduleError:
        return False
    except BuildError as error:
        if not no_code(error):
            raise
        return False
    assert isinstance(kernel, CpuKernel)
    for at_end in (True, False):
        sizes = open_programs.draw_sizes(dice)
        print(sizes, flush=True)
        arrays = open_programs.inputs(state, sizes, seed)
        wanted = run_interpreter(substitute_program(lower(state), sizes), arrays)
        for output, found in run_between_guards(kernel, arrays, at_end, sizes).items():
            same(found, wanted[output], program.buffers[output].dtype, f"seed {seed}")
    return True


if __name__ == "__main__":
    first, wanted = int(sys.argv[1]), int(sys.argv[2])
    run_one = check_open if sys.argv[3:] == ["open"] else check
    ran = 0
    for number in count(first):
        if ran == wanted:
            break
        if run_one(number):
            ran += 1
            print("ran", flush=True)
