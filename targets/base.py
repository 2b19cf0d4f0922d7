"""Interface of a target: it builds loop programs into modules of plain data, and loads modules as kernels that run."""

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
from targets.plan import BufferRef as BufferRef
from targets.plan import Case as Case
from targets.plan import Choice as Choice
from targets.plan import Loop as Loop
from targets.plan import NetworkPlan as NetworkPlan
from targets.plan import Packing as Packing
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
"""Operations a second that no core of a processor reaches; the fastest matrix units do 1e13 on bytes."""


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
        """Runs the kernel once and returns its output, the same array every time."""

    @abstractmethod
    def time(self, iterations: int, threads: int | None = None) -> NDArray[np.float64]:
        """Times each of `iterations` runs in native code and returns their seconds."""

    @abstractmethod
    def feed(self, inputs: Sequence[NDArray[Any]], fill: int) -> None:
        """Prepares runs whose output is to be checked: overwrites everything that a run must not rely on.

        Args:
            inputs: inputs of the kernel, as `bind` takes them; constants stay as they are.
            fill: byte that fills memory for intermediate results. A target that copies outputs back copies `outputs` to
                the machine.
        """

    @abstractmethod
    def fetch(self) -> NDArray[Any]:
        """Returns the output array as the last execution left it, whether by `run` or by `time`."""

    def damage(self) -> str:
        """Describes in a sentence which memory runs have written outside their arrays; empty if none is known."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Returns further figures of an execution by name; records store them, so they are few."""
        return {}


class Kernel(ABC):
    """A loaded module."""

    module: Module

    def __repr__(self) -> str:
        """Formats the kernel as one line: its parameters, its outputs and its target."""
        outputs = [p for p in self.module.parameters if p.name in self.module.outputs]
        taken, given = (", ".join(p.description for p in of) or "nothing" for of in (self.module.sources, outputs))
        return f"{type(self).__name__} {self.module.name} for {self.module.target}: {taken} -> {given}"

    def __call__(self, *arguments: Any) -> None:
        """Runs on inputs..., outputs...; the outputs are written in place. Threads may call it at the same time.

        Arrays are NumPy's, or objects that offer `__array__` or DLPack.

        Raises:
            RunError: other arrays than the kernel takes.
        """
        arrays = as_arrays(arguments)
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
        """Checks inputs against the parameters of the kernel.

        Returns:
            Value of each open size by name, in the order in which the kernel takes them.

        Raises:
            RunError: an input does not fit its parameter.
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
            inputs: inputs of the kernel.
            copies: if more than 1, timed executions read cold constants: by rotating so many copies, or by flushing
                caches.
            fenced: whether memory around arrays is guarded, so that `Bound.damage` detects writes to it.
        """


def as_arrays(values: Sequence[Any]) -> list[NDArray[Any]]:
    """Converts the arguments of a kernel to arrays of NumPy.

    Raises:
        RunError: an argument that is no array.
    """
    try:
        return [as_array(value) for value in values]
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise RunError(f"a kernel must be given arrays, but {error}") from error


def as_array(value: Any) -> NDArray[Any]:
    """Returns an array of NumPy on the memory of an object that offers `__array__` or DLPack.

    A tensor of PyTorch in bfloat16 offers neither; its bits are viewed.

    Raises:
        TypeError: the object offers neither. Other errors of `__array__` and `__dlpack__` pass through.
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
    """Reads sizes off the shapes of arrays; each size is the extent of an axis of an input.

    Args:
        inputs: one array per parameter.
        parameters: parameters of the arrays, in the same order.
        sizes: least and greatest value, by name.

    Returns:
        Value of each size by name, in the order of `sizes`.

    Raises:
        RunError: an array of another number of axes, two that disagree, or a size out of its range.
    """
    if not sizes:
        return {}
    first_seen: dict[str, tuple[int, str]] = {}
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
            first, before = first_seen.setdefault(extent, (number, where))
            if first != number:
                raise RunError(f"size `{extent}` must be one number, but {before} is {first}, {where} is {number}")
    return {name: first_seen[name][0] for name in sizes}


def check_array(array: NDArray[Any], parameter: Parameter, what: str) -> None:
    """Checks an array against its parameter.

    Raises:
        RunError: shape or dtype differ.
    """
    if array.shape != parameter.shape or array.dtype != numpy_dtype(parameter.dtype):
        raise RunError(
            f"{what} `{parameter.name}` must be {parameter.dtype} of shape {parameter.shape}, "
            f"but got {array.dtype} of shape {array.shape}"
        )


class Target(ABC):
    """One kind of machine: its limits, its code emitter, its runner.

    Attributes:
        name: key of the target in `targets.registry`.
        simulated: whether kernels run in a simulator, so that their times are not those of this host, and disturb none.
        peers: names of the runtimes that layers and networks are timed beside, as they run on the same processor.
        alignment: alignment in bytes of the address of every array that a kernel takes.
        spacing: bytes; values in the memory of a network begin at multiples of it.
        loops: whether networks may have loops; otherwise every step of one is calls of its own.
        open_sizes: whether kernels and networks may have sizes that are known only when they are called.
        states: whether networks may have inputs whose last rows they write in place.
        splits_windows: whether networks gain where convolutions of large windows are split into smaller ones.
        host: name of the target that runs the operators that an accelerator lacks; empty if it runs
            whole networks, or no networks.
        ray_resource: Ray's own resource that counts the devices, such as `GPU`; empty for a custom one,
            `autotune_NAME`.
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
        """All that the machine code of a program depends on besides the program, as plain data.

        None if some of it is unknown: then no earlier build is reused.
        """
        return None

    @property
    def tools(self) -> Mapping[str, Any]:
        """Programs of this host that `link` runs, as plain data that changes if the programs change."""
        return {}

    @property
    def stages(self) -> Mapping[str, Callable[[Module], str]]:
        """Functions that return a module's text at each stage on its way to machine code, by stage, in order."""
        return {"assembly": self.assembly}

    @property
    def cache_bytes(self) -> int:
        """Bytes of the last cache in front of memory."""
        return self.hardware.l3_bytes

    def fastest(self, threads: int) -> float:
        """Returns operations a second that no machine of this target reaches; a latency that implies more was
        mismeasured.
        """
        return FASTEST

    def configuration(self) -> dict[str, Any] | None:
        """Returns the fields of the design that a file `NAME:FILE.json` may set; None for a fixed machine."""
        return None

    def figures(self) -> dict[str, Any] | None:
        """Returns the probed figures of this host's processor in the form of a file; None for a machine that is
        described.
        """
        return None

    def unavailable(self) -> str:
        """Explains in a sentence why this machine cannot run the target's modules; empty if it can."""
        return ""

    def refusal(self, module: Module) -> str:
        """Explains in a sentence why a module is not worth timing once another one was timed, or returns ""."""
        return ""

    def spills(self, program: LoopProgram, name: str = "kernel") -> tuple[float, Module | None]:
        """Returns the share of instructions in a program's busiest innermost loops that spill registers to the stack.

        0 on targets whose compiler is not known to spill programs within the space's limits.

        Returns:
            The share; and the module of the program under this name, if it was built to know the share.

        Raises:
            BuildError: the program had to be built, and cannot be.
        """
        return 0.0, None

    @abstractmethod
    def build(self, program: LoopProgram, name: str = "kernel") -> Module:
        """Builds machine code for a concrete loop program.

        Raises:
            BuildError: the program holds something this target has no code for.
            VerifyError: the program breaks the grammar of loop programs.
        """

    @abstractmethod
    def load(self, module: Module) -> Kernel:
        """Loads a module, ready to run in this process."""

    @abstractmethod
    def assembly(self, module: Module) -> str:
        """Returns the module's machine code as assembly text."""

    def export(self, module: Module, folder: Path, name: str) -> list[str]:
        """Writes a kernel as files for programs that do not use this package; the files' names.

        By default `name`.module, which `Module.from_bytes` reads.

        Raises:
            RuntimeError: it cannot be exported.
        """
        (folder / f"{name}.module").write_bytes(module.to_bytes())
        return [f"{name}.module"]

    def library(self, files: Mapping[str, bytes]) -> object:
        """Opens the library among the files of an earlier `link`, contents by name, for `packer`; None if unusable."""
        return None

    def packer(self, module: Module, library: object = None) -> Packer | None:
        """Returns the function that packs the constants of a module's kernel when a network is compiled.

        The function takes all inputs of the kernel. None: the network stores constants as they are, and packs them when
        it is loaded.

        Args:
            module: module of the kernel; without its code if there is a library.
            library: library that contains the kernel, from `library`.
        """
        return None

    def link(self, plan: NetworkPlan, folder: Path) -> dict[str, Any]:
        """Writes the files that run a network to `folder`, without its weights.

        Returns:
            Entries of the network's manifest: `kind`, that of its executable's `format`; bytes of further `memory` by
            purpose; and all else that the executable needs.

        Raises:
            BuildError: networks do not run on this target alone.
        """
        raise BuildError(f"`target` of a whole network must be one that runs all of it, but got {self.name}")
