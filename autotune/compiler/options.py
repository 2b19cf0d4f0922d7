"""Options of a compilation, and the checks of all combinations that exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.compiler.modes import Mode, precision_mode, quantisation_mode
from autotune.config import ConfigError, Quantisation
from autotune.graph.offload import Block, matrix_block
from autotune.graph.passes.pipeline import GraphPass
from autotune.graph.passes.sparse_products import SparseProducts
from autotune.graph.precision import FULL
from autotune.tuner.task import CPU
from targets import registry
from targets.base import Target

SHIFTS = "shift8"
"""Mode of the layers that an accelerator computes."""
SPARSE_PRECISIONS, SPARSE_MODES = (FULL, "bfloat16"), (None, "int8")
"""Precisions and quantisations in which products with sparse weights have kernels."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of the compilation of a graph.

    Attributes:
        target: target of the kernels, except those of `device`.
        device: accelerator that computes the layers it supports; needs `quantise` shift8.
        precision: precision for a graph in float32; one with 16-bit floats keeps its own. May be given by its name.
        quantise: mode of layers with integers; None: layers compute in floats. May be given by its name.
        quantisation: parameters of the quantisation.
        passes: names of the graph passes to run; None: all.
        substitutions: later passes that replace parts of a graph by faster ones of other rounding errors.
        sparsity: least share of a weight in blocks of zeros, which its product then leaves out; None: no product does.
        shapes: shapes that the executable takes; by default those of the graph.
        seed: seed of every random draw, and of weights that the model does not carry.

    Raises:
        ValueError: a precision or mode is unknown, or options exclude each other.
    """

    target: Target = field(default_factory=partial(registry.get, CPU))
    device: Target | None = None
    precision: Mode = field(default_factory=partial(precision_mode, "float32"))
    quantise: Mode | None = None
    quantisation: Quantisation = Quantisation()
    passes: Sequence[str] | None = None
    substitutions: Sequence[GraphPass] = ()
    sparsity: float | None = None
    shapes: ShapeSet = FIXED
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.precision, str):
            object.__setattr__(self, "precision", precision_mode(self.precision))
        if isinstance(self.quantise, str):
            object.__setattr__(self, "quantise", quantisation_mode(self.quantise))
        self.precision.check(self)
        if self.device is not None and (self.quantise is None or self.quantise.name != SHIFTS):
            on, mode = self.device.name, None if self.quantise is None else self.quantise.name
            raise ValueError(f"`quantise` must be {SHIFTS!r} for layers on {on}, but got quantise={mode!r}")
        if self.quantise is not None:
            self.quantise.check(self)
        mode = None if self.quantise is None else self.quantise.name
        if self.sparsity is not None and (mode not in SPARSE_MODES or self.precision.name not in SPARSE_PRECISIONS):
            raise ValueError(
                f"`sparsity` must be None but for layers in {', '.join(SPARSE_PRECISIONS)} or int8, "
                f"but got precision={self.precision.name!r}, quantise={mode!r}"
            )
        if self.sparsity is not None and self.target.hardware.kind != "cpu":
            raise ValueError(f"`sparsity` must be None but for targets on a CPU, but got target={self.target.name!r}")
        refused = {
            "network.quantise": self.quantise is not None and not self.quantise.open_sizes,
            "network.substitutions": bool(self.substitutions),
            "network.sparsity": self.sparsity is not None,
            "network.precision": not self.precision.open_sizes,
        }
        for key, given in refused.items():
            if given and self.shapes.sizes:
                raise ConfigError(f"`{key}` must be left out where `sizes` are open, but it is given", key)

    @property
    def block(self) -> Block | None:
        """Block of the device's matrix instruction; None without a device.

        Raises:
            ValueError: the device has no such instruction.
        """
        if self.device is None:
            return None
        block = matrix_block(self.device.hardware)
        if block is None:
            raise ValueError(
                f"`device` must be a target with a matrix instruction on blocks, but got device={self.device.name!r}"
            )
        return block

    @property
    def replacements(self) -> Sequence[GraphPass]:
        """Later passes that replace parts of a graph: the substitutions, and sparse products."""
        sparse = () if self.sparsity is None else (SparseProducts(self.sparsity, required=True),)
        return (*self.substitutions, *sparse)

    @property
    def plain(self) -> bool:
        """Tells whether the passes leave precision and layers unchanged."""
        changes = (self.quantise, self.device) != (None, None) or bool(self.replacements)
        return self.precision.name == FULL and not changes
