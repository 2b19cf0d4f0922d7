"""Designs of an accelerator beside each other: each is tuned, and its latency is compared with its memory.

`autotune sweep configs/vta_conv2d.yaml --vary log_inp_buffer=13,14,15 --vary log_acc_buffer=15,16,17`
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotune.config import ConfigError, RunConfig, errors_at
from autotune.graph.offload import matrix_block
from autotune.run.workloads import list_tasks, make_settings
from autotune.run_files import claim_folder
from autotune.tuner.pools import make_pool
from autotune.tuner.task import Task
from autotune.tuner.tune_tasks import Need, TaskRequest, tune_tasks
from autotune.units import latency
from measure.database import Database
from measure.pool import MeasurePool
from search_space import strict_json
from search_space.extras import missing
from search_space.files import replace_file
from search_space.hardware import Hardware
from search_space.operators.checks import nearest
from search_space.workloads import Workload
from targets import registry

Variations = Mapping[str, Sequence[Any]]
"""Field of a design → the values it is to have."""


@dataclass(frozen=True)
class SweepPoint:
    """One design and what it came to.

    Attributes:
        values: values of the fields that vary.
        design: file of the whole design.
        memory_bytes: size of its buffers, all together.
        seconds: weighted sum of the best of all tasks; NaN if a task has no schedule.
        trials: number of measured trials.
        problem: reason why `seconds` is NaN; "" if it is not.
        interrupted: whether the user stopped here.
    """

    values: Mapping[str, Any]
    design: str
    memory_bytes: int = 0
    seconds: float = math.nan
    trials: int = 0
    problem: str = ""
    interrupted: bool = False

    @property
    def name(self) -> str:
        """The values, briefly."""
        return ", ".join(f"{field}={value}" for field, value in self.values.items())


def parse_variations(texts: Sequence[str], configuration: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Parses `--vary FIELD=VALUE,VALUE` to fields and values.

    Args:
        texts: one text a field.
        configuration: fields that a design has.

    Raises:
        ConfigError: no field, one that designs do not have, or no values.
    """
    variations: dict[str, list[Any]] = {}
    for text in texts:
        field, equals, values = text.partition("=")
        if not equals or not values:
            raise ConfigError(f"`--vary` must be FIELD=VALUE,VALUE, but got {text!r}")
        if field not in configuration:
            hint = nearest(field, configuration)
            raise ConfigError(f"`--vary` must name one of {', '.join(configuration)}, but got {field!r}{hint}")
        try:
            variations[field] = [_number(value) for value in values.split(",")]
        except ValueError:
            raise ConfigError(f"`--vary` must give numbers, but got {text!r}") from None
    if not variations:
        raise ConfigError("`--vary` must name at least one field, but got none")
    return variations


def _number(text: str) -> float:
    """Parses a number of JSON, which is also part of a file's name.

    Raises:
        ValueError: anything else.
    """
    value = strict_json.loads(text)
    if not isinstance(value, int | float) or not abs(value) < 1 << 63:
        raise ValueError(text)
    return value


def design_fields(config: RunConfig) -> dict[str, Any]:
    """Reads the fields of the design of a run's target.

    Raises:
        ConfigError: a target that is what it is.
    """
    with errors_at("target"):
        fields = registry.get(config.target).configuration()
        if fields is None:
            raise ValueError(f"`target` must be an accelerator with a configuration, but got target={config.target!r}")
    return dict(fields)


def sweep(
    config: RunConfig,
    variations: Variations,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
) -> list[SweepPoint]:
    """Tunes the tasks of a configuration on every design; records in `folder` are not measured again.

    A combination that is no design, or that has no schedule, is a point with a problem.

    Args:
        config: its target is varied.
        variations: fields and values; all combinations are designs.
        folder: folder for designs, records and the outcome.
        say: shows a sentence to the user.

    Raises:
        ConfigError: a configuration that cannot be run.
    """
    base = design_fields(config)
    family = config.target.partition(":")[0]
    (folder / "designs").mkdir(parents=True, exist_ok=True)
    points: list[SweepPoint] = []
    told: set[str] = set()

    def say_once(text: str) -> None:
        """Shows a sentence unless an earlier design had it too."""
        if text not in told:
            told.add(text)
            say(text)

    with make_pool(config.measure) as pool, claim_folder(folder), Database(folder / "records.jsonl") as database:
        for values in _combinations(variations):
            stem = "-".join(f"{field}={value}" for field, value in values.items())
            file = folder / "designs" / f"{stem}.json"
            replace_file(file, (json.dumps({**base, **values}, indent=2) + "\n").encode())
            point = SweepPoint(values, str(file))
            try:
                hardware = registry.get(f"{family}:{file}").hardware
            except ValueError as error:
                points.append(replace(point, problem=str(error)))
                say(f"{point.name}: {error}")
                continue
            point = replace(point, memory_bytes=sum(size for _, size in hardware.memories))
            varied = config.model_copy(update={"target": f"{family}:{file}"})
            point = _tune(point, varied, pool, database, say_once)
            say(f"{point.name}: {point.problem or latency(point.seconds)}")
            points.append(point)
            if point.interrupted:
                break
    document = {"target": config.target, "points": [_plain(point) for point in points]}
    replace_file(folder / "sweep.json", (json.dumps(document, indent=2) + "\n").encode())
    if why := missing("sweep.png", "matplotlib"):
        say(why)
    else:
        draw(points, folder / "sweep.png")
    return points


def _combinations(variations: Variations) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*variations.values()):
        yield dict(zip(variations, values, strict=True))


def _tune(
    point: SweepPoint, config: RunConfig, pool: MeasurePool, database: Database, say: Callable[[str], None]
) -> SweepPoint:
    """Tunes the tasks of the design, and returns its point with the results."""
    settings = make_settings(config)
    tasks = [_in_blocks(task, registry.get(config.target).hardware) for task in list_tasks(config)]
    mine = [task for task in tasks if settings.of(task).target.name == config.target]
    requests = [TaskRequest(task, settings, need=Need.NOTHING) for task in mine]
    results = tune_tasks(requests, pool, database, say=say)
    point = replace(
        point,
        seconds=sum(result.weight * result.best_seconds for result in results),
        trials=sum(len(result.records) for result in results),
        interrupted=any(result.interrupted for result in results),
    )
    missing = [result for result in results if result.best is None]
    if missing and not point.interrupted:
        return replace(point, problem=missing[0].problem or f"{missing[0].name} has no schedule that works")
    return point


def _in_blocks(task: Task, hardware: Hardware) -> Task:
    """Converts a task's tensors to the blocks of the design, if they are in blocks."""
    workload, block = task.workload, matrix_block(hardware)
    if block is None or "block" not in workload.args:
        return task
    with errors_at(task.name):
        return replace(task, workload=Workload(workload.operator, {**workload.args, "block": list(block)}))


def front(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    """Selects the points that no other beats in both memory and time, the smallest first."""
    frontier: list[SweepPoint] = []
    for point in sorted(points, key=lambda p: (p.memory_bytes, p.seconds)):
        if point.seconds == point.seconds and (not frontier or point.seconds < frontier[-1].seconds):
            frontier.append(point)
    return frontier


def draw(points: Sequence[SweepPoint], path: Path) -> None:
    """Draws latency against memory, with a line through the best of each size."""
    from matplotlib.figure import Figure  # without pyplot, whose backend is the caller's

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter([p.memory_bytes / 1024 for p in points], [p.seconds * 1e3 for p in points], s=24, alpha=0.7)
    best = front(points)
    axes.plot([p.memory_bytes / 1024 for p in best], [p.seconds * 1e3 for p in best], drawstyle="steps-post", alpha=0.6)
    for point in best:
        axes.annotate(point.name, (point.memory_bytes / 1024, point.seconds * 1e3), fontsize="x-small", rotation=20)
    axes.set(xlabel="buffers, KiB", ylabel="latency, ms", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def _plain(point: SweepPoint) -> dict[str, Any]:
    return {**asdict(point), "seconds": None if math.isnan(point.seconds) else point.seconds}
