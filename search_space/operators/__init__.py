"""The operator library by name. A new operator is one file and one line here."""

from __future__ import annotations

from search_space.operators import convolution, elementwise, matmul, pooling, rowwise
from search_space.operators.base import Operator

OPERATORS: dict[str, Operator] = {
    operator.name: operator
    for operator in (
        *convolution.OPERATORS,
        *matmul.OPERATORS,
        *pooling.OPERATORS,
        *rowwise.OPERATORS,
        *elementwise.OPERATORS,
    )
}

__all__ = ["OPERATORS", "Operator"]
