"""Figures as a reader sees them, and tables that fit."""

from __future__ import annotations

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from autotune.report.tables import Column, fit_table
from autotune.units import certainty, duration, forecast, latency, select_unit, share

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (182.3e-9, "182.3 ns"),
        (3e-10, "0.300 ns"),
        (999.96e-9, "1.000 µs"),
        (1e-6, "1.000 µs"),
        (12.344e-6, "12.34 µs"),
        (1.23456e-3, "1.235 ms"),
        (0.9999e-3, "999.9 µs"),
        (0.1, "100.0 ms"),
        (2.0, "2.000 s"),
        (3600.0, "3600 s"),
        (0.0, "0.000 ns"),
        (math.nan, "-"),
        (None, "-"),
        (math.inf, "inf s"),
    ],
)
def test_a_latency_is_in_the_unit_that_suits_it(seconds, text):
    assert latency(seconds) == text


@given(st.floats(1e-9, 1e3))
def test_four_digits_are_there_whatever_the_size(seconds):
    figure, unit = latency(seconds).split()
    assert float(figure) * UNITS[unit] == pytest.approx(seconds, rel=6e-4)
    assert 1 <= float(figure) < 1000 or unit == "s"
    scale, same = select_unit(float(figure) * UNITS[unit])
    assert same == unit and scale * UNITS[unit] == pytest.approx(1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (7199.0, "120 min"),
        (7200.0, "2 h"),
        (3 * 86400.0, "3 days"),
        (859870132.0, "27 years"),
        (1e15, "31,688,088 years"),
    ],
)
def test_a_forecast_is_in_a_unit_that_a_person_reads(seconds, text):
    assert forecast(seconds) == text


def test_a_duration_has_two_units_where_it_is_long():
    shown = [duration(value) for value in (1.25, 119.96, 245.0, 7800.0)]
    assert shown == ["1.2 s", "120.0 s", "4 min 5 s", "2 h 10 min"]


def test_small_shares_have_a_decimal():
    shown = [share(value) for value in (0.0, 0.004, 0.034, 0.0994, 0.0996, 0.5, None, math.nan)]
    assert shown == ["0%", "0.4%", "3.4%", "9.9%", "10%", "50%", "-", "-"]


@given(st.integers(20, 100), st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_a_table_is_never_wider_than_the_line_and_keeps_what_matters(width, sizes):
    columns = [Column(f"c{rank}", ["x" * size], rank, left=rank == 0) for rank, size in enumerate(sizes)]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(fit_table(columns, width))
    head, row = console.export_text().splitlines()
    assert max(map(cell_len, (head, row))) <= width
    kept = head.split()
    assert kept == [f"c{rank}" for rank in range(len(kept))], "those of the highest rank go first"
    if len(kept) > 1:
        assert row.split() == ["x" * size for size in sizes[: len(kept)]], "what is shown is shown whole"


@pytest.mark.parametrize(("apart", "text"), [(0.65, "certain to 65% only"), (3.0, "certain to a factor of 4.0 only")])
def test_far_apart_is_a_factor(apart: float, text: str) -> None:
    assert certainty(apart) == text
