"""Searches of spaces that others measured, beside Kernel Tuner's own strategies: `python -m benchmarks.hub FOLDER`.

FOLDER has results in the T4 format (`NAME_DEVICE_T4.json.gz`) and spaces in T1 (`NAME.T1.json`), as the FAIR benchmark
hub has them. Every strategy plays each space from `--seeds` seeds in simulation; all are scored by
`autotune.lab.methodology`. Writes `benchmarks/results/hub.json` and prints the table; nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from autotune.lab.methodology import Yardstick
from autotune.lab.replay import EXPLORATION, Method, play
from benchmarks import results
from benchmarks.hub_table import DEFAULT, hub
from benchmarks.kernel_tuner_peer import STRATEGIES, searches
from benchmarks.provenance import commit_of
from costmodel.dataset.t4 import read_t4
from costmodel.models.threads import one_thread
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


def spaces(folder: Path, names: Sequence[str]) -> dict[str, tuple[Path, Path]]:
    """Name of a space → its T4 and T1 files.

    Raises:
        ValueError: no such space, or one without its T1 file.
    """
    found = {}
    for t4 in sorted(folder.glob(f"*{ENDING}")):
        name = t4.name.removesuffix(ENDING)
        kernel = name.rpartition("_")[0]
        t1 = folder / f"{kernel}.T1.json"
        if not t1.exists():
            raise ValueError(f"`folder` must have a space for each file of results, but {t1.name} is missing")
        found[name] = (t4, t1)
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"`spaces` must be of {', '.join(found) or 'none'}, but got {unknown[0]!r}")
    if not found:
        raise ValueError(f"`folder` must have results (*{ENDING}), but {folder} has none")
    return {name: found[name] for name in names or found}


def our_scores(files: tuple[Path, Path], name: str, seeds: Sequence[int]) -> list[float]:
    """Of one of `OURS` from some seeds."""
    measured = read_t4(*files)
    yardstick = Yardstick(measured)
    with one_thread():
        played = [play(measured, OURS[name], seed, len(measured), yardstick.times[-1], True) for seed in seeds]
    return list(map(float, yardstick.score([(p.seconds, p.elapsed) for p in played])))


def peer_scores(files: tuple[Path, Path], strategy: str, seeds: Sequence[int]) -> list[float]:
    """Of one of Kernel Tuner's strategies from some seeds."""
    measured = read_t4(*files)
    yardstick = Yardstick(measured)
    trials = min(len(measured), max(2, round(yardstick.trials * BEYOND)))
    with one_thread():
        every = searches(measured, strategy, seeds, trials)
    found = []
    for asked in every:
        places = measured.places(measured.space.choices(asked))
        found.append((measured.seconds[places], np.cumsum(measured.cost_seconds[places])))
    return list(map(float, yardstick.score(found)))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hub", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spaces", default="", help="comma-separated names; default: all")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--peers", default=",".join(STRATEGIES), help="Kernel Tuner's strategies; empty: none")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays everything."""
    options = parse(arguments)
    try:
        chosen = spaces(options.folder, [name for name in options.spaces.split(",") if name])
        if options.seeds < 1:
            raise ValueError(f"`seeds` must be at least 1, but got seeds={options.seeds}")
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    peers = [name for name in options.peers.split(",") if name]
    jobs = len(allowed_cores())
    for name, files in chosen.items():
        start = time.perf_counter()
        yardstick = Yardstick(read_t4(*files))
        parts = [list(range(first, options.seeds, jobs)) for first in range(min(jobs, options.seeds))]
        scores: dict[str, list[float]] = {}
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # one thread each
            ours = {one: [pool.submit(our_scores, files, one, part) for part in parts] for one in OURS}
            theirs = {
                f"Kernel Tuner {one}": [pool.submit(peer_scores, files, one, part) for part in parts] for one in peers
            }
            for one, futures in {**ours, **theirs}.items():
                scores[one] = [score for future in futures for score in future.result()]
        row = {"commit": commit_of(), "seeds": options.seeds, "trials": yardstick.trials, "seconds": yardstick.seconds}
        results.save(NAME, {"rows": {name: {**row, "scores": scores}}})
        best = max(
            (one for one in scores if one.startswith("Kernel")), key=lambda one: np.mean(scores[one]), default=""
        )
        beside = f", {best} {np.mean(scores[best]):.3f}" if best else ""
        sys.stderr.write(
            f"{name}: {DEFAULT} {np.mean(scores[DEFAULT]):.3f}{beside} ({time.perf_counter() - start:.0f} s)\n"
        )
    saved = results.load(NAME)
    assert saved is not None
    sys.stdout.write(hub(saved) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
