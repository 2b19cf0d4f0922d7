"""The interface of a way to compute with a network's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from autotune.graph.passes.pipeline import GraphPass
from autotune.modes import CHOOSING

if TYPE_CHECKING:
    from autotune.compiler.options import CompileOptions
    from autotune.graph.ir import Graph
    from autotune.graph.mixed import Mixture
    from autotune.graph.quantise.weights import QuantisedWeightCache

Choose = Callable[["Graph"], "Mixture"]
"""Function that maps a graph in float32, after the passes, to the types of its parts."""


@dataclass(frozen=True)
class Inputs:
    """Arguments that a caller of the pipeline passes to its modes besides the options.

    Attributes:
        choose: function that makes the choice of mixed precision; None for other modes.
        report: whether to measure the error due to weights of few bits.
        weight_cache: weights in few bits that other graphs of the model have quantised already.
    """

    choose: Choose | None = None
    report: bool = True
    weight_cache: QuantisedWeightCache | None = None


class Mode:
    """Way to compute with the numbers of a network in float32: passes, and the options that it excludes.

    The passes of `early` see the layers of the model; those of `late` see operations that have kernels. The types of
    values in each returned graph determine where numbers are rounded: its evaluation in NumPy, the check of an
    executable and the kernels follow them.

    Attributes:
        name: value of the configuration's key.
        open_sizes: whether the mode supports networks of open sizes.
        narrow_models: whether the mode supports models that have 16-bit floats themselves.
        weights_only: whether layers compute in floats, for a value of `network.quantise`.
    """

    name: ClassVar[str]
    open_sizes: ClassVar[bool] = True
    narrow_models: ClassVar[bool] = True
    weights_only: ClassVar[bool] = False

    def __repr__(self) -> str:
        return self.name

    @property
    def chooses(self) -> bool:
        """Tells whether types are chosen kernel by kernel."""
        return self.name in CHOOSING

    def check(self, options: CompileOptions) -> None:
        """Refuses options that the mode excludes.

        Raises:
            ValueError: the mode excludes an option.
        """

    def early(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        """Lists passes over the model's layers."""
        return ()

    def late(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        """Lists passes over operations that have kernels."""
        return ()
