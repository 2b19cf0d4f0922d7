"""Settings of tuning: sections of a configuration, and the target by its name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from autotune.config import Measure, Model, Search
from autotune.config.errors import errors_at
from autotune.config.sections import LEARNED_MODEL
from autotune.tuner.task import CPU, Task
from costmodel.models import registry as models
from costmodel.models.base import CostModel, UncertainModel
from search_space.extras import missing
from search_space.operators.algorithms import check_names
from search_space.operators.checks import integer
from targets import registry
from targets.base import Target
from targets.threads import check_threads


@dataclass(frozen=True)
class Settings:
    """Settings by which a task is tuned.

    Attributes:
        target: target of the kernels; tasks may have another one, see `of`.
        trials: number of candidates to measure, resumed ones included; 0: no search.
        seed: seed of every random draw, and of the inputs.
        search, cost_model, measure: sections of the configuration.
        algorithms: algorithms of `BY_NAME` that may be chosen besides the default ones.
    """

    target: Target = field(default_factory=partial(registry.get, CPU))
    trials: int = 64
    seed: int = 0
    search: Search = Search()
    cost_model: Model = Model()
    measure: Measure = Measure()
    algorithms: Sequence[str] = ()

    def __post_init__(self) -> None:
        integer("trials", self.trials, 0)
        integer("seed", self.seed, 0)
        check_names(self.algorithms)
        if self.measure.threads is not None and self.measure.pool == "local":
            with errors_at("measure.threads"):
                check_threads(self.measure.threads)

    @property
    def threads(self) -> int:
        """Number of threads that a kernel runs on."""
        return self.measure.threads or self.target.hardware.cores

    def of(self, task: Task) -> Settings:
        """Returns the settings by which a task is tuned, see `on`."""
        return self if task.target is None else self.on(task.target)

    def on(self, target: str) -> Settings:
        """Returns the settings for a target by its name: an accelerator has one thread, and no caches."""
        if target == self.target.name:
            return self
        measure = self.measure.model_copy(update={"threads": 1, "cache": "warm"})
        return replace(self, target=registry.get(target), measure=measure)

    def searching(self, **changes: Any) -> Settings:
        """Returns the settings with other values in `search`."""
        return replace(self, search=self.search.model_copy(update=changes))

    def generator(self, task_key: str, use: str) -> np.random.Generator:
        """Makes a random generator for one use in one task, independent of all other tasks of the run."""
        return np.random.default_rng([self.seed, zlib.crc32(task_key.encode()), zlib.crc32(use.encode())])


def make_model(section: Model, seed: int) -> CostModel:
    """Makes the cost model that a section names, or a new one like the object in place of the name.

    Raises:
        CostModelError: the model is unknown, lacks an option, or refuses a value.
    """
    given = section.name
    if isinstance(given, CostModel):
        return models.make(models.model_name(type(given)), {**models.read_options(given), **section.options}, seed)
    return models.make(models.model_name(given), section.options, seed)


def explain_roofline(section: Model) -> str:
    """Says why candidates are scored by the roofline where no model was named, or "" where they are not."""
    if "name" in section.model_fields_set:
        return ""
    why = missing(f"the cost model {LEARNED_MODEL}", "lightgbm")
    return f"candidates are scored by the {section.name}: {why}" if why else ""


def check_exploration(model: CostModel, exploration: float) -> None:
    """Refuses exploration by a model that does not estimate its uncertainty.

    Raises:
        ValueError: the model does not, or `exploration` is negative.
    """
    if not exploration >= 0:
        raise ValueError(f"`exploration` must not be negative, but got exploration={exploration}")
    if exploration and not isinstance(model, UncertainModel):
        raise ValueError(
            f"`exploration` must be 0 for a model that does not know how sure it is, but got "
            f"exploration={exploration} for {type(model).__name__}"
        )
