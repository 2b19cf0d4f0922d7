"""A tape made runnable: dead operations dropped, columns given slots that are used again, evaluated in native code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.columns import machine
from costmodel.columns.tape import ADD, CONST, DIV, EQ, FLOOR, LE, LT, MAX, MIN, MUL, SELECT, SUB, VARIABLE, Tape, Value

_UFUNC = {ADD: np.add, SUB: np.subtract, MUL: np.multiply, DIV: np.divide, MIN: np.minimum, MAX: np.maximum}
_UFUNC |= {LT: np.less, LE: np.less_equal, EQ: np.equal}


class ColumnProgram:
    """Outputs of a tape as a function of columns.

    Args:
        tape: where the outputs are.
        outputs: what is wanted, in this order.
        variables: number of columns.
    """

    def __init__(self, tape: Tape, outputs: Sequence[Value], variables: int) -> None:
        self.outputs, self.variables = [o.index for o in outputs], variables
        self.order = _reachable(tape, self.outputs)
        self._tape = tape
        self._code, self._constants, self._slots = _assemble(tape, self.order, self.outputs, variables)

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

    def reference(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """What `__call__` must give, operation by operation in NumPy."""
        found: dict[int, NDArray[np.float64]] = {}
        for index in self.order:
            op, *args = self._tape.nodes[index]
            if op == CONST:
                found[index] = np.full(columns.shape[1], self._tape.numbers[args[0]])
            elif op == VARIABLE:
                found[index] = columns[args[0]]
            else:
                operands = [found[a] for a in args]
                if op == FLOOR:
                    found[index] = np.floor(operands[0])
                elif op == SELECT:
                    found[index] = np.where(operands[0] != 0.0, operands[1], operands[2])
                else:
                    found[index] = _UFUNC[op](*operands).astype(np.float64)
        return np.array([found[o] for o in self.outputs], np.float32).reshape(len(self.outputs), -1)


def _reachable(tape: Tape, outputs: Sequence[int]) -> list[int]:
    """Indices of the nodes that outputs need, operands first."""
    seen = set(outputs)
    todo = list(seen)
    while todo:
        for operand in tape.operands(todo.pop()):
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    return sorted(seen)


def _assemble(
    tape: Tape, order: Sequence[int], outputs: Sequence[int], variables: int
) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """Instructions (operation, slot, a, b, c), the constants that fill the first slots, and the number of slots.

    An output is stored as soon as it is known, and a slot is free after its column's last use.
    """
    nodes = tape.nodes
    constants = [i for i in order if nodes[i][0] == CONST]
    slot = {index: place for place, index in enumerate(constants)}
    slot |= {i: len(constants) + nodes[i][1] for i in order if nodes[i][0] == VARIABLE}
    used = len(constants) + variables
    wanted: dict[int, list[int]] = {}
    for place, index in enumerate(outputs):
        wanted.setdefault(index, []).append(place)
    last = {operand: index for index in order for operand in tape.operands(index)}
    code: list[tuple[int, ...]] = [(machine.STORE, p, slot[i], 0, 0) for i in slot for p in wanted.get(i, ())]
    computed = [i for i in order if nodes[i][0] > VARIABLE]
    free: list[int] = []
    for index in computed:
        operands = nodes[index][1:]
        free += {slot[o] for o in operands if last[o] == index and nodes[o][0] > VARIABLE}
        places = [slot[o] for o in operands]
        if free:
            slot[index] = free.pop()
        else:
            slot[index], used = used, used + 1
        code.append((nodes[index][0], slot[index], *places, *(0,) * (3 - len(places))))
        code += [(machine.STORE, place, slot[index], 0, 0) for place in wanted.get(index, ())]
        if index not in last:
            free.append(slot[index])
    numbers = np.array([tape.numbers[nodes[i][1]] for i in constants], np.float64)
    return np.array(code, np.int32).reshape(-1, 5), numbers, used
