"""Reach of loops, and repeats that the hardware forbids, compared with going through all turns."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from targets.vta import isa
from targets.vta.isa import Gemm
from tests.properties.running import examples
from tests.targets.vta.accesses import list_reached
from tests.targets.vta.subset import DISTANCE, _again

TURNS = st.integers(1, 9)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), TURNS, st.integers(0, 9), TURNS, st.integers(0, 50))
def test_loops_reach_what_their_turns_do(start: list[int], outer: int, far: int, inner: int, near: int) -> None:
    every = {first + i * far + j * near for first in start for i in range(outer) for j in range(inner)}
    depth = max(every) + 1
    assert list_reached(np.array(start), ((outer, far), (inner, near)), depth).tolist() == sorted(every)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), TURNS, st.integers(0, 12), TURNS, st.integers(0, 3))
def test_repeats_are_found_without_going_through_all_turns(
    dst: list[int], outer: int, far: int, inner: int, near: int
) -> None:
    row = isa.to_table([Gemm(uop_end=len(dst), iter_out=outer, iter_in=inner, dst_out=far, dst_in=near)])[0]
    order = [first + i * far + j * near for i in range(outer) for j in range(inner) for first in dst]
    again = [
        (order[place], distance)
        for distance in range(1, DISTANCE + 1)
        for place in range(len(order) - distance)
        if order[place] == order[place + distance]
    ]
    assert _again(row, np.array(dst)[:, None]) == (again[0] if again else None)
