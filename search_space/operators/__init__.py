"""The operator library. A new operator is one file, one entry here and its constructor in `workloads`."""

from __future__ import annotations

from typing import Any

from search_space.operators.base import REQUIRED_ARGUMENT, Operator, Precision
from search_space.operators.blocked import CONV2D_BLOCKED, DENSE_BLOCKED
from search_space.operators.checks import choice
from search_space.operators.conv import CONV1D, CONV2D, CONV3D
from search_space.operators.definitions import DEFINITIONS
from search_space.operators.depthwise import DEPTHWISE_CONV2D
from search_space.operators.dynamic import DYNAMIC_MATMUL
from search_space.operators.elementwise import ELEMENTWISE
from search_space.operators.fused import FUSED
from search_space.operators.pooling import AVG_POOL2D, MAX_POOL2D
from search_space.operators.products import BATCH_MATMUL, DENSE, MATMUL
from search_space.operators.reduction import REDUCE
from search_space.operators.rowwise import LAYER_NORM, SOFTMAX
from search_space.operators.sparse import SPARSE_MATMUL
from search_space.operators.sparse_conv import SPARSE_CONV2D
from search_space.operators.tensors import TENSORS
from search_space.operators.transposed import CONV2D_TRANSPOSE
from search_space.operators.weights_only import MATMUL_NBITS
from search_space.user_code import attribute, is_own

__all__ = ["LIBRARY", "OPERATORS", "REQUIRED_ARGUMENT", "Operator", "Precision", "find", "resolve_operator", "register"]

_LIBRARY: tuple[Operator[Any], ...] = (
    *(CONV2D, CONV1D, CONV3D, DEPTHWISE_CONV2D, CONV2D_TRANSPOSE),
    *(MATMUL, BATCH_MATMUL, DENSE, MATMUL_NBITS, DYNAMIC_MATMUL, SPARSE_MATMUL, SPARSE_CONV2D),
    *(CONV2D_BLOCKED, DENSE_BLOCKED),
    *(MAX_POOL2D, AVG_POOL2D),
    *(SOFTMAX, LAYER_NORM, REDUCE, ELEMENTWISE),
    *(TENSORS, FUSED, DEFINITIONS),
)
OPERATORS: dict[str, Operator[Any]] = {operator.name: operator for operator in _LIBRARY}
LIBRARY = frozenset(OPERATORS)
"""Names of the operators that every process knows; operators registered in this process are not among them."""


def register(operator: Operator[Any]) -> None:
    """Adds an operator of one's own to this process, where `Workload(name, args)` makes its workloads then.

    Raises:
        ValueError: the name is taken.
    """
    if operator.name in OPERATORS:
        raise ValueError(f"`name` must be new, but got name={operator.name!r}")
    OPERATORS[operator.name] = operator


def find(name: object) -> Operator[Any]:
    """Returns the operator with a name.

    Raises:
        ValueError: no operator has the name.
    """
    return OPERATORS[choice("operator", name, tuple(OPERATORS))]


def resolve_operator(name: str) -> Operator[Any]:
    """Returns the operator that a user asks for; for `FILE.py:NAME` or `module:NAME` runs the user's code.

    Raises:
        ValueError: no operator has the name.
    """
    if not is_own(name):
        return find(name)
    operator = attribute(name, "operator")
    if not isinstance(operator, Operator):
        raise ValueError(f"`operator` must name an Operator, but got operator={name!r}")
    return operator
