"""One model in a process of its own as its users run it: eager, or through `torch.compile` by one of the compilers.

The first inference compiles. Its time from an empty cache and from a full one is measured here, from the call to its
result. Tracing is included, importing PyTorch and making the model are not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.compiler.checking import runtimes
from autotune.compiler.checking.process import NetworkProcess
from autotune.compiler.checking.runtimes import Array, Opener, time_calls
from benchmarks.precisions.torch_runtime import INDUCTOR_OPTIONS
from benchmarks.survey.exports import make_model
from benchmarks.survey.models import Model
from benchmarks.survey.process import Facts
from measure.host import cores_for

EAGER = "eager"
OURS = "autotune"
INDUCTOR = "inductor"
INDUCTOR_FROZEN = "inductor-frozen"
INDUCTOR_BEST = "inductor-best"
TITLES: Mapping[str, str] = {
    OURS: "autotune",
    INDUCTOR: "Inductor",
    INDUCTOR_FROZEN: "Inductor, frozen",
    INDUCTOR_BEST: "Inductor, max-autotune",
    EAGER: "eager",
}
_CACHES = ("AUTOTUNE_CACHE", "TORCHINDUCTOR_CACHE_DIR")


class Eager:
    """A module of the survey's list as it is.

    Args:
        facts: `model` as JSON, `seed` of its weights, `threads`, `cache`: a folder, empty or filled by the same model,
            `notes`: file for `first_seconds`.
    """

    precision = ""
    options: Mapping[str, Any] | None = None
    last = False
    """Use of channels last for images, and so for the weights of convolutions."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        for name in _CACHES:
            os.environ[name] = facts["cache"]
        import torch

        torch.set_num_threads(len(cores_for(facts["threads"])))
        module, example = make_model(Model.from_json(json.loads(facts["model"])), int(facts["seed"]))
        tensors = list(example.values())
        if self.last and any(tensor.ndim == 4 for tensor in tensors):
            module = module.to(memory_format=torch.channels_last)
            tensors = [g.contiguous(memory_format=torch.channels_last) if g.ndim == 4 else g for g in tensors]
        self._run = module if self.options is None else torch.compile(module, **self.options)
        self._inputs, self._notes = tensors, Facts(Path(facts["notes"]))

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Computes the output of the model on its own inputs: `arrays` is empty."""
        import torch

        with torch.no_grad():
            start = time.perf_counter()
            found = self._run(*self._inputs)
            self._notes.add(first_seconds=time.perf_counter() - start)
        return {"0": found.numpy()}

    def time(self, iterations: int) -> Sequence[float]:
        import torch

        with torch.no_grad():
            return time_calls(lambda: self._run(*self._inputs), iterations)


class Ours(Eager):
    """`torch.compile(model, backend="autotune")`."""

    options: Mapping[str, Any] | None = {"backend": "autotune"}


class Inductor(Eager):
    """`torch.compile(model)`."""

    options: Mapping[str, Any] | None = {}


class FrozenInductor(Eager):
    """Inductor with frozen weights and images with channels last."""

    options: Mapping[str, Any] | None = {"options": {"freezing": True}}
    last = True


class BestInductor(FrozenInductor):
    """Frozen Inductor whose products are the fastest of several kernels: its fastest setting."""

    options: Mapping[str, Any] | None = {"options": INDUCTOR_OPTIONS}


RUNTIMES: Mapping[str, Opener] = {
    EAGER: Eager,
    OURS: Ours,
    INDUCTOR: Inductor,
    INDUCTOR_FROZEN: FrozenInductor,
    INDUCTOR_BEST: BestInductor,
}


class ModelProcess(NetworkProcess):
    """A runtime of these with a model in a process of its own."""

    server = "benchmarks.pytorch.runtime"


def main() -> None:
    """Serves one of these runtimes."""
    runtimes.main(RUNTIMES)
