"""Tables of results, and their place in a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results, table, tables
from benchmarks.figures import halves_difference, ratio_text

CONV: dict[str, Any] = {
    "title": "conv A",
    "class": "convolution",
    "flops": 200_000_000,
    "peak_flops": 4e11,
    "constant_weight": True,
    "seconds": {
        "ours": 1e-3,
        "torch": 1.2e-3,
        "inductor": 1.25e-3,
        "onnxruntime": 1.1e-3,
        "onnxruntime_blocked": 0.9e-3,
        "openvino": 1.3e-3,
        "library": 0.5e-3,
    },
}
OTHER: dict[str, Any] = {
    "title": "conv B",
    "class": "convolution",
    "flops": 500_000_000,
    "peak_flops": 4e11,
    "constant_weight": False,
    "seconds": {"ours": 1e-3, "onnxruntime": 1.05e-3},
    "halves": {"ours": [1e-3, 1e-3], "onnxruntime": [1.04e-3, 1.1e-3]},
}
DOCUMENT: dict[str, Any] = {"host": {"cpu": "Some CPU", "cores": 2}, "rows": {"a": CONV, "b": OTHER}}


def test_operators_show_the_ratio_to_the_best_of_all_columns() -> None:
    text = tables.TABLES["operators"](DOCUMENT)
    assert "| conv A | 1.000 | 200 | 50% | 1.200 | 1.250 | 1.100 | 0.900 | 1.300 | 0.500 | 0.90x | constant |" in text
    # faster than the direct algorithm could be, and as near to the peer as the peer to itself
    assert "| conv B | 1.000 | 500* | 125% |  |  | 1.050 |  |  |  | ≈1.05x |  |" in text
    for kind in ("all", "convolution"):
        assert f"| {kind} | 0.97x | 0.90x | 1.05x | 2 |" in text


def test_rows_that_no_peer_has_have_no_ratio() -> None:
    text = tables.TABLES["operators"]({"rows": {"a": {**CONV, "seconds": {"ours": 1e-3}}}})
    assert "| conv A | 1.000 | 200 | 50% |  | constant |" in text


def test_a_ratio_is_within_the_noise_on_either_side() -> None:
    row = {"halves": {"a": [1.0, 1.1], "b": [2.0, 2.0]}}
    assert halves_difference(row, "a", "b") == pytest.approx(0.1) and halves_difference(row, "b", "c") == 0
    assert [ratio_text(r, 0.1) for r in (1.09, 0.92, 1.2, 0.9)] == ["≈1.09x", "≈0.92x", "1.20x", "0.90x"]
    assert ratio_text(1.001) == "1.00x" and ratio_text(None, 0.1) == ""


def test_tvm_has_a_line_and_a_mean_for_every_number_of_trials() -> None:
    took = {
        "ours": {"seconds": 4.0, "trials_per_second": 64.0, "nearly_after": 32},
        "tvm": {"seconds": 256.0, "trials_per_second": 1.0},
    }
    seconds = {"ours 64": 1e-3, "ours 256": 1e-3, "tvm 64": 1.5e-3, "tvm 256": 1.01e-3}
    halves = {"tvm 256": [1e-3, 1.02e-3]}
    row = {"title": "conv A", "class": "convolution", "tuning": took, "seconds": seconds, "halves": halves}
    refused = {"title": "conv B", "class": "convolution", "refused": "`workload` must be of one group, but got x"}
    slow = {"ours": {"seconds": 16.0, "trials_per_second": 16.0}, "tvm": took["tvm"]}
    rows = {"a": row, "b": refused, "c": {**row, "title": "conv C", "tuning": slow}}
    text = tables.TABLES["tvm"]({"rows": rows})
    assert "| conv A | 64 | 1.000 | 1.500 | 1.50x |  |  |  |  |  |  |" in text
    assert "| conv A | 256 | 1.000 | 1.010 | ≈1.01x | 4 | 256 | 64.0 | 1.0 | 0.5 |  |" in text
    assert "| all, 64 trials | 1.50x | 1.50x | 2 |" in text and "| convolution, 256 trials | 1.01x |" in text
    assert "All our searches took 20 s, TVM's 512 s: 25.6 times as long" in text
    assert "We measure 32.0 times as many trials a second (16.0 to 64.0)." in text
    assert "Refused by TVM's definitions here: conv B (`workload` must be of one group)." in text
    assert "searches took" not in tables.TABLES["tvm"]({"rows": {"b": refused}})


def test_tvm_unbound_stands_beside_tvm_as_installed() -> None:
    seconds = {
        "ours 64": 1e-3,
        "bound 64": 3e-3,
        "free 64": 2e-3,
        "ours 256": 1e-3,
        "bound 256": 1e-3,
        "free 256": 1.01e-3,
    }
    tuning = {"bound": {"seconds": 1200.0}, "free": {"seconds": 900.0}}
    row = {"title": "conv A", "seconds": seconds, "tuning": tuning, "halves": {"free 256": [1e-3, 1.02e-3]}}
    other = {**row, "title": "conv B", "seconds": {**seconds, "bound 64": 6e-3}}
    text = tables.TABLES["tvm_threads"]({"rows": {"a": row, "b": other}})
    assert "| conv A | 64 | 1.000 | 3.000 | 2.000 | 1.50x |" in text
    assert "| conv A | 256 | 1.000 | 1.000 | 1.010 | ≈0.99x |" in text
    assert "| 64, TVM over unbound | 2.12x | 1.50x | 3.00x | 2 |" in text
    assert "| 64, the faster of both over ours | 2.00x | 2.00x | 2.00x | 2 |" in text
    assert "| 256, the faster of both over ours | 1.00x | 1.00x | 1.00x | 2 |" in text
    assert text.endswith("Searches took 2,400 s as installed, 1,800 s unbound.")


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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "operators.json").write_text(json.dumps(DOCUMENT))
    return tmp_path


TEXT = "before\n<!-- table:operators -->\nold\n<!-- /table -->\nbetween\n<!-- table:tvm -->\n<!-- /table -->\nafter\n"


def test_tables_are_replaced_and_the_rest_is_kept(folder: Path) -> None:
    text = table.regenerate(TEXT, folder)
    assert text.startswith(
        "before\n<!-- table:operators -->\nMeasured on Some CPU, 2 cores.\n\n| operator | autotune ms |"
    )
    assert "\nold\n" not in text
    assert "\n<!-- /table -->\nbetween\n<!-- table:tvm -->\nNot measured yet: `python -m benchmarks.tvm`.\n" in text
    assert text.endswith("\n<!-- /table -->\nafter\n")
    assert table.regenerate(text, folder) == text


def test_unknown_table(folder: Path) -> None:
    with pytest.raises(ValueError, match="`table` must be one of .*operators, gradients, .*, but got table:speed"):
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
    results.save("x", {"rows": {"a": {"is": 1}, "b": {"is": 1}}}, tmp_path)
    results.save("x", {"rows": {"b": {"is": 2}}}, tmp_path)
    saved = results.load("x", tmp_path)
    assert saved is not None
    assert {name: row["is"] for name, row in saved["rows"].items()} == {"a": 1, "b": 2}
    assert {"commit", "cpu", "date", "load"} <= saved["rows"]["a"]["made"].keys()
    monkeypatch.setattr(results, "describe_host", lambda: {"cpu": "another", "cores": 1})
    results.save("x", {"rows": {"b": {"is": 3}}}, tmp_path)
    saved = results.load("x", tmp_path)
    assert saved is not None
    assert {name: row["is"] for name, row in saved["rows"].items()} == {"b": 3}
    assert results.load("y", tmp_path) is None


NETWORK: dict[str, Any] = {
    "title": "net",
    "held_out": True,
    "tasks": 7,
    "missing": {"torch": "no module"},
    "seconds": {
        "autotune float32": 4e-3,
        "autotune bfloat16": 2e-3,
        "onnxruntime": 6e-3,
        "openvino": 4.1e-3,
        "openvino-as-installed": 3e-3,
    },
    "halves": {"autotune float32": [4e-3, 4.2e-3], "openvino": [4.1e-3, 4.1e-3]},
    "built": {"autotune float32": {"seconds": 12.3, "bytes": 5 << 20, "trials": 0}},
    "resident_bytes": {"autotune float32": 50 << 20, "onnxruntime": 90 << 20},
}


def test_networks_stand_beside_the_best_of_all_columns() -> None:
    known = {
        **NETWORK,
        "title": "other",
        "held_out": False,
        "missing": {},
        "seconds": {**NETWORK["seconds"], "torch": 2e-3},
    }
    text = tables.TABLES["networks_0_2"]({"rows": {"a": NETWORK, "b": known}})
    assert "| net | yes | 4.00 | 6.00 | 4.10 | missing | ≈1.03x | 2.00 | 3.00 | 1.50x | 7 | 12 | 5 | 50 | 90 |" in text
    assert "| other |  | 4.00 | 6.00 | 4.10 | 2.00 | 0.50x | 2.00 | 3.00 | ≈1.00x |" in text
    assert "| float32 | held out | 1.03x | 1.03x | 1.03x | 1 |" in text and "| bfloat16 | all | 1.22x |" in text
    assert "Missing: torch of net: no module." in text and "`ratio in bfloat16`: time of" in text
    float32 = {"autotune float32": 4e-3, "openvino": 6e-3}
    text = tables.TABLES["networks_0_2"]({"rows": {"a": {**NETWORK, "missing": {}, "seconds": float32}}})
    assert "| net | yes | 4.00 | 6.00 | 1.50x | 7 |" in text and "bfloat16" not in text


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("networks_10_2", "networks --budget 10"),
        ("tvm_long", "tvm --long"),
        ("gpu_offline", "gpu.offline"),
        ("survey", "survey"),
    ],
)
def test_a_table_that_is_not_measured_names_its_command(tmp_path: Path, name: str, command: str) -> None:
    text = table.regenerate(f"<!-- table:{name} -->\n<!-- /table -->", tmp_path)
    assert f"Not measured yet: `python -m benchmarks.{command}`." in text


def test_a_table_of_a_second_processor_is_of_its_folder(tmp_path: Path) -> None:
    seeds = {"a": {"title": "a", "trials": 8, "seconds": {"0": 1e-3, "1": 2e-3}}}
    (tmp_path / "second").mkdir()
    document = {"host": {"cpu": "A second one", "cores": 4}, "rows": seeds}
    (tmp_path / "second" / "seeds.json").write_text(json.dumps(document))
    text = table.regenerate(
        "<!-- table:seeds -->\n<!-- /table -->\n<!-- table:second/seeds -->\n<!-- /table -->", tmp_path
    )
    first, second = text.split("<!-- table:second/seeds -->")
    assert "Not measured yet: `python -m benchmarks.seeds`." in first
    assert "Measured on A second one, 4 cores" in second and "| a | 8 | 2 | 1.000 | 2.000 | 100 % |" in second
    with pytest.raises(ValueError, match="`table` must be one of .*, but got table:second/speed"):
        table.regenerate("<!-- table:second/speed -->\n<!-- /table -->", tmp_path)
