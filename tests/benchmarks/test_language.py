"""The comparison of a small decoder with ONNX Runtime and PyTorch; its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import language
from benchmarks.interleave import measure_turns
from tests.benchmarks.waiting import waiting


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_cases_are_compared_once(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(language, "CASES", (("prefill", 20), ("step", 9)))
    monkeypatch.setattr(language, "LONGEST", 24)
    few = {4: ("bytes4",)} if model == "gpt2" else {8: ("weights8",)}  # each takes seconds to compile
    peers = {bits: (f"onnxruntime{bits}", f"llama_cpp{bits}") for bits in few}
    monkeypatch.setattr(language, "FEW_BITS", few)
    monkeypatch.setattr(language, "FEW_BITS_PEERS", peers)
    quantised = [name for bits in few for name in (*few[bits], *peers[bits])]
    quantised = [n for n in quantised if not n.startswith("llama") or (model == "llama" and language.find_version())]
    monkeypatch.setattr(
        language, "measure_turns", lambda turns, repeat, **_: measure_turns(turns, repeat, 1e-4, 0, 1e-4)
    )
    sizes = ["--vocabulary", "50", "--hidden", "32", "--layers", "1", "--heads", "2"]
    more = ["--kv_heads", "1", "--inner", "64"] if model == "llama" else []
    given = [
        "--rows",
        f"{model} prefill 20,{model} step 9",
        *sizes,
        *more,
        "--threads",
        "1",
        "--results",
        str(tmp_path),
    ]
    assert language.main(given) == 0
    shown = capsys.readouterr().out
    assert shown.count("| prompt of 20 |") == shown.count("| step behind 8 |") == 2  # in floats and of few bits
    rows = waiting("language_1", tmp_path)
    assert len(rows) == 2
    for row in rows.values():
        assert max(row["errors"][peer] for peer in language.PEERS) < 1e-4
        errors = [row["errors"][who] for who in quantised]
        assert min(errors) > 1e-4 and max(errors) < 0.4
        reads = language.READS if row["case"][0] == "step" else ()
        assert {"ours", *quantised, *language.PEERS, *reads} == set(row["seconds"])
        layer = 4 * 32 * 32 + 2 * 32 * 128 if model == "gpt2" else 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64
        assert row["read_bytes"] == 4 * (32 * 50 + layer)
    monkeypatch.setattr(language, "Model", lambda *_: pytest.fail("both are done"))
    assert language.main(given) == 0
