"""PyTorch's own samples of its operators (`op_db`) by `torch.compile(backend="autotune")`, against eager PyTorch."""

from __future__ import annotations

import itertools
import random
import sys
import unittest
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from autotune.pytorch.backend import autotune_backend
from tests.fuzz.verdicts import Refusal, Wrong

Operator = dict[str, Any]
"""`operator`: its name in `op_db`; `sample`: its number; `dtype`, `change` and `training`."""

DTYPES = ("float32", "float32", "float64", "float16", "bfloat16")
"""Types of samples, the usual one twice."""
CHANGES = ("none", "none", "spread", "turned", "special", "in place", "mixed")
"""Changes of a sample: none; tensors no longer dense, or with their second axis last in memory; some elements
NaN, infinite or zero; the result written to the first tensor; the first tensor of another type than the others."""
MOST_SAMPLES = 12
"""First samples of an operator that are drawn from."""
MOST_ELEMENTS = 1 << 16
"""Most elements of a sample; larger samples are skipped."""
SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e4)
ROOM = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 8e-3, torch.bfloat16: 6e-2}
"""Distance from the right value that is allowed, of the value and of a tenth of the largest one."""
OTHER = {"float32": "bfloat16", "float64": "float32", "float16": "float32", "bfloat16": "float32"}
_RANDOM_CONTENTS = ("empty", "new_empty", "resize_", "nn.functional.fractional_max_pool", "svd_lowrank", "pca_lowrank")
"""Beginnings of the names of operators whose results are whatever lies in memory, or drawn."""


@cache
def samples_of_pytorch() -> Mapping[str, Any]:
    """Operators of `op_db` by name."""
    if "expecttest" not in sys.modules:  # PyTorch's tests derive a class from it, and samples need none of that
        module = ModuleType("expecttest")
        module.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in sorted(op_db, key=lambda op: op.full_name)}


def draw(seed: int) -> Operator:
    """A case; as many seeds in a row as there are operators take each of them."""
    names = list(samples_of_pytorch())
    order = np.random.default_rng(len(names)).permutation(len(names))
    rng = np.random.default_rng([seed, 4])
    op = samples_of_pytorch()[names[order[seed % len(names)]]]
    taken = [name for name in DTYPES if getattr(torch, name) in op.supported_dtypes("cpu")]
    return {
        "operator": op.full_name,
        "sample": int(rng.integers(MOST_SAMPLES)),
        "dtype": str(rng.choice(taken or DTYPES)),
        "change": str(rng.choice(CHANGES)),
        "training": bool(op.supports_autograd and rng.random() < 0.25),
    }


def smaller(of: Operator) -> Iterator[Operator]:
    """Lists simpler cases of the operator: without gradients, and with its sample unchanged."""
    if of["training"]:
        yield {**of, "training": False}
    if of["change"] not in ("none", "in place"):
        yield {**of, "change": "none"}


def check(of: Operator, seed: int) -> None:
    """Compiles and runs one sample.

    Raises:
        Refused: there is no such sample, or PyTorch's own result is not determined.
        Wrong: another result than eager PyTorch's, said with all that repeats the case.
    """
    title = f"{of['operator']} sample {of['sample']} {of['dtype']} {of['change']} training={of['training']} seed {seed}"
    try:
        _check(of, seed)
    except Wrong as wrong:
        raise Wrong(f"{title}: {wrong}") from None
    except Refusal:
        raise
    except Exception as error:
        raise Wrong(f"{title}: {type(error).__name__}: {error}") from error


def _check(of: Operator, seed: int) -> None:
    function, given = _sample(of, seed)
    training = of["training"]
    torch._dynamo.reset()
    run = torch.compile(function, backend=autotune_backend, dynamic=False, options={"threads": 1, "training": training})
    with warnings.catch_warnings(), torch.set_grad_enabled(training):
        warnings.simplefilter("ignore")
        wanted = _outcome(function, given, seed)
        again = _outcome(function, given, seed + 1)
        _require_determined(wanted, again)
        exact = _outcome(function, _in_float64(given), seed)
        found = _outcome(run, given, seed)
        try:
            _compare(found, wanted, exact)
        except Wrong:
            torch._dynamo.reset()
            _refuse_traced(torch.compile(function, backend="aot_eager", dynamic=False), given, seed, wanted, exact)
            raise


def _refuse_traced(run: Any, values: Any, seed: int, expected: Any, exact: Any) -> None:
    """Raises Refused where PyTorch's own kernels give another result than eager PyTorch, too, for what it traces."""
    try:
        _compare(_outcome(run, values, seed), expected, exact)
    except Wrong as wrong:
        raise Refusal(f"PyTorch's tracing: {str(wrong)[:200]}") from None


def _describe(outcome: Any) -> str:
    return f"{type(outcome).__name__}: {str(outcome)[:300]}" if isinstance(outcome, Exception) else "a value"


# ------------------------------------------------------------------ what is run
def _sample(of: Operator, seed: int) -> tuple[Any, Any]:
    """A function, and the first argument, the others, and those by name that it is given."""
    op = samples_of_pytorch()[of["operator"]]
    dtype, training = getattr(torch, of["dtype"]), of["training"]
    if of["operator"].startswith(_RANDOM_CONTENTS):
        raise Refusal("results are not determined")
    if dtype not in op.supported_dtypes("cpu") or (training and not op.supports_autograd):
        raise Refusal("the operator does not take this type")
    written = of["change"] == "in place" and op.inplace_variant is not None
    function = op.inplace_variant if written else op.op
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    drawn = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=training), MOST_SAMPLES))
    if not drawn:
        raise Refusal("the operator has no samples")
    sample = drawn[of["sample"] % len(drawn)]
    if written and sample.broadcasts_input:
        raise Refusal("a result in place must have the shape of the first argument")
    given = sample.input, sample.args, sample.kwargs
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    if sum(tensor.numel() for tensor in tensors) > MOST_ELEMENTS:
        raise Refusal("the sample is large")
    rng = np.random.default_rng([seed, 5])
    if of["change"] == "spread":
        given = tree_map(_spread, given)
    elif of["change"] == "turned":
        given = tree_map(_turn, given)
    elif of["change"] == "special":
        given = tree_map(lambda leaf: _special(leaf, rng), given)
    elif of["change"] == "mixed":
        given = tree_map(lambda leaf: _cast(leaf, dtype, getattr(torch, OTHER[of["dtype"]])), given[0]), *given[1:]

    def call_function(first: Any, args: Any, kwargs: Any) -> Any:
        return function(first, *args, **kwargs)

    return call_function, given


def _plain(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_quantized


def _spread(leaf: Any) -> Any:
    """Returns equal elements with other ones between them."""
    if not _plain(leaf) or not leaf.dim() or leaf.is_nested:
        return leaf
    with torch.no_grad():
        wide = torch.stack([leaf, torch.zeros_like(leaf)], -1).flatten(-2)
    return wide[..., ::2].detach().requires_grad_(leaf.requires_grad)


def _turn(leaf: Any) -> Any:
    """Returns equal elements with the second axis last in memory, as images in channels-last order have it."""
    if not _plain(leaf) or leaf.dim() < 2 or leaf.is_nested:
        return leaf
    return leaf.detach().movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_(leaf.requires_grad)


def _special(leaf: Any, rng: np.random.Generator) -> Any:
    """Makes a fourth of the elements special."""
    if not _plain(leaf) or not leaf.is_floating_point():
        return leaf
    chosen = torch.from_numpy(np.asarray(rng.random(tuple(leaf.shape)) < 0.25))
    values = torch.from_numpy(np.asarray(rng.choice(SPECIAL, tuple(leaf.shape)))).to(leaf.dtype)
    return torch.where(chosen, values, leaf.detach()).requires_grad_(leaf.requires_grad)


def _cast(leaf: Any, dtype: torch.dtype, other: torch.dtype) -> Any:
    if not _plain(leaf) or leaf.dtype != dtype:
        return leaf
    return leaf.detach().to(other).requires_grad_(leaf.requires_grad)


def _in_float64(values: Any) -> Any:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        values = tree_map(lambda leaf, dtype=dtype: _cast(leaf, dtype, torch.float64), values)
    return tree_map(lambda leaf: torch.float64 if isinstance(leaf, torch.dtype) and leaf in ROOM else leaf, values)


def _outcome(function: Any, values: Any, seed: int) -> Any:
    """Results, gradients, and what has become of the arguments; or the error that is raised."""

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if not _plain(leaf) or leaf.is_nested:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        with torch.no_grad():
            copied = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype)
            copied.copy_(leaf) if leaf.numel() else None
        return copied.requires_grad_(leaf.requires_grad)

    values = tree_map(own, values)
    torch.manual_seed(seed)
    try:
        arguments = values
        if torch.is_grad_enabled():  # what is written in place must be no leaf
            arguments = tree_map(lambda leaf: leaf * 1 if _needs(leaf) else leaf, values)
        results = function(*arguments)
        gradients = _gradients(results, values)
    except Exception as error:  # whatever PyTorch raises, the compiled function is to raise
        return error
    return results, gradients, arguments


def _needs(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _gradients(results: Any, values: Any) -> Any:
    ends = [end for end in tree_leaves(results) if _needs(end)]
    wanted = [leaf for leaf in tree_leaves(values) if _needs(leaf)]
    if not ends or not wanted:
        return None
    draw = torch.Generator().manual_seed(7)
    slopes = [torch.randn(end.shape, generator=draw, dtype=torch.float64).to(end.dtype) for end in ends]
    return torch.autograd.grad(ends, wanted, slopes, allow_unused=True)


# ------------------------------------------------------------------ how it is judged
def _require_determined(first: Any, second: Any) -> None:
    """Raises Refused where PyTorch's own result is another one with another seed."""
    if isinstance(first, Exception) or isinstance(second, Exception):
        return
    for one, other in zip(tree_leaves(first), tree_leaves(second), strict=True):
        if not isinstance(one, torch.Tensor):
            continue
        if one.layout is not torch.strided or one.is_quantized or one.is_nested:
            continue
        if not torch.allclose(
            *(torch.view_as_real(t.detach().resolve_conj().cfloat()) for t in (one, other)), 0, 0, equal_nan=True
        ):
            raise Refusal("results are not determined")


def _compare(actual: Any, expected: Any, exact: Any) -> None:
    """Raises Wrong where a result, a gradient or an argument is another one, or one of both is an error."""
    if isinstance(expected, NotImplementedError):
        raise Refusal("PyTorch has no kernel for this type")
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return
        raise Wrong(f"the outcome must be {_describe(expected)} as without compiling, but got {_describe(actual)}")
    parts = zip(("result", "gradient", "argument"), actual, expected, strict=True)
    for number, (name, ours, theirs) in enumerate(parts):
        best = [] if isinstance(exact, Exception) else tree_leaves(exact[number])
        mine, right = tree_leaves(ours), tree_leaves(theirs)
        if len(mine) != len(right):
            raise Wrong(f"there must be {len(right)} {name}s, but got {len(mine)}")
        for place, (one, other) in enumerate(zip(mine, right, strict=True)):
            nearer = best[place] if len(best) == len(right) else None
            _compare_leaf(f"{name} {place}", one, other, nearer)


def _compare_leaf(title: str, actual: Any, expected: Any, exact: Any) -> None:
    if not isinstance(expected, torch.Tensor):
        if type(actual) is not type(expected):
            raise Wrong(f"{title} must be {type(expected).__name__}, but got {type(actual).__name__}")
        return
    facts = [(t.dtype, tuple(t.shape), t.layout, t.requires_grad, _strides(t)) for t in (expected, actual)]
    if facts[0] != facts[1]:
        raise Wrong(f"{title} must be {facts[0]} (dtype, shape, layout, requires_grad, strides), but got {facts[1]}")
    if expected.layout is not torch.strided or expected.is_nested:
        actual, expected, exact = actual.to_dense(), expected.to_dense(), None
    if expected.is_quantized:
        actual, expected, exact = actual.dequantize(), expected.dequantize(), None
    actual, expected = actual.detach(), expected.detach()
    if not expected.is_floating_point() and not expected.is_complex():
        if not torch.equal(actual, expected):
            at = (actual != expected).nonzero()[0].tolist()
            raise Wrong(f"{title} must be {expected[tuple(at)].item()} at {at}, but got {actual[tuple(at)].item()}")
        return
    if expected.is_complex():
        actual, expected = (torch.view_as_real(t.resolve_conj()) for t in (actual, expected))
        exact = None
    if not isinstance(exact, torch.Tensor) or exact.shape != expected.shape or exact.dtype != torch.float64:
        exact = expected
    _compare_numbers(title, actual, expected, exact.detach())


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Returns the strides of axes that have more than one element."""
    if tensor.layout is not torch.strided or tensor.is_nested or not tensor.numel():
        return ()
    return tuple(s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)


def _compare_numbers(title: str, actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> None:
    """Each number is as near to the one of float64 as eager PyTorch's is, or as the type allows."""
    room = ROOM[expected.dtype]
    mine, theirs, right = actual.double(), expected.double(), exact.double()
    finite = theirs[theirs.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    floor = 4 * torch.finfo(torch.float64).eps if expected.dtype == torch.float64 else 0.0  # nothing is more exact
    allowed = room * (right.abs() + 0.1 * largest) + 8 * (theirs - right).abs() + floor
    same = (mine == theirs) | (mine.isnan() & theirs.isnan())
    rounded = right.to(expected.dtype).double()  # infinite where the type ends
    near = ((mine - right).abs() <= allowed) | (mine == rounded) | (mine.isnan() & right.isnan())
    bad = ~(same | near)
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise Wrong(
            f"{title} must be {theirs[at].item():.9g} (float64 {right[at].item():.9g}) at {list(at)}, "
            f"but got {mine[at].item():.9g}; {int(bad.sum())} of {bad.numel()} wrong"
        )
