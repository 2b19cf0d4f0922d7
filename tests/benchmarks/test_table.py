"""Tables of results, and their place in a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results, table, tables

CONV = {
    "title": "conv A",
    "class": "convolution",
    "flops": 200_000_000,
    "constant_weight": True,
    "seconds": {
        "ours": 1e-3,
        "torch": 1.2e-3,
        "onnxruntime": 1.1e-3,
        "onnxruntime_blocked": 0.9e-3,
        "library": 0.5e-3,
    },
}
OTHER = {
    "title": "conv B",
    "class": "convolution",
    "flops": 100_000_000,
    "constant_weight": True,
    "seconds": {"ours": 1e-3, "onnxruntime": 1.0e-3},
}
DOCUMENT: dict[str, Any] = {
    "host": {"cpu": "Some CPU", "cores": 2},
    "peak_flops": 4e11,
    "rows": {"unknown_b": OTHER, "conv3x3_56_64_64": CONV},
}


def test_operators_show_ratio_to_the_best_peer_share_of_peak_and_mean() -> None:
    lines = tables.operators(DOCUMENT).splitlines()
    assert lines[2] == "| conv A | 1.000 | 200 | 50 % | 1.200 | 1.100 | 0.900 | 0.500 | 1.10x | constant |"
    assert lines[3] == "| conv B | 1.000 | 100 | 25 % |  | 1.000 |  |  | 1.00x | constant |"
    assert lines[-1] == "| convolution | 1.05x | 1.00x | 2 |"


def test_rows_without_ours_have_no_ratio() -> None:
    peers_only = {**CONV, "seconds": {"torch": 1e-3}}
    text = tables.operators({**DOCUMENT, "rows": {"a": peers_only}})
    assert "| conv A |  |  |  | 1.000 |  |  |  |  | constant |" in text
    assert "geometric mean" not in text


def test_tvm_has_a_line_and_a_mean_for_every_number_of_trials() -> None:
    def run(ours: float, theirs: float) -> dict[str, Any]:
        took = {
            "ours": {"seconds": 4.0, "trials_per_second": 16.0},
            "tvm": {"seconds": 64.0, "trials_per_second": 1.0},
        }
        return {"seconds": {"ours": ours, "tvm": theirs}, "tuning": took}

    row = {
        "title": "conv A",
        "class": "convolution",
        "trials": {"256": run(1e-3, 1e-3), "64": run(1e-3, 1.5e-3)},
    }
    lines = tables.tvm({"rows": {"a": row}}).splitlines()
    assert lines[2] == "| conv A | 64 | 1.000 | 1.500 | 1.50x | 4 | 64 | 16.0 | 1.0 |"
    assert lines[3].startswith("| conv A | 256 |")
    assert "| convolution, 64 trials | 1.50x | 1.50x | 1 |" in lines


def test_throughput_shows_the_share_of_the_target_and_where_time_goes() -> None:
    row = {
        "scorer": "lightgbm",
        "target": 80_000,
        "kind": "sampled",
        "batch": 1024,
        "trees": 100,
        "feature_rows": 4.0,
        "per_second": 120_000.4,
        "microseconds": {"made": 1.234, "scored": 2.0},
    }
    plain: dict[str, Any] = {
        "scorer": "roofline",
        "kind": "mutated",
        "batch": 32,
        "target": 300_000,
        "per_second": 150_000.0,
    }
    plain["microseconds"] = {"made": 1.0}
    lines = tables.throughput({"rows": {"a": plain, "b": row}}).splitlines()
    assert lines[2] == "| roofline | mutated | 32 | 150,000 | 300,000 | 0.50x |  |  | made 1.00 |"
    assert lines[3] == "| lightgbm | sampled | 1,024 | 120,000 | 80,000 | 1.50x | 100 | 4.0 | made 1.23, scored 2.00 |"


def test_seeds_show_what_bad_luck_costs() -> None:
    row = {"title": "conv A", "trials": 128, "seconds": {"0": 1.2e-3, "1": 1e-3, "2": 1.5e-3}}
    assert tables.seeds({"rows": {"a": row}}).splitlines()[2:] == ["| conv A | 128 | 3 | 1.000 | 1.500 | 50 % |"]


def test_quantized_shows_how_many_times_as_fast_integers_are() -> None:
    row = {"title": "matmul A", "flops": 2_000_000_000, "seconds": {"int8": 2e-3, "float32": 5e-3}}
    lines = tables.quantized({"rows": {"a": row}}).splitlines()
    assert lines[2:] == ["| matmul A | 2.000 | 1000 | 5.000 | 400 | 2.50x |"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "operators.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


TEXT = "before\n<!-- table:operators -->\nold\n<!-- /table -->\nbetween\n<!-- table:tvm -->\n<!-- /table -->\nafter\n"


def test_tables_are_replaced_and_the_rest_is_kept(folder: Path) -> None:
    text = table.regenerate(TEXT, folder)
    assert text.startswith(
        "before\n<!-- table:operators -->\nMeasured on Some CPU, 2 cores.\n\n| operator | autotune float32 ms |"
    )
    assert "old" not in text
    assert "\n<!-- /table -->\nbetween\n<!-- table:tvm -->\nNot measured yet: `python -m benchmarks.tvm`.\n" in text
    assert text.endswith("\n<!-- /table -->\nafter\n")
    assert table.regenerate(text, folder) == text


def test_unknown_table(folder: Path) -> None:
    with pytest.raises(ValueError, match="`table` must be one of .*operators, tvm, .*, but got table:speed"):
        table.regenerate("<!-- table:speed -->\n<!-- /table -->", folder)


def test_command_rewrites_and_check_only_tells(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text("<!-- table:tvm -->\nstale\n<!-- /table -->\n")
    assert table.main([str(document), "--check"]) == 1
    assert "stale" in document.read_text()
    assert table.main([str(document)]) == 0
    assert "stale" not in document.read_text()
    assert table.main([str(document), "--check"]) == 0


def test_saved_rows_add_up_on_one_host_and_not_across_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.save("x", {"rows": {"a": 1, "b": 1}}, tmp_path)
    results.save("x", {"rows": {"b": 2}}, tmp_path)
    saved = results.load("x", tmp_path)
    assert saved is not None
    assert saved["rows"] == {"a": 1, "b": 2}
    monkeypatch.setattr(results, "describe_host", lambda: {"cpu": "another"})
    results.save("x", {"rows": {"b": 3}}, tmp_path)
    saved = results.load("x", tmp_path)
    assert saved is not None
    assert saved["rows"] == {"b": 3}
    assert results.load("y", tmp_path) is None


def test_networks_show_expanded_weights_and_both_arenas() -> None:
    row: dict[str, Any] = {
        "name": "net",
        "precision": "float32",
        "trials": 100,
        "run_seconds": 60.0,
        "seconds": {"autotune": 1e-3, "onnxruntime": 2e-3},
        "tasks_seconds": 9e-4,
        "flops": 1_000_000_000,
        "max_error": 1e-6,
        "resident_bytes": {"autotune": 50 << 20, "onnxruntime": 80 << 20},
        "memory": {"weights_bytes": 30 << 20, "original_weights_bytes": 20 << 20, "arena_bytes": 4 << 20},
    }
    arena = {"requested": 5 << 20, "used": 6 << 20}
    with_arena = {**row, "onnxruntime_arena": arena}
    lines = tables.networks({**DOCUMENT, "rows": {"a": row, "b": with_arena}}).splitlines()
    assert lines[2].endswith("| 50 | 10 | 80 | 4.0 |  |")
    assert lines[3].endswith("| 50 | 10 | 80 | 4.0 | 5.0 |")
