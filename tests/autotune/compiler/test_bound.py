"""Lower bounds of a network's seconds."""

from dataclasses import replace

import pytest

from autotune.compiler.bound import bound_seconds
from autotune.compiler.selection import Limits
from autotune.tuner.result import factor_types, peak_flops
from autotune.tuner.task import Task
from search_space import workloads
from search_space.hardware import Hardware

HARDWARE = Hardware("fake", 2, 64, 32, 1 << 15, 1 << 20, 1 << 25, 200e9, 40e9)


def test_products_at_peak_by_the_best_algorithm() -> None:
    conv = workloads.conv2d(height=56, width=56, in_channels=64, out_channels=64, kernel=3, padding=1)
    direct = conv.flops / 200e9
    assert bound_seconds([Task("a", conv, 3)], HARDWARE, 2) == pytest.approx(3 * direct / 4)
    assert bound_seconds([Task("a", conv)], HARDWARE, 1, Limits(max_error=2e-6)) == pytest.approx(2 * direct / 2.25)
    assert bound_seconds([Task("a", conv)], HARDWARE, 2, Limits(["direct"])) == pytest.approx(direct)


def test_weights_come_from_memory_expanded_ones_too() -> None:
    dense = workloads.dense(batch=1, in_features=2048, out_features=1000)
    assert bound_seconds([Task("d", dense)], HARDWARE, 2) == pytest.approx(2048 * 1000 * 4 / 40e9)
    small = workloads.conv2d(height=4, width=4, in_channels=512, out_channels=512, kernel=3, padding=1)
    taken = bound_seconds([Task("c", small)], HARDWARE, 2)
    assert taken == pytest.approx(min(small.flops / 200e9, 16 * 512 * 512 * 4 / 40e9))


def test_weights_of_a_loop_come_from_memory_once_where_they_stay_in_cache() -> None:
    dense = workloads.dense(batch=1, in_features=2048, out_features=1000)
    task = Task("d", dense, 600, occurrences=2)
    read = 2048 * 1000 * 4 / 40e9
    assert bound_seconds([task], HARDWARE, 2) == pytest.approx(max(2 * read, 600 * dense.flops / 200e9))
    assert bound_seconds([task], replace(HARDWARE, l3_bytes=1 << 20), 2) == pytest.approx(600 * read)


def test_products_of_bfloat16_have_a_peak_of_their_own() -> None:
    dots = replace(HARDWARE, features=("avx512bf16",))
    layer = workloads.conv2d(
        height=56, width=56, in_channels=64, out_channels=64, kernel=3, padding=1, dtype="bfloat16"
    )
    direct, tasks = layer.flops / 200e9, [Task("a", layer)]
    assert bound_seconds(tasks, HARDWARE, 2, Limits(["direct"])) == pytest.approx(direct)
    assert bound_seconds(tasks, dots, 2, Limits(["direct"])) == pytest.approx(direct / 2)
    # Rounded tiles are multiplied by the instruction, others in float32.
    assert bound_seconds(tasks, dots, 2, Limits(["winograd2"])) == pytest.approx(direct / 2.25)
    assert bound_seconds(tasks, dots, 2, Limits(["winograd2_dot"])) == pytest.approx(direct / 4.5)
    slower = replace(dots, rates=replace(dots.rates, dots=dots.rates.fma / 2))
    assert bound_seconds(tasks, slower, 2, Limits(["direct"])) == pytest.approx(direct)


def test_shares_of_the_peak_are_of_the_types_that_are_multiplied() -> None:
    dots = replace(HARDWARE, features=("avx512bf16", "avx512vnni"))
    assert peak_flops(dots, 2, ("bfloat16", "bfloat16")) == 400e9 and peak_flops(dots, 1, ("uint8", "int8")) == 400e9
    for others in ((), ("float32", "float32"), ("bfloat16", "float32"), ("bfloat16",)):
        assert peak_flops(dots, 2, others) == 200e9
    assert factor_types(workloads.matmul(m=8, n=8, k=8, dtype="bfloat16")) == ("bfloat16", "bfloat16")
