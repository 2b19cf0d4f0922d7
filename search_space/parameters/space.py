"""Spaces of named parameters: search spaces for a tuner of any kernels, with no program behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_space.decisions import Choices
from search_space.parameters.expression import ExpressionError, Restriction
from search_space.sketch.tables import DecisionGroup

Value = bool | int | float | str
MOST = 1 << 62
"""Greatest number of configurations of a space, legal or not, that can be numbered."""


@dataclass(frozen=True)
class Parameter:
    """A name and the values that it may take.

    Attributes:
        values: values in their order, each once; numbers or texts.

    Raises:
        ValueError: no value, one twice, or texts beside numbers.
    """

    name: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"`values` of a parameter must be at least one, but {self.name} has none")
        if len(set(self.values)) != len(self.values):
            twice = next(v for v in self.values if self.values.count(v) > 1)
            raise ValueError(f"`values` of a parameter must differ, but {self.name} has {twice!r} more than once")
        texts = [isinstance(value, str) for value in self.values]
        if any(texts) and not all(texts):
            raise ValueError(f"`values` must be numbers or texts, but {self.name} has both: {list(self.values)}")
        if not all(isinstance(v, str) or math.isfinite(v) for v in self.values):
            raise ValueError(f"`values` must be finite, but {self.name} has {list(self.values)}")

    @cached_property
    def array(self) -> NDArray[Any]:
        """The values, (values,)."""
        return np.array(self.values)

    @cached_property
    def group(self) -> DecisionGroup:
        """The decision, as models see it: a column of numbers, or for texts a column of 0 and 1 for each text.

        Integers from 0 on are the column's values; other numbers are replaced by their rank.
        """
        if isinstance(self.values[0], str):
            columns = tuple(f"{self.name}={value}" for value in self.values)
            return DecisionGroup(self.name, columns, np.eye(len(columns), dtype=np.int64))
        numbers = self.array.astype(np.float64)
        whole = bool(np.all(numbers == np.rint(numbers)) and numbers.min() >= 0 and numbers.max() < 2**53)
        table = numbers if whole else np.argsort(np.argsort(numbers))
        return DecisionGroup(self.name, (self.name,), table.astype(np.int64)[:, None])


@dataclass(frozen=True, eq=False)
class ParameterSpace:
    """A space of parameters and restrictions, which every strategy can search.

    It is a `search_space.decisions.Space` and its own only part, `search_space.decisions.Decisions`.

    Attributes:
        name: name of the kernel.
        parameters: parameters in their order.
        restrictions: conditions that configurations must satisfy.
        legal_choices: legal configurations, (n, parameters); None: all that satisfy the restrictions.

    Raises:
        ValueError: no parameters, two of one name, more configurations than 2**62, or a restriction on others.
    """

    name: str
    parameters: tuple[Parameter, ...]
    restrictions: tuple[Restriction, ...] = ()
    legal_choices: Choices | None = None

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if not names:
            raise ValueError(f"a space must have parameters, but {self.name} has none")
        if len(set(names)) != len(names):
            raise ValueError(f"names of parameters must differ, but got {', '.join(names)}")
        if self.size > MOST:
            raise ValueError(f"a space must have at most {MOST} configurations, but {self.name} has {self.size}")
        for restriction in self.restrictions:
            if unknown := [name for name in restriction.names if name not in names]:
                raise ExpressionError(
                    f"`{restriction.text}` must read parameters of the space ({', '.join(names)}), "
                    f"but got {unknown[0]!r}"
                )

    @property
    def workload(self) -> str:
        """The name."""
        return self.name

    @property
    def sketches(self) -> tuple[ParameterSpace]:
        """Itself."""
        return (self,)

    @property
    def cores(self) -> int:
        """Constant 1, as nothing is known of the machine."""
        return 1

    @property
    def refusals(self) -> Mapping[str, str]:
        """Empty, as no part is refused."""
        return {}

    @property
    def size(self) -> int:
        """Configurations, legal or not."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def values(self, choices: Sequence[int] | Choices) -> dict[str, Value]:
        """Returns a configuration as a mapping from parameter to value."""
        return {
            parameter.name: parameter.values[int(place)]
            for parameter, place in zip(self.parameters, choices, strict=True)
        }

    def choices(self, configurations: Sequence[Mapping[str, Any]]) -> Choices:
        """Converts configurations to rows of indices, (n, parameters).

        Raises:
            ValueError: a parameter that is missing, or a value that it cannot take.
        """
        rows = np.empty((len(configurations), len(self.parameters)), np.int32)
        for column, parameter in enumerate(self.parameters):
            indices = {value: place for place, value in enumerate(parameter.values)}
            for row, configuration in enumerate(configurations):
                if parameter.name not in configuration:
                    raise ValueError(f"a configuration must have `{parameter.name}`, but got {dict(configuration)}")
                value = configuration[parameter.name]
                if not isinstance(value, bool | int | float | str) or value not in indices:
                    raise ValueError(f"`{parameter.name}` must be one of {list(parameter.values)}, but got {value!r}")
                rows[row, column] = indices[value]
        return rows

    @property
    def algorithm(self) -> str:
        """Constant name, as nothing is known of the tuned kernel."""
        return "parameters"

    @cached_property
    def groups(self) -> tuple[DecisionGroup, ...]:
        """A group for each parameter."""
        return tuple(parameter.group for parameter in self.parameters)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the variables that models see."""
        return tuple(column for group in self.groups for column in group.columns)

    def expand(self, choices: Choices) -> NDArray[np.float64]:
        """Computes the values of the variables: choices (n, parameters) → (columns, n)."""
        parts = [group.table[choices[:, place]] for place, group in enumerate(self.groups)]
        return np.concatenate(parts, axis=1).T.astype(np.float64)

    def legal(self, choices: Choices) -> NDArray[np.bool_]:
        """Tells for each configuration whether it satisfies every restriction: (n, parameters) → (n,)."""
        found = np.ones(len(choices), np.bool_)
        for restriction in self.restrictions:
            found &= self._holds(restriction, choices)
        return found & self._is_listed(choices)

    def violations(self, choices: Choices) -> dict[str, int]:
        """Counts the configurations that violate each restriction; one without violations is left out."""
        counts = {r.text: int((~self._holds(r, choices)).sum()) for r in self.restrictions}
        counts["listed"] = int((~self._is_listed(choices)).sum())
        return {text: count for text, count in counts.items() if count}

    def workspace(self, choices: Choices, threads: int) -> NDArray[np.float64]:
        """Returns zeros, as nothing is known of memory: (n, parameters) → (n,)."""
        return np.zeros(len(choices))

    def numbers(self, choices: Choices) -> NDArray[np.int64]:
        """Numbers the configurations: (n, parameters) → (n,)."""
        found = np.zeros(len(choices), np.int64)
        for place, parameter in enumerate(self.parameters):
            found = found * len(parameter.values) + choices[:, place]
        return found

    def _is_listed(self, choices: Choices) -> NDArray[np.bool_]:
        if self.legal_choices is None:
            return np.ones(len(choices), np.bool_)
        return np.isin(self.numbers(choices), self._numbers)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        assert self.legal_choices is not None
        return self.numbers(self.legal_choices)

    def _holds(self, restriction: Restriction, choices: Choices) -> NDArray[np.bool_]:
        values = {
            parameter.name: parameter.array[choices[:, place]]
            for place, parameter in enumerate(self.parameters)
            if parameter.name in restriction.names
        }
        return np.broadcast_to(restriction.holds(values), (len(choices),))
