"""The roofline knows a bad tiling from a good one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from costmodel.features import FeatureExtractor
from costmodel.features.estimators.cpu import LATE
from search_space import workloads
from search_space.hardware import CpuRates
from search_space.ir.stmt import LoopProgram
from search_space.space import generate
from tests.costmodel.programs import HARDWARE, MATMUL_COLUMNS, matmul

SIZE = 512
GOOD = (14, 2, 8)
BAD = {
    "one accumulator waits for itself": (1, 1, 8),
    "two accumulators still wait": (2, 1, 8),
    "accumulators spill": (28, 8, 8),
    "every step pays for its loop": (2, 2, 1),
    "tiles overlap": (300, 1, 8),
    "no work for the second core": (512, 1, 8),
}


def seconds(*row: int, program: object = None, hardware: object = HARDWARE) -> float:
    extractor = FeatureExtractor(program or matmul(SIZE, SIZE, SIZE), MATMUL_COLUMNS, hardware)  # type: ignore[arg-type]
    return float(extractor.roofline(np.array(row, float)[:, None])[0])


def test_a_good_tile_is_near_the_peak_and_not_above() -> None:
    ideal = 2 * SIZE**3 / HARDWARE.peak_flops
    assert ideal <= seconds(*GOOD) < 2 * ideal


@pytest.mark.parametrize("reason", BAD)
def test_bad_tiles_come_last(reason: str) -> None:
    good = [seconds(*row) for row in (GOOD, (12, 2, 4), (6, 4, 8), (8, 3, 8))]
    assert seconds(*BAD[reason]) > max(good)


def test_a_tile_that_loads_for_each_product_is_slower_than_its_ports() -> None:
    # 15 loads of 14 products against 8 of 12: both ports are busy all the time, where one has room
    narrow = dataclasses.replace(HARDWARE, vector_registers=16)
    program = matmul(SIZE, SIZE, 256)  # its panels of weights stay in the first-level cache
    column, block = (seconds(*row, program=program, hardware=narrow) for row in ((14, 1, 8), (6, 2, 8)))
    assert column > 1.08 * block


def test_work_done_twice_is_counted() -> None:
    exact, wasteful = seconds(16, 1, 8), seconds(15, 1, 8)  # 512 = 32 x 16; 35 x 15 = 525
    assert wasteful > exact


def test_more_cores_help_only_parallel_loops() -> None:
    wide = dataclasses.replace(HARDWARE, cores=8, peak_flops=HARDWARE.peak_flops * 4)
    assert seconds(*GOOD, hardware=wide) < seconds(*GOOD) / 3
    alone = matmul(SIZE, SIZE, SIZE, parallel="serial")
    assert seconds(*GOOD, program=alone, hardware=wide) == pytest.approx(seconds(*GOOD, program=alone), rel=0.01)
    assert seconds(*GOOD, program=alone) > 1.8 * seconds(*GOOD)


def disturbance(*row: int, threads: int = 2, parallel: str = "parallel") -> float:
    program = matmul(SIZE, SIZE, SIZE, parallel=parallel)
    extractor = FeatureExtractor(program, MATMUL_COLUMNS, HARDWARE, False, threads)
    return float(extractor.disturbance(np.array(row)[:, None])[0])


def test_a_loop_of_few_iterations_waits_for_a_late_core() -> None:
    shares = [disturbance(rows, 1, 8) - 1 for rows in (256, 128, 16)]  # 2, 4 and 32 iterations
    assert shares == pytest.approx([LATE, LATE / 2, LATE / 16], abs=1e-6)
    assert disturbance(512, 1, 8) == 1, "one iteration has no other core to wait for"
    assert disturbance(256, 1, 8, threads=1) == 1
    assert disturbance(256, 1, 8, parallel="serial") == 1


def test_an_uneven_share_of_the_cores_costs() -> None:
    # 2 parallel tiles of 256 rows on 2 cores against 3 of 171: the third waits.
    assert seconds(171, 1, 8) > 1.2 * seconds(256, 1, 8)


def test_cold_constants_come_from_memory() -> None:
    plain = matmul(8, 4096, 4096)
    weights = dataclasses.replace(plain.params[1], constant=True)
    cold = dataclasses.replace(plain, params=(plain.params[0], weights, plain.params[2]))
    huge = dataclasses.replace(HARDWARE, l3_bytes=1 << 30)

    def estimate(program: LoopProgram, cold_constants: bool) -> float:
        extractor = FeatureExtractor(program, MATMUL_COLUMNS, huge, cold_constants)
        return float(extractor.roofline(np.array((4.0, 4, 4))[:, None])[0])

    warm = estimate(cold, False)
    assert warm == estimate(plain, True) == estimate(plain, False)  # nothing is constant, or it is in a cache
    hertz = huge.peak_flops / (huge.cores * 4 * huge.float_lanes)
    least = 4 * 4096**2 / (huge.rates.each[-1] * huge.cores * hertz)
    assert max(warm, least) < estimate(cold, True) < warm + 1.1 * least


def test_tall_tiles_do_not_wait_where_elements_load_faster_than_vectors() -> None:
    halved = dataclasses.replace(CpuRates(), fma=1.0, loads=1.0, stores=0.5)
    slow = dataclasses.replace(HARDWARE, rates=dataclasses.replace(halved, elements=1.0))
    fast = dataclasses.replace(HARDWARE, rates=dataclasses.replace(halved, elements=2.0))
    assert seconds(8, 1, 8, hardware=fast) < seconds(8, 1, 8, hardware=slow)  # 8 elements and a vector for 8 products
    bound_by_products = seconds(4, 4, 8, hardware=slow)
    assert seconds(4, 4, 8, hardware=fast) == pytest.approx(bound_by_products, rel=0.01)


def test_a_cache_filled_to_the_brim_does_not_hold_what_is_read_again() -> None:
    small = matmul(64, 64, 64, parallel="serial")  # its products read 32 KiB
    held, full = (dataclasses.replace(HARDWARE, l1_bytes=kib << 10) for kib in (48, 36))
    assert seconds(8, 2, 8, program=small, hardware=full) > seconds(8, 2, 8, program=small, hardware=held)


def test_a_smaller_cache_makes_no_kernel_faster() -> None:
    small = dataclasses.replace(HARDWARE, l1_bytes=8 << 10, l2_bytes=64 << 10, l3_bytes=512 << 10)
    for row in (GOOD, (4, 4, 4), (1, 8, 2)):
        assert seconds(*row, hardware=small) >= seconds(*row)
    assert seconds(2, 8, 8, hardware=small) > seconds(2, 8, 8)


@pytest.mark.parametrize(("m", "n", "k"), [(196, 128, 1152), (49, 512, 2048), (784, 34, 34)])
def test_a_call_of_a_library_takes_its_time(m: int, n: int, k: int) -> None:
    hardware = dataclasses.replace(HARDWARE, cores=1, features=("cblas",), peak_flops=1.2e11)
    workload = workloads.matmul(m, n, k)
    calls = [sketch for sketch in generate(workload, hardware).sketches if sketch.name.startswith("library")]
    assert calls
    for sketch in calls:
        extractor = FeatureExtractor(sketch.program, sketch.columns, hardware)
        found = extractor.roofline(np.ones((len(sketch.columns), 1)))[0]
        assert 1 < found / (2 * m * n * k / hardware.peak_flops) < 4


@pytest.mark.parametrize(
    ("dtype", "feature", "rate", "latency"),
    [("bfloat16", "avx512bf16", "dots", "dot_latency"), ("int8", "avx512vnni", "byte_dots", "byte_dot_latency")],
)
def test_dot_products_take_as_long_as_the_processor_needs_for_them(
    dtype: str, feature: str, rate: str, latency: str
) -> None:
    base = dataclasses.replace(HARDWARE, features=(feature,))
    slow = dataclasses.replace(base, rates=dataclasses.replace(base.rates, **{rate: base.rates.fma / 2}))
    late = dataclasses.replace(base, rates=dataclasses.replace(base.rates, **{latency: 2 * base.rates.fma_latency}))
    sketch = generate(workloads.matmul(m=256, n=256, k=256, dtype=dtype), base, ["direct"]).sketches[0]
    rng = np.random.default_rng(0)
    choices = np.stack([rng.integers(0, len(group.table), 512) for group in sketch.groups], 1).astype(np.int32)
    choices = choices[sketch.legal(choices)]
    fast, halved, waits = (
        FeatureExtractor(sketch.program, sketch.columns, h).roofline(sketch.expand(choices)) for h in (base, slow, late)
    )
    assert 1.3 * fast.min() < halved.min() <= 2 * fast.min()
    # Tiles of few sums wait for each of them, those of many do not.
    assert (waits >= fast).all() and waits.max() > 1.5 * fast.max()
    assert waits.min() < 1.2 * fast.min()
