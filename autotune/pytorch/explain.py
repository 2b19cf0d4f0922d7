"""Report on a PyTorch model: which operators are compiled, which are left to PyTorch, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from autotune.graph.frontends.aten.sizes import UnknownShape
from autotune.pytorch.backend import compiled_by, unusable
from autotune.pytorch.pieces import Split
from autotune.pytorch.program import split_at
from autotune.pytorch.shapes import list_size_inputs
from search_space.former_names import FormerAttribute


@dataclass(frozen=True)
class Left:
    """Operators of one kind that PyTorch runs.

    Attributes:
        operator: its name without `aten`.
        count: number of such operators.
        reason: reason why the first of them is not compiled.
    """

    operator: str
    count: int
    reason: str


@dataclass(frozen=True)
class Explanation:
    """Result of `explain`: compiled and remaining operators of a model.

    Attributes:
        graphs: number of graphs that Dynamo traces, including the graphs left to PyTorch.
        pieces: number of compiled pieces, each an executable by itself.
        compiled_operators: operators of graphs in those pieces.
        left: operators that PyTorch runs, most frequent first.
        graph_refusals: reasons why complete graphs are left to PyTorch.
        breaks: reasons why Dynamo ends a graph, and how often.
        any_shape: graphs that Dynamo traces for any shape, which are compiled for a range of sizes, or for each shape.
    """

    graphs: int
    pieces: int
    compiled_operators: int
    left: tuple[Left, ...]
    graph_refusals: tuple[str, ...]
    breaks: Mapping[str, int]
    any_shape: int = 0

    compiled = FormerAttribute("compiled_operators")
    whole = FormerAttribute("graph_refusals")

    def __str__(self) -> str:
        lines = [f"{self.graphs} graphs, {self.pieces} compiled pieces of {self.compiled_operators} operations"]
        if self.any_shape:
            lines.append(f"{self.any_shape} graphs of any shape: compiled for a range of sizes, or for each shape")
        lines += [f"a graph is left to PyTorch: {why}" for why in self.graph_refusals]
        lines += [f"a graph ends {count} times: {why}" for why, count in self.breaks.items()]
        for left in self.left:
            stays = "stays" if left.count == 1 else "stay"
            lines.append(f"{left.count} {left.operator} {stays} with PyTorch: {left.reason}")
        return "\n".join(lines)


def explain(
    model: Callable[..., Any], *inputs: Any, dynamic: bool | None = False, training: bool = False, **named_inputs: Any
) -> Explanation:
    """Reports how `torch.compile(model, backend="autotune")` compiles a model called with these inputs.

    Kernels are not compiled; the model is run once by PyTorch, in training backward, too. Buffers, gradients and the
    state of the random generator stay as they are.

    Args:
        model: model in evaluation mode, or in training mode with `training`.
        *inputs: inputs of one call.
        **named_inputs: inputs of the same call, by name.
        dynamic: option of `torch.compile`: whether Dynamo traces graphs for any shape.
        training: option of the backend: graphs that need gradients count, and the graphs of their gradients.
    """
    splits: list[Split] = []
    left_whole: list[str] = []
    any_shape: list[GraphModule] = []

    def make_run(graph: GraphModule, fixed: Sequence[int]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            try:
                splits.append(split_at(graph, fixed, inputs))
            except UnknownShape as error:
                left_whole.append(str(error))
            else:
                any_shape.extend([graph] if list_size_inputs(graph) else [])
            return graph.forward(*inputs)

        return run

    def record_splits(module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        if why := unusable(example_inputs, training):
            left_whole.append(why)
            return module.forward
        return compiled_by(module, example_inputs, make_run, training)

    torch._dynamo.reset()
    counters["graph_break"].clear()
    try:
        run = torch.compile(model, backend=record_splits, dynamic=dynamic)
        with _restore_state(model), torch.set_grad_enabled(training):
            _backward(model, run(*inputs, **named_inputs), (*inputs, *named_inputs.values()))
        breaks = {str(why).splitlines()[0]: count for why, count in counters["graph_break"].items()}
    finally:
        torch._dynamo.reset()
    return Explanation(
        graphs=len(splits) + len(left_whole),
        pieces=sum(len(found.pieces) for found in splits),
        compiled_operators=sum(found.compiled_count for found in splits),
        left=_left(splits),
        graph_refusals=tuple(left_whole),
        breaks=breaks,
        any_shape=len(any_shape),
    )


@contextmanager
def _restore_state(model: Callable[..., Any]) -> Iterator[None]:
    """Restores the state that a step of training changes besides parameters: buffers, and the random generator."""
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    values = [buffer.detach().clone() for buffer in buffers]
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in zip(buffers, values, strict=True):
                    buffer.copy_(value)


def _backward(model: Callable[..., Any], outputs: Any, inputs: Sequence[Any]) -> None:
    """Runs backward from all outputs that have gradients, and keeps no gradient."""
    ends = [end for end in tree_leaves(outputs) if isinstance(end, torch.Tensor) and end.requires_grad]
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    leaves = [*parameters, *(leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if ends and wanted:
        torch.autograd.grad(ends, wanted, [torch.ones_like(end) for end in ends], allow_unused=True)


def _left(splits: Sequence[Split]) -> tuple[Left, ...]:
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for found in splits:
        for name, (count, why) in found.refusals.items():
            counts[name] += count
            reasons.setdefault(name, why)
    return tuple(Left(name, count, reasons[name]) for name, count in counts.most_common())
