"""Survey of many models: whether each is imported and right, compile time, speed beside peers, and slowest layers.

`python -m benchmarks.survey` resumes an interrupted survey. Each model ends in a row of `survey.jsonl` in the folder of
`--output`. Models with a row there, of this processor and as many threads and trials, are left out. Needs `pip install
'.[bench,survey]'`.

`--sealed` measures a list that was drawn once, beside PyTorch too. Its table keeps the first row of each model, and
adds a later one to it as `again`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.units import latency, share
from benchmarks import results
from benchmarks.provenance import read_commit, versions
from benchmarks.survey.export_cache import ExportCache
from benchmarks.survey.exports import EXPORTERS
from benchmarks.survey.log import Log, Row, make_row, row_key
from benchmarks.survey.models import MODELS_FILE, MODULES, PEERS, SEALED_FILE, Model, load_models, select
from benchmarks.survey.process import Facts, run_with_limit
from benchmarks.survey.table import ratio, summary
from measure.host import allowed_cores, describe_host

OUTPUT = Path("runs") / "survey"
WORKERS = ("benchmarks.survey.exports", "benchmarks.survey.one")


def survey_model(model: Model, common: dict[str, Any], options: argparse.Namespace, deadline: float) -> Row | None:
    """Surveys one model, and returns its row; None where the survey's time was over before the model's.

    Args:
        model: model to take through all stages.
        common: common part of all rows of this survey.
        options: options of the command line.
        deadline: end of the survey, by `time.monotonic`.
    """
    end = time.monotonic() + options.limit * 60
    with tempfile.TemporaryDirectory(prefix="autotune-survey-") as place:
        facts = Facts(Path(place) / "facts.jsonl")
        request = _request(model, options, Path(place))
        request |= {name: common[name] for name in ("threads", "trials", "each_task", "seed", "turns", "peers")}
        if model.library == "onnx":
            request["file"], workers = str(model.options["path"]), WORKERS[1:]
        elif options.exports is not None:
            export = ExportCache(options.exports, model, options.seed, request["exporters"])
            request["file"] = str(export.file)
            facts.add(**export.facts)
            workers = WORKERS[bool(export.facts) :]
        else:
            workers = WORKERS
        for module in workers:
            ended = run_with_limit(module, request, min(end, deadline) - time.monotonic())
            if ended.why:
                break
            if module == WORKERS[0] and options.exports is not None:
                export.note(facts.all())
        if ended.timed_out and deadline < end:
            return None
        return make_row(model, common, facts.all(), ended)


def export(models: Sequence[Model], options: argparse.Namespace) -> None:
    """Exports the models that are not kept yet, and tells of each that cannot be."""
    for model in models:
        export = ExportCache(options.exports, model, options.seed, _exporters(options))
        if export.facts or model.library == "onnx":
            continue
        with tempfile.TemporaryDirectory(prefix="autotune-survey-") as place:
            facts = Facts(Path(place) / "facts.jsonl")
            request = _request(model, options, Path(place)) | {"file": str(export.file), "seed": options.seed}
            ended = run_with_limit(WORKERS[0], request, options.limit * 60)
            if not ended.why:
                export.note(facts.all())
        sys.stderr.write(f"{model.name}: {ended.why or 'exported'}\n")


def run(models: Sequence[Model], log: Log, options: argparse.Namespace) -> list[Row]:
    """Surveys the models that have no row yet, tells of each, and gives the rows of all that have one."""
    published = (results.load(_table(options), options.results) or {"rows": {}})["rows"] if options.sealed else {}
    before = {key: row.get("again", row) for key, row in published.items()}
    common = {
        "cpu": describe_host()["cpu"],
        "threads": options.threads or len(allowed_cores()),
        "trials": options.trials,
        "each_task": options.each_task,
        "seed": options.seed,
        "turns": options.turns,
        "peers": list((*PEERS, *MODULES) if options.sealed else PEERS),
        "commit": read_commit(),
        "versions": versions(),
    }
    deadline = time.monotonic() + options.minutes * 60
    for model in models:
        key = row_key({**common, "name": model.name})
        known = log.latest().get(key, before.get(key))
        listed = {"library": model.library, "options": dict(model.options)}  # as the list has it now
        if results.is_done(known, {**listed, "commit": common["commit"]} if options.again else listed):
            continue
        if time.monotonic() >= deadline:
            break
        row = survey_model(model, common, options, deadline)
        if row is None:
            break
        log.append(row)
        sys.stderr.write(f"{format_line(row)}\n")
    latest = {**before, **log.latest()}
    keys = [row_key({**common, "name": model.name}) for model in models]
    return [latest[key] for key in keys if key in latest]


def _exporters(options: argparse.Namespace) -> list[str]:
    return [options.exporter] if options.exporter else list(EXPORTERS)


def _request(model: Model, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Makes the request to each process, for a model whose files are in `folder`."""
    return {
        "model": model.to_json(),
        "name": model.name,
        "file": str(folder / "model.onnx"),
        "folder": str(folder),
        "facts": str(folder / "facts.jsonl"),
        "memory_bytes": int(options.memory * 2**30),
        "exporters": _exporters(options),
    }


def format_line(row: Row) -> str:
    """Formats a row in a line."""
    parts = [f"{row['name']}: {row['status']}" + (f": {row['reason']}" if row["reason"] else "")]
    if "error" in row:
        parts.append(f"error {row['error']:.0e}")
    if "compile_seconds" in row:
        parts.append(f"compiled in {row['compile_seconds']:.1f} s")
    parts += [f"{runtime} {latency(seconds)}" for runtime, seconds in row.get("seconds", {}).items()]
    if (found := ratio(row)) is not None:
        parts.append(f"{found:.2f}x")
    for layer in row.get("layers", ())[:1]:
        bound = share(layer["bound_seconds"] / layer["seconds"])
        parts.append(
            f"loses most in {layer['name']} ({share(layer['share'])} of its time, {bound} of the layer's bound)"
        )
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the survey, and writes `survey.json` among the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__.partition("\n")[0])
    listed = parser.add_mutually_exclusive_group()
    listed.add_argument("--models", type=Path, default=MODELS_FILE, help="list of models, YAML")
    listed.add_argument("--sealed", action="store_true", help="measure the sealed list, and keep its first rows")
    parser.add_argument("--only", metavar="NAMES", help="comma-separated models or families; * stands for anything")
    parser.add_argument("--list", action="store_true", help="show the models and do nothing")
    parser.add_argument("--minutes", type=_positive, default=float("inf"), help="end after so long; resume later")
    parser.add_argument("--threads", type=_count, help="all cores by default")
    parser.add_argument("--trials", type=int, default=0, help="of each model; 0: the schedules of the roofline")
    parser.add_argument("--each-task", action="store_true", help="so many trials for each of its tasks")
    parser.add_argument("--turns", type=_count, default=20, help="that each runtime takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exporter", choices=EXPORTERS, help="of torch.onnx; the first that can by default")
    parser.add_argument("--limit", type=_positive, default=15.0, help="minutes of one model")
    parser.add_argument("--memory", type=_positive, default=16.0, help="GiB of addresses of each process")
    parser.add_argument("--exports", type=Path, help="folder in which exported models are kept, and taken from")
    parser.add_argument("--export-only", action="store_true", help="fill the folder of `--exports` and end")
    parser.add_argument("--again", action="store_true", help="also models whose row is of another commit")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of survey.jsonl")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of the table")
    options = parser.parse_args(arguments)
    if options.trials < 0 or options.seed < 0:
        parser.error(f"`trials` and `seed` must not be negative, but got {options.trials} and {options.seed}")
    if options.export_only and options.exports is None:
        parser.error("`--export-only` must have a folder, `--exports FOLDER`, but there is none")
    try:
        models = select(load_models(SEALED_FILE if options.sealed else options.models), options.only)
        log = Log(options.output / f"{_table(options)}.jsonl")
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        sys.stdout.write("".join(f"{model.library:12} {model.family:16} {model.name}\n" for model in models))
        return 0
    if options.export_only:
        export(models, options)
        return 0
    try:
        rows = run(models, log, options)
    finally:
        publish(log, options)
    sys.stdout.write(f"{summary(rows)}\n" if rows else "no row\n")
    return 0


def publish(log: Log, options: argparse.Namespace) -> None:
    """Writes the latest rows to the table, and keeps rows of other processors there."""
    if not log.rows:
        return
    before = (results.load(_table(options), options.results) or {"rows": {}})["rows"]
    latest = log.latest()
    if options.sealed:
        latest = {key: append_row(before.get(key), row) for key, row in latest.items()}
    results.save(_table(options), {"rows": {**before, **latest}}, options.results)


def append_row(first: Row | None, row: Row) -> Row:
    """Returns the first row of a model with a later one of another commit as `again`."""
    if first is None or first["commit"] == row["commit"]:
        return first or row
    return {**first, "again": row}


def _table(options: argparse.Namespace) -> str:
    return "sealed" if options.sealed else "survey"


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, but got {text}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but got {text}")
    return value


if __name__ == "__main__":
    sys.exit(main())
