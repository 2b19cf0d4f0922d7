"""Export of a library's model with random weights: `python -m benchmarks.survey.exports REQUEST`.

Weights are drawn from a seed and nothing is downloaded. Parameters that a library initialises with one value, such as a
layer's scale or a bias of zeros, get a value for each element. Else a branch that is multiplied by 1e-6 could be wrong
without a trace in the outputs.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.survey.models import Model
from benchmarks.survey.process import Facts, within

OPSET = 17
STIR = 0.1
"""Standard deviation of the noise added to parameters of one value."""

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "dynamo": {"dynamo": True, "external_data": False, "verbose": False},
    "script": {"dynamo": False, "opset_version": OPSET},
}
EXPORTERS = tuple(_OPTIONS)
"""Exporters of `torch.onnx` in the order of trying: its default, and the one by TorchScript."""


def main() -> None:
    """Exports the model of the request to its file."""
    request = json.loads(sys.argv[1])
    within(request["memory_bytes"])
    facts = Facts(Path(request["facts"]))
    facts.begin("export")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    start = time.perf_counter()
    with facts.failures():
        module, inputs = make_model(Model.from_json(request["model"]), request["seed"])
        exporter = write_onnx(module, inputs, Path(request["file"]), request["exporters"])
    facts.add(export_seconds=time.perf_counter() - start, exporter=exporter)


def make_model(model: Model, seed: int) -> tuple[Any, dict[str, Any]]:
    """Makes the module of a model, and its inputs by name."""
    import torch

    torch.manual_seed(seed)
    module, inputs = make_plain_model(model)
    stir(module, seed)
    return module, inputs


def make_plain_model(model: Model) -> tuple[Any, dict[str, Any]]:
    """Makes the module of a model as its library initialises it, and its inputs by name."""
    module, inputs = _MAKERS[model.library](model)
    return module.eval(), inputs


def stir(module: Any, seed: int) -> None:
    """Adds noise to every parameter of one value, and to the means and variances of batch normalisation."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    tensors = dict(module.named_parameters())
    tensors |= {n: b for n, b in module.named_buffers() if n.endswith(("running_mean", "running_var"))}
    with torch.no_grad():
        for tensor in tensors.values():
            if tensor.is_floating_point() and tensor.numel() and bool((tensor == tensor.flatten()[0]).all()):
                noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) * STIR
                tensor += noise.clamp(-4 * STIR, 4 * STIR)  # a variance of 1 stays above 0


def write_onnx(module: Any, inputs: Mapping[str, Any], file: Path, exporters: list[str]) -> str:
    """Writes the ONNX file with the first exporter that can, and gives its name.

    Raises:
        RuntimeError: no exporter can; says why each failed.
    """
    import torch

    said = []
    with torch.no_grad():
        for name in exporters:
            try:
                if name not in EXPORTERS:
                    raise ValueError(f"`exporter` must be one of {', '.join(EXPORTERS)}, but got {name!r}")
                options = _OPTIONS[name]
                torch.onnx.export(module, tuple(inputs.values()), str(file), input_names=list(inputs), **options)
                return name
            except Exception as error:  # whatever PyTorch raises; the next exporter may do better
                said.append(f"{name}: {_first_line(error)}")
                file.unlink(missing_ok=True)
    raise RuntimeError(f"torch.onnx must export the model, but {'; '.join(said)}")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _torchvision(model: Model) -> tuple[Any, dict[str, Any]]:
    import torch

    declare_torchvision_operators()
    from torchvision import models

    more = {"aux_logits": False, "init_weights": True} if model.family in ("googlenet", "inception") else {}
    more |= {"weights_backbone": None} if model.family == "segmentation" else {}
    module = models.get_model(model.name, weights=None, **more)
    return first_output(module), {"image": torch.randn(model.options.get("shape", [1, 3, 224, 224]))}


def _timm(model: Model) -> tuple[Any, dict[str, Any]]:
    import torch

    declare_torchvision_operators()
    import timm

    module = timm.create_model(model.name, pretrained=False, exportable=True)
    shape = model.options.get("shape", [1, *module.pretrained_cfg["input_size"]])
    return first_output(module), {"image": torch.randn(shape)}


def _transformers(model: Model) -> tuple[Any, dict[str, Any]]:
    import torch

    declare_torchvision_operators()
    import transformers

    kind = getattr(transformers, model.options["model"])
    config = kind.config_class(**model.options.get("config", {}))
    module = kind(config)
    if "part" in model.options:
        module = getattr(module, model.options["part"])
    inputs: dict[str, Any] = {}
    for name, shape in model.options["inputs"].items():
        if isinstance(shape, dict):
            inputs[name] = torch.randn(shape["float"])
        else:
            inputs[name] = torch.randint(0, 100, shape)
    return first_output(module, list(inputs)), inputs


_MAKERS: Mapping[str, Callable[[Model], tuple[Any, dict[str, Any]]]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "transformers": _transformers,
}


def first_output(module: Any, names: Sequence[str] = ()) -> Any:
    """Wraps a module: inputs are positional, and the output is the first tensor of the module's: no caches, no losses.

    Args:
        module: module to wrap.
        names: names that it takes its inputs by; none: its inputs are positional, too.
    """
    import torch

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *inputs: Any) -> Any:
            found = self.model(**dict(zip(names, inputs, strict=True))) if names else self.model(*inputs)
            while not isinstance(found, torch.Tensor):
                found = next(iter(found.values())) if isinstance(found, Mapping) else found[0]
            return found

    return First()


@cache
def declare_torchvision_operators() -> object:
    """Declares two operators that a torchvision built for CUDA needs when torch is for the CPU.

    Its own library cannot be loaded then. Its models need no operator of it, but it cannot be imported without these.

    Returns:
        Library that keeps them declared while it lives; None where nothing is missing.
    """
    import torch

    if "+cpu" not in torch.__version__:
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not torch._C._dispatch_has_kernel(f"torchvision::{name}"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


if __name__ == "__main__":
    main()
