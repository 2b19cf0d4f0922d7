"""What a network must take at least."""

import pytest

from autotune.network.bound import bound_seconds
from autotune.network.selection import Limits
from autotune.tuning.task import Task
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
