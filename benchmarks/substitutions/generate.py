"""Enumeration of rules: terms that give equal values on random inputs (Jia et al., TASO, SOSP 2019).

A domain is a handful of variables with shapes and the operations that go with them. Every term of up to three
operations over it is computed on the same random inputs. These are small integers, so that every sum and product of
them, and every mean of a window, is exact in float64. Equal terms have equal bytes, which are their fingerprint.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from autotune.graph.ir import Array
from autotune.lab.substitutions.operators import TERM_OPS, Pooling, Shape, Sliding, Windows
from autotune.lab.substitutions.rules import Rule, is_weight
from autotune.lab.substitutions.terms import Term, nodes, subterms, variables
from benchmarks.substitutions.rewriting import order_operands, rename_variables
from benchmarks.substitutions.values import COMMUTATIVE, COMPUTE, ROLES

WINDOWS = Windows(Sliding(), Sliding(), Pooling(), Pooling())
"""Windows while rules are generated; they are verified with others."""

UNIT = 36.0 * 36.0
"""A multiple of the elements that two windows of 3x3, cut off at borders, have: their means stay integers."""


@dataclass(frozen=True)
class Domain:
    """Variables and operations that terms are made of.

    Attributes:
        name: name in reports.
        shapes: shapes of variables; names of weights begin with w.
        ops: names of operations.
        size: most operations of a term.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    ops: tuple[str, ...]
    size: int = 3


_X = (1, 3, 3, 2)
_K, _P, _V = (3, 3, 2, 2), (1, 1, 2, 2), (2,)

DOMAINS: tuple[Domain, ...] = (
    Domain(
        "convolutions",
        {"x0": _X, "x1": _X, "w0": _K, "w1": _K, "w2": _P},
        ("conv", "conv_wide", "relu", "add", "concat", "concat_in", "concat_batch", "enlarge"),
    ),
    Domain(
        "channels",
        {"x0": _X, "w0": _K, "w1": _V, "w2": _V},
        ("conv", "relu", "add_v", "mul_v", "affine", "scale_in", "add", "mul", "concat"),
    ),
    Domain("vectors", {"x0": _X, "x1": _X, "w0": _V, "w1": _V}, ("add_v", "mul_v", "affine", "concat", "relu", "add")),
    Domain(
        "points",
        {"x0": _X, "x1": _X, "w0": _P, "w1": _P, "w2": _K},
        ("point", "conv", "chain", "add", "concat", "concat_in", "relu", "concat_batch"),
    ),
    Domain(
        "pools",
        {"x0": _X, "x1": _X, "w0": _P, "w1": _V},
        ("max_pool", "avg_pool", "relu", "concat", "concat_batch", "add", "point", "mul_v", "add_v"),
    ),
    Domain(
        "depthwise",
        {"x0": _X, "x1": _X, "w0": (3, 3, 2), "w1": (3, 3, 2), "w2": _V},
        ("depthwise", "add", "concat", "mul_v", "concat_batch", "relu"),
    ),
    Domain(
        "matrices",
        {"x0": (2, 2), "x1": (2, 2), "w0": (2, 2), "w1": (2, 2)},
        ("matmul", "turn", "add", "concat", "concat_in", "concat_batch", "relu", "mul"),
    ),
    Domain(
        "rows",
        {"x0": (2, 2), "w0": (2, 2), "w1": _V, "w2": _V},
        ("matmul", "add_v", "mul_v", "through", "scale_in", "add", "concat", "affine"),
    ),
    Domain(
        "sums",
        {"x0": (2, 2), "x1": (2, 2), "x2": (2, 2), "w0": _V},
        ("add", "mul", "concat", "concat_batch", "relu", "add_v", "mul_v"),
    ),
    Domain("products", {"x0": (2, 2), "x1": (2, 2), "x2": (2, 2)}, ("matmul", "turn", "add")),
    Domain(
        "cuts",
        {"x0": (2, 4), "x1": (2, 4), "x2": (2, 2), "w0": _V, "w1": _V},
        ("first", "last", "concat", "relu", "add", "add_v", "mul", "mul_v"),
    ),
)
"""Domains that the saved rules were generated from."""


@dataclass(frozen=True)
class Candidate:
    """A rule that holds on one draw of inputs, and the shapes of its variables there."""

    rule: Rule
    shapes: Mapping[str, tuple[int, ...]]


class Values:
    """Terms computed on random inputs of one domain."""

    def __init__(self, domain: Domain, rng: np.random.Generator) -> None:
        self.domain = domain
        self._arrays: dict[Term, Array | None] = {}
        for name, shape in domain.shapes.items():
            # Two of three are negative: the largest of a few would else be positive, and relu of it itself.
            signs = rng.permutation(np.resize([-1, -1, 1], int(np.prod(shape)))).reshape(shape)
            self._arrays[name] = rng.integers(1, 8, shape) * signs * (1.0 if name.startswith("w") else UNIT)

    def shape(self, term: Term) -> Shape | None:
        """Returns the shape of a term; None where its operands do not go together."""
        array = self.array(term)
        return None if array is None else Shape(array.shape, is_weight(term))

    def array(self, term: Term) -> Array | None:
        """Returns the value of a term, cached."""
        if term not in self._arrays:
            self._arrays[term] = self.compute(term)
        return self._arrays[term]

    def compute(self, term: Term) -> Array | None:
        """Computes the value of a term from the cached ones of its operands."""
        assert not isinstance(term, str)
        name, *read = term
        assert isinstance(name, str)
        shapes = [self.shape(operand) for operand in read]
        if None in shapes or not TERM_OPS[name].accepts(*shapes):
            return None
        found = COMPUTE[name](WINDOWS, *(self.array(operand) for operand in read))
        return None if found is None else np.ascontiguousarray(found)


def fingerprint(array: Array, weight: bool) -> bytes:
    """Computes a digest equal for equal values of one shape; 0 equals -0, and weights differ from activations."""
    digest = hashlib.blake2b((array + 0.0).tobytes(), digest_size=16)
    digest.update(repr((array.shape, weight)).encode())
    return digest.digest()


Classes = dict[bytes, list[Term]]


def enumerate_terms(domain: Domain, rng: np.random.Generator) -> Classes:
    """Enumerates every term of a domain by fingerprint, smaller ones first, variables included.

    Terms with a part that equals a smaller one are left out: the rule about that part makes them of other terms.
    """
    values = Values(domain, rng)
    classes: Classes = defaultdict(list)
    levels: list[list[Term]] = [list(domain.shapes)]
    for name in domain.shapes:
        array = values.array(name)
        assert array is not None
        classes[fingerprint(array, is_weight(name))].append(name)
    for size in range(1, domain.size + 1):
        level: list[Term] = []
        for term in dict.fromkeys(_terms(domain, levels, size)):
            array = values.compute(term)
            if array is None:
                continue
            alike = classes[fingerprint(array, is_weight(term))]
            smaller = bool(alike) and len(nodes(alike[0])) < size
            alike.append(term)
            if not smaller and size < domain.size:
                level.append(term)
        levels.append(level)
    return dict(classes)


def _terms(domain: Domain, levels: list[list[Term]], size: int) -> Iterator[Term]:
    """Lists terms of exactly `size` operations, made of known parts."""
    known = [(term, frozenset(nodes(term)), is_weight(term)) for level in levels for term in level]
    for name in domain.ops:
        op = TERM_OPS[name]
        fitting = [[k for k in known if _fits(role, *k)] for role in ROLES.get(name, "...")[: op.arity]]
        by_size = [[[k for k in parts if len(k[1]) == n] for n in range(size)] for parts in fitting]
        for sizes in product(range(size), repeat=op.arity):
            # Shared parts count once, so that parts may add up to more, but not to less.
            if sum(sizes) < size - 1:
                continue
            for parts in product(*(by_size[place][n] for place, n in enumerate(sizes))):
                used = frozenset().union(*(inner for _, inner, _ in parts))
                # No graph adds a value to itself, nor joins it to itself, once `simplify` has been there.
                if len(used) == size - 1 and len({term for term, _, _ in parts}) == op.arity:
                    yield order_operands((name, *(term for term, _, _ in parts)), COMMUTATIVE)


def _fits(role: str, term: Term, inner: frozenset[Term], weight: bool) -> bool:
    """Tells whether a term may be the operand of a role. An operand read for its extent alone is a variable."""
    return role == "." or (weight and not inner if role == "n" else weight == (role == "w"))


def candidates(domain: Domain, classes: Classes, most: int = 40) -> Iterator[Candidate]:
    """Lists rules from the terms of each class to its first, which is one of the smallest, and back.

    Args:
        domain: domain of the terms.
        classes: terms by fingerprint.
        most: terms of a class that are looked at.
    """
    for alike in classes.values():
        for source in alike[1:most]:
            yield from _both_ways((source,), (alike[0],), domain)


def _both_ways(first: tuple[Term, ...], second: tuple[Term, ...], domain: Domain) -> Iterator[Candidate]:
    for source, target in ((first, second), (second, first)):
        if any(isinstance(term, str) for term in source) or is_weight(source[0]):
            continue  # A variable is everywhere, and weights are folded anyhow.
        # What a target reads must be known, and a source within its own target would only grow.
        if set(variables(*target)) <= set(variables(*source)) and not set(source) <= set(subterms(*target)):
            rule, names = rename_variables(Rule(source, target))
            if rule.is_bound:
                yield Candidate(rule, {new: domain.shapes[old] for old, new in names.items()})


def cut_candidates(domain: Domain, rng: np.random.Generator) -> Iterator[Candidate]:
    """Lists rules from two terms to the two parts of a larger one, and back: `first` and `last` of its last axis.

    The source has two outputs: as in TASO, that is how layers side by side become one.
    """
    values = Values(domain, rng)
    smallest: dict[bytes, list[Term]] = {}
    for size in range(3):
        for term in _up_to_two(domain, values, size):
            array = values.array(term)
            if array is not None and not is_weight(term):
                alike = smallest.setdefault(fingerprint(array, False), [])
                if len(alike) < 3 and (not alike or len(nodes(alike[0])) == size):
                    alike.append(term)
    for joint in [alike[0] for alike in smallest.values()]:
        array = values.array(joint)
        assert array is not None
        if isinstance(joint, str) or array.ndim < 2 or array.shape[-1] % 2:
            continue
        half = array.shape[-1] // 2
        prints = (fingerprint(np.ascontiguousarray(part), False) for part in (array[..., :half], array[..., half:]))
        for a, b in product(*(smallest.get(found, []) for found in prints)):
            if not isinstance(a, str) and not isinstance(b, str) and a != b and a[0] == b[0]:
                yield from _as_cuts(joint, a, b, domain)


def _up_to_two(domain: Domain, values: Values, size: int) -> list[Term]:
    levels: list[list[Term]] = [list(domain.shapes)]
    for number in range(1, size + 1):
        levels.append([t for t in dict.fromkeys(_terms(domain, levels, number)) if values.array(t) is not None])
    return levels[size]


def _as_cuts(term: Term, a: Term, b: Term, domain: Domain) -> Iterator[Candidate]:
    """Cuts `term` into parts, each as large as the last axis of a variable that its term reads last."""
    like_a, like_b = (variables(term)[-1] for term in (a, b))
    cuts: tuple[Term, Term] = (("first", term, like_a), ("last", term, like_b))
    yield from _both_ways((a, b), cuts, domain)


def all_candidates(domains: Iterable[Domain], rng: np.random.Generator) -> Iterator[Candidate]:
    """Lists candidates of every domain, in order; the same rule may come more than once."""
    for domain in domains:
        yield from candidates(domain, enumerate_terms(domain, rng))
        yield from cut_candidates(domain, rng)
