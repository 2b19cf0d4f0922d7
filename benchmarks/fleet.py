"""Keeps simulated devices busy through the scheduler of a fleet: what share of their time they work, what it costs.

`python -m benchmarks.fleet --devices 1000 --seconds 1 --trials 20000`
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from measure.fleet.pool import FleetPool
from measure.fleet.simulated import SimulatedProvider
from measure.pool import Trial


@dataclass(frozen=True)
class Load:
    """What a load came to.

    Attributes:
        trials: that were measured.
        seconds: wall time, from the first trial submitted to the last result.
        busy_share: of the devices' time, in [0, 1], over all of it.
        steady_share: the same without start and end: each device's first trial and its last one are left out.
        driver_share: of one core that this process used meanwhile; 1 is a whole core.
    """

    trials: int
    seconds: float
    busy_share: float
    steady_share: float
    driver_share: float


def trial_of(number: int) -> Trial:
    """A made-up trial, the size of a real one."""
    steps = [
        {"step": "split", "stage": "C", "axis": f"i{place}", "factors": [number % 7, 2, 4], "tail": "exact"}
        for place in range(24)
    ]
    key = f"{number:064x}"
    return Trial({"operator": "fake", "args": {}}, "direct", steps, workload_key="fake", trace_key=key)


def load(devices: int, seconds: float, trials: int) -> Load:
    """Measures trials on simulated devices, always as many outstanding as the pool wants.

    Args:
        devices: how many.
        seconds: wall time of a trial.
        trials: how many in all; at least six for each device.
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
                pool.submit([trial_of(submitted + place) for place in range(more)])
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


def main() -> None:
    """Prints the two shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0, help="wall time of a trial")
    parser.add_argument("--trials", type=int, default=30000)
    options = parser.parse_args()
    found = load(options.devices, options.seconds, options.trials)
    print(f"{options.devices} devices, {options.seconds:g} s a trial: {found.trials} trials in {found.seconds:.1f} s")
    print(f"busy share of the devices: {found.busy_share:.1%}, {found.steady_share:.1%} without start and end")
    cost = found.driver_share * found.seconds / found.trials
    print(f"driver: {found.driver_share:.2f} cores, {cost * 1e3:.2f} ms a trial")


if __name__ == "__main__":
    main()
