"""ONNX Runtime as reference: it computes what the workload says, and its process answers or fails cleanly."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from autotune.graph import reference
from autotune.graph.reference import ReferenceFailure, ReferencePolicy, onnxruntime_seconds
from autotune.graph.single_op import UnsupportedOperator, blocked_op, single_op, with_weights_drawn
from search_space import workloads
from search_space.workloads import Workload

MISSING = "needs the package onnxruntime"
SMALL = workloads.conv2d(height=7, width=7, in_channels=16, out_channels=32, kernel=3, padding=1)
ALL = [
    SMALL,
    workloads.conv2d(
        height=9,
        width=7,
        in_channels=6,
        out_channels=8,
        kernel=(3, 1),
        stride=(2, 1),
        padding=(1, 0),
        groups=2,
        bias=True,
    ),
    workloads.conv2d(height=8, width=8, in_channels=4, out_channels=8, kernel=3, dilation=2, activation="relu"),
    workloads.depthwise_conv2d(1, 8, 8, 16, 3, 2, 1),
    workloads.conv2d_transpose(2, 5, 4, 3, 6, (3, 4), (2, 3), (1, 0), output_padding=(1, 2)),
    workloads.conv2d_transpose(1, 5, 4, 3, 6, 4, 2, 1, bias=True, activation="relu"),
    workloads.matmul(5, 6, 7),
    workloads.matmul(5, 6, 7, constant_b=False),
    workloads.dense(2, 8, 5, bias=True),
    workloads.softmax(4, 9),
    workloads.layer_norm(4, 9),
]


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.key)
def test_model_computes_the_workload(workload: Workload) -> None:
    ort = pytest.importorskip("onnxruntime", reason=MISSING)
    arrays = workload.make_inputs(0)
    op = single_op(workload, arrays)
    (output,) = ort.InferenceSession(op.model, providers=["CPUExecutionProvider"]).run(None, dict(op.feeds))
    assert output.shape == op.output_shape
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(op.restore(output), workload.reference(*arrays), rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "workload",
    [
        SMALL,
        workloads.conv2d(height=8, width=8, in_channels=3, out_channels=16, kernel=3, stride=2, padding=1, bias=True),
        workloads.conv2d(height=6, width=6, in_channels=32, out_channels=16, kernel=1),
        workloads.depthwise_conv2d(1, 8, 8, 32, 3, 2, 1),
    ],
    ids=lambda workload: workload.key,
)
def test_blocked_model_computes_the_workload(workload: Workload) -> None:
    ort = pytest.importorskip("onnxruntime", reason=MISSING)
    from autotune.graph.ort_runner import REFUSALS, channel_block

    arrays = workload.make_inputs(0)
    op = blocked_op(workload, arrays, channel_block())
    try:
        session = ort.InferenceSession(op.model, providers=["CPUExecutionProvider"])
    except REFUSALS:
        pytest.skip("this build of onnxruntime has no blocked layout")
    (output,) = session.run(None, dict(op.feeds))
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(op.restore(output), workload.reference(*arrays), rtol=rtol, atol=atol)


def test_channels_that_fill_no_block_have_no_blocked_model() -> None:
    workload = workloads.conv2d(height=6, width=6, in_channels=24, out_channels=40, kernel=1)
    with pytest.raises(UnsupportedOperator, match=r"multiples of 16 .* got \(40, 24\)"):
        blocked_op(workload, workload.make_inputs(0), 16)


def test_drawn_weights_differ_and_activations_stay() -> None:
    arrays = SMALL.make_inputs(0)
    drawn = with_weights_drawn(SMALL, arrays, np.random.default_rng(1))
    assert drawn[0] is arrays[0]
    assert drawn[1].shape == arrays[1].shape
    assert not np.array_equal(drawn[1], arrays[1])


@pytest.mark.parametrize("cache", ["warm", "network"])
def test_seconds_of_a_process_of_its_own(cache: str) -> None:
    pytest.importorskip("onnxruntime", reason=MISSING)
    policy = ReferencePolicy(budget_seconds=0.01, rotation_bytes=1 << 18)
    unsupported = workloads.matmul(8, 8, 8, dtype="int8")
    found = onnxruntime_seconds([SMALL, unsupported, workloads.dense(1, 64, 32)], 1, cache, policy)
    assert found[1] is None
    assert all(seconds is not None and np.isfinite(seconds) and seconds >= 1e-9 for seconds in (found[0], found[2]))


def test_nothing_is_started_for_no_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "Child", None)
    assert onnxruntime_seconds([], 2) == []


def test_missing_package_gives_none_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert onnxruntime_seconds([SMALL, SMALL], 2) == [None, None]
    assert "pip install 'autotune-tensor[onnx]'" in caplog.text


def test_dead_process_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PROGRAM", "tests.autotune.graph.no_such_program")
    with pytest.raises(
        ReferenceFailure, match=r"must answer, but it died \(exit code 1\): ModuleNotFoundError: .*no_such_program"
    ):
        onnxruntime_seconds([SMALL], 2)


def test_it_stops_when_it_is_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "PROGRAM", "tests.autotune.graph.idle")
    with pytest.raises(KeyboardInterrupt):
        onnxruntime_seconds([SMALL], 2, stop=lambda: True)


def test_time_out_is_an_error_that_says_how_long() -> None:
    pytest.importorskip("onnxruntime", reason=MISSING)
    with pytest.raises(ReferenceFailure, match=r"timeout=0.05 seconds"):
        onnxruntime_seconds([SMALL], 2, timeout=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": "cold"}, "`cache` must be 'warm' or 'network', but got cache='cold'"),
        ({"threads": 0}, "`threads` must be from 1 to .*, but got threads=0"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        onnxruntime_seconds([SMALL], **{"threads": 2, **options})


def test_policy_takes_ten_samples_at_least() -> None:
    with pytest.raises(ValueError, match="`samples` must be at least 10, but got samples=3"):
        ReferencePolicy(samples=3)
