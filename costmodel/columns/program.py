"""A tape made runnable: dead operations dropped, columns given slots that are used again, evaluated in native code."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.columns import machine
from search_space.ir.tape import CONST, VARIABLE, Tape, Value


class ColumnProgram:
    """Outputs of a tape as a function of columns.

    Args:
        tape: where the outputs are.
        outputs: what is wanted, in this order.
        variables: number of columns.
    """

    def __init__(self, tape: Tape, outputs: Sequence[Value], variables: int) -> None:
        self.outputs, self.variables = [o.index for o in outputs], variables
        order = tape.needed(self.outputs)
        self._code, self._constants, self._slots = _assemble(tape, order, self.outputs, variables)

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """(columns, n) → (outputs, n), a view of rows padded to whole blocks."""
        count = columns.shape[1]
        padded = -(-count // machine.BLOCK) * machine.BLOCK
        if columns.shape[1] != padded or not columns.flags.c_contiguous or columns.dtype != np.float64:
            wide = np.ones((self.variables, padded))
            wide[:, :count] = columns
            columns = wide
        out = np.empty((len(self.outputs), padded), np.float32)
        machine.run(self._code, self._slots, self._constants, columns, out)
        return out[:, :count]


def _assemble(
    tape: Tape, order: Sequence[int], outputs: Sequence[int], variables: int
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """Instructions (operation, slot, a, b, c), the constants that fill the first slots, and the number of slots.

    An output is stored as soon as it is known, and a slot is free after its column's last use.
    """
    nodes = tape.nodes
    slot, last = [0] * len(nodes), [-1] * len(nodes)
    constants: list[int] = []
    computed: list[int] = []
    given: list[int] = []
    for index in order:
        node = nodes[index]
        if node[0] > VARIABLE:
            computed.append(index)
            for operand in node[1:]:
                last[operand] = index
        elif node[0] == CONST:
            slot[index] = len(constants)
            constants.append(index)
        else:
            given.append(index)
    for index in given:
        slot[index] = len(constants) + nodes[index][1]
    used = len(constants) + variables
    wanted: dict[int, list[int]] = {}
    for place, index in enumerate(outputs):
        wanted.setdefault(index, []).append(place)
    code: list[int] = []  # five numbers an instruction
    for index in (*constants, *given):
        for output in wanted.get(index, ()):
            code += (machine.STORE, output, slot[index], 0, 0)
    free: list[int] = []
    for index in computed:
        node = nodes[index]
        places = [slot[operand] for operand in node[1:]]
        for operand in dict.fromkeys(node[1:]):
            if last[operand] == index and nodes[operand][0] > VARIABLE:
                free.append(slot[operand])
        if free:
            place = free.pop()
        else:
            place, used = used, used + 1
        slot[index] = place
        code += (node[0], place, *places, *_NO_OPERANDS[len(places)])
        if index in wanted:
            for output in wanted[index]:
                code += (machine.STORE, output, place, 0, 0)
        if last[index] < 0:
            free.append(place)
    numbers = np.array([tape.numbers[nodes[i][1]] for i in constants], np.float64)
    return np.frombuffer(array("i", code), np.int32).reshape(-1, 5), numbers, used


_NO_OPERANDS = ((0, 0, 0), (0, 0), (0,), ())
