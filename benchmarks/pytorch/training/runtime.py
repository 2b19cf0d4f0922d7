"""One network in a process of its own that is trained: eager, or compiled by one of the compilers.

A step is forward, loss, backward and the optimiser's step. The first step compiles.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.compiler.checking import runtimes
from autotune.compiler.checking.process import NetworkProcess
from autotune.compiler.checking.runtimes import Array, Opener, time_calls
from benchmarks.pytorch.runtime import EAGER, INDUCTOR, OURS
from benchmarks.pytorch.training.networks import EXAMPLES
from benchmarks.pytorch.training.table import STEP
from benchmarks.survey.process import Facts
from measure.host import cores_for

EXACT = "float64"
"""Eager PyTorch in float64, whose gradients are the reference of the others."""
_CACHES = ("AUTOTUNE_CACHE", "TORCHINDUCTOR_CACHE_DIR")


class Eager:
    """Training of a network by eager PyTorch.

    Args:
        facts: `network` of `EXAMPLES`, `seed` of its weights and batch, `threads`, `cache`: a folder, `notes`: file for
            `first_seconds` and `peak_bytes`.
    """

    precision = ""
    options: Mapping[str, Any] | None = None
    exact = False

    def __init__(self, facts: Mapping[str, Any]) -> None:
        for name in _CACHES:
            os.environ[name] = facts["cache"]
        import torch

        torch.set_num_threads(len(cores_for(facts["threads"])))
        torch.manual_seed(int(facts["seed"]))
        example = EXAMPLES[facts["network"]]()
        self._module, self._inputs, self._targets = example.module, example.inputs, example.targets
        if self.exact:
            self._module = self._module.double()
            self._inputs = tuple(x.double() if x.is_floating_point() else x for x in self._inputs)
            self._targets = self._targets.double() if self._targets.is_floating_point() else self._targets
        self._run = self._module if self.options is None else torch.compile(self._module, **self.options)
        self._optimiser = torch.optim.SGD(self._module.parameters(), lr=1e-3, momentum=0.9, fused=True)
        self._loss, self._notes, self._peak = example.loss, Facts(Path(facts["notes"])), 0
        if self.options is not None and self._loss is not torch.nn.functional.cross_entropy:
            self._loss = torch.compile(self._loss, **self.options)  # it takes a large part of a small network's step

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Takes the first step, and returns its loss and the gradients by parameter: `arrays` is empty."""
        start = time.perf_counter()
        loss = self._step()
        self._notes.add(first_seconds=time.perf_counter() - start)
        named = {name: parameter.grad for name, parameter in self._module.named_parameters()}
        return {"": np.array(loss), **{name: grad.numpy() for name, grad in named.items() if grad is not None}}

    def time(self, iterations: int) -> Sequence[float]:
        if not self._peak:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets the peak back, as compiling is over
        seconds = time_calls(self._step, iterations)
        status = Path("/proc/self/status").read_text(encoding="ascii")
        self._peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
        self._notes.add(peak_bytes=self._peak)
        return seconds

    def _step(self) -> float:
        self._optimiser.zero_grad()
        loss = self._loss(self._run(*self._inputs), self._targets)
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())


class Exact(Eager):
    """Eager PyTorch in float64."""

    exact = True


class Ours(Eager):
    """`torch.compile(model, backend="autotune", options={"training": True})`."""

    options: Mapping[str, Any] | None = {"backend": "autotune", "options": {"training": True}}


class Inductor(Eager):
    """`torch.compile(model)`."""

    options: Mapping[str, Any] | None = {}


class Step(Eager):
    """A step of `autotune.compile_training`, on arrays of NumPy."""

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        import torch

        import autotune
        from autotune.training.optimisers import SGD

        start = time.perf_counter()
        batch = self._inputs if len(self._inputs) > 1 else self._inputs[0]
        loss = "cross_entropy" if self._loss is torch.nn.functional.cross_entropy else self._loss
        optimiser = SGD(1e-3, momentum=0.9)
        self._own = autotune.compile_training(self._module, batch, self._targets, loss, optimiser)
        self._batch = [tensor.numpy() for tensor in (self._targets, *self._inputs)]
        loss = self._step()
        self._notes.add(first_seconds=time.perf_counter() - start)
        del self._module, self._run, self._optimiser  # the step has copies of the parameters
        momentum = self._own.states["momentum"]  # the gradients after the first step
        return {"": np.array(loss), **{name: slot.of(momentum) for name, slot in self._own.slots.items()}}

    def _step(self) -> float:
        return self._own.step(*self._batch)


RUNTIMES: Mapping[str, Opener] = {EAGER: Eager, EXACT: Exact, OURS: Ours, STEP: Step, INDUCTOR: Inductor}


class TrainingProcess(NetworkProcess):
    """A runtime of these with a network in a process of its own."""

    server = "benchmarks.pytorch.training.runtime"


def main() -> None:
    """Serves one of these runtimes."""
    runtimes.main(RUNTIMES)
