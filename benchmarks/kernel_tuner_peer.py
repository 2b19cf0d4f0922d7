"""Kernel Tuner's strategies on measured spaces, in its own simulation mode; options are its own defaults."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.lab.dataset.measured_space import MeasuredSpace

STRATEGIES = (
    "random_sample",
    "genetic_algorithm",
    "simulated_annealing",
    "diff_evo",
    "pso",
    "greedy_ils",
    "greedy_mls",
    "mls",
    "dual_annealing",
    "firefly_algorithm",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
    "bayes_opt",
)
PREFIXES = {"bayes_opt": (256,)}
"""Numbers of trials to ask for first, for strategies whose first configurations do not depend on that number.

Their time grows with its cube, so a smaller number is better if the best is among them.
"""
FAILURES = {"compile": "CompilationFailedConfig", "runtime": "RuntimeFailedConfig"}
SOURCE = "__global__ void kernel(float *x) { }"


def kernel_tuner_cache(space: MeasuredSpace) -> dict[str, Any]:
    """Converts a measured space to Kernel Tuner's cache of results, in milliseconds."""
    parameters = {p.name: list(p.values) for p in space.space.parameters}
    cache = {}
    for row in range(len(space)):
        values = dict(space.values(row))
        ok = space.errors[row] == "ok"
        samples = [float(s) * 1e3 for s in space.latencies[row]]
        failure = FAILURES.get(space.errors[row], "InvalidConfig")
        entry: dict[str, Any] = {**values, "time": float(np.mean(samples)) if ok else failure, "times": samples}
        entry |= {} if ok else {"__error__": failure}
        entry |= {
            "compile_time": float(space.compile_seconds[row]) * 1e3,
            "verification_time": 0.0,
            "benchmark_time": float(np.sum(samples)),
            "strategy_time": 0.0,
            "framework_time": float(space.other_seconds[row]) * 1e3,
            "timestamp": "2024-01-01 00:00:00.000000+00:00",
        }
        cache[",".join(str(value) for value in values.values())] = entry
    return {
        "device_name": "simulated",
        "kernel_name": "kernel",
        "problem_size": 64,
        "tune_params_keys": list(parameters),
        "tune_params": parameters,
        "objective": "time",
        "cache": cache,
    }


def searches(space: MeasuredSpace, strategy: str, seeds: Sequence[int], trials: int) -> list[list[dict[str, Any]]]:
    """Lists the distinct configurations that each search asks for, in order; seen ones cost a search nothing.

    It draws from the process-wide generators of `random` and NumPy, so it needs a process of its own.

    Args:
        space: the space.
        strategy: one of `STRATEGIES`.
        seeds: seeds of the searches.
        trials: most configurations that each may ask for.
    """
    configurations = []
    with tempfile.TemporaryDirectory(prefix="autotune-kernel-tuner-") as folder:
        file = Path(folder) / "cache.json"
        file.write_text(json.dumps(kernel_tuner_cache(space)))
        for seed in seeds:
            for most in (*(few for few in PREFIXES.get(strategy, ()) if few < trials), trials):
                asked = _search(space, strategy, seed, most, file)
                if any(space.seconds[space.find_indices(space.space.choices(asked))] <= space.best):
                    break
            configurations.append(asked)
    return configurations


def _search(space: MeasuredSpace, strategy: str, seed: int, trials: int, cache: Path) -> list[dict[str, Any]]:
    import kernel_tuner

    parameters = {p.name: list(p.values) for p in space.space.parameters}
    random.seed(seed)
    np.random.seed(seed)
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = kernel_tuner.tune_kernel(
            "kernel",
            SOURCE,
            64,
            [np.zeros(1, np.float32)],
            parameters,
            restrictions=[r.text for r in space.space.restrictions],
            strategy=strategy,
            strategy_options={"max_fevals": trials},
            cache=str(cache),
            simulation_mode=True,
            lang="CUDA",
            quiet=True,
        )
    asked = [{name: result[name] for name in parameters} for result in results]
    return list({json.dumps(one): one for one in asked}.values())
