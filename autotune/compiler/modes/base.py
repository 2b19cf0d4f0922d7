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
    from autotune.graph.quantise.weights import Known

Choose = Callable[["Graph"], "Mixture"]
"""A graph in float32, after the passes → what of it is in which type."""


@dataclass(frozen=True)
class Inputs:
    """Arguments that a caller of the pipeline gives its modes besides the options.

    Attributes:
        choose: makes the choice of mixed precision; None: there is none to make.
        report: whether it is measured what weights of few bits cost.
        known: weights in few bits that other graphs of the model have quantised already.
    """

    choose: Choose | None = None
    report: bool = True
    known: Known | None = None


class Mode:
    """A way to compute with the numbers of a network in float32: passes, and the options that it excludes.

    The passes of `early` see the layers of the model; those of `late` see operations that have kernels. Each returned
    graph says by the types of its values where numbers are rounded: its evaluation in NumPy, the check of an
    executable and the kernels follow from it.

    Attributes:
        name: value of the configuration's key.
        open_sizes: whether a network of open sizes may be computed so.
        narrow_models: whether a model that has 16-bit floats itself may be computed so.
        weights_only: of a value of `network.quantise`, whether layers compute in floats.
    """

    name: ClassVar[str]
    open_sizes: ClassVar[bool] = True
    narrow_models: ClassVar[bool] = True
    weights_only: ClassVar[bool] = False

    def __repr__(self) -> str:
        return self.name

    @property
    def chooses(self) -> bool:
        """Says whether types are chosen kernel by kernel."""
        return self.name in CHOOSING

    def check(self, options: CompileOptions) -> None:
        """Refuses options that the mode excludes.

        Raises:
            ValueError: there are such options.
        """

    def early(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        """Lists passes over the model's layers."""
        return ()

    def late(self, options: CompileOptions, inputs: Inputs) -> Sequence[GraphPass]:
        """Lists passes over operations that have kernels."""
        return ()
