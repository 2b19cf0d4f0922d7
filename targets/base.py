"""What a target is: it builds loop programs to modules of plain data, and loads modules as kernels that run."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from search_space.dtypes import numpy_dtype
from targets.module import Module as Module
from targets.module import Parameter as Parameter
from targets.plan import Case as Case
from targets.plan import Choice as Choice
from targets.plan import Loop as Loop
from targets.plan import NetworkPlan as NetworkPlan
from targets.plan import Packing as Packing
from targets.plan import Place as Place
from targets.plan import Step as Step

if TYPE_CHECKING:  # a process that only runs networks needs neither
    from pathlib import Path

    from search_space.hardware import Hardware
    from search_space.ir.stmt import LoopProgram


Packer = Callable[[Sequence[NDArray[Any]]], Mapping[str, NDArray[Any]]]
"""Inputs of a kernel, of which the constants count → arrays by name of the parameter."""


FASTEST = 1e18
"""Operations a second that no machine reaches; the fastest accelerators do 1e16 on halves of bytes."""
FASTEST_CORE = 1e14
"""The same of a processor's core; the fastest units for products of matrices do 1e13 on bytes."""


class BuildError(RuntimeError):
    """A loop program that this target cannot turn into code."""


class RunError(RuntimeError):
    """Arguments a kernel cannot be run on, or a kernel that cannot be run.

    Attributes:
        fatal: whether this process can run nothing any more.
    """

    fatal = False


class Bound(ABC):
    """A kernel with its inputs in place: constants packed, an output to write to.

    Attributes:
        outputs: arrays that a run writes, or where they are found after it.
        copies: sets of constants that rotate from run to run; 1 where they do not.
        deterministic: whether `time` and `run` say the same each time, as simulators do, so that once is enough.
    """

    copies: int = 1
    deterministic: bool = False
    outputs: Sequence[NDArray[Any]]

    @abstractmethod
    def run(self, threads: int | None = None) -> NDArray[Any]:
        """One execution; the output array (the same array every time)."""

    @abstractmethod
    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        """Seconds of each of `iterations` executions, measured in native code."""

    @abstractmethod
    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        """Makes ready for runs that are to be checked: what they may not rely on is overwritten.

        Args:
            inputs: of the kernel, as `bind` takes them; constants stay as they are.
            fill: byte that memory for intermediate results, which no run may count on, holds then. Where outputs are
                kept elsewhere, what `outputs` hold is brought there.
        """

    @abstractmethod
    def fetch(self) -> NDArray[Any]:
        """The output array, holding what the last execution, by `run` or by `time`, has left."""

    def damage(self) -> str:
        """What runs have written where they should not, as a sentence; empty where nothing is known of any."""
        return ""

    def metrics(self) -> dict[str, float]:
        """What else is known of an execution, by name; few numbers, which records keep."""
        return {}


class Kernel(ABC):
    """A loaded module."""

    module: Module

    def __repr__(self) -> str:
        """A line: what it takes and gives, and where it runs."""
        outputs = [p for p in self.module.parameters if p.name in self.module.outputs]
        taken, given = (", ".join(p.described for p in of) or "nothing" for of in (self.module.sources, outputs))
        return f"{type(self).__name__} {self.module.name} for {self.module.target}: {taken} -> {given}"

    def __call__(self, *given: Any) -> None:
        """Runs on inputs..., outputs...; the outputs are written in place. Threads may call it at the same time.

        Arrays are NumPy's, or of whatever gives one by `__array__` or DLPack.

        Raises:
            RunError: other arrays than the kernel takes.
        """
        arrays = as_arrays(given)
        split = len(self.module.sources)
        if len(arrays) != split + len(self.module.outputs):
            names = ", ".join([p.name for p in self.module.sources] + list(self.module.outputs))
            raise RunError(f"a kernel must be given its inputs and outputs ({names}), but got {len(arrays)} arrays")
        by_name = {p.name: p for p in self.module.parameters}
        sizes = self.check(arrays[:split]) if self.module.sizes else {}
        for array, name in zip(arrays[split:], self.module.outputs, strict=True):
            check_array(array, by_name[name].at(sizes), "output")
        bound = self.bind(arrays[:split])
        bound.run()
        for mine, theirs in zip(bound.outputs, arrays[split:], strict=True):
            theirs[...] = mine

    def check(self, inputs: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Holds inputs against what the kernel takes.

        Returns:
            The sizes that their shapes say, by name, in the order in which the kernel takes them.

        Raises:
            RunError: there are others.
        """
        if len(inputs) != len(self.module.sources):
            names = ", ".join(p.name for p in self.module.sources)
            raise RunError(
                f"a kernel must be given its {len(self.module.sources)} inputs ({names}), but got {len(inputs)}"
            )
        sizes = sizes_in(inputs, self.module.sources, self.module.sizes)
        for array, parameter in zip(inputs, self.module.sources, strict=True):
            check_array(array, parameter.at(sizes), "input")
        return sizes

    @abstractmethod
    def bind(self, inputs: Sequence[NDArray[Any]], copies: int = 1, fenced: bool = False) -> Bound:
        """Puts inputs in place.

        Args:
            inputs: of the kernel.
            copies: more than 1: timed executions find constants cold, by rotating so many copies or otherwise.
            fenced: whether memory around arrays is guarded, so that `Bound.damage` knows of what is written there.
        """


def as_arrays(given: Sequence[Any]) -> list[NDArray[Any]]:
    """What a kernel is called with, as arrays of NumPy.

    Raises:
        RunError: something that is none.
    """
    try:
        return [as_array(value) for value in given]
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise RunError(f"a kernel must be given arrays, but {error}") from error


def as_array(value: Any) -> NDArray[Any]:
    """An array of NumPy on the memory of whatever gives one by `__array__` or DLPack.

    A tensor of PyTorch in bfloat16 gives neither: its bits are taken.

    Raises:
        TypeError: it gives none; whatever else its owner raises where it cannot.
    """
    if isinstance(value, np.ndarray):
        return value
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        bits: NDArray[Any] = value.detach().view(sys.modules["torch"].int16).numpy()
        return bits.view(numpy_dtype("bfloat16"))
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise TypeError(f"got {type(value).__name__}, which is none")


def sizes_in(
    inputs: Sequence[NDArray[Any]], parameters: Sequence[Parameter], sizes: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """What arrays' shapes say of sizes, each of which is the extent of an axis of an input.

    Args:
        inputs: as many as there are parameters.
        parameters: which they are given for.
        sizes: least and greatest value, by name.

    Returns:
        By name, in the order of `sizes`.

    Raises:
        RunError: an array of another number of axes, two that disagree, or a size out of its range.
    """
    if not sizes:
        return {}
    found: dict[str, tuple[int, str]] = {}
    for array, parameter in zip(inputs, parameters, strict=True):
        if array.ndim != len(parameter.shape):
            raise RunError(
                f"input `{parameter.name}` must have {len(parameter.shape)} axes, but got shape {array.shape}"
            )
        for axis, (extent, number) in enumerate(zip(parameter.extents, array.shape, strict=False)):
            if not isinstance(extent, str):
                continue
            low, high = sizes[extent]
            where = f"axis {axis} of `{parameter.name}`"
            if not low <= number <= high:
                raise RunError(f"size `{extent}` must be {low} to {high}, but {where} is {number}")
            first, before = found.setdefault(extent, (number, where))
            if first != number:
                raise RunError(f"size `{extent}` must be one number, but {before} is {first}, {where} is {number}")
    return {name: found[name][0] for name in sizes}


def check_array(array: NDArray[Any], parameter: Parameter, what: str) -> None:
    """Holds an array against what is to be given in its place.

    Raises:
        RunError: it is another one.
    """
    if array.shape != parameter.shape or array.dtype != numpy_dtype(parameter.dtype):
        raise RunError(
            f"{what} `{parameter.name}` must be {parameter.dtype} of shape {parameter.shape}, "
            f"but got {array.dtype} of shape {array.shape}"
        )


class Target(ABC):
    """One kind of machine: its limits, its code emitter, its runner.

    Attributes:
        name: by which `targets.registry` knows it.
        simulated: whether kernels run in a simulator, so that their times are not those of this host, and disturb none.
        peers: names of the runtimes that layers and networks are timed beside, as they run on the same processor.
        alignment: bytes of which the address of every array that a kernel takes must be a multiple.
        spacing: bytes; values in the memory of a network begin at multiples of it.
        loops: whether networks may have loops; otherwise every step of one is calls of its own.
        open_sizes: whether kernels, and networks of them, take sizes that are known when they are called.
        states: whether networks may have inputs whose last rows they write in place.
        splits_windows: whether networks gain where convolutions of large windows are split into smaller ones.
        host: of an accelerator, name of the target that computes those parts of a network that it cannot; empty: it
            computes whole networks, or none.
        ray_resource: of Ray's own that counts its devices, such as `GPU`; empty: a custom one, `autotune_NAME`.
    """

    name: str
    simulated: bool = False
    peers: tuple[str, ...] = ()
    alignment: int = 1
    spacing: int = 64
    loops: bool = False
    open_sizes: bool = False
    states: bool = False
    splits_windows: bool = True
    host: str = ""
    ray_resource: str = ""

    @property
    @abstractmethod
    def hardware(self) -> Hardware:
        """Its limits, as sketch rules and estimates know them."""

    @property
    def identity(self) -> Mapping[str, Any] | None:
        """What the machine code of a program depends on besides the program, as plain data.

        None: not all of it is known, and what was built before is not taken in its place.
        """
        return None

    @property
    def tools(self) -> Mapping[str, Any]:
        """Programs of this host that `link` runs, as plain data that is another one where they are others."""
        return {}

    @property
    def stages(self) -> Mapping[str, Callable[[Module], str]]:
        """Texts of a module on its way to machine code, by what they are, in the order in which they are made."""
        return {"assembly": self.assembly}

    @property
    def cache_bytes(self) -> int:
        """Bytes of the last cache in front of memory."""
        return self.hardware.l3_bytes

    def fastest(self, threads: int) -> float:
        """Operations a second beyond all that run as this target; a latency that takes more was not measured."""
        return FASTEST

    def configuration(self) -> dict[str, Any] | None:
        """Fields of the design, which a file `NAME:FILE.json` may set; None for a machine that is what it is."""
        return None

    def figures(self) -> dict[str, Any] | None:
        """What was probed of this host's processor, as a file has it; None for a machine that is described."""
        return None

    def unavailable(self) -> str:
        """Why this machine cannot run what is built, as a sentence; empty where it can."""
        return ""

    def refusal(self, module: Module) -> str:
        """Why a module is not worth timing where another one has been, as a sentence; empty where it is."""
        return ""

    def spills(self, program: LoopProgram, name: str = "kernel") -> tuple[float, Module | None]:
        """Share of the instructions of a program's busiest innermost loops that keep on the stack what has no register.

        0 on targets whose compiler is not known to spill what the space's limits let through.

        Returns:
            The share, and what `build` makes of the program under this name where it had to be built to know.

        Raises:
            BuildError: it had to be, and cannot.
        """
        return 0.0, None

    @abstractmethod
    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        """Machine code for a concrete loop program.

        Raises:
            BuildError: the program holds something this target has no code for.
            VerifyError: the program breaks the grammar of loop programs.
        """

    @abstractmethod
    def load(self, module: Module) -> Kernel:
        """The module, ready to run in this process."""

    @abstractmethod
    def assembly(self, module: Module) -> str:
        """The module's machine code as assembly text."""

    def export(self, module: Module, folder: Path, name: str) -> list[str]:
        """Writes a kernel as files for programs that do not use this package; the files' names.

        By default `name`.module, which `Module.from_bytes` reads.

        Raises:
            RuntimeError: it cannot be exported.
        """
        (folder / f"{name}.module").write_bytes(module.to_bytes())
        return [f"{name}.module"]

    def library(self, files: Mapping[str, bytes]) -> object:
        """What `link` has written before, contents by name, as `packer` takes it; None: it cannot be used."""
        return None

    def packer(self, module: Module, library: object = None) -> Packer | None:
        """What makes the constants that a module's kernels take, of all its inputs, when a network is compiled.

        None: they lie in the network as they are, and what is packed is made when it is loaded.

        Args:
            module: of the kernel; without its code where there is a library.
            library: that has the kernel, see `library`.
        """
        return None

    def link(self, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
        """Writes to `folder` what runs a network, its weights not included.

        Returns:
            What the network's manifest has of it: `kind`, that of its executable's `format`, the bytes of further
            `memory` by what they are for, and whatever else the executable needs.

        Raises:
            BuildError: networks do not run on this target alone.
        """
        raise BuildError(f"`target` of a whole network must be one that runs all of it, but got {self.name}")
