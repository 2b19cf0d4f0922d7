"""Workloads of tfloat32: the rounding, and what is left exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.graph.single_op import UnsupportedOperator, single_op
from search_space import te, workloads
from search_space.dtypes import round_tfloat32
from search_space.lower import lower
from search_space.schedule.state import initial_state
from search_space.space import unscheduled_state
from search_space.workloads import Workload
from targets.cuda.kernels import device_program
from targets.registry import get
from tests.properties.running import run_compiled, run_interpreter
from tests.targets.cuda.emulator import emulate
from tests.targets.cuda.programs import LIMITS

SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(SINGLES)
def test_the_nearest_number_of_ten_bits_is_chosen_and_ties_go_away_from_zero(x: float) -> None:
    """The reference is arithmetic in float64: the neighbours in units of the last place that stays."""
    exponent = max(int(np.frexp(x)[1]) - 1, -126) if x else -126
    unit = 2.0 ** (exponent - 10)
    whole = np.floor(abs(x) / unit + 0.5) * unit
    wanted = np.copysign(whole if whole < 2.0**128 else np.inf, x)
    assert float(round_tfloat32(x)) == wanted


def singles(count: int = 4096) -> NDArray[np.float32]:
    """Returns numbers of all sizes, ties, infinities and NaN; NaN with every bit set overflows where bits are added."""
    bits = np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32)
    bits[:256] = bits[:256] & 0xFFFFE000 | 0x1000
    bits[256:262] = (0xFFFFFFFF, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x80000000)
    return bits.view(np.float32)


def test_what_is_rounded_stays_and_every_target_rounds_alike() -> None:
    x = singles()
    wanted = round_tfloat32(x)
    np.testing.assert_array_equal(round_tfloat32(wanted), wanted)
    assert np.isnan(wanted[256:258]).all() and (wanted[258:261] == [np.inf, -np.inf, np.inf]).all()
    assert wanted[261] == 0 and np.signbit(wanted[261])
    source = te.placeholder(x.shape, name="x")
    rounded = te.compute(x.shape, lambda i: te.tfloat32(source[i]), name="y")
    program = lower(initial_state([rounded]))
    found = [run(program, {"x": x})["y"] for run in (run_interpreter, lambda p, a: run_compiled(get("cpu"), p, a))]
    for out in (*found, emulate(device_program(program, LIMITS), {"x": x})["y"]):
        np.testing.assert_array_equal(out, wanted)


def of_every_operator(dtype: str) -> list[Workload]:
    return [
        workloads.matmul(m=6, n=5, k=9, dtype=dtype),
        workloads.batch_matmul(batch=2, m=3, n=4, k=5, dtype=dtype),
        workloads.dense(batch=2, in_features=7, out_features=5, bias=True, dtype=dtype),
        workloads.conv2d(1, 4, 4, 3, 4, 3, 1, 1, dtype=dtype),
        workloads.depthwise_conv2d(1, 4, 4, 3, 3, 1, 1, dtype=dtype),
        workloads.conv2d_transpose(1, 3, 3, 2, 4, 3, 2, dtype=dtype),
    ]


def test_references_round_factors_and_nothing_else_does() -> None:
    for rounding, exact in zip(of_every_operator("tfloat32"), of_every_operator("float32"), strict=True):
        inputs = rounding.make_inputs(0)
        factors = [round_tfloat32(a) if i < 2 else a for i, a in enumerate(inputs)]
        found, wanted = rounding.reference(*inputs), exact.reference(*factors)
        np.testing.assert_array_equal(found, wanted)
        rtol, atol = rounding.tolerance
        assert (rtol, atol) <= exact.tolerance and rounding.key != exact.key
        assert not np.allclose(found, exact.reference(*inputs), rtol=rtol, atol=atol)


def test_what_is_exact_is_not_compared_with_it() -> None:
    workload = workloads.matmul(m=4, n=4, k=4, dtype="tfloat32")
    with pytest.raises(
        UnsupportedOperator, match="`dtype` must be float32 for the reference, but got float32, tfloat32"
    ):
        single_op(workload, workload.make_inputs(0))


def test_a_cpu_computes_it_too() -> None:
    for workload in of_every_operator("tfloat32"):
        inputs = workload.make_inputs(1)
        named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
        out = run_compiled(get("cpu"), lower(unscheduled_state(workload, "direct")), named)[workload.output.name]
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(out, workload.reference(*inputs), rtol=rtol, atol=atol)


def test_no_algorithm_changes_what_is_rounded() -> None:
    """Transforms of Winograd's algorithm would round sums of inputs; libraries round nothing."""
    assert set(workloads.conv2d(1, 8, 8, 4, 4, 3, 1, 1, dtype="tfloat32").algorithms) == {"direct", "im2col"}
