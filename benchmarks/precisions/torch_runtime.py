"""Runtime PyTorch in a process of its own: the module that a row was exported from, eager or compiled.

Images, and with them the weights that a convolution takes, lie with channels last, in which PyTorch is faster on
processors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from autotune.compiler.checking import runtimes
from autotune.compiler.checking.process import NetworkProcess
from autotune.compiler.checking.runtimes import Array, Opener, time_calls
from benchmarks.survey.exports import make_model
from benchmarks.survey.models import Model
from measure.host import cores_for

INDUCTOR_OPTIONS = {"freezing": True, "max_autotune": True}
"""Options of compiled modules: weights are packed in advance, and products are the fastest of several kernels."""
EAGER = ("torch", "torch-autocast")
INDUCTOR = ("torch-inductor", "torch-inductor-autocast")
TITLES: Mapping[str, str] = {
    "torch": "PyTorch float32",
    "torch-autocast": "PyTorch autocast (bfloat16)",
    "torch-inductor": "PyTorch Inductor float32",
    "torch-inductor-autocast": "PyTorch Inductor autocast (bfloat16)",
}


class Torch:
    """A module of the survey's list: `{"model": the model as JSON, "seed": of its weights}`."""

    precision = "float32"
    is_compiled = False

    def __init__(self, facts: Mapping[str, Any]) -> None:
        import torch

        torch.set_num_threads(len(cores_for(facts["threads"])))
        module, example = make_model(Model.from_json(json.loads(facts["model"])), int(facts["seed"]))
        if any(tensor.ndim == 4 for tensor in example.values()):
            module = module.to(memory_format=torch.channels_last)
        self._module = torch.compile(module, options=INDUCTOR_OPTIONS) if self.is_compiled else module
        self._names, self._inputs = list(example), list(example.values())

    def infer(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Runs the module, whose one output is named by its number."""
        import torch

        tensors = []
        for name, before in zip(self._names, self._inputs, strict=True):
            tensor = torch.from_numpy(arrays[name]) if name in arrays else before  # the export has no unused inputs
            tensors.append(tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor)
        self._inputs = tensors
        with self._computing():
            found = self._module(*tensors)
        return {"0": found.float().numpy() if found.is_floating_point() else found.numpy()}

    def time(self, iterations: int) -> Sequence[float]:
        with self._computing():
            return time_calls(lambda: self._module(*self._inputs), iterations)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Disables gradients; under autocast weights are cast once, on entry, and not for each inference."""
        import torch

        narrow = self.precision != "float32"
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow):
            yield


class TorchAutocast(Torch):
    """PyTorch under `torch.autocast`, which computes layers in bfloat16 and a list of others in float32."""

    precision = "bfloat16"


class Inductor(Torch):
    """The module compiled by `torch.compile`, see `INDUCTOR_OPTIONS`."""

    is_compiled = True


class InductorAutocast(TorchAutocast):
    """Compiled PyTorch under `torch.autocast`."""

    is_compiled = True


RUNTIMES: Mapping[str, Opener] = dict(zip(TITLES, (Torch, TorchAutocast, Inductor, InductorAutocast), strict=True))


class TorchProcess(NetworkProcess):
    """A runtime of these with a model in a process of its own."""

    server = "benchmarks.precisions.torch_runtime"


def main() -> None:
    """Serves one of these runtimes."""
    runtimes.main(RUNTIMES)
