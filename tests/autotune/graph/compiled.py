"""Node tests of ONNX through kernels: the networks of many tests, side by side in one executable, with no trial.

`python -m tests.autotune.graph.compiled [PATTERN]` runs all that apply, or those whose names match, and counts.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autotune.compiler.executable.compile import Compiler
from autotune.compiler.executable.loading import load
from autotune.compiler.prepare import load_network
from autotune.compiler.schedules import Schedules
from autotune.config import ConfigError
from autotune.graph.errors import GraphError, UnsupportedModelError
from autotune.graph.ir import Array, Graph, GraphBuilder
from autotune.tuner.settings import Settings
from targets.base import BuildError
from tests.autotune.fakes import settings_with
from tests.autotune.graph.conformance import Case, cases, outside, passing

TOGETHER = 40
"""Tests of one executable: it costs a linker and a process for each core that chooses schedules."""

REFUSALS = (AssertionError, BuildError, ConfigError, GraphError, UnsupportedModelError)
"""Errors by which an operator shows that it is not supported, or computes something else."""


def failing(cases: Sequence[Case], schedules: Schedules, settings: Settings) -> dict[str, str]:
    """Tests whose kernels cannot be made or compute something else → why."""
    failed: dict[str, str] = {}
    graphs: dict[str, tuple[Case, Graph]] = {}
    for case in cases:
        try:
            graphs[case.name] = case, load_network(case.model_with_initialisers()[0], case.name).graph
        except REFUSALS as error:
            failed[case.name] = _first_line(error)
    names = list(graphs)
    for start in range(0, len(names), TOGETHER):
        part = [graphs[name] for name in names[start : start + TOGETHER]]
        failed.update(_failing_together(part, schedules, settings))
    return failed


def _failing_together(cases: Sequence[tuple[Case, Graph]], schedules: Schedules, settings: Settings) -> dict[str, str]:
    """Returns name → reason of the cases that fail in one executable.

    If kernels of some cannot be built, each half runs by itself, until it is clear which case they belong to.
    """
    try:
        found = _run([graph for _, graph in cases], [case for case, _ in cases], schedules, settings)
    except REFUSALS as error:
        if len(cases) == 1:
            return {cases[0][0].name: _first_line(error)}
        half = len(cases) // 2
        parts = (cases[:half], cases[half:])
        return {name: why for part in parts for name, why in _failing_together(part, schedules, settings).items()}
    failed = {}
    for (case, _), outputs in zip(cases, found, strict=True):
        try:
            case.compare(outputs)
        except AssertionError as error:
            failed[case.name] = _first_line(error)
    return failed


def _run(graphs: Sequence[Graph], cases: Sequence[Case], schedules: Schedules, settings: Settings) -> list[list[Array]]:
    """Outputs of each case, in the order of its model."""
    whole = side_by_side(graphs)
    compiler = Compiler(whole, schedules, settings.target.name, settings.threads)
    schedules.prepare(compiler.workloads)
    feeds = [case.inputs[name] for case, graph in zip(cases, graphs, strict=True) for name in graph.inputs]
    with tempfile.TemporaryDirectory(prefix="autotune-conformance-") as folder:
        compiler.write(Path(folder))
        outputs = load(folder, settings.threads).infer([np.ascontiguousarray(array) for array in feeds])
    arrays = iter(outputs)
    return [[next(arrays) for _ in graph.outputs] for graph in graphs]


def side_by_side(graphs: Sequence[Graph]) -> Graph:
    """One graph of the inputs, nodes and outputs of all, one after another."""
    inputs = {f"g{i}.{name}": kind for i, graph in enumerate(graphs) for name, kind in graph.inputs.items()}
    builder = GraphBuilder("conformance", inputs)
    outputs = []
    for i, graph in enumerate(graphs):
        names = {name: f"g{i}.{name}" for name in graph.inputs}
        for name, array in graph.constants.items():
            names[name] = builder.constant(array, f"g{i}.{name}")
        for node in graph.nodes:
            read = [names[name] for name in node.inputs]
            names[node.name] = builder.add(node.op, read, f"g{i}.{node.name}", **node.attrs)
        outputs += [names[name] for name in graph.outputs]
    return builder.finish(outputs)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"


def main(pattern: str = "") -> None:
    """Prints how many tests pass through kernels, which do not and why, and why others are left out."""
    chosen = [case for case in passing() if re.search(pattern, case.name)]
    settings = settings_with()
    failed = failing(chosen, Schedules(None, settings), settings)
    for name, why in failed.items():
        print(f"{name}: {why}")
    good = [case for case in chosen if case.name not in failed]
    folded = sum(case.folded for case in good)
    print(
        f"{len(good)} of ONNX's {len(cases())} node tests pass through kernels, {folded} of them copies of a constant"
    )
    reasons = Counter(outside(case) for case in cases().values() if re.search(pattern, case.name))
    for reason, count in reasons.most_common():
        if reason is not None:
            print(f"{count:5d} left out: {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
