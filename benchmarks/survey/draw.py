"""Random list of models for the survey, without models that a file of the repository mentions or once mentioned.

`python -m benchmarks.survey.draw --seed 7 --counts torchvision=4,timm=20,transformers=16 > LIST.yaml` draws models of
the installed libraries, at most one of a family. It passes over models with more than `--gigabytes` of weights, and
over models that their own library cannot run on one input of the listed kinds. It neither exports nor compiles any.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from benchmarks.provenance import ROOT
from benchmarks.survey.exports import declare_torchvision_operators, make_model, make_plain_model
from benchmarks.survey.models import LIBRARIES, Model

COUNTS = {"torchvision": 4, "timm": 20, "transformers": 16}


def list_torchvision() -> list[Model]:
    """Lists the classifiers of images, by module."""
    from torchvision import models

    names = models.list_models(module=models)
    return [Model(name, "torchvision", models.get_model_builder(name).__module__.rpartition(".")[2]) for name in names]


def list_timm() -> list[Model]:
    """Lists all architectures, by module."""
    import timm

    return [Model(name, "timm", family) for family in timm.list_modules() for name in timm.list_models(module=family)]


def list_transformers() -> list[Model]:
    """Lists the base models with the default configuration whose one input is tokens, an image or sound."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    listed = []
    for family, names in MODEL_MAPPING_NAMES.items():
        name = names[0] if isinstance(names, tuple) else names
        try:
            kind = getattr(transformers, name)
            inputs = make_inputs(kind.main_input_name, kind.config_class())
        except Exception as error:  # no such class, or a configuration without defaults; each has an error of its own
            sys.stderr.write(f"{name} is passed over: {error!r:.200}\n")
            continue
        if inputs:
            listed.append(Model(name, "transformers", family, {"model": name, "inputs": inputs}))
    return listed


def make_inputs(name: str, config: Any) -> dict[str, Any]:
    """Makes the description of a base model's input, as lists of models have it; empty for other kinds of input."""
    if name == "input_ids":
        return {name: [1, 128]}
    if name == "input_values":
        return {name: {"float": [1, 16000]}}
    size = getattr(config, "image_size", 224)
    if name == "pixel_values" and isinstance(size, int):
        return {name: {"float": [1, getattr(config, "num_channels", 3), size, size]}}
    return {}


LISTS = {"torchvision": list_torchvision, "timm": list_timm, "transformers": list_transformers}


def is_mentioned(name: str, commits: Sequence[str] = ()) -> bool:
    """Tells whether any file of the repository mentions a name, now or at one of some commits.

    Raises:
        RuntimeError: the folder is no repository of git, or lacks a commit, so that no name would be in it.
    """
    for commit in ("", *commits):
        command = ["git", "grep", "--quiet", "-I", "-i", "-w", "-F", "-e", name, *([commit] if commit else [])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode > 1:
            raise RuntimeError(f"names must be looked up in a repository of git, but got: {done.stderr.strip()}")
        if done.returncode == 0:
            return True
    return False


def explain_refusal(model: Model, gigabytes: float, commits: Sequence[str] = ()) -> str | None:
    """Returns why a model is passed over; None if it is not."""
    import torch

    names = [model.name, model.family] if model.library == "transformers" else [model.name]
    if any(is_mentioned(name, commits) for name in names):
        return "its name stands in the repository"
    try:
        with torch.device("meta"):
            module, _ = make_plain_model(model)
        weights = sum(tensor.numel() * tensor.element_size() for tensor in module.parameters()) * 1e-9
        if weights > gigabytes:
            return f"it has {weights:.2f} GB of weights"
        module, inputs = make_model(model, 0)
        with torch.no_grad():
            module(*inputs.values())
    except Exception as error:  # whatever the library raises
        return f"its library cannot run it: {error!r:.200}"
    return None


def draw(
    models: Sequence[Model],
    count: int,
    generator: np.random.Generator,
    gigabytes: float,
    commits: Sequence[str] = (),
) -> Iterator[Model]:
    """Draws models of different families, each model of the list being equally likely to come next."""
    families: set[str] = set()
    for index in generator.permutation(len(models)):
        model = models[index]
        if len(families) == count:
            return
        if model.family in families:
            continue
        if reason := explain_refusal(model, gigabytes, commits):
            sys.stderr.write(f"{model.name} is passed over: {reason}\n")
            continue
        families.add(model.family)
        sys.stderr.write(f"{model.name} is drawn\n")
        yield model


def format_list(models: Sequence[Model]) -> str:
    """Formats models as a list of the survey."""
    document: dict[str, dict[str, list[Any]]] = {}
    for model in models:
        entry = {model.name: dict(model.options)} if model.options else model.name
        document.setdefault(model.library, {}).setdefault(model.family, []).append(entry)
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)


def parse_counts(text: str) -> dict[str, int]:
    """Parses the number of models of each library.

    Raises:
        argparse.ArgumentTypeError: another form, or a library without a list.
    """
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name in LISTS and count.isdecimal() for name, _, count in pairs):
        raise argparse.ArgumentTypeError(
            f"`counts` must be LIBRARY=NUMBER,... with {', '.join(LISTS)}, but got {text!r}"
        )
    return {name: int(count) for name, _, count in pairs}


def parse_seed(text: str) -> int:
    """Parses a seed.

    Raises:
        argparse.ArgumentTypeError: no number, or a negative one.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"`seed` must be an integer from 0, but got {text!r}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a list."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey.draw", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=parse_seed, required=True, help="seed of the draw")
    parser.add_argument("--counts", type=parse_counts, default=COUNTS, help="number of models of each library")
    parser.add_argument("--gigabytes", type=float, default=1.0, help="largest size of the weights (1)")
    parser.add_argument(
        "--also-without", action="append", default=[], metavar="COMMIT", help="pass over names in this commit, too"
    )
    options = parser.parse_args(arguments)
    counts: Mapping[str, int] = options.counts
    libraries = [name for name in LIBRARIES if name in counts]
    try:
        declare_torchvision_operators()
        lists = {library: LISTS[library]() for library in libraries}
    except ModuleNotFoundError as error:
        parser.error(f"the packages of the survey must be installed (pip install '.[bench,survey]'), but got: {error}")
    drawn: list[Model] = []
    try:
        for library in libraries:
            generator = np.random.default_rng([options.seed, LIBRARIES.index(library)])
            drawn += draw(lists[library], counts[library], generator, options.gigabytes, options.also_without)
    except RuntimeError as error:
        parser.error(str(error))
    sys.stdout.write(format_list(drawn))
    return 0


if __name__ == "__main__":
    # Of the libraries, whose models warn; here, since it holds for the whole process.
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    sys.exit(main())
