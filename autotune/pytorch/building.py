"""Building of a graph's executable, by the roofline or by a search, for compiling and for tuning in the background."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.compiler.modes import precision_mode
from autotune.compiler.options import CompileOptions
from autotune.compiler.plan import CompilePlan
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.config import Measure
from autotune.graph.ir import Array, Graph
from autotune.pytorch.options import Options
from autotune.tuner.settings import Settings
from autotune.tuner.task import CPU
from targets import registry
from targets.native_executable import NativeExecutable
from targets.threads import host_cores


@dataclass(frozen=True)
class Source:
    """Origin of an executable.

    Attributes:
        graph: graph with its constants, which may lie in memory of the model.
        schedules: schedules that it was compiled with.
        digest: digest of the constants at compile time.
    """

    graph: Graph
    schedules: Schedules
    digest: str


class LoadedGraph:
    """An executable as a `Compiled`.

    Attributes:
        executable: executable of a graph; another one of the same graph may replace it between two calls.
        source: origin of the executable, while a faster one may still be searched for.
    """

    def __init__(self, executable: NativeExecutable, source: Source | None = None) -> None:
        self.executable, self.source = executable, source

    def __call__(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Runs one inference."""
        return self.executable.infer(arrays)


class Plan(CompilePlan):
    """Settings of a compilation by `torch.compile`."""

    @classmethod
    def of(cls, options: Options, shapes: ShapeSet = FIXED) -> Plan:
        """Makes the plan that options state, for graphs that take some shapes."""
        threads = options.threads or min(torch.get_num_threads(), host_cores())
        measure = Measure(cache="network", threads=threads)
        settings = Settings(registry.get(CPU), options.trials, options.seed, measure=measure)
        hardware, algorithms = settings.target.hardware, tuple(options.algorithms)
        limits = Limits(extra_algorithms=algorithms, hardware=hardware, open_sizes=bool(shapes.sizes))
        precision = precision_mode(options.precision)
        return cls(settings, limits, CompileOptions(settings.target, precision=precision, shapes=shapes))
