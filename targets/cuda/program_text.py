"""The text of whole device programs, with every instruction that there is text for."""

from __future__ import annotations

import targets.cuda.bulk_text
import targets.cuda.warp_text
import targets.cuda.warpgroup_text  # noqa: F401  (all register their instructions)
from targets.cuda.emit import KernelText
from targets.cuda.prelude import prelude
from targets.cuda.program import DeviceProgram


def emit_program(program: DeviceProgram) -> str:
    """Writes the text of all kernels, prologues first.

    Raises:
        BuildError: an expression or an instruction that there is no text for.
    """
    kernels = [kernel for prologue in program.prologues for kernel in prologue.kernels] + list(program.kernels)
    text = "\n".join(KernelText(kernel).function() for kernel in kernels)
    return prelude(text) + text
