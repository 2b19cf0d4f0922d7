"""Latency against accuracy of mixed precision, in tables, charts and reports."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

from rich.console import Console

from autotune.report.html.tradeoff import tradeoff_chart
from autotune.report.mixed import Row, list_rows, mixture_table
from tests.autotune.report.test_html_report import MATMUL, call, record, task, write

MIXTURE = {
    "front": [
        {"name": "float32", "decibels": None, "seconds": 4e-3, "narrow": 0},
        {"name": "mixed", "decibels": 62.0, "seconds": 3e-3, "narrow": 5},
        {"name": "bfloat16", "decibels": 41.0, "seconds": 2e-3, "narrow": 9},
    ],
    "narrow": ["a", "b"],
    "seconds": 2.5e-3,
    "measured": 55.5,
}
NETWORK = {
    "mixture": MIXTURE,
    "seconds": 2.6e-3,
    "rounding": {"y": {"decibels": 54.0, "error": 1e-3}, "z": {"decibels": 70.0, "error": 1e-4}},
    "reference": "onnxruntime",
    "reference_seconds": 5e-3,
}


def test_rows_are_the_front_the_choice_and_who_was_timed() -> None:
    rows = list_rows(NETWORK)
    assert [(row.name, row.timed) for row in rows[3:]] == [
        ("chosen", False),
        ("autotune mixed", True),
        ("ONNX Runtime float32", True),
    ]
    assert rows[4] == Row("autotune mixed", 2.6e-3, 54.0, 2, True)
    assert list_rows({"mixture": None}) == list_rows({}) == []
    assert len(list_rows({"mixture": MIXTURE, "seconds": None, "rounding": {}, "reference_seconds": None})) == 4


BENCH_ROWS = [
    {"title": "autotune mixed", "seconds": 2.7e-3, "decibels": 55.0, "exact": False},
    {"title": "autotune bfloat16", "seconds": 2.1e-3, "decibels": 41.5, "exact": False},
    {"title": "autotune float32", "seconds": 4.1e-3, "decibels": 125.0, "exact": False},
    {"title": "ONNX Runtime float32", "seconds": 5.1e-3, "decibels": None, "exact": True},
    {"title": "OpenVINO as installed (bfloat16)", "seconds": 3.1e-3, "decibels": 42.0, "exact": False},
    {"title": "OpenVINO float32", "seconds": 5.0e-3, "decibels": None, "exact": False},
]


def test_what_was_benched_stands_for_what_the_run_timed() -> None:
    rows = {row.name: row for row in list_rows(NETWORK, BENCH_ROWS) if row.timed}
    assert list(rows) == [row["title"] for row in BENCH_ROWS[:5]], "nothing is known of the accuracy of the last"
    assert [row.narrow for row in rows.values()] == [2, 9, 0, None, None]
    assert rows["autotune mixed"].seconds == 2.7e-3


def test_timed_points_have_their_names_beside_them() -> None:
    text = tradeoff_chart("names", list_rows(NETWORK, BENCH_ROWS))
    assert re.findall(r'class="name"[^>]*>([^<]+)<', text) == [
        "ONNX Runtime float32",
        "autotune float32",
        "OpenVINO as installed (bfloat16)",
        "autotune mixed",
        "autotune bfloat16",
    ]
    right = [float(x) for x in re.findall(r'cx="([\d.]+)" cy="[\d.]+" r="5"', text)]
    assert right[2] == right[3] == max(right), "125 dB are as good as exact"
    ends = [float(y) for y in re.findall(r'y="([\d.]+)" text-anchor="end">\w+ [^<]', text)]
    assert all(b - a >= 13 for a, b in zip(sorted(ends), sorted(ends)[1:], strict=False))


def test_the_table_has_a_row_for_each() -> None:
    console = Console(width=100, record=True, file=StringIO())
    console.print(mixture_table(NETWORK, 100))
    lines = console.export_text().splitlines()
    assert len(lines) == 7
    assert re.search(r"mixed +5 +62\.0 +3\.000 ms +estimated", lines[2])
    assert re.search(r"ONNX Runtime float32 +- +exact +5\.000 ms +timed", lines[6])


def test_the_chart_places_what_is_faster_lower_and_what_is_exact_at_the_right() -> None:
    rows = list_rows(NETWORK)
    text = tradeoff_chart("two <b>", rows)
    assert "<b>" not in text and text.count("<circle") == len(rows)
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', text)]
    exact, mixed, narrow = places[:3]
    assert exact[0] > mixed[0] > narrow[0] and exact[1] < mixed[1] < narrow[1]
    assert places[-1][0] == exact[0] and places[-1][1] < exact[1]


def test_a_chart_of_exact_points_alone() -> None:
    assert tradeoff_chart("exact", [Row("float32", 1e-3, None, 0, False)]).count("<circle") == 1


def test_the_report_shows_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", [record(MATMUL, 0, 5e-3)], [task("product", MATMUL, 5e-3)])
    plain = call(folder)
    assert plain.exit_code == 0 and 'id="precision"' not in (folder / "report.html").read_text()
    document = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**document, "network": NETWORK}))
    assert call(folder).exit_code == 0
    text = (folder / "report.html").read_text()
    assert (
        'id="precision"' in text and 'href="#precision"' in text and "autotune mixed: 2.600 ms timed, 54.0 dB" in text
    )
