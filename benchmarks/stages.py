"""Programs of this package that measure a table each, in the order in which `python -m benchmarks` runs them."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.collected import OF_ANY_PROCESSOR
from benchmarks.provenance import read_commit
from measure.host import describe_host


@dataclass(frozen=True)
class Stage:
    """A program that collects a table, a row at a time.

    Attributes:
        table: name of the result file, and of the stage in `--only`.
        arguments: arguments after `python -m`.
        minutes: time that it takes on two cores, about.
        is_long: whether it waits for `--long`: searches of many trials, and tables that support no line of README.
    """

    table: str
    arguments: tuple[str, ...]
    minutes: float
    is_long: bool = False

    def is_finished(self, folder: Path = results.FOLDER) -> bool:
        """Tells whether its table is of this commit and processor, or takes rows of any processor."""
        state = (results.load(self.table, folder) or {}).get("state", {})
        if not state or state["commit"] != read_commit():
            return False
        return self.table in OF_ANY_PROCESSOR or state.get("cpu") == describe_host()["cpu"]

    @property
    def command_line(self) -> str:
        """The command line that measures it, as a page names it."""
        return " ".join(("python -m", *self.arguments))

    def command(self, minutes: float, folder: Path = results.FOLDER) -> list[str]:
        """Makes the command that runs it for at most so many minutes, and writes its table into a folder."""
        bound = ["--minutes", f"{max(minutes, 0.1):.1f}"] if math.isfinite(minutes) else []
        place = ["--results", str(folder)] if folder != results.FOLDER else []
        return [sys.executable, "-m", *self.arguments, *bound, *place]


STAGES = (
    Stage("operators", ("benchmarks.operators",), 45),
    Stage("networks_0_2", ("benchmarks.networks",), 75),
    Stage("precisions", ("benchmarks.precisions",), 35),
    Stage("quantized_networks", ("benchmarks.quantized_networks",), 15),
    Stage("weights_only", ("benchmarks.weights_only",), 20),
    Stage("language_2", ("benchmarks.language",), 40),
    Stage("sizes", ("benchmarks.sizes",), 10),
    Stage("scaling", ("benchmarks.scaling",), 10),
    Stage("serving", ("benchmarks.serving",), 5),
    Stage("half_products", ("benchmarks.half_products",), 2),
    Stage("pytorch", ("benchmarks.pytorch",), 55),
    Stage("training", ("benchmarks.pytorch.training",), 20),
    Stage("tvm", ("benchmarks.tvm",), 100),
    Stage("models", ("benchmarks.models",), 20),
    Stage("search", ("benchmarks.search",), 5),
    Stage("transfer", ("benchmarks.transfer",), 5),
    Stage("throughput", ("benchmarks.throughput",), 5),
    Stage("vta", ("benchmarks.vta",), 5),
    Stage("gradients", ("benchmarks.operators", "--gradients"), 60, is_long=True),
    Stage("networks_0_1", ("benchmarks.networks", "--threads", "1"), 40, is_long=True),
    Stage("networks_10_2", ("benchmarks.networks", "--budget", "10"), 45, is_long=True),
    Stage("networks_1000_2", ("benchmarks.networks", "--budget", "1000"), 30, is_long=True),
    Stage("language_1", ("benchmarks.language", "--threads", "1"), 30, is_long=True),
    Stage("lengths", ("benchmarks.lengths",), 30, is_long=True),
    Stage("warm_start", ("benchmarks.warm_start",), 16, is_long=True),
    Stage("sparsity", ("benchmarks.sparsity",), 25, is_long=True),
    Stage("row_wise", ("benchmarks.row_wise",), 25, is_long=True),
    Stage("orders", ("benchmarks.orders",), 15, is_long=True),
    Stage("in_network", ("benchmarks.in_network",), 10, is_long=True),
    Stage("choices", ("benchmarks.choices",), 30, is_long=True),
    Stage("seeds", ("benchmarks.seeds",), 20, is_long=True),
    Stage("scheduling", ("benchmarks.scheduling",), 20, is_long=True),
    Stage("tvm_long", ("benchmarks.tvm", "--long"), 100, is_long=True),
    Stage("tvm_threads", ("benchmarks.tvm_threads",), 50, is_long=True),
)
"""Stages in order, but those that need a GPU, others' files (`benchmarks.hub`), or exports (`benchmarks.survey`)."""
