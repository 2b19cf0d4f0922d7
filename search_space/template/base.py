"""Templates, and their search spaces: a sketch for each combination of choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search_space import te, te_json
from search_space.hardware import Hardware
from search_space.schedule.errors import ScheduleError
from search_space.schedule.facade import Schedule
from search_space.sketch.generate import MAX_SKETCHES
from search_space.space import SearchSpace, Sketch, unscheduled_state
from search_space.template.config import Config
from search_space.template.registry import register
from search_space.workloads import Workload

MAX_PASSES = 1 << 10
"""Greatest number of combinations of choices; each is a run of the template."""
ScheduledTensors = tuple[Schedule, Sequence[te.Tensor]]
"""Result of a template: the schedule, and the inputs and the output of its computation."""


@dataclass(frozen=True, eq=False)
class Template:
    """A schedule with knobs.

    Attributes:
        name: name in the registry.
        function: function of a `Config` and the template's own arguments; it is called once for each combination of
            choices.
        operator: operator of the workloads it schedules, a workload is then its only argument; None: the template
            defines its own computation, and takes any arguments.
    """

    name: str
    function: Callable[..., ScheduledTensors]
    operator: str | None = None

    def __call__(self, *args: Any, **keywords: Any) -> TuningTemplate:
        """Binds the template to arguments, ready to be tuned.

        Raises:
            ValueError: a workload that it does not schedule.
        """
        if self.operator is not None:
            if len(args) != 1 or keywords or not isinstance(args[0], Workload):
                raise ValueError(
                    f"template {self.name} must be given a workload, but got {_format_call(args, keywords)}"
                )
            if args[0].operator != self.operator:
                raise ValueError(
                    f"template {self.name} must be given a workload of {self.operator}, but got {args[0].operator}"
                )
        return TuningTemplate(self, args, keywords)


def template(name: str, operator: str | None = None) -> Callable[[Callable[..., ScheduledTensors]], Template]:
    """Makes a function a template and registers it.

    Args:
        name: name in the registry.
        operator: operator of the workloads that the function takes after the config; None: it takes any arguments.
    """

    def wrap(function: Callable[..., ScheduledTensors]) -> Template:
        made = Template(name, function, operator)
        register(made)
        return made

    return wrap


@dataclass(frozen=True, eq=False)
class TemplateSpace(SearchSpace):
    """The space of a template.

    Attributes:
        choices: mapping of each sketch from a knob to the label of its value there.
    """

    choices: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class _Pass:
    """One run of a template, with its choices."""

    config: Config
    schedule: Schedule
    tensors: Sequence[te.Tensor]


@dataclass(frozen=True, eq=False)
class TuningTemplate:
    """A template with its arguments: the input of `tune`."""

    template: Template
    args: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def space(self, hardware: Hardware) -> TemplateSpace:
        """Builds the search space on a machine: all combinations of choices, or `MAX_SKETCHES` spread evenly over them.

        Raises:
            ValueError: a knob used wrongly, more than `MAX_PASSES` combinations, or a computation that depends on them.
            ScheduleError: no combination is a legal schedule; the error is that of the first.
        """
        failures: list[ScheduleError] = []
        passes = list(self._passes(hardware, failures))
        if not passes:
            raise failures[0]
        workload = self._workload(passes)
        kept = np.unique(np.linspace(0, len(passes) - 1, MAX_SKETCHES).round().astype(int))
        names = _Algorithms(workload)
        found = [passes[place] for place in kept]
        sketches = tuple(self._sketch(one, workload, names.of(one.tensors), hardware) for one in found)
        choices = tuple({name: label for name, label, _, _ in one.config.choices} for one in found)
        return TemplateSpace(workload, hardware, sketches, len(passes) - len(found), choices)

    def _passes(self, hardware: Hardware, failures: list[ScheduleError]) -> Iterator[_Pass]:
        """Lists every run of the template, depth first; runs with an illegal schedule are left out."""
        path: list[int] | None = []
        count = 0
        while path is not None:
            count += 1
            if count > MAX_PASSES:
                raise ValueError(
                    f"template {self.template.name} must have at most {MAX_PASSES} combinations of choices, but got "
                    f"more; knobs may be numbers (`var`) in place of choices (`val`)"
                )
            config = Config(hardware, path)
            try:
                schedule, tensors = self.template.function(config, *self.args, **self.keywords)
                yield _Pass(config, schedule, tuple(tensors))
            except ScheduleError as error:
                failures.append(error)
            path = _next(config)

    def _workload(self, passes: Sequence[_Pass]) -> Workload:
        if self.template.operator is not None:
            given: Workload = self.args[0]
            return given
        workload = Workload.of(passes[0].tensors)
        for one in passes[1:]:
            if Workload.of(one.tensors) != workload:
                raise ValueError(f"template {self.template.name} must compute the same whatever is chosen")
        return workload

    def _sketch(self, one: _Pass, workload: Workload, algorithm: str, hardware: Hardware) -> Sketch:
        label = "/".join(f"{name}={value}" for name, value, _, count in one.config.choices if count > 1)
        initial = unscheduled_state(workload, algorithm)
        one.schedule.trace.apply(initial)  # the steps name the stages of the workload's own state
        return Sketch(
            f"{algorithm}:{self.template.name}/{label or 'default'}",
            algorithm,
            tuple(one.config.groups),
            one.schedule.trace,
            initial,
            hardware,
            tuple(one.config.constraints),
        )


class _Algorithms:
    """A finder of the workload's algorithm that a list of tensors defines."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._algorithms: dict[str, str] = {}

    def of(self, tensors: Sequence[te.Tensor]) -> str:
        wanted = te_json.text(te_json.to_json(tensors))
        for name in self._workload.algorithms:
            if name not in self._algorithms:
                self._algorithms[name] = te_json.text(te_json.to_json(self._workload.tensors(name)))
            if self._algorithms[name] == wanted:
                return name
        raise ValueError(
            f"a template must return the tensors of one of its workload's algorithms "
            f"({', '.join(self._workload.algorithms)}), but got others for {self._workload.key}"
        )


def _next(config: Config) -> list[int] | None:
    """Returns the path after the one that `config` took, None after the last."""
    path = [place for _, _, place, _ in config.choices]
    counts = [count for _, _, _, count in config.choices]
    while path and path[-1] + 1 == counts[len(path) - 1]:
        path.pop()
    if not path:
        return None
    path[-1] += 1
    return path


def _format_call(args: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in keywords.items())]) or "nothing"
