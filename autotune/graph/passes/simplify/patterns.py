"""Layers that exporters decompose into small operations: gelu in two forms, silu, softmax, layer normalisation."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np

from autotune.graph.ir import Array, Node
from autotune.graph.passes.reassociation import add_constants, is_moderate
from autotune.graph.passes.site import Rule, Site, orders
from search_space.dtypes import NARROW
from search_space.operators.estimates import STEP

DEPTH = 8
"""Greatest number of nested operations in a pattern of products and sums."""


def _product(site: Site, name: str, root: bool = True, depth: int = DEPTH) -> tuple[Counter[str], float]:
    """Returns a value as a product: its factors, and the product of all constant ones.

    Products without other readers are expanded; `root` marks the value that is replaced, which may have any readers.
    """
    number = site.scalar(name)
    if number is not None:
        return Counter(), number
    node = site.node(name, "multiply", "divide")
    if node is None or not depth or not (root or site.private(name)):
        return Counter([name]), 1.0
    first, second = node.inputs
    if node.op == "multiply":
        # A square reads one value twice: `private` counts readers, not reads.
        (some, a), (others, b) = (_product(site, i, False, depth - 1) for i in (first, second))
        return some + others, a * b
    divisor = site.scalar(second)
    if not divisor:
        return Counter([name]), 1.0
    some, a = _product(site, first, False, depth - 1)
    return some, a / divisor


def _polynomial(site: Site, name: str, x: str, depth: int = DEPTH) -> dict[int, float] | None:
    """Returns the coefficients of a polynomial in x of degree 3 at most, by degree; None for other values.

    Sums and products without other readers are expanded.
    """
    if name == x:
        return {1: 1.0}
    number = site.scalar(name)
    if number is not None:
        return {0: number}
    node = site.node(name, "add", "multiply", "divide")
    if node is None or not depth or not site.private(name):
        return None
    first, second = (_polynomial(site, i, x, depth - 1) for i in node.inputs)
    if first is None or second is None:
        return None
    if node.op == "divide":
        if second.keys() != {0} or not second[0]:
            return None
        second = {0: 1 / second[0]}
    terms = [*first.items(), *second.items()]
    if node.op != "add":
        terms = [(i + j, a * b) for (i, a), (j, b) in product(first.items(), second.items())]
    out: dict[int, float] = {}
    for degree, factor in terms:
        out[degree] = out.get(degree, 0.0) + factor
    return out if max(out) <= 3 else None


def _close(value: float, expected: float, tolerance: float) -> bool:
    """Tells whether numbers are equal up to the rounding of weights to float32 or of printed digits."""
    return math.isclose(value, expected, rel_tol=tolerance)


_SCALE = math.sqrt(2 / math.pi)
_GATES = {
    "erf": ("gelu", {1: math.sqrt(0.5)}, 1e-5),
    "tanh": ("gelu_tanh", {1: _SCALE, 3: _SCALE * 0.044715}, 1e-6),
}
"""Function → the form of GELU that it gates, the function's argument as a polynomial in x, and the greatest relative
error of the form's numbers."""


def gelu(site: Site, node: Node) -> str | None:
    """Recognises x / 2 * (1 + gate(x)), in any order and grouping of the factors, see `_GATES`."""
    if node.op not in ("multiply", "divide"):
        return None
    factors, number = _product(site, node.name)
    if sum(factors.values()) != 2:
        return None
    for x in factors:
        (other,) = factors - Counter([x]) or [x]
        if other != x and site.type(x).shape == node.type.shape:
            form = _find_gelu(site, other, x, number)
            if form is not None:
                return site.add(form, [site.new[x]], node.name)
    return None


def _find_gelu(site: Site, name: str, x: str, half: float) -> str | None:
    """Returns the form of GELU that a value completes, if it is 1 + gate(x) and `half` is 0.5; otherwise None."""
    total = site.node(name, "add")
    if total is None or not site.private(name):
        return None
    for inner, one in orders(total):
        gate = site.node(inner, *_GATES)
        if gate is not None and site.scalar(one) == 1 and site.private(inner):
            form, expected, tolerance = _GATES[gate.op]
            # Models in 16-bit floats round their numbers.
            inside = max(STEP.get(site.type(x).dtype, 0.0), tolerance)
            terms = _polynomial(site, gate.inputs[0], x)
            if terms is None or terms.keys() != expected.keys() or not _close(half, 0.5, tolerance):
                return None
            return form if all(_close(terms[d], expected[d], inside) for d in expected) else None
    return None


def silu(site: Site, node: Node) -> str | None:
    """Recognises x * sigmoid(x)."""
    if node.op != "multiply":
        return None
    for x, gate in orders(node):
        sigmoid = site.node(gate, "sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] == x and site.private(gate):
            return site.add("silu", [site.new[x]], node.name)
    return None


def _reduction(site: Site, name: str) -> Node | None:
    """Returns the reduction behind a reshape that keeps the reduced axis with extent 1, or None."""
    view = site.node(name, "reshape")
    return site.node(view.inputs[0], "reduce") if view is not None else None


def _over_rows(site: Site, name: str, reducer: str, source: str) -> bool:
    """Tells whether a value reduces the last axis of `source` and keeps it with extent 1."""
    shape = site.type(source).shape
    if site.type(name).shape != (*shape[:-1], 1):
        return False
    node = _reduction(site, name)
    if node is None or node.inputs[0] != source or node.attrs["reducer"] != reducer:
        return False
    axes = node.attrs["axes"]
    return axes in ((len(shape) - 1,), (-1,), len(shape) - 1, -1)


def _by_rows(site: Site, op: str, x: str, inputs: list[str], node: Node, **attrs: float) -> str:
    """Applies an operation on matrix rows to an array of any rank."""
    shape = site.type(x).shape
    rows = site.reshape(site.new[x], (math.prod(shape[:-1]), shape[-1]))
    return site.reshape(site.add(op, [rows, *inputs], node.name, **attrs), shape)


def softmax(site: Site, node: Node) -> str | None:
    """Recognises exp(x - max(x)) / sum(exp(x - max(x))) of each row."""
    if node.op != "divide":
        return None
    exp, total = node.inputs
    exponent = site.node(exp, "exp")
    if exponent is None or not _over_rows(site, total, "sum", exp):
        return None
    # Without the subtracted maximum, exponentials of numbers above 88 are infinite, and their quotients NaN.
    shifted = site.node(exponent.inputs[0], "subtract")
    if shifted is None or not _over_rows(site, shifted.inputs[1], "max", shifted.inputs[0]):
        return None
    x = shifted.inputs[0]
    return _by_rows(site, "softmax", x, [], node) if site.type(x).shape == node.type.shape else None


def layer_norm(site: Site, node: Node) -> str | None:
    """Recognises (x - mean(x)) / sqrt(mean((x - mean(x))²) + epsilon) of each row; gamma is 1 and beta 0."""
    for centred, root in orders(node) if node.op == "multiply" else [node.inputs] if node.op == "divide" else []:
        x, epsilon = _centre(site, centred), _epsilon(site, root, centred, node.op == "divide")
        if x is not None and epsilon is not None and node.type.dtype == "float32":
            columns = node.type.shape[-1]
            weights = [site.constant(value, node.name) for value in (np.ones(columns), np.zeros(columns))]
            return _by_rows(site, "layer_norm", x, weights, node, epsilon=epsilon)
    return None


def _centre(site: Site, name: str) -> str | None:
    """Returns x if the value is x - mean(x), otherwise None."""
    node = site.node(name, "subtract")
    return node.inputs[0] if node is not None and _over_rows(site, node.inputs[1], "mean", node.inputs[0]) else None


def _epsilon(site: Site, name: str, centred_value: str, divided: bool) -> float | None:
    """Returns epsilon if the value is the root, or its inverse, of the mean square of `centred_value` plus epsilon."""
    if not divided and (over := site.node(name, "divide")) is not None and site.scalar(over.inputs[0]) == 1:
        name, divided = over.inputs[1], True
    root = site.node(name, "sqrt" if divided else "rsqrt")
    total = site.node(root.inputs[0], "add") if root is not None else None
    for mean, number in orders(total) if total is not None else []:
        epsilon, reduction = site.scalar(number), _reduction(site, mean)
        squares = reduction.inputs[0] if reduction is not None else ""
        if epsilon and epsilon > 0 and squares and _over_rows(site, mean, "mean", squares):
            node = site.node(squares, "multiply")
            if node is not None and node.inputs == (centred_value, centred_value):
                return epsilon
    return None


def into_layer_norm(site: Site, node: Node) -> str | None:
    """Folds per-column products and sums after layer normalisation into its gamma and beta."""
    if node.op not in ("multiply", "add", "affine"):
        return None
    for name, *operands in [node.inputs] if node.op == "affine" else orders(node):
        view = site.node(name, "reshape")
        norm = site.node(view.inputs[0] if view is not None else name, "layer_norm")
        if norm is None or not site.private(name) or not site.private(norm.name) or site.type(name) != node.type:
            continue
        gamma, beta = (_by_column(site, i, norm.type.shape[-1]) for i in norm.inputs[1:])
        columns = [_by_column(site, i, node.type.shape[-1]) for i in operands]
        numbers = [column for column in columns if column is not None]
        if gamma is None or beta is None or len(numbers) < len(columns):
            continue
        if norm.type.shape[-1] != node.type.shape[-1]:
            continue
        if node.op != "add":
            if not is_moderate(numbers[0]):
                continue
            gamma, beta = gamma * numbers[0], beta * numbers[0]
        if node.op != "multiply":
            total = add_constants(beta, numbers[-1])
            if total is None:
                continue
            beta = total
        weights = [site.constant(value, norm.name) for value in (gamma, beta)]
        rows = site.add("layer_norm", [site.new[norm.inputs[0]], *weights], node.name, **norm.attrs)
        return site.reshape(rows, node.type.shape)
    return None


def _by_column(site: Site, name: str, columns: int) -> Array | None:
    """Returns a constant as (columns,) numbers, widened from 16 bits; None if it varies along another axis."""
    array = site.array(name)
    if array is None or array.size not in (1, columns) or (array.size > 1 and array.shape[-1] != columns):
        return None
    wide = array.astype(np.float32) if str(array.dtype) in NARROW else array
    return np.broadcast_to(wide.reshape(-1), (columns,))


RULES: tuple[Rule, ...] = (gelu, silu, softmax, layer_norm, into_layer_norm)
