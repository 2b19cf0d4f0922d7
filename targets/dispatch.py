"""Kernels of one definition for ranges of its sizes: a call runs the first one that takes the shapes of its inputs.

One schedule is seldom the best for all sizes, nor legal: a clamped tile must not be larger than the smallest size. So
each range has a kernel of its own. DietCode (Zheng et al., MLSys 2022) chooses by the shape, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from targets.base import Bound, Kernel, RunError, as_arrays
from targets.extents import extent_text
from targets.module import Module, Parameter

Range = tuple[int, int]
"""Least and greatest extent of an axis."""


class Dispatch(Kernel):
    """Kernels, the first of which that takes the inputs runs.

    Args:
        kernels: of inputs and outputs of the same names, dtypes and numbers of axes.

    Attributes:
        module: of the first one.

    Raises:
        ValueError: there are none, or they take other arrays than the first one.
    """

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        if not kernels:
            raise ValueError("`kernels` must not be empty, but got none")
        self.kernels, self.module = tuple(kernels), kernels[0].module
        wanted = _arrays(self.module)
        for kernel in kernels:
            if _arrays(kernel.module) != wanted:
                raise ValueError(f"`kernels` must take the same arrays, {wanted}, but got {_arrays(kernel.module)}")
        self._ranges = [_ranges(kernel.module) for kernel in kernels]

    def __call__(self, *given: Any) -> None:
        arrays = as_arrays(given)
        self.of(arrays[: len(self.module.sources)])(*arrays)

    def of(self, inputs: Sequence[NDArray[Any]]) -> Kernel:
        """The kernel that takes these inputs.

        Raises:
            RunError: none does.
        """
        shapes = [array.shape for array in inputs]
        if [len(shape) for shape in shapes] != [len(p.shape) for p in self.module.sources]:
            self.kernels[0].check(inputs)  # which says what is wrong
        extents = [extent for shape in shapes for extent in shape]
        for kernel, ranges in zip(self.kernels, self._ranges, strict=True):
            if all(low <= extent <= high for extent, (low, high) in zip(extents, ranges, strict=True)):
                return kernel
        taken = " or ".join(_shown(kernel.module) for kernel in self.kernels)
        raise RunError(f"inputs must be {taken}, but got shapes {', '.join(map(str, shapes))}")

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> Bound:
        return self.of(inputs).bind(inputs, copies, fenced)


def _arrays(module: Module) -> str:
    """What tells kernels of other definitions apart."""
    by_name = {p.name: p for p in module.parameters}
    every = (*module.sources, *(by_name[name] for name in module.outputs))
    return ", ".join(f"{p.dtype} {p.name} of {len(p.shape)} axes" for p in every)


def _ranges(module: Module) -> list[Range]:
    """Of each axis of each input; an extent that is worked out of sizes is left to the kernel to check."""

    def of(extent: Any) -> Range:
        if isinstance(extent, str):
            return module.sizes[extent]
        return (0, 1 << 62) if isinstance(extent, list) else (extent, extent)

    return [of(extent) for p in module.sources for extent in p.extents or p.shape]


def _shown(module: Module) -> str:
    def array(p: Parameter) -> str:
        return f"{p.name}[{', '.join(map(extent_text, p.extents or p.shape))}]"

    ranges = "".join(f", {name} from {low} to {high}" for name, (low, high) in module.sizes.items())
    return f"{', '.join(map(array, module.sources))}{ranges}"
