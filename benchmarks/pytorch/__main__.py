"""Models through `torch.compile(model, backend="autotune")` without a trial, beside Inductor and eager PyTorch.

`python -m benchmarks.pytorch [--only NAME,...] [--peers inductor,inductor-best] [--minutes M]` takes models of
`models.yaml` with random weights; nothing is downloaded. It runs each in processes of their own, prints the table, and
writes `benchmarks/results/pytorch.json` once all rows are there. `--explain` says which operators are compiled, and
computes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.units import latency
from benchmarks import results
from benchmarks.collected import collect
from benchmarks.pytorch.runtime import EAGER, INDUCTOR, INDUCTOR_BEST, OURS, TITLES
from benchmarks.pytorch.table import pytorch, ratio
from benchmarks.survey.exports import make_model
from benchmarks.survey.models import Model, load_models, select
from benchmarks.survey.process import Facts, run_with_limit
from measure.host import allowed_cores

NAME = "pytorch"
MODELS_FILE = Path(__file__).with_name("models.yaml")
STEP = 3
"""The table has every third model of the list."""
WORKER = "benchmarks.pytorch.one"
PEERS = (INDUCTOR, INDUCTOR_BEST)


def measure_model(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """Measures the row of one model; if it fails, `failed` says why."""
    row = {"name": model.name, "library": model.library, "missing": {}}
    runtimes = [EAGER, OURS, *options.peers]
    with tempfile.TemporaryDirectory(prefix="autotune-pytorch-") as place:
        facts = Facts(Path(place) / "facts.jsonl")
        request = {name: getattr(options, name) for name in ("threads", "seed", "turns")}
        request |= {"model": model.to_json(), "runtimes": runtimes, "folder": place, "facts": f"{place}/facts.jsonl"}
        ended = run_with_limit(WORKER, request, options.limit * 60)
        found = facts.all()
    stage, failure = found.pop("stage", ""), found.pop("failure", "")
    row |= found
    if ended.why:
        row["failed"] = f"{stage}: {failure or ended.why}"
    return row


def format_line(row: Mapping[str, Any]) -> str:
    """Formats a row in a line."""
    parts = [row.get("failed", "error")]
    if "errors" in row:
        parts[0] += f" {row['errors'].get(OURS, float('nan')):.0e}"
    for runtime, title in TITLES.items():
        if runtime in row.get("seconds", {}):
            compiled = row["cold_seconds"].get(runtime)
            took = "" if compiled is None else f" (compiled in {compiled:.1f} s)"
            parts.append(f"{title} {latency(row['seconds'][runtime])}{took}")
    if (found := ratio(row, "seconds", INDUCTOR)) is not None:
        parts.append(f"{found:.2f}x")
    return ", ".join([*parts, *(f"{TITLES[name]} is missing: {why}" for name, why in row["missing"].items())])


def print_explanations(models: Sequence[Model]) -> None:
    """Prints the explanation of each model."""
    from autotune.pytorch.explain import explain

    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module, given = make_model(model, seed=0)
                said = str(explain(module, *given.values()))
            except Exception as error:  # the others are still of interest
                said = f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
        sys.stdout.write(f"{model.name}: {said}\n")
        sys.stdout.flush()


def _peers(text: str) -> tuple[str, ...]:
    found = tuple(name for name in text.split(",") if name)
    if unknown := [name for name in found if name not in PEERS]:
        raise argparse.ArgumentTypeError(f"must be among {', '.join(PEERS)}, but got {unknown[0]!r}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the models and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help="comma-separated models or families; * stands for anything")
    parser.add_argument("--explain", action="store_true", help="say what becomes of each, and no more")
    parser.add_argument("--peers", type=_peers, default=PEERS, help=f"comma-separated: {', '.join(PEERS)}; '' for none")
    parser.add_argument("--turns", type=int, default=10, help="that each runtime takes; 0: outputs and compiling alone")
    parser.add_argument("--threads", type=int, default=len(allowed_cores()), help="all cores by default")
    parser.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    parser.add_argument("--limit", type=float, default=15.0, help="minutes of one model")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long; resume later")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of pytorch.json")
    options = parser.parse_args(arguments)
    try:
        every = load_models(MODELS_FILE)
        models = select(every, options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.explain:
        print_explanations(models)
        return 0
    by_name = {model.name: model for model in every[::STEP]}
    settings = {"threads": options.threads, "seed": options.seed, "turns": options.turns, "peers": list(options.peers)}
    options.rows = ",".join(model.name for model in models if model.name in by_name)
    if not options.rows:
        parser.error(f"`only` must be among {', '.join(by_name)}, but got {options.only!r}")

    def measure(name: str) -> dict[str, Any]:
        return measure_model(by_name[name], options)

    return collect(options, NAME, settings, list(by_name), measure, format_line, pytorch)


if __name__ == "__main__":
    sys.exit(main())
