"""A dataset in memory: tasks, their measured programs as columns, and features that are computed on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import symbolic
from costmodel.dataset.errors import DatasetError
from costmodel.dataset.schema import COLUMNS, read_table, write_tables
from costmodel.features import FeatureExtractor
from costmodel.features.program import PROGRAM_NAMES, program_features
from costmodel.metrics import relative
from measure.errors import ErrorClass
from search_space import intrinsics  # noqa: F401  (makes instructions known by their names)
from search_space.extras import require
from search_space.hardware import Hardware
from search_space.ir.stmt import LoopProgram
from search_space.lower import lower
from search_space.schedule.state import initial_state
from search_space.schedule.trace import Trace
from search_space.workloads import Workload

if TYPE_CHECKING:
    import pandas as pd

Rows = NDArray[np.int64]
SHIPPED_DATASET = "shipped"
"""Name of the dataset in the package, which replaces a folder."""
_SHIPPED_FOLDER = Path(__file__).parent / "measured"


class Block(NamedTuple):
    """Features of the programs of one sketch.

    Attributes:
        rows: (n,) indices of the programs among those of their task.
        features: float32 (n, statements, features), see `costmodel.features.NAMES`.
    """

    rows: Rows
    features: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TaskData:
    """A measured workload and its machine. Tasks with equal keys are equal.

    Attributes:
        key: unique in a dataset: workload, target, machine, threads and cache state.
        name: readable name.
        workload: workload that is computed.
        target: name of the target.
        machine: processor and cores that it was measured on; empty for a simulated target.
        threads: number of threads that kernels ran on.
        cache: state of the caches in timing, `warm` or `network`.
        hardware: limits of the machine at the time of measurement; features depend on them.
        networks: network -> how often the task occurs in it; empty for an operator outside networks.
    """

    name: str
    workload: Workload
    target: str
    machine: str
    threads: int
    cache: str
    hardware: Hardware
    networks: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        return f"{self.workload.key} on {self.target} [{self.machine}], {self.threads} threads, {self.cache}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaskData) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"TaskData({self.key})"


@dataclass(frozen=True)
class SketchData:
    """A schedule whose numbers are decision variables.

    Attributes:
        name: name in its search space.
        algorithm: definition of the workload that is scheduled.
        steps: JSON of the symbolic trace.
        columns: names of the decision variables.
    """

    name: str
    algorithm: str
    steps: str
    columns: tuple[str, ...]

    def program(self, workload: Workload) -> LoopProgram:
        """Lowers the sketch to the loop program over the decision variables.

        Raises:
            DatasetError: the steps are not a schedule of the workload, or not a legal one any more.
        """
        trace = symbolic.from_text(self.steps)
        try:
            *inputs, output = workload.tensors(self.algorithm)
            return lower(trace.apply(initial_state([output], inputs=inputs)))
        except ValueError as error:
            raise DatasetError(
                f"a sketch must be a schedule of its workload, but {self.name} of {workload.key} is none: {error}"
            ) from error


@dataclass(frozen=True)
class Program:
    """One measured program.

    Attributes:
        sketch: index among the sketches of its task.
        values: values of the decision variables.
        latencies: float32 (samples,) seconds; empty on failure.
        error: class of the failure, or `ok`.
        origin: `random` or `search`.
        order: position among the trials of its search.
        seed: seed of its search, and of the inputs.
        digest: first 8 bytes of the key of the concrete trace.
    """

    sketch: int
    values: tuple[int, ...]
    latencies: NDArray[np.float32]
    error: str
    origin: str
    order: int
    seed: int
    digest: int

    @property
    def ok(self) -> bool:
        """True if it was measured and its output was right."""
        return self.error == ErrorClass.ok


def trace_digest(trace: Trace) -> int:
    """Returns the first 8 bytes of a concrete trace's key, as a signed number."""
    return int.from_bytes(bytes.fromhex(trace.key[:16]), "big", signed=True)


@dataclass
class TaskMeasurements:
    """Sketches and programs of one task; not modified any more once they are complete."""

    sketches: list[SketchData] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)

    def sketch(self, data: SketchData) -> int:
        """Returns the index of a sketch, which is added if it is new."""
        if data not in self.sketches:
            self.sketches.append(data)
        return self.sketches.index(data)


class Dataset:
    """Measured programs of many tasks.

    Args:
        measurements: sketches and programs of each task.

    Attributes:
        tasks: tasks in the order of the files.
    """

    def __init__(self, measurements: Mapping[TaskData, TaskMeasurements]) -> None:
        self._measurements = dict(measurements)
        self.tasks: tuple[TaskData, ...] = tuple(self._measurements)
        self._blocks: dict[TaskData, list[Block]] = {}

    @classmethod
    def open(cls, folder: str | Path) -> Dataset:
        """Reads the Parquet files of a dataset.

        Args:
            folder: folder of the files; `shipped` is the dataset in the package.

        Raises:
            DatasetError: the files do not exist, have another schema, or are damaged.
        """
        place = dataset_folder(folder)
        tables = {name: read_table(place, name) for name in COLUMNS}
        try:
            tasks = [task_from_json(row) for row in tables["tasks"].to_pylist()]
            measured = {task: TaskMeasurements() for task in tasks}
            if len(measured) != len(tasks):
                raise ValueError("a task stands in it twice")
            owners: list[tuple[TaskMeasurements, int]] = []
            for row in tables["sketches"].to_pylist():
                of = measured[tasks[row.pop("task")]]
                of.sketches.append(SketchData(**{**row, "columns": tuple(row["columns"])}))
                owners.append((of, len(of.sketches) - 1))
            _read_programs(tables["programs"], owners)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise DatasetError(f"{folder}: a dataset must be whole, but {error}") from error
        return cls(measured)

    def write(self, folder: str | Path) -> None:
        """Writes the Parquet files of the dataset; the same data give the same bytes."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        sketches = [(number, s) for number, task in enumerate(self.tasks) for s in self._measurements[task].sketches]
        first, programs, owners = 0, [], []
        for task in self.tasks:
            of = self._measurements[task]
            programs += of.programs
            owners += [first + program.sketch for program in of.programs]
            first += len(of.sketches)
        rows = [task_to_json(task) for task in self.tasks]
        rest = {table: [name for name in COLUMNS[table] if name not in ("task", "sketch")] for table in COLUMNS}
        write_tables(
            path,
            {
                "tasks": {name: [row[name] for row in rows] for name in rest["tasks"]},
                "sketches": {
                    "task": [number for number, _ in sketches],
                    **{name: [getattr(s, name) for _, s in sketches] for name in rest["sketches"]},
                },
                "programs": {
                    "sketch": owners,
                    **{name: [getattr(p, name) for p in programs] for name in rest["programs"]},
                },
            },
        )

    def task(self, key: str) -> TaskData:
        """Finds the task with a key.

        Raises:
            DatasetError: no task has this key.
        """
        found = next((task for task in self.tasks if task.key == key), None)
        if found is None:
            raise DatasetError(f"`key` must be of a task of the dataset, but got key={key!r}")
        return found

    def count(self, task: TaskData) -> int:
        """Counts the programs of a task, failures included."""
        return len(self.programs(task))

    def programs(self, task: TaskData) -> Sequence[Program]:
        """Lists the programs of a task; index i is row i of all other columns.

        Raises:
            DatasetError: the task is not in the dataset.
        """
        return self._get_measured(task).programs

    def sketches(self, task: TaskData) -> Sequence[SketchData]:
        """Lists the sketches of a task; `Program.sketch` is an index into them."""
        return self._get_measured(task).sketches

    def seconds(self, task: TaskData) -> NDArray[np.float64]:
        """Returns the fastest sample of each program, (programs,) seconds; NaN for a failure.

        Disturbances only make a timing longer. Minima of the two halves of a program's samples order more pairs of
        programs in the same way than medians do, see docs/cost_model_lab.md.
        """
        return np.array([_fastest(program) for program in self.programs(task)])

    def throughput(self, task: TaskData) -> NDArray[np.float64]:
        """Computes (programs,) best seconds / seconds, the target of cost models; 0 for a failure."""
        seconds = self.seconds(task)
        if not np.isfinite(seconds).any():
            return np.zeros(len(seconds))
        return relative(seconds)

    def origin(self, task: TaskData) -> NDArray[np.str_]:
        """Returns the origin of each program, (programs,) `random` or `search`."""
        return np.array([program.origin for program in self.programs(task)], dtype=np.str_)

    def errors(self, task: TaskData) -> NDArray[np.str_]:
        """Returns the outcome of each program, (programs,) class of the failure, or `ok`."""
        return np.array([program.error for program in self.programs(task)], dtype=np.str_)

    def features(self, task: TaskData) -> list[Block]:
        """Computes the features of all programs, failures included, in a block for each sketch, and caches them."""
        if task not in self._blocks:
            self._blocks[task] = list(self._evaluate(task, FeatureExtractor.__call__))
        return self._blocks[task]

    def roofline(self, task: TaskData) -> NDArray[np.float64]:
        """Computes (programs,) seconds that the roofline estimates."""
        seconds = np.empty(self.count(task))
        for rows, estimated in self._evaluate(task, FeatureExtractor.roofline):
            seconds[rows] = estimated
        return seconds

    def to_pandas(self, tasks: Iterable[TaskData] | None = None) -> pd.DataFrame:
        """Makes a table with a row for each program: its identity, its measurements, and its features by name.

        Columns are `task`, `sketch`, `algorithm`, `origin`, `error`, `seconds`, `throughput`, `roofline` (estimated
        seconds), and `costmodel.features.program.PROGRAM_NAMES`.

        Args:
            tasks: tasks of the dataset; all by default.

        Raises:
            MissingExtra: pandas is not installed.
        """
        require("a table of a dataset", "pandas")
        import pandas as pd

        frames = []
        for task in self.tasks if tasks is None else tasks:
            programs, sketches = self.programs(task), self.sketches(task)
            features = np.empty((len(programs), len(PROGRAM_NAMES)), np.float32)
            for block in self.features(task):
                features[block.rows] = program_features(block.features)[: len(PROGRAM_NAMES)].T
            about = {
                "task": task.name,
                "sketch": [sketches[program.sketch].name for program in programs],
                "algorithm": [sketches[program.sketch].algorithm for program in programs],
                "origin": self.origin(task),
                "error": self.errors(task),
                "seconds": self.seconds(task),
                "throughput": self.throughput(task),
                "roofline": self.roofline(task),
            }
            columns = dict(zip(PROGRAM_NAMES, features.T, strict=True))
            frames.append(pd.DataFrame({**about, **columns}))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def trace(self, task: TaskData, row: int) -> tuple[str, Trace]:
        """Returns algorithm and concrete trace of a program."""
        program = self.programs(task)[row]
        sketch = self.sketches(task)[program.sketch]
        values = dict(zip(sketch.columns, program.values, strict=True))
        return sketch.algorithm, symbolic.from_text(sketch.steps).substitute(values)

    def select(self, tasks: Iterable[TaskData | str]) -> Dataset:
        """Selects tasks, which are objects or keys; the new dataset shares features that were computed before.

        Raises:
            DatasetError: a task is not in the dataset.
        """
        chosen = [self.task(task if isinstance(task, str) else task.key) for task in tasks]
        other = Dataset({task: self._get_measured(task) for task in chosen})
        other._blocks = self._blocks
        return other

    def copy_measurements(self, task: TaskData) -> TaskMeasurements:
        """Returns copies of the lists of a task's sketches and programs, to build other datasets."""
        of = self._get_measured(task)
        return TaskMeasurements(list(of.sketches), list(of.programs))

    def __len__(self) -> int:
        """Counts the programs of all tasks, failures included."""
        return sum(len(of.programs) for of in self._measurements.values())

    def _get_measured(self, task: TaskData) -> TaskMeasurements:
        if task not in self._measurements:
            raise DatasetError(f"`task` must be one of the dataset, but got task={task!r}")
        return self._measurements[task]

    def _evaluate(
        self, task: TaskData, what: Callable[[FeatureExtractor, NDArray[np.float64]], NDArray[Any]]
    ) -> Iterable[Block]:
        sketches, programs = self.sketches(task), self.programs(task)
        places = np.array([program.sketch for program in programs])
        for number, sketch in enumerate(sketches):
            rows = np.flatnonzero(places == number)
            if not len(rows):
                continue
            columns = np.array([programs[row].values for row in rows.tolist()], np.float64).reshape(len(rows), -1).T
            lowered = sketch.program(task.workload)
            extractor = FeatureExtractor(lowered, sketch.columns, task.hardware, task.cache == "network", task.threads)
            yield Block(rows, what(extractor, columns))


def dataset_folder(folder: str | Path) -> Path:
    """Returns the folder of a dataset's files; `shipped` is the dataset in the package."""
    return _SHIPPED_FOLDER if str(folder) == SHIPPED_DATASET else Path(folder)


def _fastest(program: Program) -> float:
    return float(program.latencies.min()) if program.ok else float("nan")


def task_to_json(task: TaskData) -> dict[str, Any]:
    """Converts a task to a row of `tasks.parquet`."""
    return {
        **{name: getattr(task, name) for name in ("key", "name", "target", "machine", "threads", "cache")},
        "workload": json.dumps(task.workload.to_json(), separators=(",", ":")),
        "hardware": json.dumps(task.hardware.to_json(), separators=(",", ":")),
        "networks": sorted(task.networks.items()),
    }


def task_from_json(row: Mapping[str, Any]) -> TaskData:
    """Makes a task of a row that `task_to_json` wrote.

    Raises:
        ValueError: the key does not match the other fields; KeyError: a field is missing.
    """
    task = TaskData(
        row["name"],
        Workload.from_json(json.loads(row["workload"])),
        row["target"],
        row["machine"],
        row["threads"],
        row["cache"],
        Hardware.from_json(json.loads(row["hardware"])),
        dict(row["networks"]),
    )
    if task.key != row["key"]:
        raise ValueError(f"the key of a task must be {task.key!r}, but got {row['key']!r}")
    return task


def _read_programs(table: Any, owners: Sequence[tuple[TaskMeasurements, int]]) -> None:
    columns = {name: table.column(name).combine_chunks() for name in COLUMNS["programs"]}
    plain = {name: columns[name].to_pylist() for name in columns if name != "latencies"}
    latencies = columns["latencies"]
    ends, samples = latencies.offsets.to_numpy(), latencies.values.to_numpy()
    for number in range(len(table)):
        of, sketch = owners[plain["sketch"][number]]
        values = tuple(plain["values"][number])
        if len(values) != len(of.sketches[sketch].columns):
            raise ValueError(f"program {number} must have a value for each of {of.sketches[sketch].columns}")
        of.programs.append(
            Program(
                sketch,
                values,
                samples[ends[number] : ends[number + 1]],
                plain["error"][number],
                plain["origin"][number],
                plain["order"][number],
                plain["seed"][number],
                plain["digest"][number],
            )
        )
