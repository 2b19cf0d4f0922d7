"""How much the import of a model may make: a file of a few bytes can ask for arrays of terabytes."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.graph.errors import ModelError
from autotune.graph.types import TensorType

MOST_CONSTANT_BYTES = 1 << 30
"""Bytes of all constants together that are computed while a model with few weights is read."""

GROWTH = 64
"""How many times the bytes of its weights the constants of a large model may have: 4 bits become 32, in a few steps."""

MOST_NODES = 1 << 20
"""Nodes of a model: a function that calls another twice, which calls a third one twice, has as many as one likes."""

MOST_VALUE_BYTES = 1 << 36
"""Bytes of a value that is computed when the network runs: scores of 32 heads over 16,384 words have half of that."""


@dataclass
class Budget:
    """Bytes that constants may still take.

    Attributes:
        most: bytes of all of them.
        taken: bytes of those that were computed.
        nodes: nodes that were imported, those of functions and of steps of loops each time.
    """

    most: int = MOST_CONSTANT_BYTES
    taken: int = 0
    nodes: int = 0

    @classmethod
    def of_weights(cls, nbytes: int) -> Budget:
        """The budget of a model whose weights have so many bytes."""
        return cls(max(MOST_CONSTANT_BYTES, GROWTH * nbytes))

    def take(self, title: str, kind: TensorType) -> None:
        """Counts a constant, before it is made.

        Raises:
            ModelError: all constants together would take more than `most`.
        """
        self.taken += kind.nbytes
        if self.taken > self.most:
            raise ModelError(
                f"constants that are computed while a model is read must take at most {self.most} bytes together, "
                f"but got {kind} of {kind.nbytes} bytes from {title}"
            )

    def count_node(self, title: str) -> None:
        """Counts a node, before it is imported.

        Raises:
            ModelError: there are more than `MOST_NODES`.
        """
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise ModelError(
                f"a model must have at most {MOST_NODES} nodes, those of functions and steps each time, "
                f"but got more, the next of them {title}"
            )


def check_value(title: str, kind: TensorType) -> None:
    """Checks a value that is computed when the network runs.

    Raises:
        ModelError: it takes more than `MOST_VALUE_BYTES`.
    """
    if kind.nbytes > MOST_VALUE_BYTES:
        raise ModelError(
            f"values of a model must take at most {MOST_VALUE_BYTES} bytes each, but got {kind} of {kind.nbytes} "
            f"bytes from {title}"
        )
