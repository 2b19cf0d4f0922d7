"""Commands of the laboratory at a terminal: pipes whose reader is gone, and tables in 80 columns."""

from __future__ import annotations

import re

import pytest

from tests.autotune.cli.test_terminal import check_silence, screen


def test_a_command_whose_reader_is_gone_ends_without_a_word(tmp_path):
    check_silence(tmp_path, ["dataset", "stats", "shipped"])


@pytest.mark.parametrize("columns", [80, 142])
def test_numbers_of_a_dataset_stay_whatever_the_width(tmp_path, columns):
    lines, code = screen(tmp_path, "dataset", "stats", "shipped", "--tasks", columns=columns)
    head = next(place for place, line in enumerate(lines) if line.split()[:1] == ["task"])
    assert code == 0 and {"best", "GFLOP/s"} <= set(lines[head].split())
    assert all(re.search(r"\d (ns|µs|ms) .*\d\.\d\s*$", line) for line in lines[head + 1 : -1])
    assert ("sketches" in lines[head]) == (columns == 142)
