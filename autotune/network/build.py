"""From a network and the schedules of its tasks to an executable, and random inputs for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autotune.executable.compile_steps import compile_stepwise
from autotune.executable.loading import load
from autotune.graph.ir import Array
from autotune.network.load import Network
from autotune.network.schedules import Schedules
from autotune.network.writing import Keep, load_graph, write_graph
from autotune.tuning.settings import Settings
from search_space.dtypes import FLOATS, numpy_dtype
from targets.executable import Executable


def write_network(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> None:
    """Writes the network's executable to `folder`; one of steps on several targets where an accelerator takes part."""
    if network.device is not None:
        compile_stepwise(network.graph, schedules, folder, settings.target.name, network.device, settings.threads)
    else:
        write_graph(network.graph, schedules, folder, settings)


def in_memory(
    network: Network, schedules: Schedules, folder: Path, settings: Settings, keep: Keep | None = None
) -> Executable:
    """The network's executable, whose weights are in `folder` only once it is saved or pickled, see `load_graph`."""
    if network.device is not None:
        return compile_network(network, schedules, folder, settings)
    return load_graph(network.graph, schedules, folder, settings, keep)


def compile_network(network: Network, schedules: Schedules, folder: Path, settings: Settings) -> Executable:
    """The network's executable, in `folder`."""
    write_network(network, schedules, folder, settings)
    return load(folder, settings.threads)


def make_feeds(network: Network, seed: int) -> dict[str, Array]:
    """Random inputs: standard normal; integers below 100, as token ids are; truth values."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name, kind in network.graph.inputs.items():
        dtype = numpy_dtype(kind.dtype)
        if kind.dtype in FLOATS:
            feeds[name] = rng.standard_normal(kind.shape).astype(dtype)
        else:
            feeds[name] = rng.integers(0, 2 if dtype.kind == "b" else 100, kind.shape).astype(dtype)
    return feeds
