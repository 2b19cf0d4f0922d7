"""Networks of the benchmarks of precision: from the survey's list, exported with random weights, or ONNX files."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.compiler.checking.process import NetworkProcess
from autotune.graph.ir import Array
from autotune.graph.quantise import Feeds
from autotune.graph.quantise.accuracy import add_power
from autotune.graph.quantise.formats import decibels
from benchmarks import collected, results
from benchmarks.survey.exports import EXPORTERS
from benchmarks.survey.models import Model, load_models
from benchmarks.survey.process import run_with_limit

EXPORT_SECONDS = 600.0
EXPORT_BYTES = 24 << 30
"""Limits of an export: seconds, and bytes of addresses."""


@dataclass(frozen=True)
class Subject:
    """A network to measure.

    Attributes:
        name: name in `--rows`, or of the file.
        onnx_file: the ONNX file that it was given as; None where it is of the survey's list.
    """

    name: str
    onnx_file: Path | None = None

    @property
    def model(self) -> Model | None:
        """The list's entry of the network; None for a file, whose module is unknown."""
        if self.onnx_file is not None:
            return None
        (model,) = [model for model in load_models() if model.name == self.name]
        return model

    def file(self, folder: Path, seed: int) -> Path:
        """Returns its ONNX file, exported to `folder` unless it was given.

        Raises:
            RuntimeError: its library is missing or cannot export it.
        """
        model = self.model
        if model is None:
            assert self.onnx_file is not None
            return self.onnx_file
        file = folder / f"{self.name}.onnx"
        request = {"model": model.to_json(), "seed": seed, "file": str(file), "exporters": list(EXPORTERS)}
        request |= {"facts": str(folder / "facts.jsonl"), "memory_bytes": EXPORT_BYTES}
        ended = run_with_limit("benchmarks.survey.exports", request, EXPORT_SECONDS)
        if ended.why or not file.exists():
            raise RuntimeError(f"{self.name} must be exported, but: {ended.why or 'no file was written'}")
        return file


def subjects(files: str | None, survey_names: Sequence[str], folder: Path) -> dict[str, Subject]:
    """Lists the networks of a table by name.

    Args:
        files: comma-separated ONNX files, in place of the known networks.
        survey_names: names of the survey's list.
        folder: folder of the results.

    Raises:
        ValueError: a missing file, two files of one name, or files whose rows would replace the rows that the pages
            show.
    """
    if not files:
        return {name: Subject(name) for name in survey_names}
    if folder == results.FOLDER:
        raise ValueError(f"`results` must be another folder where `files` are given, but got results={folder}")
    by_name: dict[str, Subject] = {}
    for file in map(Path, files.split(",")):
        if not file.is_file():
            raise ValueError(f"`files` must be ONNX files, but got {file}")
        name = file.stem.partition("-")[0]
        if name in by_name:
            raise ValueError(f"`files` must differ by name, but got {by_name[name].onnx_file} and {file}")
        by_name[name] = Subject(name, file)
    return by_name


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds options that choose networks, and how they are compiled and timed."""
    collected.add_options(parser)
    parser.add_argument("--files", help="comma-separated ONNX files in place of the rows, each named by its file")
    parser.add_argument(
        "--trials", type=_natural, default=0, help="measured candidates of ours; 0: chosen without trials"
    )
    parser.add_argument("--turns", type=_natural, default=20, help="turns of each runtime; 0: accuracy alone")
    parser.add_argument("--seed", type=_natural, default=0)
    parser.add_argument("--threads", type=int, default=2)


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, but got {text}")
    return value


def outputs(process: NetworkProcess, feeds: Sequence[Feeds]) -> list[dict[str, Array]]:
    """Computes the outputs of every set of inputs."""
    return [process.infer(feed) for feed in feeds]


def signal_to_noise(exact: Sequence[Mapping[str, Array]], actual: Sequence[Mapping[str, Array]]) -> float:
    """Computes decibels of the worst output over all sets of inputs; outputs are matched by order, not by name."""
    ratios = []
    for place in range(len(exact[0])):
        powers = 0.0, 0.0
        for a, b in zip(exact, actual, strict=True):
            powers = add_power(powers, list(a.values())[place], list(b.values())[place])
        ratios.append(decibels(*powers))
    return min(ratios)
