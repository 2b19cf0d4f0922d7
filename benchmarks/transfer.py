"""Trials of a search with records of other tasks, and without.

`python -m benchmarks.transfer [--rows NAME,...]` searches all candidates of the spaces in `benchmarks/search/tables`.
Sources are the same layers on another processor or number of threads, or other layers on this processor. It prints a
table, and writes `benchmarks/results/transfer.json` once all rows are there.

`python -m benchmarks.transfer DATASET... [--across workloads|targets] [--target NAME] [--methods A,B]` compares on
datasets and only prints a table. Searches choose among the measured programs of a task; with `--tables` among all
candidates of a space. The source never has the searched workload (`workloads`), or never the target (`targets`, where
the same workload on another target may be in it). Nothing is measured anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.collected import add_options, collect
from benchmarks.search.replay import FOLDER, ReplayTable
from benchmarks.search.tasks import CPU, TASKS
from benchmarks.transfer_figures import Row, table
from benchmarks.transfer_replay import Pool, ReplayedSearch, replay
from costmodel import pretrained
from costmodel.dataset import Dataset, TaskData
from costmodel.dataset.build import merge
from costmodel.metrics import spearman
from costmodel.models.registry import make
from costmodel.pretrained import SHIPPED_MODEL, open_pretrained
from costmodel.transfer import Options, Source, Transfer
from costmodel.transfer.methods import METHODS
from costmodel.transfer.tasks import Features, SourceTask, TargetTask

NAME = "transfer"
TOLERANCE = 0.01
"""Share by which a program may be slower than the quality to reach and still count: timings are no finer."""
SAMPLE = 256
"""Candidates of a whole space by which a task is compared with others, drawn at random: as many as the tuner draws."""
MOST_KNOWN = 512
"""Candidates of a whole space that are known elsewhere: as many as a search has measured."""
ENDS = {"two threads": "", "AVX2": "_avx2", "one thread": "_one"}
"""Origin of tables -> ending of their files' names; by AVX-512 and on two threads, if nothing is said."""
PAIRS = (("two threads", "AVX2"), ("AVX2", "two threads"), ("one thread", "two threads"), ("two threads", "one thread"))
"""Origin of the source, and of the searched space."""
MEASURED_DATASET = Path(pretrained.__file__).parent / "measured" / "threads"
"""Shipped dataset of this processor, of other workloads than the tables'."""
LEAST_COMMON = 16
"""Programs measured on two targets, below which their orders are not compared."""


@dataclass(frozen=True)
class Plan:
    """Settings of a comparison of searches.

    Attributes:
        trials: trials of each search.
        batch: trials of a round.
        seeds: searches of each task.
        model: model that learns from the task alone.
        estimate: whether the roofline orders candidates until the model has learned, and the model's trees begin with
            it, as by default. Else a search without transfer begins with nothing, as in the comparisons of the first
            systems that transferred (AutoTVM, 2018).
    """

    trials: int = 64
    batch: int = 8
    seeds: int = 3
    model: str = "lightgbm"
    estimate: bool = True

    def search(self, pool: Pool, seed: int, transfer: Transfer | None = None) -> ReplayedSearch:
        """Runs one search of a pool."""
        model = make(self.model, {} if self.estimate else {"prior": False}, seed)
        return replay(pool, model, seed, self.trials, self.batch, transfer, estimate=self.estimate)


def compare(
    pool: Pool, source: Source, options: Options, plan: Plan, baseline: list[ReplayedSearch] | None = None
) -> Row:
    """Compares searches of one task.

    Args:
        pool: its programs.
        source: measurements of other tasks.
        options: options of the transfer.
        plan: settings of the comparison.
        baseline: searches without transfer, by seed, those that say whether the task is hard last; filled where it is
            empty.
    """
    both: list[ReplayedSearch] = [] if baseline is None else baseline
    if not both:
        both += [plan.search(pool, seed) for seed in range(2 * plan.seeds)]
    plain, apart = both[: plan.seeds], both[plan.seeds :]
    transferred = []
    for seed in range(plan.seeds):
        transfer = source.for_task(pool.target(), options, 0, plan.estimate and pool.first is not None)
        transferred.append(plan.search(pool, seed, transfer))
    wanted = [float(search.curve[-1]) * (1.0 + TOLERANCE) for search in plain]
    most = plan.trials + 1.0
    ends = [float(np.median([search.curve[-1] for search in searches])) for searches in (transferred, plain)]
    return Row(
        "",
        "",
        options.method,
        tuple(min(most, s.trials_to(seconds)) for s, seconds in zip(plain, wanted, strict=True)),
        tuple(min(most, s.trials_to(seconds)) for s, seconds in zip(transferred, wanted, strict=True)),
        ends[0] / ends[1],
        tuple(None if search.report is None else search.report["dropped_at"] for search in transferred),
        batch=plan.batch,
        trials=plan.trials,
        programs=len(pool.seconds),
        apart=tuple(min(most, s.trials_to(float(s.curve[-1]) * (1.0 + TOLERANCE))) for s in apart),
    )


def correlation(data: Dataset, task: TaskData, other: TaskData) -> float | None:
    """Computes the rank correlation of seconds of the programs measured of both tasks; None where there are few."""
    times: list[dict[int, float]] = []
    for of in (task, other):
        pairs = zip(data.programs(of), data.seconds(of).tolist(), strict=True)
        times.append({program.digest: seconds for program, seconds in pairs if program.ok})
    common = sorted(times[0].keys() & times[1].keys())
    if len(common) < LEAST_COMMON:
        return None
    return spearman(*(np.array([of[digest] for digest in common]) for of in times))


def folds(tasks: Sequence[TaskData], count: int, seed: int = 0) -> list[list[TaskData]]:
    """Splits tasks into `count` parts, keeping tasks of one workload together."""
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
        data: measured programs.
        across: `workloads` or `targets`.
        options: a way of transfer each.
        plan: settings of the comparison.
        target: target to search on; all by default.
        parts: number of parts of the workloads: tasks of the other parts are the source (`workloads`).
        most_tasks: most tasks to search, spread evenly.
        say: called with each row.
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
            rho = next((c for of in same if (c := correlation(data, task, of)) is not None), None)
            plain: list[ReplayedSearch] = []
            for way in options:
                row = compare(Pool.of(data, task), learned[task.target], way, plan, plain)
                rows.append(
                    replace(
                        row,
                        task=task.name,
                        target=task.target,
                        correlation=rho,
                        setting=setting_name(across, plan),
                    )
                )
                say(rows[-1])
    return rows


@dataclass(frozen=True, eq=False)
class TableTask(TargetTask):
    """A complete space as a task to learn from, of which `MOST_KNOWN` random candidates are known: it plays a
    `SourceTask`.

    Attributes:
        throughput: throughput of the sample, like a `SourceTask`'s.
    """

    throughput: NDArray[np.float64]

    @staticmethod
    def of(pool: Pool) -> TableTask:
        """Samples the known candidates of a pool."""
        places = np.sort(np.random.default_rng(1).permutation(len(pool.seconds))[:MOST_KNOWN])
        seconds = pool.seconds[places]
        throughput = np.nan_to_num(np.nanmin(seconds) / seconds, nan=0.0)
        return TableTask(pool.workload, pool.hardware, [pool.features[place] for place in places.tolist()], throughput)

    @property
    def key(self) -> str:
        """Tells it from others of its source."""
        return self.workload.key

    @property
    def features(self) -> Sequence[Features]:
        """All that is known was drawn at random."""
        return self.sample


class Spaces:
    """Searches of completely measured spaces, with measurements from elsewhere, or of other workloads here.

    Measurements from elsewhere, from another processor or number of threads, are `MOST_KNOWN` random candidates of each
    space, the searched workload included.

    Args:
        options: a way of transfer each.
        plan: settings of the comparison.
        folder: folder of tables.
    """

    def __init__(self, options: Sequence[Options], plan: Plan, folder: Path = FOLDER) -> None:
        self._options, self._plan, self._folder = options, plan, folder
        self._pools: dict[str, tuple[ReplayTable, Pool]] = {}
        self._sources: dict[str, Source] = {}

    def elsewhere(self, end: str, here: str, task: str) -> list[Row]:
        """Compares on a space with its candidates from elsewhere, a row for each way.

        Args:
            end: origin of the known candidates, of `ENDS`.
            here: origin of the searched space.
            task: task of the benchmark of search.
        """
        if end not in self._sources:
            pools = [self._pool(f"{of.name}{ENDS[end]}")[1] for of in CPU]
            self._sources[end] = Source([TableTask.of(pool) for pool in pools], name=end)
        setting = f"{setting_name(end, self._plan)} → {here}"
        found = self._pool(f"{task}{ENDS[here]}")
        return _compare_options(*found, self._sources[end], self._options, self._plan, setting)

    def here(self, source_tasks: Sequence[SourceTask], task: str) -> list[Row]:
        """Compares on a space with measurements of other workloads on its target, a row for each way.

        Args:
            source_tasks: measured tasks; tasks of the space's own workload are left out, of other targets, too.
            task: file of a table.

        Raises:
            ValueError: no other task of the target was measured.
        """
        table_, pool = self._pool(task)
        others = [
            of for of in source_tasks if of.task.target == table_.target and of.workload.key != table_.workload.key
        ]
        if not others:
            raise ValueError(f"a dataset must have tasks of the target of {table_.name}, {table_.target}, but has none")
        setting = f"{setting_name('workloads', self._plan)}, whole spaces"
        source = Source(others, name="other workloads")
        return _compare_options(table_, pool, source, self._options, self._plan, setting)

    def _pool(self, table_: str) -> tuple[ReplayTable, Pool]:
        if table_ not in self._pools:
            found = ReplayTable.load(self._folder / f"{table_}.json")
            self._pools[table_] = found, pool_of_table(found)
        return self._pools[table_]


def _compare_options(
    table_: ReplayTable,
    pool: Pool,
    source: Source,
    options: Sequence[Options],
    plan: Plan,
    setting: str,
) -> list[Row]:
    """Compares on a table, and returns a row for each way."""
    rows: list[Row] = []
    plain: list[ReplayedSearch] = []
    for way in options:
        row = compare(pool, source, way, plan, plain)
        rows.append(replace(row, task=table_.name, target=table_.target, setting=setting))
    return rows


def pool_of_table(table_: ReplayTable) -> Pool:
    """Makes a pool of all candidates of a replay table, with predictions of the target's pretrained model if any."""
    model = open_pretrained(SHIPPED_MODEL, table_.target)
    features: list[Features] = [np.empty((0, 0), np.float32)] * len(table_.population)
    first = np.empty(len(features))
    for number, indices in table_.population.by_sketch():
        sketch = table_.frame.sketches[number]
        columns = sketch.expand(table_.frame.choices(number, table_.population.rows[indices]))
        made = table_.extractor(sketch.program, sketch.columns, table_.hardware)(columns)
        if model is not None:
            first[indices] = model.predict(made)
        for place, of in zip(indices.tolist(), np.ascontiguousarray(made), strict=True):
            features[place] = of
    drawn = np.zeros(len(features), np.bool_)
    drawn[np.random.default_rng(0).permutation(len(features))[:SAMPLE]] = True
    hardware = table_.hardware.on(table_.threads)
    thought = None if model is None else first
    return Pool(table_.workload, hardware, features, table_.seconds, drawn, table_.again, thought)


def setting_name(across: str, plan: Plan) -> str:
    """Returns the name of a comparison in rows and tables."""
    return across if plan.estimate else f"{across}, no estimate"


def parse_names(names: str) -> list[str]:
    """Parses names of replay tables, separated by commas; empty: all tables of the benchmark of search."""
    return names.split(",") if names else [task.name for task in TASKS if (FOLDER / f"{task.name}.json").is_file()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("datasets", nargs="*", type=Path, help="folders; several are merged")
    parser.add_argument("--across", choices=("workloads", "targets"), default="workloads")
    parser.add_argument("--target", help="that is searched on; all by default")
    parser.add_argument("--methods", default="kriging", help=f"of {', '.join(METHODS)}, separated by commas")
    parser.add_argument("--align", default="none")
    parser.add_argument("--source-model", default=Options("").model)
    parser.add_argument("--source-tasks", type=int, help="the nearest so many; all alike by default")
    parser.add_argument("--no-guard", action="store_true")
    parser.add_argument("--trials", type=int, default=Plan.trials)
    parser.add_argument("--batch", type=int, default=Plan.batch)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tasks", type=int, help="most tasks to search")
    parser.add_argument("--tables", nargs="?", const="", help="search the replay tables of these names, or all of them")
    parser.add_argument("--no-estimate", action="store_true", help="searches that begin without the roofline")
    add_options(parser)
    options = parser.parse_args(arguments)
    plan = Plan(options.trials, options.batch, options.seeds, estimate=not options.no_estimate)
    ways = [
        Options(
            "",
            method=method,
            model=options.source_model,
            align=options.align,
            tasks=options.source_tasks,
            guard=not options.no_guard,
        )
        for method in options.methods.split(",")
    ]
    if not options.datasets and options.tables is None:
        return _publish(options, plan, ways)
    if not options.datasets and options.across == "workloads":
        parser.error("a comparison must have `datasets`, unless it goes across targets on tables")

    def say(row: Row) -> None:
        print(
            f"{row.target:12} {row.task:52} {row.method:10} {np.median(row.plain):4.0f} -> "
            f"{np.median(row.transferred):4.0f} trials, {row.cut:5.2f}x, {row.slower - 1:+6.1%}",
            flush=True,
        )

    if options.tables is None:
        data = merge([Dataset.open(folder) for folder in options.datasets])
        rows = run(data, options.across, ways, plan, options.target, most_tasks=options.tasks, say=say)
    else:
        rows = []
        for found in _spaces(options, Spaces(ways, plan)):
            rows += found
            for row in found:
                say(row)
    if not rows:
        parser.error(f"a dataset must have a task with more than {plan.trials} programs that worked, but it has none")
    print(table(rows))
    return 0


def _spaces(options: argparse.Namespace, spaces: Spaces) -> Iterator[list[Row]]:
    """Lists rows of spaces one after the other."""
    if options.across == "targets":
        for known, here in PAIRS:
            for task in CPU:
                yield spaces.elsewhere(known, here, task.name)
        return
    data = merge([Dataset.open(folder) for folder in options.datasets])
    measured = [SourceTask(data, task) for task in data.tasks]
    for name in parse_names(options.tables):
        yield spaces.here(measured, name)


def _publish(options: argparse.Namespace, plan: Plan, ways: Sequence[Options]) -> int:
    """Runs the command without datasets or tables: collects the published table."""
    if len(ways) != 1:
        sys.stderr.write(f"`methods` must be one, but got methods={options.methods}\n")
        return 2
    data = Dataset.open(MEASURED_DATASET)
    measured = [SourceTask(data, task) for task in data.tasks]
    spaces = Spaces(ways, plan)
    searched: dict[str, Callable[[], list[Row]]] = {
        f"{known} → {here} {task.name}": partial(spaces.elsewhere, known, here, task.name)
        for known, here in PAIRS
        for task in CPU
    }
    searched |= {f"other workloads {task.name}": partial(spaces.here, measured, task.name) for task in CPU}
    settings = {
        "method": options.methods,
        "model": options.source_model,
        "align": options.align,
        "tolerance": TOLERANCE,
    }

    def measure(name: str) -> dict[str, Any]:
        (row,) = searched[name]()
        return row.to_json()

    def summarise(document: Mapping[str, Any]) -> str:
        row = Row.from_json(document)
        return f"{row.cut:.2f}x, {row.slower - 1:+.1%}"

    return collect(options, NAME, {**settings, **asdict(plan)}, list(searched), measure, summarise, tables.transfer)


if __name__ == "__main__":
    sys.exit(main())
