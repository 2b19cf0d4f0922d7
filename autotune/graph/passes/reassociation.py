"""Rules for combining constants of float sums and products; constants by which a model rounds stay separate.

Floats are not associative: (x + 1.5 * 2^23) - 1.5 * 2^23 rounds to whole numbers, and x * 1e38 * 1e-38 is infinite for
most x. Element-wise chains therefore stay unchanged except for exact steps: signs, and a sum behind a product as one
operation. Weights and biases of layers do take constants, such as those of batch normalisation. A sum of products is
rounded many times anyway, and moderate constants do not add to that.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.types import Array

LEAST, GREATEST = 2.0**-64, 2.0**32
"""Range of factors that weights take: beyond it, products may under- or overflow where the model's do not."""
DIGITS = 2.0**12
"""Ratio of a sum's terms to the sum above which fewer than half of a float32's digits remain."""


def is_moderate(factor: Array) -> bool:
    """Tells whether weights may be multiplied by a factor; zeros are allowed."""
    size = np.abs(factor)
    return bool(((size == 0) | ((size >= LEAST) & (size <= GREATEST))).all())


def is_sign(factor: Array | None) -> bool:
    """Tells whether products with a factor are exact in any context: 1 or -1; None stands for 1."""
    return factor is None or bool((np.abs(factor) == 1).all())


def is_exact_divisor(divisor: Array) -> bool:
    """Tells whether a quotient equals the product with the reciprocal: powers of two with normal reciprocals."""
    fraction, exponent = np.frexp(divisor)
    return bool(((np.abs(fraction) == 0.5) & (np.abs(exponent) < 126)).all())


def add_constants(first: Array, second: Array) -> Array | None:
    """Adds constants that follow each other behind a layer; returns None if digits would cancel."""
    total = first + second
    largest = max(float(np.abs(term).max(initial=0.0)) for term in (first, second))
    return total if largest <= DIGITS * float(np.abs(total).max(initial=0.0)) else None
