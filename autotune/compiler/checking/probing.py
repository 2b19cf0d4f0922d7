"""Outputs of executables for a check, and of probing ones whose additional outputs are values in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.compiler.build import compile_network
from autotune.compiler.checking.comparison import Rounding, relative_error
from autotune.compiler.prepare import Network
from autotune.compiler.schedules import Schedules
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Array, Graph
from autotune.tuner.settings import Settings
from targets.executable import Executable

NOISE, LARGEST = 1.25, 2.0
"""Ratio of the noise of two evaluations that round alike, and of their largest differences, that chance explains.

Both round the same values, and differ in those that lie near a tie. More is no proof of a fault: then the values in
between are compared.
"""

NOTICEABLE = 1e-3
"""Change of an output, over its largest element, by which one per cent of the inputs shows in it."""

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Probing:
    """Compilation of a network with additional outputs, for cases where its own executable's outputs do not suffice.

    Attributes:
        network: network that is checked.
        schedules: schedules of its kernels.
        settings: target and threads.
        feeds: inputs by name.
        seed: random seed of the inputs.
        tolerance: greatest error of an output, over its largest element.
        layers: whether to compare values in between in any case.
        folder: folder of the files of executables.
    """

    network: Network
    schedules: Schedules
    settings: Settings
    feeds: Mapping[str, Array]
    seed: int
    tolerance: float
    layers: bool
    folder: Path

    def needs_values_between(self, error: float, expected: Values, reference: Callable[[Values], Values]) -> bool:
        """Tells whether values in between must be compared.

        They must if outputs are wrong, or hardly depend on the inputs, like a softmax that is 1 for one class whatever
        the image: such outputs would hide a fault.

        Args:
            error: largest error of an output.
            expected: outputs of the reference.
            reference: function inputs → outputs of the reference.
        """
        if self.layers or self.is_wrong(error):
            return True
        moved = reference(moved_inputs(self.feeds, self.seed))
        return not all(relative_error(moved[name], array) > NOTICEABLE for name, array in expected.items())

    def is_wrong(self, error: float) -> bool:
        """Tells whether an error exceeds the tolerance; NaN does."""
        return not error <= self.tolerance

    def outputs(self, network: Network) -> Sequence[Array]:
        """Compiles a network by the same schedules and computes its outputs."""
        folder = self.folder / "probe"
        executable = compile_network(replace(network, tasks=()), self.schedules, folder, self.settings)
        return compute_outputs(executable, self.feeds)

    def values(self, names: Sequence[str]) -> dict[str, Array]:
        """Computes values of the network's graph by an executable that has them as outputs."""
        probed = with_outputs(self.network.graph, names)
        return dict(zip(names, self.outputs(replace(self.network, graph=probed)), strict=True))


def with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """Makes a graph that has these values as its outputs, ready for kernels."""
    return executable_graph(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, tuple(names)))


def moved_inputs(feeds: Values, seed: int) -> dict[str, Array]:
    """Changes floats by about one per cent, and replaces a tenth of all integers by others of their array."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, array in feeds.items():
        if array.dtype.kind in "iub":
            moved[name] = np.where(rng.random(array.shape) < 0.1, array.reshape(-1)[::-1].reshape(array.shape), array)
        else:
            moved[name] = (array * (1 + 0.01 * rng.standard_normal(array.shape))).astype(array.dtype)
    return moved


def compute_outputs(executable: Executable, feeds: Mapping[str, Array]) -> Sequence[Array]:
    """Computes the outputs of one inference, in order."""
    out = executable(*(feeds[p.name] for p in executable.inputs))
    return out if isinstance(out, tuple) else (out,)


def is_as_near(actual: Array, other: Array, exact: Array) -> bool:
    """Tells whether an output is as near to the exact one as another evaluation that rounds at the same places."""
    ours, theirs = (Rounding.between(array, exact) for array in (actual, other))
    return ours.noise <= NOISE * theirs.noise and ours.error <= LARGEST * theirs.error
