"""Which constants of sums and products of floats may be taken together: never those by which a model rounds.

Floats are not associative: (x + 1.5 * 2^23) - 1.5 * 2^23 rounds to whole numbers, and x * 1e38 * 1e-38 is infinite for
most x. Element-wise chains are therefore left as they are, but for exact steps: signs, and a sum behind a product, all
one operation. The weights and the bias of a layer do take constants, as those of batch normalisation: a sum of
products is rounded many times anyway, and moderate constants add no more than that.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.types import Array

LEAST, GREATEST = 2.0**-64, 2.0**32
"""Sizes of factors that weights take: products with others may vanish or be infinite where the model's are not."""
DIGITS = 2.0**12
"""Ratio of a sum's terms to it from which on they leave less than half of the digits of a float32."""


def is_moderate(factor: Array) -> bool:
    """Whether weights may be multiplied by a factor, zeros included."""
    size = np.abs(factor)
    return bool(((size == 0) | ((size >= LEAST) & (size <= GREATEST))).all())


def is_sign(factor: Array | None) -> bool:
    """Whether products with a factor are exact whatever follows: 1 or -1; None stands for 1."""
    return factor is None or bool((np.abs(factor) == 1).all())


def is_exact_divisor(divisor: Array) -> bool:
    """Whether a quotient is the product with a reciprocal: by powers of two, of which that is a normal number, too."""
    fraction, exponent = np.frexp(divisor)
    return bool(((np.abs(fraction) == 0.5) & (np.abs(exponent) < 126)).all())


def added(first: Array, second: Array) -> Array | None:
    """The sum of constants added one after the other behind a layer; None where they take each other's digits."""
    total = first + second
    largest = max(float(np.abs(term).max(initial=0.0)) for term in (first, second))
    return total if largest <= DIGITS * float(np.abs(total).max(initial=0.0)) else None
