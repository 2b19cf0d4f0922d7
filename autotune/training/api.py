"""`autotune.compile_training`: a model, a loss and an optimiser to an executable training step."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune.compiler.cache.locations import open_cache
from autotune.compiler.executable.arrangement import ArenaOptions
from autotune.compiler.options import CompileOptions
from autotune.compiler.plan import CompilePlan
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.config import Measure
from autotune.graph.errors import UnsupportedModelError
from autotune.graph.passes.repeated_scales import repeat_scales
from autotune.graph.precision import FULL
from autotune.training.executable import TrainingExecutable
from autotune.training.forward import ForwardGraph, read_graph
from autotune.training.losses import LOSSES
from autotune.training.optimisers import OPTIMISERS, Optimiser
from autotune.training.precision import training_mode
from autotune.training.step import PARAMETERS, make_training_graph
from autotune.tuner.settings import Settings
from autotune.tuner.task import CPU
from search_space.operators.checks import choice
from targets import registry
from targets.manifest import ExecutableError
from targets.threads import host_cores

__all__ = ["compile_training"]

TARGETS = (CPU, "cuda")
"""Targets of training steps, by family."""


def compile_training(
    model: Any,
    example_inputs: Any = None,
    targets: Any = None,
    loss: str | Callable[[Any, Any], Any] = "cross_entropy",
    optimiser: str | Optimiser = "sgd",
    *,
    target: str = CPU,
    threads: int | None = None,
    precision: str = FULL,
    batches: int = 1,
    trials: int = 0,
    seed: int = 0,
    max_arena_mb: float | None = None,
) -> TrainingExecutable:
    """Compiles a training step: forward, gradients and optimiser in one executable.

        step = autotune.compile_training(module, images, labels, "cross_entropy", AdamW(learning_rate=1e-3))
        for images, labels in batches:
            loss = step.step(labels, images)

    Args:
        model: module of PyTorch in float32, or an ONNX file or model with one output. Constants in float32 of more than
            one element are the parameters of a model of ONNX.
        example_inputs: inputs of a module: a tensor or a tuple of tensors; the step takes their shapes.
        targets: tensor that a module's loss compares the output with.
        loss: `cross_entropy`, `mse`, or for a module a function of output and targets to a tensor of one element.
        optimiser: `sgd`, `adam`, `adamw` with their defaults, or an object of `autotune.training.optimisers`.
        target: `cpu`, or `cuda` or `cuda:ARCH` for an NVIDIA GPU of this machine.
        threads: number of threads; None: one per core.
        precision: `float32`, or `bfloat16`: layers multiply bfloat16, and parameters and gradients are in float32.
        batches: number of steps after which the parameters change, by the mean of their gradients.
        trials: number of candidates to measure, shared among the kernels; 0: none.
        seed: seed of every random draw, and of weights that a file does not carry.
        max_arena_mb: limit in 10^6 bytes of the memory for activations and gradients. Values are computed again until
            it is met; results are bit for bit the same. None: for 1 % of the estimated time.

    Returns:
        The step, which takes the targets, then the inputs. It has copies of the model's parameters.

    Raises:
        UnsupportedModelError: the model cannot be read, or has an unsupported operator, or has dropout on a GPU.
        GraphError: a part of the model has no gradient.
        ValueError: the target, the loss, the optimiser or the precision is unknown, the model has another precision, or
            a limit is not for the CPU.
        ExecutableError: this machine has no such GPU.
        BuildError: the limit of the memory cannot be met; the error says the smallest one that can.
        TypeError: inputs and targets are missing, or come with a model that has its own.
    """
    if batches < 1:
        raise ValueError(f"`batches` must be at least 1, but got batches={batches}")
    choice("target", target.partition(":")[0], TARGETS)
    machine = registry.get(target)
    if missing := machine.unavailable():
        raise ExecutableError(f"a training step must be compiled on the machine that runs it, but {missing}")
    mode = training_mode(precision)
    if max_arena_mb is not None and not 0 < max_arena_mb < math.inf:
        raise ValueError(f"`max_arena_mb` must be positive and finite, but got max_arena_mb={max_arena_mb}")
    if max_arena_mb is not None and target != CPU:
        raise ValueError(f"`target` must be cpu if `max_arena_mb` is set, but got target={target!r}")
    max_bytes = None if max_arena_mb is None else int(max_arena_mb * 1e6)
    if isinstance(optimiser, str):
        optimiser = OPTIMISERS[choice("optimiser", optimiser, tuple(OPTIMISERS))]()
    forward = _read(model, example_inputs, targets, loss, seed)
    if forward.masks and machine.hardware.kind != CPU:  # their hash is one expression, of megabytes as text of CUDA
        raise UnsupportedModelError(f"`target` must be {CPU} for a model with dropout, but got target={target!r}")
    step = make_training_graph(
        forward.graph,
        list(forward.parameters),
        forward.loss,
        optimiser,
        forward.new_buffers,
        forward.masks,
        seed,
        batches,
    )
    measure = Measure(cache="network", threads=threads or host_cores())
    settings = Settings(machine, trials, seed, measure=measure)
    limits = Limits(hardware=settings.target.hardware)
    plan = CompilePlan(settings, limits, CompileOptions(settings.target, precision=mode))
    graph = repeat_scales(plan.lower(step.graph))
    store = plan.tune(plan.tasks(graph)) if trials else None
    schedules = Schedules(store, settings, limits, cache=open_cache())
    arena = ArenaOptions(step.updates, max_bytes) if target == CPU else None
    executable = plan.build_on_target(graph, schedules, lasting=True, arena=arena)
    flat = np.zeros(step.length, np.float32)
    for name, slot in step.slots.items():
        slot.of(flat)[...] = forward.parameters[name]
    zeros = {name: np.zeros(kind.shape, kind.dtype) for name, kind in step.states.items()}
    states = {**zeros, PARAMETERS: flat, **forward.buffers}
    return TrainingExecutable(executable, optimiser, step.slots, states, classes=forward.classes)


def _read(
    model: Any, example_inputs: Any, targets: Any, loss: str | Callable[[Any, Any], Any], seed: int
) -> ForwardGraph:
    """Reads a model with its loss."""
    if isinstance(loss, str):
        choice("loss", loss, tuple(LOSSES))
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        if example_inputs is not None or targets is not None or not isinstance(loss, str):
            raise TypeError("`example_inputs`, `targets` and a function as `loss` must come with a module of PyTorch")
        from autotune.compiler.sources import OnnxSource
        from autotune.graph.frontends.onnx.model import load_model

        proto = load_model(os.fspath(model)) if isinstance(model, str | os.PathLike) else model
        return read_graph(OnnxSource.of(proto, seed).graph(), loss)
    if example_inputs is None or targets is None:
        raise TypeError("`example_inputs` and `targets` must be given for a module of PyTorch")
    from autotune.training import modules

    inputs = tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs,)
    return modules.read_module(model, inputs, targets, modules.LOSSES[loss] if isinstance(loss, str) else loss)
