"""Searches of spaces that others measured, and Kernel Tuner's own strategies: `python -m benchmarks.hub FOLDER`.

FOLDER has results in the T4 format (`NAME_DEVICE_T4.json.gz`) and spaces in T1 (`NAME.T1.json`), as the FAIR benchmark
hub has them. Every strategy plays each space from `--seeds` seeds in simulation; all are scored by
`autotune.lab.methodology`. Prints the table, and writes `benchmarks/results/hub.json` once every space of FOLDER is
there; nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from autotune.lab.dataset.t4 import read_t4
from autotune.lab.methodology import Yardstick
from autotune.lab.replay import EXPLORATION, Method, play
from benchmarks.collected import add_options, collect
from benchmarks.hub_table import DEFAULT, hub
from benchmarks.kernel_tuner_peer import STRATEGIES, searches
from costmodel.models.program_model import one_thread
from measure.host import allowed_cores

NAME = "hub"
OURS: Mapping[str, Method] = {
    DEFAULT: Method("listing", "matern", batch=1, exploration=EXPLORATION),
    "evolution + lightgbm": Method("evolution", "lightgbm", batch=8),
    "random": Method("random", "random", batch=8),
}
ENDING = "_T4.json.gz"
BEYOND = 1.25
"""Configurations that peers may ask for, as a multiple of those that random search has time for: fast ones take less
than the median's time."""


def spaces(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Finds the T4 and T1 files of each space, by name.

    Raises:
        ValueError: no space, or one without its T1 file.
    """
    by_name = {}
    for t4 in sorted(folder.glob(f"*{ENDING}")):
        name = t4.name.removesuffix(ENDING)
        kernel = name.rpartition("_")[0]
        t1 = folder / f"{kernel}.T1.json"
        if not t1.exists():
            raise ValueError(f"`folder` must have a space for each file of results, but {t1.name} is missing")
        by_name[name] = (t4, t1)
    if not by_name:
        raise ValueError(f"`folder` must have results (*{ENDING}), but {folder} has none")
    return by_name


def our_scores(files: tuple[Path, Path], name: str, seeds: Sequence[int]) -> list[float]:
    """Computes scores of one of `OURS` from some seeds."""
    measured = read_t4(*files)
    yardstick = Yardstick(measured)
    with one_thread():
        played = [play(measured, OURS[name], seed, len(measured), yardstick.times[-1], True) for seed in seeds]
    return list(map(float, yardstick.score([(p.seconds, p.elapsed_seconds) for p in played])))


def peer_scores(files: tuple[Path, Path], strategy: str, seeds: Sequence[int]) -> list[float]:
    """Computes scores of one of Kernel Tuner's strategies from some seeds."""
    measured = read_t4(*files)
    yardstick = Yardstick(measured)
    trials = min(len(measured), max(2, round(yardstick.trials * BEYOND)))
    with one_thread():
        every = searches(measured, strategy, seeds, trials)
    played = []
    for asked in every:
        places = measured.find_indices(measured.space.choices(asked))
        played.append((measured.seconds[places], np.cumsum(measured.cost_seconds[places])))
    return list(map(float, yardstick.score(played)))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hub", description=__doc__)
    parser.add_argument("folder", type=Path)
    add_options(parser)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--peers", default=",".join(STRATEGIES), help="Kernel Tuner's strategies; empty: none")
    return parser.parse_args(arguments)


def compare(files: tuple[Path, Path], seeds: int, peers: Sequence[str]) -> dict[str, Any]:
    """Computes the row of a space: scores of every strategy, one for each seed; processes share the seeds."""
    yardstick, jobs = Yardstick(read_t4(*files)), len(allowed_cores())
    parts = [list(range(first, seeds, jobs)) for first in range(min(jobs, seeds))]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        ours = {one: [pool.submit(our_scores, files, one, part) for part in parts] for one in OURS}
        theirs = {
            f"Kernel Tuner {one}": [pool.submit(peer_scores, files, one, part) for part in parts] for one in peers
        }
        scores = {
            one: [score for future in futures for score in future.result()]
            for one, futures in {**ours, **theirs}.items()
        }
    return {"seeds": seeds, "trials": yardstick.trials, "seconds": yardstick.seconds, "scores": scores}


def sentence(row: Mapping[str, Any]) -> str:
    """Formats a row briefly."""
    scores = row["scores"]
    best = max((one for one in scores if one.startswith("Kernel")), key=lambda one: np.mean(scores[one]), default="")
    beside = f", {best} {np.mean(scores[best]):.3f}" if best else ""
    return f"{DEFAULT} {np.mean(scores[DEFAULT]):.3f}{beside}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays everything."""
    options = parse(arguments)
    try:
        files_of = spaces(options.folder)
        if options.seeds < 1:
            raise ValueError(f"`seeds` must be at least 1, but got seeds={options.seeds}")
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    peers = [name for name in options.peers.split(",") if name]
    settings = {"seeds": options.seeds, "peers": peers}

    def measure(name: str) -> dict[str, Any]:
        return compare(files_of[name], options.seeds, peers)

    return collect(options, NAME, settings, list(files_of), measure, sentence, hub)


if __name__ == "__main__":
    sys.exit(main())
