"""Kernels of one definition for ranges of its sizes: a call runs the first one that takes the shapes of its inputs.

One schedule is seldom the best for all sizes, nor legal: a clamped tile must not be larger than the smallest size. So
each range has a kernel of its own. DietCode (Zheng et al., MLSys 2022) chooses by the shape, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from targets.base import Bound, Kernel, RunError, as_arrays
from targets.extents import extent_text
from targets.module import Module, Parameter

Range = tuple[int, int]
"""Least and greatest extent of an axis."""

MOST_SHAPES = 4096
"""Shapes whose kernel is remembered, at most; a search through many kernels takes a while."""

MOST_SHOWN = 4
"""Kernels that are named where none takes the inputs."""


class Within(Kernel):
    """A kernel that is to run for fewer sizes than it holds for.

    Args:
        kernel: kernel that may have open sizes.
        sizes: least and greatest value of some, by name; of sizes that it has.

    Raises:
        ValueError: a range that is empty, or not within the kernel's own.
    """

    def __init__(self, kernel: Kernel, sizes: Mapping[str, Range]) -> None:
        own = kernel.module.sizes
        for name, (low, high) in sizes.items():
            if name not in own or not own[name][0] <= low <= high <= own[name][1]:
                known = ", ".join(f"{n} from {a} to {b}" for n, (a, b) in own.items()) or "no size"
                raise ValueError(f"`sizes` must be within {known}, but got {name} from {low} to {high}")
        self.kernel, self.module = kernel, replace(kernel.module, sizes={**own, **sizes})

    def __call__(self, *arguments: Any) -> None:
        self.kernel(*arguments)

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> Bound:
        return self.kernel.bind(inputs, copies, fenced)


class Dispatch(Kernel):
    """Several kernels; a call runs the first one that takes the inputs.

    Args:
        kernels: kernels whose inputs and outputs have the same names, dtypes and numbers of axes.

    Attributes:
        module: module of the first kernel.

    Raises:
        ValueError: the list is empty, or they take other arrays than the first one.
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
        self._kernels: dict[tuple[tuple[int, ...], ...], Kernel] = {}

    def __repr__(self) -> str:
        return f"{super().__repr__()}, by {len(self.kernels)} kernels for ranges of sizes"

    def __call__(self, *arguments: Any) -> None:
        arrays = as_arrays(arguments)
        self.of(arrays[: len(self.module.sources)])(*arrays)

    def of(self, inputs: Sequence[NDArray[Any]]) -> Kernel:
        """Returns the kernel that takes these inputs.

        Raises:
            RunError: none does.
        """
        shapes = tuple(array.shape for array in inputs)
        if (found := self._kernels.get(shapes)) is not None:
            return found
        if [len(shape) for shape in shapes] != [len(p.shape) for p in self.module.sources]:
            self.kernels[0].check(inputs)  # which says what is wrong
        extents = [extent for shape in shapes for extent in shape]
        for kernel, ranges in zip(self.kernels, self._ranges, strict=True):
            if all(low <= extent <= high for extent, (low, high) in zip(extents, ranges, strict=True)):
                if len(self._kernels) >= MOST_SHAPES:
                    self._kernels.clear()
                self._kernels[shapes] = kernel
                return kernel
        taken = " or ".join(_describe_module(kernel.module) for kernel in self.kernels[:MOST_SHOWN])
        if (more := len(self.kernels) - MOST_SHOWN) > 0:
            taken += f" or those of {more} more"
        raise RunError(f"inputs must be {taken}, but got shapes {', '.join(map(str, shapes))}")

    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> Bound:
        return self.of(inputs).bind(inputs, copies, fenced)


def _arrays(module: Module) -> str:
    """Describes the arrays of a module; kernels of other definitions differ in this text."""
    by_name = {p.name: p for p in module.parameters}
    every = (*module.sources, *(by_name[name] for name in module.outputs))
    return ", ".join(f"{p.dtype} {p.name} of {len(p.shape)} axes" for p in every)


def _ranges(module: Module) -> list[Range]:
    """Returns the range of each axis of each input; the kernel checks an extent that is computed from sizes."""

    def of(extent: Any) -> Range:
        if isinstance(extent, str):
            return module.sizes[extent]
        return (0, 1 << 62) if isinstance(extent, list) else (extent, extent)

    return [of(extent) for p in module.sources for extent in p.extents or p.shape]


def _describe_module(module: Module) -> str:
    def array(p: Parameter) -> str:
        return f"{p.name}[{', '.join(map(extent_text, p.extents or p.shape))}]"

    ranges = "".join(f", {name} from {low} to {high}" for name, (low, high) in module.sizes.items())
    return f"{', '.join(map(array, module.sources))}{ranges}"
