"""Gradients in the operators' table: every kind is the gradient of PyTorch, and rows have names of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the package torch")

import torch

from benchmarks.gradients import GRADIENT_ROWS, KINDS
from benchmarks.peers.base import Peer, make_inputs
from benchmarks.peers.gradient_calls import check_gradient, list_calls
from benchmarks.peers.inductor_peer import InductorPeer
from benchmarks.peers.torch_peer import TorchPeer
from search_space import workloads
from search_space.workloads import Workload

FORWARD = {
    "dense": workloads.dense(5, 6, 7),
    "conv": workloads.conv2d(2, 8, 8, 4, 6, 3, 2, 1, groups=2),
    "depthwise": workloads.depthwise_conv2d(2, 8, 8, 4, 3, 2, 1),
    "transposed": workloads.conv2d_transpose(2, 4, 4, 3, 5, 2, 2),
}
SMALL: list[dict[str, Any]] = [
    {"kind": "operator", "args": {"forward": forward.to_json(), "of": of}}
    for forward in FORWARD.values()
    for of in ("data", "weight")
]
SMALL += [
    {"kind": kind, "args": {"rows": 6, "length": 10}} for kind in ("softmax", "layer_norm_data", "layer_norm_scale")
]
IMAGES = {"batch": 2, "size": 8, "channels": 4}
SMALL += [{"kind": kind, "args": IMAGES} for kind in ("batch_norm", "max_pool_indices", "max_pool_data")]


@pytest.mark.parametrize("gradient", SMALL, ids=lambda g: f"{g['kind']} {g['args'].get('of', '')}")
def test_every_kind_is_the_gradient_of_pytorch_in_every_layout(gradient: dict[str, Any]) -> None:
    workload = Workload.of(KINDS[gradient["kind"]](**gradient["args"]))
    arrays = make_inputs(workload, options={"gradient": gradient})
    calls = list_calls(gradient, [torch.from_numpy(array) for array in arrays])
    for call in calls.values():
        check_gradient(call, workload, arrays)
        assert np.abs(call.output()).max() > 0
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_gradient(call, workload, [2 * array if array.dtype == np.float32 else array for array in arrays])


@pytest.mark.parametrize(
    ("peer", "gradient", "options", "variants"),
    [
        (TorchPeer, SMALL[3], {}, {"plain", "channels_last"}),
        (InductorPeer, SMALL[8], {}, {"default plain", "max-autotune plain"}),
    ],
)
def test_peers_time_every_way_to_compute_a_gradient(
    peer: type[Peer],
    gradient: dict[str, Any],
    options: dict[str, Any],
    variants: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inductor itself is replaced by eager PyTorch, since it takes seconds to compile."""
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)
    threads = torch.get_num_threads()
    workload = Workload.of(KINDS[gradient["kind"]](**gradient["args"]))
    arrays = make_inputs(workload, options={"gradient": gradient})
    try:
        runtime = peer()
        facts = runtime.prepare(workload, arrays, 1, {"gradient": gradient, **options})
        assert set(facts["variants"]) == variants
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(runtime.output(), workload.reference(*arrays), rtol=rtol, atol=atol)
        assert (runtime.time(4) > 0).all()
    finally:
        torch.set_num_threads(threads)
        torch._dynamo.reset()


def test_gradient_rows_have_names_of_their_own_and_count_the_operators_operations() -> None:
    assert len({row.name for row in GRADIENT_ROWS}) == len(GRADIENT_ROWS) == 28
    rows = {row.name: row for row in GRADIENT_ROWS}
    assert {row.options["gradient"]["kind"] for row in GRADIENT_ROWS} == set(KINDS)
    strided = rows["d_data_conv3x3_28_128_128_s2"]
    assert strided.forward is not None and strided.forward().flops == 2 * 8 * 14 * 14 * 128 * 128 * 9
    assert not any(spec.constant for row in GRADIENT_ROWS[:3] for spec in row.make().inputs)
