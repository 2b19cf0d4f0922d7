"""Command line of the benchmark: plays searches on tables in several processes, and writes their results."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import results, tables
from benchmarks.collected import add_options, add_picture, collect, find_picture
from benchmarks.search import summary
from benchmarks.search.collect import PARTS
from benchmarks.search.collect import collect as measured_table
from benchmarks.search.draw import draw
from benchmarks.search.play import BLIND, UNIFORM, Method, PlayedSearch, play
from benchmarks.search.replay import FOLDER, ReplayTable
from benchmarks.search.restrict import legal_rows
from benchmarks.search.statistics import CAP
from benchmarks.search.tasks import ELSEWHERE, TASKS, select

NAME = "search"
STRATEGIES, MODELS = "random,evolution,annealing", "lightgbm+,lightgbm,roofline,lightgbm-"
Job = tuple[Path, Method, int, int, int]
"""Table, method, seed, most trials, candidates of a round."""


def methods(strategies: str, models: str) -> list[Method]:
    """Lists the baseline, then every strategy with every model; strategies that use no model occur once.

    A model called `NAME-` learns from measurements alone, and before `NAME+` goes the pretrained one, see `Method`.
    """
    pairs = itertools.product(strategies.split(","), models.split(","))
    found = [Method(s) if s in BLIND else _method(s, m) for s, m in pairs]
    return list({method.name: method for method in [Method(UNIFORM), *found]}.values())


def _method(strategy: str, model: str) -> Method:
    mark = model[-1:]
    return Method(strategy, model.rstrip("+-"), knows="learned" if mark == "-" else "both", pretrained=mark == "+")


def run_job(job: Job) -> PlayedSearch:
    """Plays one search; a process reads each table once."""
    path, method, seed, trials, batch = job
    return play(_table(path), method, seed, trials, batch)


@cache
def _table(path: Path) -> ReplayTable:
    return ReplayTable.load(path)


def play_all(jobs: Sequence[Job], processes: int) -> Iterator[tuple[Job, PlayedSearch]]:
    """Yields every job with its result, as they end; results are independent of the number of processes."""
    if processes == 1:
        for job in jobs:
            yield job, run_job(job)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        pending = {pool.submit(run_job, job): job for job in jobs}
        for done in as_completed(pending):
            yield pending[done], done.result()


def list_jobs(path: Path, selection: Iterable[Method], options: argparse.Namespace) -> list[Job]:
    """Lists searches of one table: the baseline, which costs nothing, with more seeds."""
    jobs = []
    for method in selection:
        seeds = options.random_seeds if method.name in BLIND else options.seeds
        trials = CAP if method.name in BLIND else options.trials
        jobs += [(path, method, seed, trials, options.batch) for seed in range(seeds)]
    return jobs


def run(options: argparse.Namespace) -> int:
    """Runs the searches, saves and prints their rows, and draws them if the table is complete."""
    chosen = methods(options.strategies, options.models)
    paths = {task.name: options.folder / f"{task.name}.json" for task in select(None)}
    tables_by_name = {name: path for name, path in paths.items() if path.exists()}
    if not tables_by_name:
        raise ValueError(f"`folder` must hold tables, which `collect` makes, but got {options.folder}")
    settings = {name: getattr(options, name) for name in ("trials", "batch", "seeds", "random_seeds")}
    settings |= {"cap": CAP, "strategies": options.strategies, "models": options.models}

    def measure(name: str) -> dict[str, Any]:
        played: dict[str, dict[int, PlayedSearch]] = {}
        for job, found in play_all(list_jobs(tables_by_name[name], chosen, options), options.jobs):
            played.setdefault(job[1].name, {})[job[2]] = found
        ordered = {m.name: [played[m.name][seed] for seed in sorted(played[m.name])] for m in chosen}
        return summary.make_row(ReplayTable.load(tables_by_name[name]), ordered, options.trials)

    code = collect(options, NAME, settings, list(tables_by_name), measure, summary.sentence, tables.search)
    saved = results.load(NAME, options.results)
    picture = find_picture(options)
    if code == 0 and saved is not None and picture is not None:
        draw(saved["rows"], picture)
    return code


def show_tasks(options: argparse.Namespace) -> int:
    """Lists the tasks: how many candidates each has here, and whether there is a table of it."""
    for task in select(options.tasks, (*TASKS, *ELSEWHERE)):
        space = task.restriction(unrestricted := task.make_space()).apply(unrestricted)
        legal = sum(len(legal_rows(sketch)) for sketch in space.sketches)
        made = "made" if (options.folder / f"{task.name}.json").exists() else "missing"
        sys.stdout.write(
            f"{task.name}: {task.kind}, {task.title}, {legal:,} candidates of {unrestricted.size:,} "
            f"in {len(space.sketches)} of {len(unrestricted.sketches)} sketches, table {made}\n"
        )
    return 0


def make_tables(options: argparse.Namespace) -> int:
    """Measures tables, one after the other."""
    for task in select(options.task, (*TASKS, *ELSEWHERE)):
        table = measured_table(task, options.parts, options.folder, options.jobs, options.limit)
        if table is None:
            sys.stdout.write(f"{task.name}: not finished; the same command goes on\n")
        else:
            sys.stdout.write(summary.facts(table) + "\n")
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description="Searches beside each other")
    parser.set_defaults(act=run)
    _playing(parser)
    commands = parser.add_subparsers(title="other commands", metavar="")
    listing = commands.add_parser("tasks", help="list the tasks")
    listing.set_defaults(act=show_tasks)
    listing.add_argument("--tasks", help="comma-separated names; default: all")
    listing.add_argument("--folder", type=Path, default=FOLDER, help="where tables lie")
    making = commands.add_parser("collect", help="measure the table of a task; can be stopped and goes on")
    making.set_defaults(act=make_tables)
    making.add_argument("--task", help="comma-separated names; default: all")
    making.add_argument("--folder", type=Path, default=FOLDER, help="where tables go")
    making.add_argument("--parts", type=Path, default=PARTS, help="where unfinished ones lie")
    making.add_argument("--limit", type=int, help="candidates to measure in this session; default: all")
    making.add_argument("--jobs", type=int, default=1, help="processes that simulate")
    return parser.parse_args(arguments)


def _playing(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument("--strategies", default=STRATEGIES, help=f"default: {STRATEGIES}")
    parser.add_argument(
        "--models",
        default=MODELS,
        help=f"default: {MODELS}; NAME-: without the estimate, NAME+: with the pretrained one before it",
    )
    parser.add_argument("--seeds", type=int, default=10, help="of each search with a model: 0, 1, ...")
    parser.add_argument("--random-seeds", type=int, default=100, help="of those without")
    parser.add_argument("--trials", type=int, default=1024, help="most trials of a search with a model")
    parser.add_argument("--batch", type=int, default=32, help="candidates a round")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where tables lie")
    add_picture(parser, "search_curves.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 2 where an option is wrong."""
    options: Any = parse(arguments)
    try:
        for name in ("seeds", "random_seeds", "trials", "batch", "jobs", "limit"):
            value = getattr(options, name, None)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, but got {name}={value}")
        found: int = options.act(options)
        return found
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
