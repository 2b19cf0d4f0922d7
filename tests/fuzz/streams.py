"""Random VTA streams: the fast simulator and the plain interpreter leave the same memory behind."""

from __future__ import annotations

import numpy as np

from targets.vta import isa
from targets.vta.functional import FunctionalSimulator
from tests.fuzz.verdicts import Wrong
from tests.targets.vta.random_streams import SMALL, make_small, random_stream, with_tokens
from tests.targets.vta.reference import Interpreter

HARDWARE = (SMALL, make_small(1, 16, 16), make_small(1, 4, 8), make_small(2, 8, 4))


def check(of: None, seed: int) -> None:
    """One stream on one of the machines.

    Raises:
        Wrong: another memory.
    """
    draw = np.random.default_rng([seed, 3])
    hardware = HARDWARE[seed % len(HARDWARE)]
    stream, dram = random_stream(draw, hardware, 25)
    stream = with_tokens(draw, stream)
    simulator, interpreter = FunctionalSimulator(hardware), Interpreter(hardware)
    expected, found = dram.copy(), dram.copy()
    interpreter.run(stream, expected)
    simulator.run(isa.decode_table(isa.encode(stream, hardware), hardware), found)
    if not np.array_equal(found, expected):
        raise Wrong(f"memory must be what the interpreter leaves, but {int((found != expected).sum())} bytes differ")
    for name in ("inp", "wgt", "acc"):
        if not np.array_equal(getattr(simulator, name), getattr(interpreter, name)):
            raise Wrong(f"the buffer {name} must be what the interpreter leaves, but it differs")
