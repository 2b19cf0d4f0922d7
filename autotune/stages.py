"""A schedule at every stage on its way to machine code, without running it: what `autotune lower` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from autotune import search
from autotune.config import ConfigError
from autotune.naming import nearest
from autotune.search.base import Candidate, NoLegalSchedule
from autotune.task import Task
from autotune.tuning import Settings
from costmodel.features import FeatureExtractor
from search_space import strict_json
from search_space.hardware import Hardware
from search_space.operators.base import LIBRARY
from search_space.schedule.errors import ScheduleError
from search_space.schedule.trace import Trace
from search_space.space import SearchSpace, generate, program_of
from targets import registry
from targets.base import BuildError, Target

INSPECTED = 4
"""Candidates whose machine code is looked at, where the one before spills."""
FEW_SPILLS = 0.02
"""Share of spilling instructions in a loop that cost nothing to speak of."""
SPILL_COST = 3.0
"""How much longer a loop takes, by its share of spilling instructions: stores and loads wait for each other."""
STAGES = ("schedule", "program", "llvm", "cuda", "c", "resources", "assembly")


@dataclass(frozen=True)
class Scheduled:
    """A workload with a concrete schedule."""

    task: Task
    algorithm: str
    trace: Trace


def stages(scheduled: Scheduled, target: str, wanted: Sequence[str] = STAGES) -> Iterator[tuple[str, str]]:
    """Yields (stage, text) of the wanted stages in order.

    Raises:
        ConfigError: the schedule does not fit the workload, or the target has no code for it.
    """
    workload = scheduled.task.workload
    if "schedule" in wanted:
        yield "schedule", f"# {workload.key}\n# algorithm: {scheduled.algorithm}\n{scheduled.trace}"
    try:
        program = program_of(workload, scheduled.algorithm, scheduled.trace)
        if "program" in wanted:
            yield "program", str(program)
        if set(wanted) - {"schedule", "program"}:
            on = registry.get(target)
            module = on.build(program)
            for name, text in on.listings(module).items():
                if name in wanted:
                    yield name, text
            if "assembly" in wanted:
                yield "assembly", on.assembly(module)
    except (ScheduleError, BuildError) as error:
        raise ConfigError(f"a schedule must fit its workload and target, but {error}") from None


def task_named(tasks: Sequence[Task], name: str | None) -> Task:
    """The task called `name`; the first one by default.

    Raises:
        ConfigError: no such task; names the nearest one.
    """
    found = {task.name: task for task in tasks}
    if name is None:
        return tasks[0]
    if name not in found:
        raise ConfigError(f"`--task` must be one of {', '.join(found)}, but got {name!r}{nearest(name, found)}")
    return found[name]


def by_roofline(
    task: Task,
    settings: Settings,
    algorithms: Sequence[str] | None = None,
    space: SearchSpace | None = None,
    hardware: Hardware | None = None,
) -> Scheduled:
    """The schedule that a search would begin with: the best of a sample of generated code by the roofline.

    Of the few that are estimated best it is the first whose machine code keeps its vectors in registers; where none
    does, the one with the least estimate, spilling counted in.

    Args:
        task: what to compute.
        settings: for which target, and the seed.
        algorithms: to choose from; all that are no library's by default.
        space: to choose from in place of the workload's own, such as that of a template.
        hardware: what the estimate knows of the machine; by default what the target says.

    Raises:
        ConfigError: no candidate is legal.
    """
    own = [algorithm for algorithm in task.workload.algorithms if algorithm != LIBRARY]  # there are loops to see
    shown = own if algorithms is None else algorithms
    settings = settings.of(task)
    found = (
        generate(task.workload, hardware or registry.get(settings.target).hardware, shown) if space is None else space
    )
    cold = settings.cache == "network"

    @cache
    def extractor(sketch: int) -> FeatureExtractor:
        of = found.sketches[sketch]
        return FeatureExtractor(of.program, of.columns, found.hardware, cold)

    def score(sketch: int, choices: Any) -> Any:
        return -extractor(sketch).roofline(found.sketches[sketch].expand(choices))

    rng = settings.generator(task.workload.key, "lower")
    try:
        best = search.get("evolution")(found, score, rng, first_epsilon=0.0, first_sample=2048).ask(INSPECTED)
    except NoLegalSchedule as error:
        raise ConfigError(str(error)) from None
    chosen = _least_spilling(found, best, registry.get(settings.target), score)
    of = found.sketches[chosen.sketch]
    return Scheduled(task, of.algorithm, of.trace(np.array(chosen.choices, np.int32)))


def _least_spilling(space: SearchSpace, candidates: Sequence[Candidate], target: Target, score: Any) -> Candidate:
    """The best of candidates by their estimates and by what their machine code spills."""

    def seconds(candidate: Candidate) -> float:
        return float(-score(candidate.sketch, np.array([candidate.choices], np.int32))[0])

    ordered = sorted(candidates, key=seconds)
    found: list[tuple[float, int, Candidate]] = []
    for candidate in ordered:
        try:
            spilled = target.spills(space.program(candidate))
        except (BuildError, ScheduleError):
            continue  # whoever builds what is chosen reports it
        if spilled <= FEW_SPILLS:
            return candidate
        found.append((seconds(candidate) * (1 + SPILL_COST * spilled), len(found), candidate))
    return min(found)[2] if found else ordered[0]


def from_file(task: Task, path: Path) -> Scheduled:
    """The schedule in a file: a trace as a JSON list, or a summary.json, which holds one for each task.

    Raises:
        ConfigError: no such file, no trace in it, or none for this task.
    """
    try:
        data = strict_json.loads(path.read_text(), finite=False)
    except OSError as error:
        raise ConfigError(f"{path}: a trace must be a readable file, but got: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: a trace must be JSON, but {error}") from None
    algorithms: tuple[str, ...] = task.workload.algorithms
    if isinstance(data, dict):
        entry = _entry(task, data, path)
        data, algorithms = entry["trace"], (entry["algorithm"],)
    if not isinstance(data, list) or not all(isinstance(step, dict) for step in data):
        raise ConfigError(f"{path}: a trace must be a list of steps, but got {str(data)[:60]}")
    problems: list[str] = []
    for algorithm in algorithms:
        try:
            trace = Trace.from_json(data)
            program_of(task.workload, algorithm, trace)
            return Scheduled(task, algorithm, trace)
        except ScheduleError as error:
            problems.append(f"{algorithm}: {error}")
    raise ConfigError(f"{path}: a trace must fit {task.workload.key}, but {'; '.join(problems)}")


def _entry(task: Task, document: dict[str, Any], path: Path) -> dict[str, Any]:
    for entry in document.get("tasks", []):
        if entry.get("workload") == task.workload.to_json() and entry.get("trace") is not None:
            return dict(entry)
    raise ConfigError(f"{path}: a summary must hold a trace of {task.workload.key}, but it does not")
