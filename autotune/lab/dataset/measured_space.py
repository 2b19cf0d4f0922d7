"""Spaces of parameters whose configurations were measured by any tool: searches can be replayed on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from costmodel.dataset.errors import DatasetError
from search_space.decisions import Choices, every_choice
from search_space.parameters import ParameterSpace, read_t1, write_t1

OK = "ok"
SPACE, RESULTS = "space.t1.json", "results.parquet"
FORMAT = "autotune.measured_space/1"


@dataclass(frozen=True, eq=False)
class MeasuredSpace:
    """A space of parameters, and measured times of its configurations.

    Attributes:
        space: space of the parameters.
        rows: the configurations, indices of values, (n, parameters); each once.
        latencies: seconds of each sample of each configuration; none for a failure.
        errors: `ok`, or the class of the failure, (n,).
        compile_seconds: seconds of compiling each configuration, (n,).
        other_seconds: seconds besides compiling and running each, such as checking its output, (n,).

    Raises:
        DatasetError: arrays that do not go together, or a configuration twice.
    """

    space: ParameterSpace
    rows: Choices
    latencies: Sequence[NDArray[np.float64]]
    errors: Sequence[str]
    compile_seconds: NDArray[np.float64]
    other_seconds: NDArray[np.float64]

    def __post_init__(self) -> None:
        lengths = {len(x) for x in (self.rows, self.latencies, self.errors, self.compile_seconds, self.other_seconds)}
        if len(lengths) != 1:
            raise DatasetError(f"a measured space must have as many of all, but got {sorted(lengths)} configurations")
        if not len(self.rows):
            raise DatasetError(f"a measured space must have configurations, but {self.space.name} has none")
        numbers = self.space.numbers(self.rows)
        if len(np.unique(numbers)) != len(numbers):
            first = int(np.setdiff1d(np.arange(len(numbers)), np.unique(numbers, return_index=True)[1])[0])
            raise DatasetError(f"configurations must differ, but this one is there twice: {self.values(first)}")

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """The mean of each configuration's samples, (n,); NaN for a failure.

        The mean, not the median, as the tuners that such spaces come from use it.
        """
        return np.array([np.mean(samples) if len(samples) else math.nan for samples in self.latencies])

    @cached_property
    def cost_seconds(self) -> NDArray[np.float64]:
        """Seconds of measuring each configuration: compilation, all runs and everything else, (n,)."""
        runs = np.array([float(np.sum(samples)) for samples in self.latencies])
        found: NDArray[np.float64] = self.compile_seconds + runs + self.other_seconds
        return found

    @property
    def best(self) -> float:
        """Seconds of the fastest.

        Raises:
            DatasetError: all failed.
        """
        if np.isnan(self.seconds).all():
            raise DatasetError(f"a measured space must have a configuration that works, but {self.space.name} has none")
        return float(np.nanmin(self.seconds))

    def expected_best(self, trials: int) -> float:
        """Computes the expected seconds of the fastest of `trials` configurations drawn without replacement.

        A failure counts as the slowest configuration that works.

        Raises:
            ValueError: fewer than one, or more than there are.
        """
        if not 1 <= trials <= len(self):
            raise ValueError(f"`trials` must be from 1 to {len(self)}, but got trials={trials}")
        # Of n, m are drawn: all are at place i or later with (n-i choose m) / (n choose m).
        left = len(self) - np.arange(len(self), dtype=np.float64)
        later = np.concatenate([[1.0], np.cumprod(np.maximum(left - trials, 0.0) / left)])
        return float(np.sum(self._ordered_seconds * (later[:-1] - later[1:])))

    @cached_property
    def _ordered_seconds(self) -> NDArray[np.float64]:
        return np.sort(np.nan_to_num(self.seconds, nan=np.nanmax(self.seconds)))

    @cached_property
    def searchable(self) -> ParameterSpace:
        """The space of the configurations that were measured, and no others."""
        return replace(self.space, legal_choices=self.rows)

    @property
    def missing(self) -> int:
        """Configurations that keep all restrictions and were not measured; 0 where there are too many to look."""
        if self.space.size > 1 << 24:
            return 0
        legal = sum(int(self.space.legal(rows).sum()) for rows in every_choice(self.space))
        return legal - int(self.space.legal(self.rows).sum())

    def values(self, index: int) -> Mapping[str, bool | int | float | str]:
        """Returns the values of a configuration."""
        return self.space.values(self.rows[index])

    def find_indices(self, choices: Choices) -> NDArray[np.intp]:
        """Finds indices of configurations: (m, parameters) → (m,).

        Raises:
            DatasetError: a configuration that was not measured; no other one substitutes it.
        """
        numbers = self.space.numbers(choices)
        at = np.minimum(np.searchsorted(self._sorted_numbers, numbers), len(self) - 1)
        if (wrong := np.flatnonzero(self._sorted_numbers[at] != numbers)).size:
            raise DatasetError(
                f"a configuration must be among the {len(self)} of {self.space.name}, "
                f"but got {self.space.values(choices[wrong[0]])}"
            )
        found: NDArray[np.intp] = self._order[at]
        return found

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        return np.argsort(self.space.numbers(self.rows), kind="stable")

    @cached_property
    def _sorted_numbers(self) -> NDArray[np.int64]:
        return self.space.numbers(self.rows)[self._order]

    def write(self, folder: Path) -> None:
        """Writes it as a folder: the space in T1, results as Parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        write_t1(self.space, folder / SPACE)
        named = {p.name: p.array[self.rows[:, place]] for place, p in enumerate(self.space.parameters)}
        columns = {
            "latencies": pa.array([samples.astype(np.float64) for samples in self.latencies], pa.list_(pa.float64())),
            "error": pa.array(list(self.errors), pa.string()),
            "compile_seconds": self.compile_seconds,
            "other_seconds": self.other_seconds,
        }
        table = pa.table({**{f"parameter.{name}": array for name, array in named.items()}, **columns})
        pq.write_table(table.replace_schema_metadata({"format": FORMAT}), folder / RESULTS, compression="zstd")

    @staticmethod
    def open(folder: Path) -> MeasuredSpace:
        """Reads files of `write`.

        Raises:
            DatasetError: no such folder, another format, or parts that do not fit together.
        """
        try:
            table = pq.read_table(folder / RESULTS)
        except (OSError, pa.ArrowException) as error:
            raise DatasetError(f"{folder} must be a measured space ({SPACE} and {RESULTS}), but got {error}") from error
        found = (table.schema.metadata or {}).get(b"format", b"none").decode()
        if found != FORMAT:
            raise DatasetError(f"{folder / RESULTS} must be of format {FORMAT}, but got {found}")
        try:
            space = read_t1(folder / SPACE)
            named = {p.name: table[f"parameter.{p.name}"].to_pylist() for p in space.parameters}
            rows = space.choices(
                [dict(zip(named, values, strict=True)) for values in zip(*named.values(), strict=True)]
            )
            return MeasuredSpace(
                space,
                rows,
                [np.array(samples, np.float64) for samples in table["latencies"].to_pylist()],
                table["error"].to_pylist(),
                table["compile_seconds"].to_numpy(),
                table["other_seconds"].to_numpy(),
            )
        except (ValueError, KeyError) as error:
            raise DatasetError(f"{folder} must be a measured space, but {error}") from error
