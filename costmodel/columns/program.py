"""Column programs: tapes without dead operations, with slots that are reused, evaluated in native code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.columns import machine
from costmodel.columns.assembler import assemble
from search_space.ir.tape import Tape, Value


class ColumnProgram:
    """A function from columns to outputs of a tape.

    Args:
        tape: tape that records the outputs.
        outputs: values to compute, in this order.
        variables: number of columns.
    """

    def __init__(self, tape: Tape, outputs: Sequence[Value], variables: int) -> None:
        self.outputs, self.variables = [o.index for o in outputs], variables
        self._code, self._constants, self._slots = assemble(tape, self.outputs, variables)

    def __call__(self, columns: NDArray[np.float64]) -> NDArray[np.float32]:
        """Evaluates the outputs: (columns, n) → (outputs, n), a view of rows padded to whole blocks."""
        count = columns.shape[1]
        padded = -(-count // machine.BLOCK) * machine.BLOCK
        if columns.shape[1] != padded or not columns.flags.c_contiguous or columns.dtype != np.float64:
            wide = np.ones((self.variables, padded))
            wide[:, :count] = columns
            columns = wide
        out = np.empty((len(self.outputs), padded), np.float32)
        machine.run(self._code, self._slots, self._constants, columns, out)
        return out[:, :count]
