"""Load of a fleet's scheduler by simulated devices: the share of time that they work, and the driver's cost.

`python -m benchmarks.fleet --devices 1000 --seconds 1 --trials 60000` has trials ready. With `--search` they come from
a search over many tasks, and their records go to a file, as in the driver of a real run.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from autotune import config
from autotune.tuner.callbacks import Callback, Progress
from autotune.tuner.loop import run_rounds
from autotune.tuner.preparation import prepare_task
from autotune.tuner.settings import Settings
from autotune.tuner.task import Task
from benchmarks.simulated_fleet import SimulatedProvider
from measure.database import Database
from measure.fleet.pool import FleetPool
from measure.pool import Trial
from measure.record import Record
from search_space import workloads


@dataclass(frozen=True)
class Load:
    """Result of a load.

    Attributes:
        trials: number of measured trials.
        seconds: wall time, from the first trial submitted to the last result.
        busy_share: share of the devices' time that they were busy, in [0, 1].
        steady_share: busy share without start and end: each device's first and last trial are left out.
        driver_share: share of one core that this process used meanwhile; 1 is a complete core.
    """

    trials: int
    seconds: float
    busy_share: float
    steady_share: float
    driver_share: float


def make_trial(number: int) -> Trial:
    """Makes an artificial trial of the size of a real one."""
    steps = [
        {"step": "split", "stage": "C", "axis": f"i{place}", "factors": [number % 7, 2, 4], "tail": "exact"}
        for place in range(24)
    ]
    key = f"{number:064x}"
    return Trial({"operator": "fake", "args": {}}, "direct", steps, workload_key="fake", trace_key=key)


def load(devices: int, seconds: float, trials: int) -> Load:
    """Measures trials on simulated devices, always as many outstanding as the pool wants.

    Args:
        devices: number of devices.
        seconds: wall time of a trial.
        trials: number of trials; at least six for each device.
    """
    if trials < 6 * devices:
        raise ValueError(f"`trials` must be at least 6 for each device, but got trials={trials}, devices={devices}")
    table = {f"{number:064x}": 1e-3 + 1e-9 * number for number in range(trials)}
    provider = SimulatedProvider(devices, lambda trial: table[trial.trace_key], seconds, build_seconds=0.05 * seconds)
    with FleetPool([provider]) as pool:
        pool.warm_up(1)
        while pool.capacity < 2 * devices:
            time.sleep(0.001)
        submitted = done = 0
        marks: list[tuple[float, int]] = []  # wall time, trials done; while all devices have work
        start, cpu = time.perf_counter(), time.process_time()
        while done < trials:
            if (more := min(pool.capacity - pool.outstanding, trials - submitted)) > 0:
                pool.submit([make_trial(submitted + place) for place in range(more)])
                submitted += more
            for result in pool.results():
                assert result.seconds == table[result.trial.trace_key], result
                done += 1
            if 2 * devices <= done <= trials - 2 * devices:
                marks.append((time.perf_counter(), done))
        wall, used = time.perf_counter() - start, time.process_time() - cpu
    busy = sum(device.busy_seconds for device in provider.devices)
    (begin, before), (end, after) = marks[0], marks[-1]
    steady = (after - before) * seconds / (devices * (end - begin))
    return Load(trials, wall, busy / (devices * wall), steady, used / wall)


@dataclass(frozen=True)
class Search:
    """Result of a search on a fleet.

    Attributes:
        load: load of the search; `steady_share` is that of the middle half of the records.
        megabytes: memory of the process after a tenth, a quarter, a half, three quarters of the records and all of
            them.
    """

    load: Load
    megabytes: tuple[float, ...]


class _Marks(Callback):
    """Notes time and memory at some numbers of records."""

    def __init__(self, *records: int) -> None:
        self._records = set(records)
        self.seconds: dict[int, float] = {}
        self.bytes: dict[int, int] = {}

    def on_trial(self, progress: Progress, record: Record) -> None:
        if progress.trials in self._records:
            self.seconds[progress.trials] = time.perf_counter()
            gc.collect()
            self.bytes[progress.trials] = resident_bytes()


def search(devices: int, seconds: float, trials: int, tasks: int, file: Path) -> Search:
    """Searches at random for products of matrices on simulated devices.

    Args:
        devices: number of devices.
        seconds: wall time of a trial.
        trials: trials of all tasks together.
        tasks: number of tasks.
        file: file of the records.
    """
    settings = Settings(
        trials=trials // tasks,
        search=config.Search(strategy="random", batch=64, finalists=0),
        cost_model=config.Model(name="random"),
        measure=config.Measure(threads=2),
    )
    shapes = [workloads.matmul(256 + 32 * place, 512, 512) for place in range(tasks)]
    tunings = [prepare_task(Task(f"matmul{place}", shape), settings) for place, shape in enumerate(shapes)]
    total = trials // tasks * tasks
    quarter = total // 4
    counts = (total // 10, quarter, total // 2, 3 * quarter, total)
    marks = _Marks(*counts)
    provider = SimulatedProvider(devices, _latency, seconds, build_seconds=0.05 * seconds)
    with FleetPool([provider]) as pool, Database(file) as database:
        pool.warm_up(1)
        while pool.capacity < 2 * devices:
            time.sleep(0.001)
        start, cpu = time.perf_counter(), time.process_time()
        run_rounds(tunings, pool, database, [marks])
        wall, used = time.perf_counter() - start, time.process_time() - cpu
    busy = sum(device.busy_seconds for device in provider.devices) / (devices * wall)
    steady = 2 * quarter * seconds / (devices * (marks.seconds[3 * quarter] - marks.seconds[quarter]))
    return Search(Load(total, wall, busy, steady, used / wall), tuple(marks.bytes[at] * 1e-6 for at in counts))


def _latency(trial: Trial) -> float:
    return 1e-3 + int(trial.trace_key[:6], 16) * 1e-10


def resident_bytes() -> int:
    """Reads the memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


def main() -> None:
    """Prints the shares, and the memory of a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0, help="wall time of a trial")
    parser.add_argument("--trials", type=int, default=60000)
    parser.add_argument("--search", action="store_true", help="search, and write records, instead of ready trials")
    parser.add_argument("--tasks", type=int, default=64, help="of the search")
    options = parser.parse_args()
    if options.search:
        with TemporaryDirectory() as folder:
            records = Path(folder) / "records.jsonl"
            searched = search(options.devices, options.seconds, options.trials, options.tasks, records)
        result = searched.load
        print(f"memory at 10, 25, 50, 75, 100 %: {', '.join(f'{size:.0f}' for size in searched.megabytes)} MB")
    else:
        result = load(options.devices, options.seconds, options.trials)
    print(f"{options.devices} devices, {options.seconds:g} s a trial: {result.trials} trials in {result.seconds:.1f} s")
    print(f"busy share of the devices: {result.busy_share:.1%}, {result.steady_share:.1%} without start and end")
    cost = result.driver_share * result.seconds / result.trials
    print(f"driver: {result.driver_share:.2f} cores, {cost * 1e3:.2f} ms a trial")


if __name__ == "__main__":
    main()
