"""`torch.compile(model, backend="autotune")`: graphs of inference as executables of ours.

    with torch.no_grad():
        compiled = torch.compile(model, backend="autotune", dynamic=False)
        logits = compiled(image)

Parameters and buffers are constants of the executables. Each call looks whether they are still what they were, and
compiles anew where they are not.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext
from torch.fx import GraphModule

from autotune.graph.aten.decompositions import decompositions
from autotune.graph.aten.tensors import array_of, tensor_of
from autotune.graph.ir import Graph
from autotune.pytorch.kernels import Compiled, compile_graph
from autotune.pytorch.options import options_of
from autotune.pytorch.pieces import Piece, Split, split

TESTED = "2.13"
"""Version of PyTorch that this is tested with: what it hands to backends moves with each."""

_LOG = logging.getLogger(__name__)
_Inputs = Sequence[Any]
Made = Callable[[GraphModule, Sequence[int]], Callable[..., Any]]


def autotune_backend(
    module: GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """A backend of `torch.compile`.

    Args:
        module: a graph that Dynamo has traced.
        example_inputs: of it.
        mode: `default` or `max-autotune`.
        options: see `Options`.

    Raises:
        ValueError: an unknown mode or option, or a value out of range.
    """
    chosen = options_of(mode, options)

    def made(graph: GraphModule, fixed: Sequence[int]) -> Program:
        return Program(graph, fixed, lambda piece: compile_graph(piece, chosen))

    return compiled_by(module, example_inputs, made)


def compiled_by(module: GraphModule, example_inputs: list[Any], made: Made) -> Callable[..., Any]:
    """What runs a graph of Dynamo's, made by `made` of the graph of ATen's operators and the inputs that stay.

    What cannot be compiled at all is left to PyTorch, with a warning that says why.
    """
    if why := unusable(example_inputs):
        warnings.warn(f"autotune leaves a graph to PyTorch: {why}", stacklevel=2)
        left: Callable[..., Any] = module.forward
        return left

    def inference(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(made(graph, _fixed()))

    with torch.no_grad():
        compiled: Callable[..., Any] = aot_autograd(
            fw_compiler=inference, inference_compiler=inference, decompositions=decompositions()
        )(module, example_inputs)
    return compiled


def unusable(inputs: Sequence[Any]) -> str:
    """Why a graph of such inputs cannot be compiled; "" where it can."""
    if not torch.__version__.startswith(f"{TESTED}."):
        return f"PyTorch must be {TESTED}, but got {torch.__version__}"
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "gradients must be off (`torch.no_grad()` or `torch.inference_mode()`), but they are on"
    sized = [value for tensor in tensors for value in tensor.shape]
    if any(isinstance(value, torch.SymInt) for value in (*inputs, *sized)):
        return "shapes must be known (`dynamic=False`), but Dynamo traced a graph for any"
    if other := [tensor.device for tensor in tensors if tensor.device.type != "cpu"]:
        return f"tensors must be on the CPU, but got one on {other[0]}"
    return ""


def _fixed() -> list[int]:
    """Places of a graph's inputs that are parameters or buffers, and that it does not change."""
    context = TracingContext.try_get()
    facts = None if context is None else context.fw_metadata
    if facts is None:
        return []
    changed = {place for place, given in enumerate(facts.input_info) if given.mutates_data}
    return [place for place in facts.static_input_indices if place not in changed]


class Program:
    """One graph of ATen's operators: compiled on the first call, when the values of its constants are there.

    Args:
        module: the graph.
        fixed: places of inputs that are constants.
        make: compiles the graph of a piece.

    Attributes:
        found: the pieces of the last compilation; None before the first call.
    """

    def __init__(self, module: GraphModule, fixed: Sequence[int], make: Callable[[Graph], Compiled]) -> None:
        self._module, self._fixed, self._make = module, tuple(fixed), make
        self.found: Split | None = None
        self._kept: list[tuple[int, int]] = []
        self._run: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        """One inference."""
        kept = [_state(inputs[place]) for place in self._fixed]
        if self._run is None or kept != self._kept:
            if self._run is not None:
                _LOG.warning("parameters of a compiled model have changed: it is compiled anew")
            with torch.no_grad():
                self._run = self._compiled(inputs)
            self._kept = kept
        return self._run(*inputs)

    def _compiled(self, inputs: _Inputs) -> Callable[..., Any]:
        placeholders = self._module.graph.find_nodes(op="placeholder")
        found = split(self._module, {placeholders[place].name: inputs[place] for place in self._fixed})
        for piece in found.pieces:
            setattr(found.module, piece.target, Computed(piece, self._make(piece.graph)))
        found.module.recompile()
        self.found = found
        _LOG.info("%s", described(found))
        return found.module.forward


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """What changes where a tensor does: another one, or written to."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def described(found: Split) -> str:
    """What became of a graph, in a sentence."""
    left = ", ".join(f"{count} {name}" for name, (count, _) in found.refused.items())
    return f"{len(found.pieces)} compiled pieces; left to PyTorch: {left or 'nothing'}"


class Computed(torch.nn.Module):
    """A compiled piece in the place of the module that stood for it.

    Args:
        piece: what it computes.
        run: how.
    """

    def __init__(self, piece: Piece, run: Compiled) -> None:
        super().__init__()
        self._places, self._run = piece.places, run
        self._strided = [_layout(tensor) for tensor in piece.made]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Outputs of the piece, each laid out in memory as PyTorch's own: others may look at it by its strides."""
        found = self._run([array_of(inputs[place].contiguous()) for place in self._places])
        return tuple(_laid_out(tensor_of(a), how) for a, how in zip(found, self._strided, strict=True))


def _layout(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides of a tensor that is not contiguous; None of one that is."""
    return None if tensor.is_contiguous() else (tuple(tensor.shape), tuple(tensor.stride()))


def _laid_out(tensor: torch.Tensor, how: tuple[tuple[int, ...], tuple[int, ...]] | None) -> torch.Tensor:
    return tensor if how is None else torch.empty_strided(*how, dtype=tensor.dtype).copy_(tensor)
