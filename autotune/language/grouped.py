"""Weights of 4 or 8 bits in groups that share a scale, as files of models have them: of products and of embeddings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.types import Array


def narrow_scales(scales: Array) -> Array:
    """Returns scales in float16 if it represents all of them exactly, else in float32."""
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16)
    return halves if bool(np.all(halves == scales)) else scales.astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class GroupedWeight:
    """Weights (inputs, outputs) of a product, the constants of the operation `matmul_nbits`.

    Attributes:
        bits: 4 or 8.
        numbers: uint8 (groups, bytes of a group, outputs).
        scales: float32 or float16 (groups, outputs).
        zeros: float32 (groups, outputs); None: all are 2^(bits - 1).
    """

    bits: int
    numbers: Array
    scales: Array
    zeros: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Inputs and outputs of the product."""
        groups, size, outputs = self.numbers.shape
        return groups * size * 8 // self.bits, outputs

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The constants in the order of the operation's inputs."""
        return (self.numbers, self.scales) if self.zeros is None else (self.numbers, self.scales, self.zeros)

    def multiply(self, factor: float) -> GroupedWeight:
        """Multiplies the weights by a number; scales that float16 cannot represent become float32."""
        return replace(self, scales=narrow_scales(self.scales.astype(np.float32) * np.float32(factor)))

    def split(self, count: int) -> list[GroupedWeight]:
        """Splits the outputs into equal parts."""
        parts = zip(*(np.split(array, count, axis=-1) for array in self.arrays), strict=True)
        return [GroupedWeight(self.bits, *(np.ascontiguousarray(array) for array in arrays)) for arrays in parts]


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """A table of embeddings (rows, features): `numbers * scales - shifts`.

    Attributes:
        numbers: int8 or uint8 (rows, features).
        scales: float32 or float16 (rows, groups).
        shifts: float32 (rows, groups); None: none.
    """

    numbers: Array
    scales: Array
    shifts: Array | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        rows, features = self.numbers.shape
        return rows, features

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays that make up the table."""
        return (self.numbers, self.scales) if self.shifts is None else (self.numbers, self.scales, self.shifts)
