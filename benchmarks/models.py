"""Cost models beside each other on networks that none of them has seen.

`python -m benchmarks.models [DATASET] [--target NAME] [--hold-out NETWORK,...] [--models A,B]` teaches every model the
other tasks of the dataset, evaluates it on the networks held out, and writes `models.json` among the results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import results
from costmodel.dataset import SHIPPED, Dataset, split_by_network
from costmodel.evaluate import Comparison, compare
from costmodel.models import registry

HELD_OUT = ("resnet18", "mobilenet_v2")


def run(data: Dataset, held_out: Sequence[str], models: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """The document of results: a row for each model.

    Args:
        data: measured programs.
        held_out: networks whose tasks models are evaluated on, and no task like them learned from.
        models: names, see `costmodel.models.registry`.
        seed: of the models.

    Raises:
        DatasetError: a network that the dataset does not have.
    """
    split = split_by_network(data, held_out)
    rows = {}
    for found in compare(data, split, models, seed):
        rows[found.name] = _row(found)
        print(f"{found.name}: {rows[found.name]}", flush=True)
    learned = [data.count(data.task(key)) for key in split.train_tasks]
    tested = [data.count(data.task(key)) for key in split.test_tasks]
    return {
        "rows": rows,
        "held_out": list(held_out),
        "targets": sorted({task.target for task in data.tasks}),
        "train": {"tasks": len(learned), "programs": sum(learned)},
        "test": {"tasks": len(tested), "programs": sum(tested)},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("dataset", nargs="?", default=SHIPPED, help="folder; by default the one that comes along")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--hold-out", default=",".join(HELD_OUT), help="networks")
    parser.add_argument("--models", default=",".join(registry.MODELS))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    data = Dataset.open(given.dataset)
    data = data.select(task for task in data.tasks if task.target == given.target)
    document = run(data, given.hold_out.split(","), given.models.split(","), given.seed)
    print(results.save("models", document))
    return 0


def _row(found: Comparison) -> dict[str, Any]:
    """Figures of one model; the roofline is looked up in the features, so it has no speed of its own."""
    row = {**found.to_json(), "fit_seconds": round(found.fit_seconds, 2)}
    return {**row, "rows_per_second": None} if found.name == "roofline" else row


if __name__ == "__main__":
    sys.exit(main())
