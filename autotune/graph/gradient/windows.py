"""Windows of a convolution whose operands are all computed, and how its products are divided."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_WINDOWS_PER_CHANNEL = 16
"""Windows per channel below which the windows' elements are copied for one matrix product per filter tap."""
_PART_BYTES = 1 << 19
"""Bytes of data and output gradients whose products are summed at a time, so that a second-level cache holds them."""
FEW = 16
"""Minimum number of channels for them to be the innermost axis when elements are copied."""
MOST_TAPS = 64
"""Maximum number of elements of a window of one channel; each is a slice of the data if windows overlap."""


@dataclass(frozen=True)
class Windows:
    """A convolution from data (n, c, *extent) to (n, k, *count).

    Attributes:
        kernel, stride, dilation: numbers for each axis.
        padding, after: padding before and after each axis.
        groups: number of groups of channels.
    """

    n: int
    c: int
    k: int
    extent: tuple[int, ...]
    count: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @property
    def rank(self) -> int:
        """Number of axes that windows slide over."""
        return len(self.extent)

    @property
    def taps(self) -> int:
        """Number of elements of a window of one channel."""
        return math.prod(self.kernel)

    @property
    def total(self) -> int:
        """Number of windows of all samples."""
        return self.n * math.prod(self.count)

    @property
    def is_padded(self) -> bool:
        """Tells whether there is any padding."""
        return any(self.padding) or any(self.after)

    @property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """Padding before and after each axis, in pairs."""
        return tuple(zip(self.padding, self.after, strict=True))

    @property
    def apart(self) -> bool:
        """Tells whether windows tile the data without overlap, such as the patches of an image."""
        whole = all(n == m * k for n, m, k in zip(self.extent, self.count, self.kernel, strict=True))
        dense = not self.is_padded and set(self.dilation) == {1}
        return whole and self.stride == self.kernel and dense

    @property
    def few(self) -> bool:
        """Tells whether a window has so few elements that each may be a slice of the data."""
        return self.taps <= MOST_TAPS or (self.apart and self.wide)

    @property
    def wide(self) -> bool:
        """Tells whether the weight keeps its order, (k, c, *kernel), so that channels need not come last."""
        return self.c < FEW or self.heavy

    @property
    def heavy(self) -> bool:
        """Tells whether there are fewer pixels than filters, so that the weights of a product dominate its traffic."""
        return self.taps == 1 and self.k > self.total

    @property
    def crowded(self) -> bool:
        """Tells whether there are few windows of many channels, so that a product for each filter tap is faster."""
        return self.groups == 1 and self.total < _WINDOWS_PER_CHANNEL * max(self.c, self.k)

    @property
    def parts(self) -> tuple[int, int]:
        """Parts of the samples and of the rows of windows, so that the operands of a part stay in a cache."""
        row = 4 * (self.c * math.prod(self.stride) + self.k) * math.prod(self.count[1:])
        samples, rows = self.n, 1
        if row * self.count[0] > _PART_BYTES:
            rows = next((n for n in _divisors(self.count[0]) if row * self.count[0] <= n * _PART_BYTES), self.count[0])
        else:
            samples = next(n for n in _divisors(self.n) if row * self.count[0] * self.n <= n * _PART_BYTES)
        return samples, rows

    @property
    def back(self) -> Windows:
        """The convolution of the data's gradient over dense output gradients; its padding differs."""
        ones = (1,) * self.rank
        return replace(self, c=self.k, k=self.c, extent=self.count, count=self.extent, stride=ones)


def _divisors(extent: int) -> list[int]:
    return [n for n in range(1, extent + 1) if extent % n == 0]
