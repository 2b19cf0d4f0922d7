"""`autotune.compile_training`: a model, a loss and an optimiser to an executable training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autotune.compiler.cache.locations import open_cache
from autotune.compiler.options import CompileOptions
from autotune.compiler.plan import CompilePlan
from autotune.compiler.schedules import Schedules
from autotune.compiler.selection import Limits
from autotune.config import Measure
from autotune.training.executable import TrainingExecutable
from autotune.training.optimisers import OPTIMISERS, Optimiser
from autotune.training.step import PARAMETERS, make_training_graph
from autotune.tuner.settings import Settings
from autotune.tuner.task import CPU
from search_space.operators.checks import choice
from targets import registry
from targets.threads import host_cores

__all__ = ["compile_training"]


def compile_training(
    model: Any,
    example_inputs: Any,
    targets: Any,
    loss: str | Callable[[Any, Any], Any] = "cross_entropy",
    optimiser: str | Optimiser = "sgd",
    *,
    threads: int | None = None,
    trials: int = 0,
    seed: int = 0,
) -> TrainingExecutable:
    """Compiles a training step: forward, gradients and optimiser in one executable.

        step = autotune.compile_training(module, images, labels, "cross_entropy", AdamW(learning_rate=1e-3))
        for images, labels in batches:
            loss = step.step(labels, images)

    Args:
        model: module of PyTorch, in float32.
        example_inputs: inputs of the module: a tensor or a tuple of tensors; the step takes their shapes.
        targets: tensor that the loss compares the output with.
        loss: `cross_entropy`, `mse`, or a function of output and targets to a tensor of one element.
        optimiser: `sgd`, `adam`, `adamw` with their defaults, or an object of `autotune.training.optimisers`.
        threads: number of threads; None: one per core.
        trials: number of candidates to measure, shared among the kernels; 0: none.
        seed: seed of every random draw.

    Returns:
        The step, which takes the targets, then the inputs. It has copies of the module's parameters.

    Raises:
        UnsupportedModelError: the module cannot be exported, or has an unsupported operator.
        GraphError: a part of the module has no gradient.
        ValueError: the loss or the optimiser is unknown.
    """
    from autotune.training.modules import LOSSES, read_module

    inputs = tuple(example_inputs) if isinstance(example_inputs, Sequence) else (example_inputs,)
    function = LOSSES[choice("loss", loss, tuple(LOSSES))] if isinstance(loss, str) else loss
    if isinstance(optimiser, str):
        optimiser = OPTIMISERS[choice("optimiser", optimiser, tuple(OPTIMISERS))]()
    forward = read_module(model, inputs, targets, function)
    step = make_training_graph(forward.graph, list(forward.parameters), forward.loss, optimiser, forward.new_buffers)
    measure = Measure(cache="network", threads=threads or host_cores())
    settings = Settings(registry.get(CPU), trials, seed, measure=measure)
    limits = Limits(hardware=settings.target.hardware)
    plan = CompilePlan(settings, limits, CompileOptions(settings.target))
    graph = plan.lower(step.graph)
    store = plan.tune(plan.tasks(graph)) if trials else None
    executable = plan.build(graph, Schedules(store, settings, limits, cache=open_cache()), lasting=True)
    flat = np.zeros(step.length, np.float32)
    for name, slot in step.slots.items():
        slot.of(flat)[...] = forward.parameters[name]
    states = {PARAMETERS: flat, **{name: np.zeros(step.length, np.float32) for name in optimiser.moments}}
    return TrainingExecutable(executable, optimiser, step.slots, {**states, **forward.buffers})
