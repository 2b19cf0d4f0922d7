"""README's table and the summaries: at most eight lines, from the result files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import results, table
from benchmarks.readme_table import LINES, readme
from benchmarks.summaries import SUMMARIES, language_models, quantized_networks, scheduling
from benchmarks.tables import TABLES
from tests.benchmarks.test_headline import ROWS, store

ROOT = Path(__file__).resolve().parents[2]


def lines(folder: Path) -> list[list[str]]:
    """Returns the cells of README's table."""
    shown = readme(folder).split("\n\n")[0].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in shown]


def test_networks_say_which_are_held_out_and_where_they_ran(tmp_path: Path) -> None:
    store(tmp_path, "networks_0_2", {"threads": 2, "trials": 0}, ROWS, cpu="AMD EPYC (znver5)")
    wide, narrow = lines(tmp_path)
    assert wide[0] == "[Networks, float32](docs/benchmarks/networks.md)"
    assert narrow[0] == "[Networks, bfloat16](docs/benchmarks/networks.md)"
    cells = ["AMD EPYC (Zen 5), 2 threads", "none", "**2.19x**", "≈1.20x to 4.00x", "2 networks, 1 held out: 1.20x"]
    assert wide[2:] == cells
    assert "Commits 0123456789ab." in readme(tmp_path)


def test_search_time_is_that_of_all_searches_and_cycles_have_no_threads(tmp_path: Path) -> None:
    tuning = [{"ours": {"seconds": ours}, "tvm": {"seconds": tvm}} for ours, tvm in ((1.0, 2.0), (3.0, 18.0))]
    rows = {str(place): {"tuning": each} for place, each in enumerate(tuning)}
    store(tmp_path, "tvm", {"threads": 1, "trials": [256]}, {**rows, "refused": {"refused": "no"}})
    store(tmp_path, "vta", {"trials": 128}, {"C2": {"cycles": {"published": 300, "tuned": 200}}})
    searched, cycles = lines(tmp_path)
    assert searched[2:] == ["a processor, 1 thread", "256", "**5.0x**", "2.0x to 6.0x", "2 operators"]
    assert cycles[2:] == ["simulator", "128", "**1.50x**", "1.50x to 1.50x", "1 layers"]


def test_a_language_model_is_compared_within_a_kind_of_weights(tmp_path: Path) -> None:
    seconds = {"ours": 1.0, "torch": 1.5, "weights4": 0.8, "bytes4": 0.5, "onnxruntime4": 1.0, "weights8": 0.1}
    row = {"seconds": seconds, "halves": {}, "case": ["step", 65]}
    store(tmp_path, "language_2", {"threads": 2}, {"a": row})
    (line,) = lines(tmp_path)
    assert line[4:] == ["**1.73x**", "1.50x to 2.00x", "2 prompts and steps"]
    text = language_models({"rows": {"a": row}})
    assert "| floats | one token | 1.50x | 1.50x | 1.50x | 1 |" in text and "| 4 bits | one token | 2.00x |" in text


def test_the_readme_has_at_most_eight_lines() -> None:
    assert len(LINES) <= 8 and len(lines(results.FOLDER)) == len(LINES)
    assert {line.table for line in LINES} <= set(TABLES)
    assert all((ROOT / "docs" / line.page.partition("#")[0]).exists() for line in LINES)


def test_summaries_count_who_is_more_accurate_and_compare_budgets() -> None:
    rows = {
        "a": {"title": "a", "decibels": {"autotune": 3.0, "x": 2.0}, "seconds": {"autotune": 1.0, "x": 2.0}},
        "b": {"title": "b", "decibels": {"autotune": 1.0, "x": 2.0}, "seconds": {"autotune": 1.0, "x": 0.5}},
    }
    assert "| networks | 1.00x | 0.50x | 2.00x | 2 | 1 of 2 |" in quantized_networks({"rows": rows})
    budgets = [{"trials": 100, "final_seconds": {"gradient": 0.9, "round_robin": 1.0}}]
    assert scheduling({"rows": {"a": {"budgets": budgets}}}).endswith("| 100 | 0.900 | 0.900 | 0.900 | 1 |")


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_has_lines_and_says_where_it_comes_from(name: str) -> None:
    text = table.regenerate(f"<!-- summary:{name} -->\n<!-- /summary -->")
    body, _, said = text.rpartition("\n\n")
    assert len(body.splitlines()) > 2 and f"`{table.measuring_command(name)}`." in said


def test_a_summary_that_is_missing_names_its_command(tmp_path: Path) -> None:
    text = table.regenerate("<!-- summary:tvm -->\n<!-- /summary -->", tmp_path)
    assert text == "<!-- summary:tvm -->\nNot measured yet: `python -m benchmarks.tvm`.\n<!-- /summary -->"
    (tmp_path / "throughput.json").write_text(json.dumps({"rows": {}}))
    with pytest.raises(ValueError, match="`summary` must be one of .*operators, .*, but got summary:throughput"):
        table.regenerate("<!-- summary:throughput -->\n<!-- /summary -->", tmp_path)


def test_a_line_that_a_processor_lacks_is_of_a_second_one(tmp_path: Path) -> None:
    floats = {
        name: {**row, "seconds": {label: value for label, value in row["seconds"].items() if "bfloat16" not in label}}
        for name, row in ROWS.items()
    }
    store(tmp_path, "networks_0_2", {"threads": 2, "trials": 0}, floats, cpu="AMD EPYC (znver3)")
    assert [cells[2] for cells in lines(tmp_path)] == ["AMD EPYC (Zen 3), 2 threads"]
    second = tmp_path / "znver5"
    second.mkdir()
    store(second, "networks_0_2", {"threads": 2, "trials": 0}, ROWS, cpu="AMD EPYC (znver5)")
    wide, narrow = lines(tmp_path)
    assert [wide[2], narrow[2]] == ["AMD EPYC (Zen 3), 2 threads", "AMD EPYC (Zen 5), 2 threads"]
    assert wide[7] == "Zen 5 2.19x"


def test_other_processors_are_named_by_their_generation(tmp_path: Path) -> None:
    for folder, cpu in ((".", "AMD EPYC (znver5)"), ("intel", "Intel(R) Xeon(R) Processor (emeraldrapids)")):
        store(tmp_path / folder, "networks_0_2", {"threads": 2, "trials": 0}, ROWS, cpu=cpu)
    store(
        tmp_path / "znver4", "networks_0_2", {"threads": 2, "trials": 0}, ROWS, cpu="AMD EPYC (znver4)", commit="9876"
    )
    assert [cells[7] for cells in lines(tmp_path)] == [
        "Emerald Rapids 2.19x, Zen 4 2.19x",
        "Emerald Rapids 1.55x, Zen 4 1.55x",
    ]
    assert "Commits 0123456789ab, 9876." in readme(tmp_path)
