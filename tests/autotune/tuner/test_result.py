"""Results, their table and their curve; and kernels of hand-written schedules."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import autotune
from autotune.report.terminal import print_results
from autotune.run.folder import draw_curves, summary
from autotune.run_files import set_aside, write_json
from autotune.tuner.loop import run_rounds
from autotune.units import latency
from measure.outcome import Outcome
from measure.pool import Trial, TrialResult
from measure.provenance import Provenance
from measure.record import Record
from search_space import te, workloads
from search_space.space import generate
from targets import registry
from tests.autotune import fakes


def print_to_text(results, references):
    stream = io.StringIO()
    print_results(Console(file=stream, width=160), results, references, 2.0)
    return stream.getvalue()


@pytest.fixture(scope="module")
def results():
    space = fakes.space()
    tasks = [fakes.tuning(space, name=name, trials=16) for name in ("one", "two")]
    return run_rounds(tasks, fakes.FakePool(space))


def test_the_table_has_a_row_a_task_and_their_weighted_sum(results):
    text = print_to_text(results, [2e-3, 3e-3])
    assert "one" in text and "two" in text and "weighted sum" in text
    ours = sum(result.best_seconds for result in results)
    assert latency(ours) in text and "5.000 ms" in text and f"{5e-3 / ours:.2f}x" in text
    assert "32 trials in" in text and "search" in text and "measure" in text


def test_a_result_is_shown_in_a_few_lines_and_as_a_table_in_notebooks(results):
    lines = repr(results[0]).splitlines()
    assert lines[0] == "TuneResult of one: fake(name=fake)" and len(lines) == 5 and max(map(len, lines)) <= 120
    assert latency(results[0].best_seconds) in lines[1] and "GFLOP/s" in lines[2] and lines[4] == "  trials: 16"
    (failed,) = run_rounds([fakes.tuning(fakes.space())], fakes.FakePool(fakes.space(), fails=lambda trial: True))
    assert "best: nothing works: a task must have a candidate that works" in repr(failed)
    assert "failed: 40 wrong_output" in repr(failed) and "40 wrong_output" in failed._repr_html_()
    html = replace(results[0], name="<b>", workload=fakes.FakeWorkload("x" * 500))._repr_html_()
    assert "<table>" in html and "&lt;b&gt;" in html and "<b>" not in html and "x" * 101 not in html


def test_shares_of_peak_count_what_the_algorithm_computes(results):
    class Saving(fakes.FakeWorkload):
        def count_flops(self, algorithm: str) -> float:
            return self.flops / 4

    plain, saving = results[0], replace(results[0], workload=Saving())
    assert not plain.effective and saving.effective
    assert saving.gflops == plain.gflops and saving.peak_share == pytest.approx(plain.peak_share / 4)
    assert "GFLOP/s effective" in repr(saving) and "effective" not in repr(plain)
    assert f"{saving.gflops:.1f} eff." in print_to_text([saving], [None]) and " eff." not in print_to_text(
        [plain], [None]
    )


def test_a_missing_reference_leaves_the_sum_without_one(results):
    text = print_to_text(results, [2e-3, None])
    assert "2.000 ms" in text and "x" not in text.splitlines()[-3].replace("exact", "")


def test_a_problem_is_told_below_the_table():
    barren = run_rounds([fakes.tuning(fakes.barren())], fakes.FakePool(fakes.barren()))
    assert "registers failed for" in print_to_text(barren, [None])
    assert math.isnan(barren[0].best_seconds)


def test_the_curve_is_drawn_also_where_nothing_worked(results, tmp_path):
    space = fakes.space()
    failed = run_rounds([fakes.tuning(space)], fakes.FakePool(space, fails=lambda trial: True))
    for name, drawn in (("some", results), ("none", failed)):
        draw_curves(drawn, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_spread_of_more_than_the_median_twice_is_drawn(tmp_path):
    timed = {"finals": [1], "best": object(), "gflops": 2.0, "spread": 2.5}
    noisy = SimpleNamespace(name="a", workload=SimpleNamespace(flops=1), curve=np.ones(3), **timed)
    draw_curves([noisy], tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_earlier_records_are_kept(tmp_path):
    path = tmp_path / "records.jsonl"
    assert set_aside(path) is None
    for number in (1, 2):
        path.write_text(f"{number}\n")
        assert set_aside(path) == tmp_path / f"records.{number}.jsonl"
    assert (tmp_path / "records.1.jsonl").read_text() == "1\n" and not path.exists()


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.json"
    path.write_text("old")
    with pytest.raises(ValueError, match="Out of range float"):
        write_json({"a": math.nan}, path)
    assert path.read_text() == "old"
    write_json({"a": None}, path)
    assert Path(path).read_text() == '{\n  "a": null\n}\n' and len(list(tmp_path.iterdir())) == 1


def test_the_best_kernel_runs():
    workload = workloads.matmul(16, 32, 8)
    hardware = registry.get("cpu").hardware
    sketch = generate(workload, hardware).sketches[0]
    rows = np.zeros((1, len(sketch.groups)), np.int32)
    trial = Trial.of(workload, sketch.algorithm, sketch.trace(rows[0]))
    record = Record.of(TrialResult(trial, 0, Outcome((1e-6,), 1e-6, spread=0.0, max_error=0.0)), Provenance(time=0.0))
    result = autotune.TuneResult("one", workload, "cpu", hardware, 1, 1, "warm", 0, (record,))
    rng = np.random.default_rng(0)
    a, b = rng.random((16, 8), np.float32), rng.random((8, 32), np.float32)
    np.testing.assert_allclose(result.kernel(a, b), a @ b, rtol=1e-5)
    out = np.empty((16, 32), np.float32)
    assert result.kernel(a, b, out) is out
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
    with pytest.raises(ValueError, match="`arrays` must be 2 inputs, .* but got 1 arrays"):
        result.kernel(a)
    assert str(result.trace) == str(sketch.trace(rows[0]))


def product():
    a, b = te.placeholder((8, 16), name="a"), te.placeholder((16, 24), name="b")
    k = te.reduce_axis((0, 16))
    c = te.compute((8, 24), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return a, b, c


def test_a_hand_written_schedule_is_lowered_and_built():
    a, b, c = product()
    schedule = te.create_schedule(c.op)
    _, inner = schedule[c].split(schedule[c].op.axis[1], factor=8)
    schedule[c].vectorize(inner)
    text = str(autotune.lower(schedule, [a, b, c]))
    assert "vectorize for" in text and text.startswith("kernel(a: float32[8, 16]")
    kernel = autotune.build(schedule, [a, b, c], target="cpu")
    taken, given = "a float32 (8, 16), b float32 (16, 24)", "c float32 (8, 24)"
    assert repr(kernel).endswith(f"kernel for cpu: {taken} -> {given}") and len(repr(kernel.module)) < 1000
    rng = np.random.default_rng(0)
    x, y = rng.random((8, 16), np.float32), rng.random((16, 24), np.float32)
    out = np.empty((8, 24), np.float32)
    kernel(x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5)


def test_tensors_are_checked_and_their_order_kept():
    a, b, c = product()
    schedule = te.create_schedule(c.op)
    assert [p.name for p in autotune.lower(schedule, [b, a, c]).params] == ["b", "a", "c"]
    with pytest.raises(ValueError, match="`tensors` must be a, b, c, but got a, c"):
        autotune.lower(schedule, [a, c])


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError, match="module 'autotune' has no attribute 'tun'"):
        autotune.tun  # noqa: B018


def test_the_document_holds_each_task(results):
    from autotune.config import check_config

    config = check_config({"name": "x", "model": "resnet50"}, "x.yaml")
    document = summary(config, results, [1e-3, None])
    assert [task["reference"] for task in document["tasks"]] == ["onnxruntime", None]
    assert document["config"]["name"] == "x" and document["schema"] == "autotune.summary/1"
    assert all(np.isfinite(task["candidates_per_second"] or 0) for task in document["tasks"])
