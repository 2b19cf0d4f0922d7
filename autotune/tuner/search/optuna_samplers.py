"""Samplers of Optuna as strategies: TPE, CMA-ES, and NSGA-II for latency against memory.

Optuna is imported when the first of them is made. It proposes and learns one trial at a time, milliseconds each, where
the other strategies work on whole populations.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.tuner.search import moves
from autotune.tuner.search.base import Bounds, Candidate
from autotune.tuner.search.guided import GuidedOptions, GuidedSearch
from autotune.tuner.search.population import Population, SeenCandidates
from search_space.extras import require
from search_space.schedule.errors import ScheduleError

SKETCH = "sketch"
"""First parameter, which is categorical: the sketch's position in the space."""
TRIES = (0.0, 0.1, 0.3, 0.6)
"""Rates of mutation, tried in turn, to find a legal and new neighbour of a proposal."""
NEIGHBOURS = 256
TENTH = 10
"""Number of source trials per fast one: CMA-ES starts at the fastest tenth, so that nine slower ones are added."""
SLOWER = math.log(4.0)
"""Logarithm of the factor by which a failure counts as slower than the slowest working candidate."""


@dataclass(frozen=True)
class OptunaOptions(GuidedOptions):
    """Options that all samplers have.

    Attributes:
        screen: number of proposals per measured candidate, from which the scorer picks. 1: Optuna alone decides.
    """

    BOUNDS: ClassVar[Bounds] = {"screen": (1, math.inf)}

    screen: int = 1

    def __post_init__(self) -> None:
        _library()


class OptunaSearch(GuidedSearch):
    """Proposals of an Optuna sampler, which minimises the logarithm of seconds.

    The first request, while nothing is measured, follows the scorer, as with every strategy. A proposal that is illegal
    or known is moved to a candidate near it; Optuna gets that candidate's latency for its proposal (a repair that the
    search does not inherit, "Baldwinian").
    """

    Options: ClassVar[type[OptunaOptions]] = OptunaOptions
    objectives = 1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._optuna = _library()
        self._study: Any = None
        self._names = [self.names(place) for place in range(len(self.frame.sketches))]
        self._outstanding: dict[Candidate, Any] = {}  # outstanding candidate -> Optuna's trial
        self._backlog: list[tuple[Candidate, float]] = []  # measurements for a study that is made later
        self._slowest = -math.inf  # largest logarithm so far

    @abstractmethod
    def make_sampler(self, seed: int, first: Sequence[Any]) -> Any:
        """Makes the sampler; `first` are trials that were measured before and that the study also gets."""

    @abstractmethod
    def names(self, sketch: int) -> tuple[str, ...]:
        """Names the parameters of a sketch, besides the sketch itself."""

    @abstractmethod
    def distribution(self, sketch: int, position: int) -> Any:
        """Makes the distribution of a sketch's parameter at `position`."""

    @abstractmethod
    def index(self, value: Any, length: int) -> int:
        """Converts a parameter's value to an index into a table of `length` entries."""

    @abstractmethod
    def value(self, index: int, length: int) -> Any:
        """Converts an index into a table of `length` entries to a parameter's value."""

    def ask(self, n: int) -> list[Candidate]:
        asked = super().ask(n)
        chosen = set(asked)
        with self._quiet():
            for candidate in [c for c in self._outstanding if c not in chosen and self._is_fresh(c)]:
                self._study.tell(self._outstanding.pop(candidate), state=self._optuna.trial.TrialState.FAIL)
        return asked

    def tell(self, candidates: Sequence[Candidate], seconds: NDArray[np.float64]) -> None:
        super().tell(candidates, seconds)
        logarithms = np.log(np.asarray(seconds, np.float64))
        self._slowest = float(np.fmax.reduce(logarithms, initial=self._slowest))
        failure = (self._slowest if math.isfinite(self._slowest) else 0.0) + SLOWER
        self._backlog += zip(candidates, np.nan_to_num(logarithms, nan=failure).tolist(), strict=True)
        if self._study is not None:
            self._settle()

    def propose(self, n: int) -> tuple[Population, NDArray[np.float64]]:
        proposals: list[Candidate] = []
        met = SeenCandidates()
        with self._quiet():
            self._open()
            while len(proposals) < n * self.options.screen:
                trial = self._study.ask()
                candidate = self._repair(*self._read(trial), met)
                if candidate is None:
                    self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                    break
                met.add(self.frame.keys(self.frame.population([candidate])))
                proposals.append(candidate)
                self._outstanding[candidate] = trial
        pool = self.frame.population(proposals)
        if self.options.screen == 1:
            return pool, np.zeros(len(pool))
        return pool, self.frame.score(pool, self.scorer)

    def objective(self, candidates: Sequence[Candidate], logarithms: Sequence[float]) -> list[list[float]]:
        """Returns the objectives of candidates for Optuna, a list of `objectives` numbers each."""
        return [[value] for value in logarithms]

    # ------------------------------------------------------------------ the study
    def _open(self) -> None:
        """Makes the study, at the first request after a measurement."""
        if self._study is not None:
            return
        first = [self._trial(candidate, [value] * self.objectives) for candidate, value in self._backlog]
        sampler = self.make_sampler(int(self.rng.integers(1 << 31)), first)
        self._study = self._optuna.create_study(sampler=sampler, directions=["minimize"] * self.objectives)
        self._settle()

    def _settle(self) -> None:
        """Tells the study the measurements of its own trials, and of others."""
        told, self._backlog = self._backlog, []
        values = self.objective([candidate for candidate, _ in told], [value for _, value in told])
        with self._quiet():
            for (candidate, _), objectives in zip(told, values, strict=True):
                trial = self._outstanding.pop(candidate, None)
                if trial is not None:
                    self._study.tell(trial, objectives)
                else:
                    self._study.add_trial(self._trial(candidate, objectives))

    def _trial(self, candidate: Candidate, objectives: Sequence[float]) -> Any:
        """Makes a trial of a candidate that Optuna did not propose."""
        return self._optuna.trial.create_trial(
            params=self._parameters(candidate),
            distributions=self._distributions(candidate.sketch),
            values=list(objectives),
        )

    def _sketches(self) -> Any:
        return self._optuna.distributions.CategoricalDistribution(tuple(range(len(self.frame.sketches))))

    def _distributions(self, sketch: int) -> dict[str, Any]:
        own = {name: self.distribution(sketch, place) for place, name in enumerate(self._names[sketch])}
        return {SKETCH: self._sketches(), **own}

    def _parameters(self, candidate: Candidate) -> dict[str, Any]:
        """Converts a candidate to values of Optuna's parameters, in the middle for groups that its sketch lacks."""
        lengths = self.frame.lengths[candidate.sketch].tolist()
        names = self._names[candidate.sketch]
        choices = (*candidate.choices, *(0,) * (len(names) - len(candidate.choices)))
        own = {name: self.value(choices[place], lengths[place]) for place, name in enumerate(names)}
        return {SKETCH: candidate.sketch, **own}

    def _read(self, trial: Any) -> tuple[int, NDArray[np.int32]]:
        """Reads the sketch and row (width,) that Optuna proposes."""
        sketch = int(trial.suggest_categorical(SKETCH, tuple(range(len(self.frame.sketches)))))
        row = np.zeros(self.frame.width, np.int32)
        lengths = self.frame.lengths[sketch].tolist()
        for place, name in enumerate(self._names[sketch]):
            value = trial._suggest(name, self.distribution(sketch, place))
            row[place] = self.index(value, lengths[place])
        return sketch, row

    # ------------------------------------------------------------------ repairs
    def _repair(self, sketch: int, row: NDArray[np.int32], seen_in_batch: SeenCandidates) -> Candidate | None:
        """Returns the candidate, or a legal one near it that is neither known nor in `seen_in_batch`; else one of
        another sketch.

        Returns None if no candidate is left.
        """
        start = Population(np.full(1, sketch, np.int32), row[None])
        lengths = self.frame.lengths[sketch]
        blocks = [
            start,
            *(
                Population(np.full(NEIGHBOURS, sketch, np.int32), np.repeat(row[None], NEIGHBOURS, axis=0))
                for _ in TRIES
            ),
        ]
        for block, rate in zip(blocks, (None, *TRIES), strict=True):
            near = block if rate is None else moves.mutate(block, self.frame, self.rng, rate)
            near = near.take(self._legal(near))
            keys = self.frame.keys(near)
            near = near.take(self.seen_candidates.fresh(keys) & seen_in_batch.fresh(keys))
            if len(near):
                distance = (np.abs(near.rows - row) / lengths).sum(axis=1)
                return self.frame.candidates(near.take(np.array([int(distance.argmin())])))[0]
        for other in (sketch, *self.rng.permutation(np.flatnonzero(self.sampler.open)).tolist()):
            drawn = self.sampler.draw(other, 1 + len(seen_in_batch))
            drawn = drawn.take(seen_in_batch.fresh(self.frame.keys(drawn)))
            if len(drawn):
                return self.frame.candidates(drawn.take(np.arange(1)))[0]
        return None

    def _legal(self, population: Population) -> NDArray[np.bool_]:
        try:
            return self.frame.legal(population)
        except ScheduleError:  # the sketch cannot be lowered; the sampler counts that
            return np.zeros(len(population), np.bool_)

    def _is_fresh(self, candidate: Candidate) -> bool:
        return bool(self.seen_candidates.fresh(self.frame.keys(self.frame.population([candidate])))[0])

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Hides Optuna's own messages from the user's terminal."""
        level = self._optuna.logging.get_verbosity()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                yield
        finally:
            self._optuna.logging.set_verbosity(level)


@dataclass(frozen=True)
class TpeOptions(OptunaOptions):
    """Options, with Optuna's names.

    Attributes:
        n_ei_candidates: number of points from which the one of greatest expected improvement is chosen.
    """

    BOUNDS: ClassVar[Bounds] = {"n_ei_candidates": (1, math.inf)}

    n_ei_candidates: int = 24


class Tpe(OptunaSearch):
    """Tree-structured Parzen estimator (Bergstra et al., "Algorithms for hyper-parameter optimization", NIPS 2011).

    Parameters are integers, indices into tables. Groups of one name and length are the same parameter in all sketches
    of an algorithm, whose variants mostly have the same tiles. Parameters that occur together are sampled jointly;
    without `group`, those of a single algorithm would be sampled one by one. Outstanding candidates count as bad
    (Optuna's constant liar).
    """

    Options: ClassVar[type[TpeOptions]] = TpeOptions

    def make_sampler(self, seed: int, first: Sequence[Any]) -> Any:
        return self._optuna.samplers.TPESampler(
            n_startup_trials=0,
            n_ei_candidates=self.options.n_ei_candidates,
            multivariate=True,
            group=True,
            constant_liar=True,
            seed=seed,
        )

    def names(self, sketch: int) -> tuple[str, ...]:
        of = self.frame.sketches[sketch]
        return tuple(f"{of.algorithm}/{group.name}/{len(group.table)}" for group in of.groups)

    def distribution(self, sketch: int, position: int) -> Any:
        return self._optuna.distributions.IntDistribution(0, int(self.frame.lengths[sketch, position]) - 1)

    def index(self, value: Any, length: int) -> int:
        return int(value)

    def value(self, index: int, length: int) -> Any:
        return index


class _Positions(OptunaSearch):
    """Sampler that needs the same parameters for all sketches: the i-th group is the parameter i, from 0 to 1.

    A group's table is ordered; each entry has an equal share of the interval.
    """

    def names(self, sketch: int) -> tuple[str, ...]:
        return tuple(f"group{place}" for place in range(self.frame.width))

    def distribution(self, sketch: int, position: int) -> Any:
        return self._optuna.distributions.FloatDistribution(0.0, 1.0)

    def index(self, value: Any, length: int) -> int:
        return min(int(float(value) * length), length - 1)

    def value(self, index: int, length: int) -> Any:
        return (index + 0.5) / length


@dataclass(frozen=True)
class CmaEsOptions(OptunaOptions):
    """Options, with Optuna's names.

    Attributes:
        popsize: number of candidates of a generation; 0: 4 + 3 log(dimensions).
    """

    BOUNDS: ClassVar[Bounds] = {"popsize": (0, math.inf)}

    popsize: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.popsize == 1:
            raise ValueError("`popsize` of cmaes must be 0 or at least 2, but got popsize=1")


class CmaEs(_Positions):
    """CMA-ES (Hansen and Ostermeier, 2001), warm-started (Nomura et al., 2021) at the fastest tenth known.

    It cannot choose the sketch, which TPE does, and needs two groups or more; with fewer, TPE does everything.
    """

    Options: ClassVar[type[CmaEsOptions]] = CmaEsOptions

    def make_sampler(self, seed: int, first: Sequence[Any]) -> Any:
        samplers = self._optuna.samplers
        fastest = sorted(first, key=lambda trial: trial.value)[: max(1, len(first) // TENTH)]
        worst = fastest[-1].value
        sources = [(trial.params, value) for trial in fastest for value in (trial.value, *(TENTH - 1) * (worst + 1.0,))]
        return samplers.CmaEsSampler(
            source_trials=[self._source(params, value) for params, value in sources],
            popsize=self.options.popsize or None,
            independent_sampler=samplers.TPESampler(n_startup_trials=0, multivariate=False, seed=seed + 1),
            warn_independent_sampling=False,
            seed=seed,
        )

    def _source(self, params: Mapping[str, Any], value: float) -> Any:
        """Makes a trial without the parameter of the sketch."""
        own = {name: number for name, number in params.items() if name != SKETCH}
        kinds = {name: self._optuna.distributions.FloatDistribution(0.0, 1.0) for name in own}
        return self._optuna.trial.create_trial(params=own, distributions=kinds, value=value)


@dataclass(frozen=True)
class Nsga2Options(OptunaOptions):
    """Options, with Optuna's names.

    Attributes:
        population_size: size of a generation. The first one is random.
        crossover_prob, swapping_prob: probabilities of the crossover.
    """

    BOUNDS: ClassVar[Bounds] = {"population_size": (2, math.inf), "crossover_prob": (0, 1), "swapping_prob": (0, 1)}

    population_size: int = 16
    crossover_prob: float = 0.9
    swapping_prob: float = 0.5


class Nsga2(_Positions):
    """NSGA-II (Deb et al., 2002) for two objectives: latency, and the bytes needed besides inputs and output.

    The bytes are those of `Sketch.workspace`: buffers outside registers, once for each thread that has one of its own,
    and constants that are packed or derived. They are evaluated on the decision columns; no candidate is built.
    """

    Options: ClassVar[type[Nsga2Options]] = Nsga2Options
    objectives = 2

    def make_sampler(self, seed: int, first: Sequence[Any]) -> Any:
        return self._optuna.samplers.NSGAIISampler(
            population_size=self.options.population_size,
            crossover_prob=self.options.crossover_prob,
            swapping_prob=self.options.swapping_prob,
            seed=seed,
        )

    def objective(self, candidates: Sequence[Candidate], logarithms: Sequence[float]) -> list[list[float]]:
        """Returns log(seconds) and bytes of each candidate."""
        memory = self.memory(self.frame.population(candidates))
        return [list(pair) for pair in zip(logarithms, memory.tolist(), strict=True)]

    def memory(self, population: Population) -> NDArray[np.float64]:
        """Computes the bytes of each candidate, see `Sketch.workspace`: (n,)."""
        threads = self.space.cores
        out = np.zeros(len(population))
        for sketch, places in population.by_sketch():
            choices = self.frame.choices(sketch, population.rows[places])
            out[places] = self.frame.sketches[sketch].workspace(choices, threads)
        return out

    def front(self) -> list[tuple[Candidate, float, float]]:
        """Lists the measured candidates that no other beats in both: (candidate, seconds, bytes), fastest first."""
        worked = np.flatnonzero(np.isfinite(self.seconds))
        memory = self.memory(self.measured_population.take(worked))
        order = np.lexsort((memory, self.seconds[worked]))
        least = np.minimum.accumulate(np.concatenate([[np.inf], memory[order]]))[:-1]
        kept = order[memory[order] < least]
        found = self.frame.candidates(self.measured_population.take(worked[kept]))
        return list(zip(found, self.seconds[worked[kept]].tolist(), memory[kept].tolist(), strict=True))


def _library() -> Any:
    for module in ("optuna", "cmaes"):
        require("the strategies tpe, cmaes and nsga2", module)
    import optuna

    return optuna
