"""Trials that a search needs with what other tasks have taught, and without, on the programs of a dataset.

`python -m benchmarks.transfer DATASET... [--across workloads|targets] [--target NAME] [--methods A,B]` prints
a table and writes `transfer.json` among the results. Searches are replayed: they choose among the programs that were
measured of a task, and nothing is measured anew. What is learned from never has the workload that is searched
(`workloads`), or never the target (`targets`, where the same workload on another target may be in it).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.interleave import geometric_mean
from costmodel.dataset import Dataset, TaskData
from costmodel.dataset.build import merge
from costmodel.metrics import spearman
from costmodel.models.registry import make
from costmodel.transfer import Options, Source
from costmodel.transfer.methods import METHODS
from costmodel.transfer.replay import Pool, Replayed, replay
from costmodel.transfer.tasks import SourceTask

TOLERANCE = 0.01
"""By how much a program may be slower and still count as of the quality that is to be reached: timings are no finer."""
HARD_ROUNDS = 2
"""A task is hard where the median search that is told nothing needs more rounds than that for what it comes to."""
LEAST_COMMON = 16
"""Programs measured on two targets, below which their orders are not compared."""


@dataclass(frozen=True)
class Row:
    """One task, searched by one method with several seeds.

    Attributes:
        task, target: names.
        method: of transfer.
        plain, told: trials of each seed's search until what the search that is told nothing comes to in the end; those
            that never get there have one more than all.
        slower: best seconds of the median search in the end, over those of the median search that is told nothing.
        dropped: trials after which each seed's source was dropped; None where it was kept.
        correlation: rank correlation of the programs measured both on the target and on another one; None where
            there are few.
    """

    task: str
    target: str
    method: str
    plain: tuple[float, ...]
    told: tuple[float, ...]
    slower: float
    dropped: tuple[int | None, ...]
    correlation: float | None = None

    @property
    def cut(self) -> float:
        """How many times fewer trials are needed: the geometric mean over seeds."""
        return geometric_mean([plain / told for plain, told in zip(self.plain, self.told, strict=True)])

    def hard(self, batch: int) -> bool:
        """Whether the search that is told nothing needs more than `HARD_ROUNDS` rounds."""
        return float(np.median(self.plain)) > HARD_ROUNDS * batch


@dataclass(frozen=True)
class Plan:
    """How searches are compared.

    Attributes:
        trials: of each search.
        batch: trials of a round.
        seeds: searches of each task.
        model: of the task alone.
    """

    trials: int = 64
    batch: int = 8
    seeds: int = 3
    model: str = "lightgbm"


def pool_of(data: Dataset, task: TaskData, of: SourceTask) -> Pool:
    """The measured programs of a task."""
    return Pool(task.workload, task.hardware, of.features, data.seconds(task), data.origin(task) == "random")


def compare(pool: Pool, source: Source, options: Options, plan: Plan, known: list[Replayed] | None = None) -> Row:
    """Searches of one task.

    Args:
        pool: its programs.
        source: what is known from other tasks.
        options: how it is used.
        plan: of the comparison.
        known: searches that are told nothing, by seed; filled where it is empty.
    """
    plain: list[Replayed] = [] if known is None else known
    if not plain:
        plain += [replay(pool, make(plan.model, {}, seed), seed, plan.trials, plan.batch) for seed in range(plan.seeds)]
    told = []
    for seed in range(plan.seeds):
        transfer = source.for_task(pool.target(), options, seed=0)
        told.append(replay(pool, make(plan.model, {}, seed), seed, plan.trials, plan.batch, transfer))
    wanted = [float(search.curve[-1]) * (1.0 + TOLERANCE) for search in plain]
    most = plan.trials + 1.0
    ends = [float(np.median([search.curve[-1] for search in searches])) for searches in (told, plain)]
    return Row(
        "",
        "",
        options.method,
        tuple(min(most, s.trials_to(seconds)) for s, seconds in zip(plain, wanted, strict=True)),
        tuple(min(most, s.trials_to(seconds)) for s, seconds in zip(told, wanted, strict=True)),
        ends[0] / ends[1],
        tuple(None if search.report is None else search.report["dropped_at"] for search in told),
    )


def correlation(data: Dataset, task: TaskData, other: TaskData) -> float | None:
    """Rank correlation of the seconds of the programs that were measured of both; None where there are few."""
    times: list[dict[int, float]] = []
    for of in (task, other):
        pairs = zip(data.programs(of), data.seconds(of).tolist(), strict=True)
        times.append({program.digest: seconds for program, seconds in pairs if program.ok})
    common = sorted(times[0].keys() & times[1].keys())
    if len(common) < LEAST_COMMON:
        return None
    return spearman(*(np.array([of[digest] for digest in common]) for of in times))


def folds(tasks: Sequence[TaskData], count: int, seed: int = 0) -> list[list[TaskData]]:
    """Tasks in `count` parts, those of one workload together."""
    workloads = sorted({task.workload.key for task in tasks})
    drawn = np.random.default_rng(seed).permutation(len(workloads)) % count
    place = dict(zip(workloads, drawn.tolist(), strict=True))
    return [[task for task in tasks if place[task.workload.key] == number] for number in range(count)]


def run(
    data: Dataset,
    across: str,
    options: Sequence[Options],
    plan: Plan,
    target: str | None = None,
    parts: int = 5,
    most_tasks: int | None = None,
    say: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Compares on every task of a dataset that has more programs than a search has trials.

    Args:
        data: what was measured.
        across: `workloads` or `targets`.
        options: a way of transfer each.
        plan: of the comparison.
        target: that is searched on; all by default.
        parts: of the workloads: the source of a task are those of the other parts (`workloads`).
        most_tasks: to be searched, spread evenly.
        say: told of each row.
    """
    sources = {task: SourceTask(data, task) for task in data.tasks}
    searched = [
        task
        for task in data.tasks
        if target in (None, task.target) and np.isfinite(data.seconds(task)).sum() > plan.trials
    ]
    if most_tasks is not None and most_tasks < len(searched):
        searched = [searched[len(searched) * place // most_tasks] for place in range(most_tasks)]
    by_part = folds(data.tasks, parts) if across == "workloads" else [list(data.tasks)]
    rows: list[Row] = []
    for part in by_part:
        here = [task for task in part if task in searched]
        learned: dict[str, Source] = {}
        for task in here:
            if task.target not in learned:
                others = [
                    of
                    for of in data.tasks
                    if (
                        of.target == task.target and of not in part
                        if across == "workloads"
                        else of.target != task.target
                    )
                ]
                learned[task.target] = Source([sources[of] for of in others], name=f"other {across}")
            same = [of for of in data.tasks if of.workload == task.workload and of.target != task.target]
            found = next((c for of in same if (c := correlation(data, task, of)) is not None), None)
            plain: list[Replayed] = []
            for way in options:
                pool = pool_of(data, task, sources[task])
                row = compare(pool, learned[task.target], way, plan, plain)
                row = Row(**{**vars(row), "task": task.name, "target": task.target, "correlation": found})
                rows.append(row)
                say(row)
    return rows


def summary(rows: Sequence[Row], plan: Plan) -> dict[str, Any]:
    """Figures over all tasks of one method; `censored` is the share of searches that never got there."""
    hard = [row for row in rows if row.hard(plan.batch)]
    known = [row.correlation for row in rows if row.correlation is not None]
    return {
        "tasks": len(rows),
        "cut": geometric_mean([row.cut for row in rows]),
        "hard_tasks": len(hard),
        "hard_cut": geometric_mean([row.cut for row in hard]) if hard else None,
        "worst": max(row.slower for row in rows),
        "dropped": float(np.mean([at is not None for row in rows for at in row.dropped])),
        "censored": float(np.mean([told > plan.trials for row in rows for told in row.told])),
        "correlation": float(np.mean(known)) if known else None,
    }


def table(rows: Sequence[Row], plan: Plan) -> str:
    """Markdown: a line a method, the hard tasks apart."""
    lines = [
        "| method | tasks | trials cut | hard tasks | trials cut there | slower in the end, at most | dropped | rank "
        "correlation of targets |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(row.method for row in rows):
        found = summary([row for row in rows if row.method == method], plan)
        hard = "–" if found["hard_cut"] is None else f"{found['hard_cut']:.2f}x"
        alike = "–" if found["correlation"] is None else f"{found['correlation']:.2f}"
        lines.append(
            f"| {method} | {found['tasks']} | {found['cut']:.2f}x | {found['hard_tasks']} | {hard} | "
            f"{found['worst'] - 1:+.1%} | {found['dropped']:.0%} | {alike} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("datasets", nargs="+", type=Path, help="folders; several are merged")
    parser.add_argument("--across", choices=("workloads", "targets"), default="workloads")
    parser.add_argument("--target", help="that is searched on; all by default")
    parser.add_argument("--methods", default="residual", help=f"of {', '.join(METHODS)}, separated by commas")
    parser.add_argument("--align", default="none")
    parser.add_argument("--source-model", default=Options("").model)
    parser.add_argument("--source-tasks", type=int, help="the nearest so many; all alike by default")
    parser.add_argument("--no-guard", action="store_true")
    parser.add_argument("--trials", type=int, default=Plan.trials)
    parser.add_argument("--batch", type=int, default=Plan.batch)
    parser.add_argument("--seeds", type=int, default=Plan.seeds)
    parser.add_argument("--tasks", type=int, help="most tasks to search")
    parser.add_argument("--name", default="transfer", help="of the result file")
    given = parser.parse_args(arguments)
    plan = Plan(given.trials, given.batch, given.seeds)
    ways = [
        Options(
            "",
            method=method,
            model=given.source_model,
            align=given.align,
            tasks=given.source_tasks,
            guard=not given.no_guard,
        )
        for method in given.methods.split(",")
    ]
    data = merge([Dataset.open(folder) for folder in given.datasets])

    def say(row: Row) -> None:
        print(
            f"{row.target:12} {row.task:52} {row.method:10} {np.median(row.plain):4.0f} -> {np.median(row.told):4.0f} "
            f"trials, {row.cut:5.2f}x, {row.slower - 1:+6.1%}",
            flush=True,
        )

    rows = run(data, given.across, ways, plan, given.target, most_tasks=given.tasks, say=say)
    if not rows:
        parser.error(f"a dataset must have a task with more than {plan.trials} programs that worked, but it has none")
    print(table(rows, plan))
    document = {
        "across": given.across,
        "plan": asdict(plan),
        "align": given.align,
        "source_model": given.source_model,
        "summary": {m: summary([r for r in rows if r.method == m], plan) for m in given.methods.split(",")},
        "rows": {f"{row.target} {row.task} {row.method}": asdict(row) for row in rows},
    }
    print(results.save(given.name, document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
