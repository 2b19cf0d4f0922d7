"""Calibration: ranges and samples of a float network's values on given inputs."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph, TensorType
from autotune.graph.quantise.formats import Format, choose_format
from search_space.dtypes import numpy_dtype

SAMPLE = 16384
"""Elements of a value that are sampled from each input."""

MOST_FEED_BYTES = 1 << 30
"""Maximum bytes of the arrays in a small file of inputs."""

GROWTH = 16
"""Maximum ratio of the arrays' bytes to the size of a large file; measured data compress by less."""

Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Observation:
    """Observed values of a tensor: the ends of their range, and a sample that includes both."""

    low: float
    high: float
    sample: Array


@dataclass(frozen=True)
class Calibration:
    """Observations of all float values, by name."""

    observations: Mapping[str, Observation]

    def format(self, names: Sequence[str], method: str = "mse", signed: bool = False) -> Format:
        """Chooses one format for several values; see `choose_format`.

        Raises:
            ValueError: a value is not finite.
        """
        observations = [self.observations[name] for name in names]
        for name, seen in zip(names, observations, strict=True):
            if not np.isfinite(seen.low + seen.high):
                ends = f"{seen.low}..{seen.high}"
                raise ValueError(f"values must be finite on the inputs of the calibration, but got {name!r} in {ends}")
        sample = np.concatenate([o.sample for o in observations])
        return choose_format(
            sample, min(o.low for o in observations), max(o.high for o in observations), method, signed
        )


def calibrate(graph: Graph, feeds: Iterable[Feeds], seed: int = 0) -> Calibration:
    """Evaluates the graph on each of `feeds`; values that stay in floats, such as masks, may be infinite.

    Args:
        graph: graph in floats.
        feeds: inputs by name; at least one.
        seed: seed of the samples.

    Raises:
        ValueError: there are no feeds.
    """
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Observation]] = {}
    for feed in feeds:
        values = evaluate(graph, feed)
        for name in [*graph.inputs, *graph.constants, *(node.name for node in graph.nodes)]:
            if values[name].dtype.kind == "f" and values[name].size:
                parts.setdefault(name, []).append(_observe(values[name], rng))
    if not parts:
        raise ValueError("`feeds` must hold at least one set of inputs, but got none")
    return Calibration({name: _together(found) for name, found in parts.items()})


def _observe(array: Array, rng: np.random.Generator) -> Observation:
    low, high = float(array.min()), float(array.max())
    flat = array.reshape(-1)
    if flat.size > SAMPLE:
        flat = np.concatenate([flat[rng.integers(0, flat.size, SAMPLE - 2)], [low, high]])
    return Observation(low, high, flat.astype(np.float32))


def _together(observations: Sequence[Observation]) -> Observation:
    sample = np.concatenate([o.sample for o in observations])
    return Observation(min(o.low for o in observations), max(o.high for o in observations), sample)


def load_feeds(path: Path, inputs: Mapping[str, TensorType]) -> list[Feeds]:
    """Reads sets of inputs from an .npz file with an array for each input: (sets, *shape of the input).

    Raises:
        ValueError: the file does not exist, or arrays are missing, surplus, or of another shape, dtype or number.
    """
    try:
        nbytes, most = _stated_bytes(path), max(MOST_FEED_BYTES, GROWTH * path.stat().st_size)
        if nbytes > most:
            raise ValueError(f"its arrays must take at most {most} bytes together, but take {nbytes}")
        with np.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
    except (OSError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"`data` must be an .npz file of inputs, but got {path}: {error}") from None
    if set(arrays) != set(inputs):
        raise ValueError(f"`data` must hold {', '.join(inputs)}, but got {', '.join(arrays) or 'none'}")
    counts = {len(array) if array.ndim else 0 for array in arrays.values()}
    for name, kind in inputs.items():
        array = arrays[name]
        if array.shape[1:] != kind.shape or array.dtype != numpy_dtype(kind.dtype) or len(counts) != 1:
            raise ValueError(
                f"`data` must hold as many sets of each input, {name}: {kind.dtype} (sets, "
                f"{', '.join(map(str, kind.shape))}), but got {array.dtype} {array.shape}"
            )
    return [{name: array[i] for name, array in arrays.items()} for i in range(min(counts))]


def _stated_bytes(path: Path) -> int:
    """Sums the stated bytes of an archive's arrays, by headers or archive, whichever is more; reads no elements.

    Raises:
        OSError, ValueError, zipfile.BadZipFile: the file is not an archive of arrays.
    """
    total = 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            total += max(math.prod(shape) * dtype.itemsize, member.file_size)
    return total


def random_feeds(inputs: Mapping[str, TensorType], seed: int, count: int) -> list[Feeds]:
    """Draws sets of inputs: standard normal floats; integers below 100, like token ids; truth values."""
    rng = np.random.default_rng(seed)
    return [{name: _random(kind, rng) for name, kind in inputs.items()} for _ in range(count)]


def _random(kind: TensorType, rng: np.random.Generator) -> Array:
    dtype = numpy_dtype(kind.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(kind.shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 100, kind.shape).astype(dtype)
