"""Every peer computes what the workload says, in every variant it may be timed in."""

from __future__ import annotations

import itertools
from importlib import import_module

import numpy as np
import pytest

from benchmarks.peers import calls
from benchmarks.peers.base import PeerError, make_inputs
from search_space import workloads
from search_space.workloads import Workload

WORKLOADS = [
    workloads.conv2d(height=7, width=7, in_channels=16, out_channels=32, kernel=3, padding=1),
    workloads.conv2d(
        height=9,
        width=9,
        in_channels=3,
        out_channels=16,
        kernel=5,
        stride=2,
        padding=2,
        bias=True,
        activation="relu",
    ),
    workloads.depthwise_conv2d(1, 8, 8, 16, 3, 2, 1),
    workloads.conv2d_transpose(1, 5, 4, 8, 16, (3, 4), (2, 3), (1, 0), output_padding=(1, 2)),
    workloads.conv2d_transpose(1, 5, 4, 8, 16, 4, 2, 1, bias=True, activation="relu"),
    workloads.matmul(20, 6, 7),
    workloads.dense(1, 8, 5),
    workloads.dense(2, 8, 5, bias=True),
    workloads.softmax(4, 9),
    workloads.layer_norm(4, 9),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.key)
def test_torch(workload: Workload) -> None:
    pytest.importorskip("torch", reason="needs the package torch")
    import torch

    from benchmarks.peers.torch_peer import TorchPeer

    threads = torch.get_num_threads()
    try:
        variants = TorchPeer().prepare(workload, make_inputs(workload), 1, {})["variants"]
        for variant in variants:
            peer = TorchPeer()
            peer.prepare(workload, make_inputs(workload), 1, {"variant": variant})
            rtol, atol = workload.tolerance
            np.testing.assert_allclose(
                peer.output(), workload.reference(*make_inputs(workload)), rtol=rtol, atol=atol, err_msg=variant
            )
            assert (peer.time(4) > 0).all()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("peer", ["torch", "inductor"])
def test_other_types_are_refused(peer: str, dtype: str) -> None:
    """A comparison goes on without a peer that refuses; an array that PyTorch cannot take would end it."""
    pytest.importorskip("torch", reason="needs the package torch")
    module = import_module(f"benchmarks.peers.{peer}_peer")
    workload = workloads.matmul(20, 6, 7, dtype)
    with pytest.raises(PeerError, match="in float32, but got"):
        getattr(module, f"{peer.capitalize()}Peer")().prepare(workload, make_inputs(workload), 1, {})


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.key)
def test_openvino(workload: Workload) -> None:
    pytest.importorskip("openvino", reason="needs the package openvino")
    from benchmarks.peers.openvino_peer import OpenvinoPeer

    peer = OpenvinoPeer()
    assert peer.prepare(workload, make_inputs(workload), 1, {})["overhead"] > 0
    rtol, atol = workload.tolerance
    wanted = workload.reference(*make_inputs(workload))
    np.testing.assert_allclose(peer.output(), wanted, rtol=rtol, atol=atol)
    assert (peer.time(4) > 0).all()


@pytest.mark.parametrize("index", [1, 2, 5, 7])
def test_inductor(index: int) -> None:
    torch = pytest.importorskip("torch", reason="needs the package torch")
    from benchmarks.peers.inductor_peer import InductorPeer

    workload, threads = WORKLOADS[index], torch.get_num_threads()
    try:
        peer = InductorPeer()
        # Tuning all that it can takes seconds a layer.
        said = peer.prepare(workload, make_inputs(workload), 1, {"variant": "default"})
        assert list(said["variants"]) == ["default"]
        rtol, atol = workload.tolerance
        wanted = workload.reference(*make_inputs(workload))
        np.testing.assert_allclose(peer.output(), wanted, rtol=rtol, atol=atol)
        assert (peer.time(4) > 0).all()
    finally:
        torch.set_num_threads(threads)
        torch._dynamo.reset()


def test_what_an_empty_call_costs_is_that_of_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only calls move the clock: each costs 1 more than the last, and the real one 5 more than an empty one."""
    now, costs = [0.0], itertools.count(1.0)
    monkeypatch.setattr(calls.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(calls, "warm_up", lambda _: None)

    def took(more: float) -> None:
        now[0] += next(costs) + more

    found = calls.seconds_above(lambda: took(5.0), lambda: took(0.0), 4)
    assert found.tolist() == [3.5, 4.5, 5.5, 6.5]


def test_a_call_that_takes_no_longer_than_an_empty_one_takes_some_time() -> None:
    found = calls.seconds_above(lambda: None, lambda: None, 5)
    assert found.shape == (5,) and (found > 0).all()
