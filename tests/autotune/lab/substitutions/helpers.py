"""Rules as graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Graph, GraphBuilder, GraphError, TensorType
from autotune.lab.substitutions.cost import Cost
from autotune.lab.substitutions.operators import TERM_OPS, Pooling, Shape, Sliding, Windows
from autotune.lab.substitutions.rules import Rule
from autotune.lab.substitutions.search import explore
from autotune.lab.substitutions.terms import Term, operands, subterms, variables
from search_space.dtypes import numpy_dtype

ODD = Windows(
    Sliding((1, 2), (1, 1), (1, 1)),
    Sliding((2, 1), (0, 1), (1, 1)),
    Pooling((3, 2), (1, 1), (1, 0)),
    Pooling((2, 3), (2, 1), (1, 1), count_padding=True),
)
SAME = Windows(Sliding(), Sliding(), Pooling(), Pooling())
SHAPES = {
    "x": ((1, 9, 10, 2), (3, 3), (3, 6), (6, 3)),
    "w": ((2,), (3, 3, 2, 2), (1, 1, 2, 2), (3, 3), (3,), (3, 3, 2), (3, 6)),
}


def as_graph(terms: tuple[Term, ...], shapes: Mapping[str, tuple[int, ...]], windows: Windows) -> Graph | None:
    """Terms over variables of these shapes; None where their operands do not go together."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("rule", {name: TensorType(shape) for name, shape in shapes.items() if name[0] == "x"})
    names: dict[Term, str] = {}
    for name, shape in shapes.items():
        array = rng.uniform(-1, 1, shape).astype(np.float32)
        names[name] = builder.constant(array, name) if name[0] == "w" else name
    try:
        for term in subterms(*terms):
            if isinstance(term, str):
                continue
            op, read = TERM_OPS[str(term[0])], [names[operand] for operand in operands(term)]
            if not op.accepts(*(Shape(builder.type(n).shape, _weight(t)) for n, t in zip(read, term[1:], strict=True))):
                return None
            names[term] = op.emit(builder, read, windows)
    except GraphError:
        return None
    return builder.finish(names[term] for term in terms)


def _weight(term: Term) -> bool:
    return all(name[0] == "w" for name in variables(term))


def both_sides(rule: Rule) -> list[tuple[Graph, Graph]]:
    """Source and target, for each kind of windows with the first shapes on which both are defined and of one type."""
    found = [sides for windows in (ODD, SAME) if (sides := _sides(rule, windows)) is not None]
    assert found, f"no shapes fit {rule}"
    return found


def _sides(rule: Rule, windows: Windows) -> tuple[Graph, Graph] | None:
    names = variables(*rule.source)
    for chosen in product(*(SHAPES[name[0]] for name in names)):
        shapes = dict(zip(names, chosen, strict=True))
        source = as_graph(rule.source, shapes, windows)
        target = as_graph(rule.target, shapes, windows) if source is not None else None
        if source is not None and target is not None:
            if [source.type(o) for o in source.outputs] == [target.type(o) for o in target.outputs]:
                return source, target
    return None


def search(
    graph: Graph,
    cost: Cost,
    budget: int = 5000,
    rules: Sequence[Rule] | None = None,
    rng: np.random.Generator | None = None,
) -> Graph:
    """The cheapest graph that `explore` finds, which gives the same outputs in the same order.

    Args:
        graph: graph that the search begins with.
        cost: cost of a graph, in seconds.
        budget: budget of `explore`.
        rules: rules of `explore`.
        rng: draws the inputs on which NumPy computes both graphs, to compare their outputs; no comparison where it
            is None.

    Raises:
        GraphError: outputs differ by more than rounding.
    """
    new = explore(graph, cost, budget, rules).graph
    if rng is not None:
        check(new, graph, rng)
    return new


def check(new: Graph, old: Graph, rng: np.random.Generator, tolerance: float = 1e-3) -> None:
    """Compares the outputs of two graphs on random inputs.

    Args:
        new: graph with the inputs of `old` and as many outputs.
        old: graph whose outputs are right.
        rng: draws inputs between -1 and 1.
        tolerance: largest difference, as a part of the largest element of an output.

    Raises:
        GraphError: an output differs by more.
    """
    inputs = {name: rng.uniform(-1, 1, kind.shape).astype(numpy_dtype(kind.dtype)) for name, kind in old.inputs.items()}
    values, expected = evaluate(new, inputs), evaluate(old, inputs)
    for got, want in zip(new.outputs, old.outputs, strict=True):
        size = float(np.max(np.abs(expected[want]), initial=0.0))
        difference = float(np.max(np.abs(values[got] - expected[want]), initial=0.0))
        if not difference <= tolerance * size:
            raise GraphError(
                f"output {want!r} must stay within {tolerance:g} of its size, "
                f"but it differs by {difference:g} of {size:g}"
            )
