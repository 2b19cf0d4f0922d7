"""Gradients of random expressions: against PyTorch's autograd and central differences, both in float64."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from search_space import te
from search_space.ir.expr import Expr, call, const, load, logical_and, make, select, substitute, var
from tests.properties.running import examples
from tests.properties.test_index_algebra import LOOPS
from tests.properties.test_reads import CONDITIONS, EXTENTS, TABLES
from tests.search_space.gradient import float64

SMOOTH = ("exp", "sin", "cos", "tanh", "erf", "sigmoid", "abs", "floor")
POSITIVE = ("log", "sqrt", "rsqrt", "log1p")
BINARY = ("add", "sub", "mul", "max", "min")


def _affine() -> st.SearchStrategy[Expr]:
    """Index expressions that can be inverted: sums, multiples, quotients, remainders, and sides to choose from."""
    leaf = st.one_of(st.sampled_from(LOOPS).map(var), st.integers(-3, 5).map(const))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(make, st.sampled_from(("add", "sub")), inner, inner),
            st.builds(make, st.just("mul"), inner, st.sampled_from((-2, -1, 2, 3))),
            st.builds(make, st.sampled_from(("floordiv", "mod")), inner, st.sampled_from((2, 3, 5))),
            st.builds(make, st.sampled_from(("min", "max")), inner, inner),
        )

    return st.recursive(leaf, grow, max_leaves=6)


def _read(table: tuple[int, int], at: tuple[Expr, Expr]) -> Expr:
    ends = [(i >= 0, i < n) for i, n in zip(at, table, strict=True)]
    return select(logical_and(*(end for pair in ends for end in pair)), load(TABLES[table], at, "float32"), 0.5)


def _bodies() -> st.SearchStrategy[Expr]:
    """Expressions of reads at any index, inside their tables, under conditions, functions and operators."""
    reads = st.builds(_read, st.sampled_from(sorted(TABLES)), st.tuples(_affine(), _affine()))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.builds(select, CONDITIONS, inner, inner),
            st.builds(call, st.sampled_from(SMOOTH), inner),
            st.builds(lambda name, x: call(name, x * x + 1.0), st.sampled_from(POSITIVE), inner),
            st.builds(make, st.sampled_from(BINARY), inner, inner),
            st.builds(lambda a, b: a / (b * b + 1.0), inner, inner),
        )

    return st.recursive(reads, grow, max_leaves=4)


@settings(max_examples=examples(100), deadline=None)
@given(_bodies(), EXTENTS, st.sampled_from((None, "sum", "max", "min", "prod")), st.integers(0, 3), st.randoms())
def test_gradients_of_random_expressions_are_those_of_autograd(
    body: Expr, extents: dict[str, int], reducer: str | None, count: int, random: Any
) -> None:
    names = list(extents)
    inner = names[len(names) - min(count, len(names) - 1) :] if reducer else []
    outer = [name for name in names if name not in inner]
    axes = [te.reduce_axis((0, extents[name]), name) for name in inner]
    shape = tuple(extents[name] for name in outer)

    def element(*indices: te.IterVar) -> Any:
        moved = substitute(body, {name: axis.expr for name, axis in zip(outer, indices, strict=True)})
        return getattr(te, reducer)(moved, axis=axes) if reducer and axes else moved

    output = te.compute(shape, element, name="output")
    inputs = float64.placeholders(output)
    assume(inputs)
    seed = te.placeholder(shape, name="seed")
    try:
        gradients = te.gradient(output, inputs, seed)
    except ValueError as error:  # a read of an index alone, or too many sides
        event("refused")
        assert "affine indices" in str(error) or "must depend on" in str(error)
        return
    generator = torch.Generator().manual_seed(random.randrange(1 << 30))
    values = {t.op: torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in [*inputs, seed]}
    wanted = float64.differentiate(output, inputs, values[seed.op], values)
    for tensor, actual, right in zip(inputs, float64.evaluate(gradients, values), wanted, strict=True):
        torch.testing.assert_close(actual, right, rtol=1e-6, atol=1e-6, msg=lambda text, t=tensor: f"{t.name}: {text}")
    event("compared")
