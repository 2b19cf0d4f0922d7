"""Programs of graphs of ATen's operators: compiled once their constants are there, and anew when constants change."""

from __future__ import annotations

import logging
import operator
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from autotune.compiler.executable.shapes import NotOpen
from autotune.graph.frontends.aten.sizes import UnknownShape, specialise
from autotune.graph.ir import Graph
from autotune.pytorch.calls import OutsideError, make_call, make_callable
from autotune.pytorch.kernels import GraphFunction
from autotune.pytorch.pieces import Split, split
from autotune.pytorch.shapes import Recent, list_size_inputs, shape_key

_LOG = logging.getLogger(__name__)
_ADDRESS, _VERSION = torch.Tensor.data_ptr, operator.attrgetter("_version")

State = tuple[list[int], list[int]]
"""Addresses and versions of tensors."""


@dataclass(frozen=True)
class _CompiledState:
    """A compiled graph, and the state of its constants.

    Attributes:
        state: state of its constants.
        run: takes all inputs.
        references: references to the constants that tell of their end; dropped, they tell of nothing.
    """

    state: State
    run: Callable[..., Any]
    references: Sequence[weakref.ref[torch.Tensor]]


Compile = Callable[[Sequence[Any]], Callable[..., Any]]
"""Inputs of a call → function that runs a graph, and takes all inputs."""


class Program:
    """One graph of known shapes, or one of any shape at the sizes of its calls.

    Dynamo keeps a program for as long as the code of its model, even after the model is freed. So the compiled graph is
    released once one of its constants is freed.

    Args:
        module: the graph.
        fixed: places of inputs that are constants.
        compile_for: compiles the graph.
    """

    def __init__(self, module: GraphModule, fixed: Sequence[int], compile_for: Compile) -> None:
        self._module, self._compile_for = module, compile_for
        self._constants = _taking(tuple(fixed))
        self._current: _CompiledState | None = None  # one word, so that no call sees half of it
        self._ended_state: State | None = None
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        """Runs one inference; threads may call at the same time."""
        state, current = tensor_state(self._constants(inputs)), self._current
        if current is None or current.state != state:
            current = self._up_to_date(state, inputs)
        try:
            return current.run(*inputs)
        except OutsideError:  # PyTorch runs the graph once more, and raises what it does without compiling
            return self._module.forward(*inputs)

    def _up_to_date(self, state: State, inputs: Sequence[Any]) -> _CompiledState:
        """Returns the graph compiled for the constants' state, compiled here unless another thread just did."""
        with self._lock:
            current = self._current
            if current is None or current.state != state:
                if current is not None or self._ended_state is not None:
                    _LOG.warning("parameters of a compiled model have changed: it is compiled anew")
                with torch.no_grad():
                    run = self._compile_for(inputs)
                current = self._current = _CompiledState(state, run, self._watch(state, self._constants(inputs)))
            return current

    def _watch(self, state: State, constants: Sequence[torch.Tensor]) -> Sequence[weakref.ref[torch.Tensor]]:
        """Makes references that release the compiled graph when a constant is freed.

        If freed constants come again, each call makes new ones, and their end means nothing.
        """
        if state == self._ended_state:
            return ()
        mine = weakref.ref(self)

        def release(_: object) -> None:
            program = mine()
            if program is not None and program._current is not None and program._current.state is state:
                program._current, program._ended_state = None, state

        return [weakref.ref(constant, release) for constant in constants]

    @contextmanager
    def change(self) -> Iterator[None]:
        """Changes the compile function and drops the compiled graph; no compilation sees half of the change."""
        with self._lock:
            yield
            self._current = None


def make_program(module: GraphModule, fixed: Sequence[int], make: Callable[[Graph], GraphFunction]) -> Program:
    """Makes the program of a graph that is compiled in pieces, for the shapes of a call.

    Args:
        module, fixed: arguments of `Program`.
        make: compiles the graph of a piece.
    """

    def compile_for(inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            pieces = split_at(module, fixed, inputs)
        except UnknownShape as error:
            warnings.warn(f"autotune leaves a graph to PyTorch: {error}", stacklevel=2)
            left: Callable[..., Any] = module.forward
            return left
        run = make_callable(pieces, [make_call(piece, make(piece.graph)) for piece in pieces.pieces])
        _LOG.info("%s", describe(pieces))
        return run

    return Program(module, fixed, compile_for)


class Programs:
    """One graph of any shape: compiled for a range of sizes, or for each shape that it comes in, the last are kept.

    Args:
        module: the graph.
        fixed: places of inputs that are constants.
        make: compiles the graph of a piece.
        most: shapes that are kept.
        begin: makes the function that runs the graph at all sizes; None: each shape is compiled. It and its result
            raise `NotOpen` where the graph is not one at all sizes.
    """

    def __init__(
        self,
        module: GraphModule,
        fixed: Sequence[int],
        make: Callable[[Graph], GraphFunction],
        most: int,
        begin: Callable[[GraphModule, Sequence[int]], Callable[..., Any]] | None = None,
    ) -> None:
        self._size_indices = list_size_inputs(module)
        self._new = partial(make_program, module, fixed, make)
        self._recent: Recent[Program] = Recent(most)
        self._single: Callable[..., Any] | None = None
        if begin is not None:
            with self._refusals():
                self._single = begin(module, fixed)

    def __call__(self, *inputs: Any) -> Any:
        """Runs one inference."""
        if (whole := self._single) is not None:
            with self._refusals():
                return whole(*inputs)
        return self._recent.of(shape_key(inputs, self._size_indices), self._new)(*inputs)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Has each shape compiled from here on where the graph is not one at all sizes."""
        try:
            yield
        except NotOpen as error:
            _LOG.info("a graph of any shape is compiled for each shape: %s", error)
            self._single = None


def split_at(module: GraphModule, fixed: Sequence[int], inputs: Sequence[Any]) -> Split:
    """Splits a graph into pieces; a graph of any shape at the sizes of some inputs.

    Args:
        module: stays as it is.
        fixed: places of inputs that are constants.
        inputs: inputs of one call.

    Raises:
        UnknownShape: it is of any shape, and has sizes that depend on the elements of tensors.
    """
    if list_size_inputs(module):
        module = specialise(module, inputs)
    placeholders = module.graph.find_nodes(op="placeholder")
    return split(module, {placeholders[place].name: inputs[place] for place in fixed})


def tensor_state(tensors: Sequence[torch.Tensor]) -> State:
    """Returns the state of some tensors, which changes when one is replaced or written. It is read at each call."""
    try:
        return list(map(_ADDRESS, tensors)), list(map(_VERSION, tensors))
    except RuntimeError:  # tensors of inference mode have no version
        versions = [0 if tensor.is_inference() else tensor._version for tensor in tensors]
        return list(map(_ADDRESS, tensors)), versions


def _taking(indices: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Makes a function that selects the elements at some indices."""
    if len(indices) > 1:
        return operator.itemgetter(*indices)
    return lambda given: [given[place] for place in indices]


def describe(split: Split) -> str:
    """Describes in a sentence how a graph was split."""
    left = ", ".join(f"{count} {name}" for name, (count, _) in split.refusals.items())
    return f"{len(split.pieces)} compiled pieces; left to PyTorch: {left or 'nothing'}"
