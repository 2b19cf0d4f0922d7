"""Any definition as an operator: tensor expressions that a user or a graph compiler wrote, as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from search_space import te, te_json
from search_space.operators import estimates, evaluation
from search_space.operators.base import Args, Array, Operator, Precision


def tensors(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Computes tensor expressions.

    Args:
        definition: plain data that `search_space.te_json` writes; `workloads.from_tensors` makes it from te tensors.
    """
    return {"definition": te_json.to_json(te_json.from_json(definition))}


def _direct(args: Args) -> list[te.Tensor]:
    return te_json.from_json(args["definition"])


def _describe(args: Args) -> str:
    """Describes the arguments: name and shape of the output, and a digest of the definition."""
    output = _direct(args)[-1]
    digest = hashlib.sha256(te_json.text(args["definition"]).encode()).hexdigest()[:16]
    return f"output={output.name},shape={'x'.join(map(str, output.shape))},sha256={digest}"


def _reference(args: Args, *arrays: Array) -> Array:
    return evaluation.evaluate(_direct(args), arrays)


def _scale(args: Args) -> float:
    """Returns the scale with which `Workload.tolerance` allows for the errors that the expressions can have."""
    found = _direct(args)
    step = estimates.STEP.get(found[-1].dtype, 1.0)
    return estimates.rounding_error(found) / (step * (10 + estimates.longest_chain(found)))


TENSORS = Operator(
    "tensors",
    tensors,
    {"direct": _direct},
    _reference,
    lambda args: estimates.count_flops(_direct(args)),
    Precision(
        lambda args: estimates.longest_chain(_direct(args)),
        _scale,
        integer_error=lambda args: estimates.whole_steps(_direct(args)),
    ),
    lambda args: estimates.input_bounds(_direct(args)),
    describe=_describe,
)
