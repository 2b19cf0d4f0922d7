"""Limits of what the import of a model may create: a file of a few bytes can ask for arrays of terabytes."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.types import TensorType

MOST_CONSTANT_BYTES = 1 << 30
"""Maximum bytes of all constants that are computed while a model with few weights is read."""

GROWTH = 64
"""Maximum ratio of a large model's constants to its weights: 4 bits become 32, in a few steps."""

MOST_NODES = 1 << 20
"""Maximum nodes of a model: nested functions that call others twice could have any number."""

MOST_VALUE_BYTES = 1 << 36
"""Maximum bytes of a value at run time: scores of 32 heads over 16,384 words take half of that."""


@dataclass
class Budget:
    """A budget of bytes for constants, and of nodes.

    Attributes:
        most: maximum bytes of all constants.
        used_bytes: bytes of computed constants.
        nodes: imported nodes; those of functions and of steps of loops count each time.
    """

    most: int = MOST_CONSTANT_BYTES
    used_bytes: int = 0
    nodes: int = 0

    @classmethod
    def of_weights(cls, nbytes: int) -> Budget:
        """Returns the budget of a model whose weights have `nbytes` bytes."""
        return cls(max(MOST_CONSTANT_BYTES, GROWTH * nbytes))

    def take(self, title: str, kind: TensorType) -> None:
        """Counts a constant before it is created.

        Raises:
            UnsupportedModelError: all constants together would take more than `most`.
        """
        self.used_bytes += kind.nbytes
        if self.used_bytes > self.most:
            raise UnsupportedModelError(
                f"constants that are computed while a model is read must take at most {self.most} bytes together, "
                f"but got {kind} of {kind.nbytes} bytes from {title}"
            )

    def count_node(self, title: str) -> None:
        """Counts a node before it is imported.

        Raises:
            UnsupportedModelError: there are more than `MOST_NODES` nodes.
        """
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise UnsupportedModelError(
                f"a model must have at most {MOST_NODES} nodes, those of functions and steps each time, "
                f"but got more, the next of them {title}"
            )


def check_value(title: str, kind: TensorType) -> None:
    """Checks a value that is computed at run time.

    Raises:
        UnsupportedModelError: the value takes more than `MOST_VALUE_BYTES`.
    """
    if kind.nbytes > MOST_VALUE_BYTES:
        raise UnsupportedModelError(
            f"values of a model must take at most {MOST_VALUE_BYTES} bytes each, but got {kind} of {kind.nbytes} "
            f"bytes from {title}"
        )
