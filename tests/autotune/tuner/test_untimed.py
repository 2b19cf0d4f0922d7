"""Schedules chosen without trials. The roofline passes over a schedule without lowering it only if it would not choose
it; a model chooses among those that the roofline thinks little worse.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.config import ConfigError, Model
from autotune.tuner import untimed
from autotune.tuner.database import Entry
from autotune.tuner.database.projection import project
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from costmodel.features import SECONDS, FeatureExtractor
from costmodel.features.estimators import cpu
from costmodel.features.estimators.least import least_seconds
from costmodel.models.errors import CostModelError
from costmodel.models.roofline import RooflineModel
from costmodel.pretrained import open_pretrained
from search_space import te, workloads
from search_space.ir.stmt import For, walk_stmt
from search_space.operators.base import LIBRARY
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from tests.autotune.fakes import settings_with
from tests.gpu import candidates

SETTINGS = settings_with(threads=2, cache="network", seed=5)
HARDWARE = registry.get("cpu:znver4").hardware


def conv(size: int, channels: int, filters: int, kernel: int, stride: int = 1, dtype: str = "float32") -> Workload:
    return workloads.conv2d(
        1, size, size, channels, filters, kernel=(kernel, kernel), stride=(stride, stride), padding=kernel // 2,
        dtype=dtype,
    )  # fmt: skip


WORKLOADS = {
    "window": conv(14, 64, 64, 3),
    "few pixels": conv(7, 128, 128, 3),
    "strided": conv(14, 32, 32, 3, 2),
    "one by one": conv(14, 64, 64, 1),
    "bfloat16": conv(14, 32, 32, 3, dtype="bfloat16"),
    "matmul": Workload("matmul", {"m": 64, "n": 96, "k": 80}),
    "matmul of weights": Workload("matmul", {"m": 1, "n": 1000, "k": 512, "constant_b": True}),
    "batch_matmul": Workload("batch_matmul", {"batch": 2, "m": 32, "n": 32, "k": 24}),
    "softmax": workloads.softmax(64, 128),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_candidate_is_estimated_below_the_least(name: str) -> None:
    workload = WORKLOADS[name]
    for algorithm in workload.algorithms:
        for sketch in generate(workload, HARDWARE, [algorithm]).sketches[::4]:
            rows = sketch.expand(candidates.legal(sketch, 96, 1))
            for cold in (False, True):
                least = least_seconds(workload.tensors(algorithm), HARDWARE, cold)
                estimated = FeatureExtractor(sketch.program, sketch.columns, HARDWARE, cold).roofline(rows)
                assert estimated.min() >= least * (1 - 1e-6), (algorithm, sketch.name, cold)


def test_the_least_counts_products_and_the_weights_of_an_algorithm() -> None:
    workload = WORKLOADS["few pixels"]
    found = {a: least_seconds(workload.tensors(a), HARDWARE, False) for a in ("direct", "winograd2", "winograd4")}
    assert found["direct"] == pytest.approx(workload.flops / HARDWARE.peak_flops, rel=0.01)
    tiles = {"winograd2": 4 * 4 * 16, "winograd4": 2 * 2 * 36}
    for name, products in tiles.items():
        assert found[name] == pytest.approx(2 * products * 128 * 128 / HARDWARE.peak_flops)
    cold = {a: least_seconds(workload.tensors(a), HARDWARE, True) for a in found}
    assert cold["winograd4"] > cold["winograd2"]  # of so few pixels the weights decide
    assert least_seconds(workload.tensors("direct"), registry.get("cuda:sm_90").hardware, True) == 0
    assert least_seconds(WORKLOADS["softmax"].tensors("direct"), HARDWARE, True) == 0


def test_a_table_that_rows_are_taken_from_is_not_read_whole() -> None:
    table, ids = te.placeholder((1000, 16), name="table", constant=True), te.placeholder((4,), "int64", "ids")
    weights, k = te.placeholder((16, 8), name="weights", constant=True), te.reduce_axis((0, 16), "k")

    def row(i: Any, j: Any) -> Any:
        return te.sum(table[te.minimum(te.maximum(ids[i], 0), 999), k] * weights[k, j], k)

    rows = te.compute((4, 8), row, name="rows")
    least = least_seconds([table, ids, weights, rows], HARDWARE, True)
    assert least < 1000 * 16 * 4 / HARDWARE.bandwidth / 10


@pytest.mark.parametrize("name", ["window", "strided", "matmul of weights"])
def test_the_choice_is_the_same_where_nothing_is_passed_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, asked = Task("kernel", WORKLOADS[name]), []
    generated = untimed.generate

    def note_algorithms(workload: Workload, hardware: Any, algorithms: Any) -> Any:
        asked.extend(algorithms)
        return generated(workload, hardware, algorithms)

    monkeypatch.setattr(untimed, "generate", note_algorithms)
    chosen = select_by_roofline(task, SETTINGS, hardware=HARDWARE)
    some = list(asked)
    least = untimed.least_seconds
    # all are sampled, in the same order
    monkeypatch.setattr(untimed, "least_seconds", lambda *given: least(*given) * 1e-9)
    assert select_by_roofline(task, SETTINGS, hardware=HARDWARE) == chosen
    assert set(some) <= set(asked[len(some) :]) == set(task.workload.algorithms) - {LIBRARY}
    if name == "window":
        assert len(some) < len(asked) - len(some)  # Winograd's few products are not met by others


def test_an_algorithm_whose_every_candidate_spills_is_held_against_those_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, spilling = Task("kernel", WORKLOADS["window"]), ""

    def spills(one: Any, target: Any, name: str | None) -> tuple[float, None]:
        return (100.0 if one.sketch.algorithm == spilling else 0.0), None

    monkeypatch.setattr(untimed, "_compute_spills", spills)
    fast = select_by_roofline(task, SETTINGS, hardware=HARDWARE)
    spilling = fast.algorithm
    found = select_by_roofline(task, SETTINGS, hardware=HARDWARE)
    assert found.algorithm != fast.algorithm
    assert found.seconds > fast.seconds


def test_no_legal_candidate_of_any_algorithm_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Any, choices: Any) -> Any:
        return np.zeros(len(choices), bool)

    monkeypatch.setattr("search_space.space.Sketch.legal", none)
    with pytest.raises(ConfigError, match="must have at least one legal schedule, but got none among"):
        select_by_roofline(Task("kernel", WORKLOADS["matmul"]), SETTINGS)


class Pushing(RooflineModel):
    """A model that likes what the roofline does not."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        return features[:, 0, SECONDS].astype(np.float64)


def test_a_model_chooses_among_those_that_the_roofline_puts_near_its_best() -> None:
    task = Task("kernel", WORKLOADS["window"])
    least = select_by_roofline(task, SETTINGS, hardware=HARDWARE)
    found = untimed.select_by_model(task, SETTINGS, hardware=HARDWARE, model=Pushing())
    assert least.seconds * 1.05 < found.seconds <= least.seconds * untimed.NEAR


def test_schedules_of_like_workloads_join_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that likes one of them chooses it, however the roofline thinks of it."""
    task, other = Task("kernel", WORKLOADS["matmul"]), Workload("matmul", {"m": 64, "n": 128, "k": 80})
    space = generate(other, HARDWARE, ["direct"])
    sketch = space.sketches[-1]
    some = candidates.legal(sketch, 64, 3)
    slow = FeatureExtractor(sketch.program, sketch.columns, HARDWARE).roofline(sketch.expand(some)).argmax()
    choices = some[slow]
    entry = Entry(other.to_json(), "cpu", 16, 2, "network", sketch.name, sketch.values(choices), 1e-3)
    own = project(entry, generate(task.workload, HARDWARE, ["direct"]))
    assert own is not None
    wanted = generate(task.workload, HARDWARE, ["direct"]).sketches[own.sketch].trace(own.choices)
    found = untimed.select_by_model(
        task,
        SETTINGS,
        hardware=HARDWARE,
        model=Pushing(),
        like=[entry],
    )
    without = untimed.select_by_model(task, SETTINGS, hardware=HARDWARE, model=Pushing())
    assert found.seconds > without.seconds
    assert found.trace == wanted


def test_without_trials_the_pretrained_model_of_the_settings_is_asked(tmp_path: Path) -> None:
    task = Task("kernel", WORKLOADS["strided"])
    plain = replace(SETTINGS, cost_model=Model(pretrained="none"))
    assert untimed.select_without_trials(task, plain, hardware=HARDWARE) == select_by_roofline(
        task, plain, hardware=HARDWARE
    )
    model = open_pretrained("shipped", "cpu")
    expected = untimed.select_by_model(task, SETTINGS, hardware=HARDWARE, model=model)
    alone = SETTINGS.searching(database="none")
    assert untimed.select_without_trials(task, alone, hardware=HARDWARE) == expected
    with pytest.raises(CostModelError, match="must be shipped, none or a file"):
        untimed.select_without_trials(task, replace(SETTINGS, cost_model=Model(pretrained=str(tmp_path / "no.npz"))))


@pytest.mark.parametrize("threads", [1, 2])
def test_estimates_go_by_the_threads_that_a_kernel_runs_on(threads: int) -> None:
    settings, task = settings_with(threads=threads, cache="network", seed=5), Task("kernel", WORKLOADS["window"])
    cores = replace(HARDWARE, cores=threads, peak_flops=HARDWARE.peak_flops / HARDWARE.cores * threads)
    many = replace(cores, cores=8, peak_flops=cores.peak_flops / threads * 8, bandwidth=cores.bandwidth / threads * 8)
    found = select_by_roofline(task, settings, hardware=many)
    assert found.seconds >= least_seconds(task.workload.tensors(found.algorithm), cores, False)
    assert many.on(threads) == replace(cores, bandwidth=many.bandwidth / 8 * threads)
    assert many.on(None) == many.on(8) == many.on(9) == many
    gpu = registry.get("cuda:sm_90").hardware
    assert gpu.on(1) == gpu


@pytest.mark.parametrize("model", [None, RooflineModel()], ids=["roofline", "model"])
def test_of_equal_candidates_one_with_more_iterations_is_chosen(
    model: RooflineModel | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late core then holds up the others for less time."""

    def choose(late: float, columns: int) -> int:
        monkeypatch.setattr(cpu, "LATE", late)
        task = Task("product", workloads.dense(256, 256, columns))
        chosen = untimed.select_by_model(task, SETTINGS, ["direct"], hardware=HARDWARE, model=model)
        program = make_program(chosen.workload, chosen.schedule.algorithm, chosen.schedule.trace)
        loops = [s for s in walk_stmt(program.body) if isinstance(s, For) and s.kind == "parallel"]
        return min(int(loop.extent.value) for loop in loops)

    # Other sizes are other programs, whose estimates are not cached.
    assert choose(0.0, 512) < choose(10.0, 768)
