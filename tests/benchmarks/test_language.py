"""The comparison of a small decoder with ONNX Runtime and PyTorch; its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import language, results
from benchmarks.interleave import interleave


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_cases_are_compared_once(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(language, "CASES", (("prefill", 20), ("step", 9)))
    monkeypatch.setattr(language, "LONGEST", 24)
    quantised = language.QUANTISED if model == "gpt2" else ("weights4",)  # each takes seconds to compile
    monkeypatch.setattr(language, "QUANTISED", quantised)
    monkeypatch.setattr(language, "commit_of", lambda: "0123456789ab")
    monkeypatch.setattr(language, "interleave", lambda turns, repeat, **_: interleave(turns, repeat, 1e-4, 0, 1e-4))
    sizes = ["--vocabulary", "50", "--hidden", "32", "--layers", "1", "--heads", "2"]
    more = ["--kv_heads", "1", "--inner", "48"] if model == "llama" else []
    given = ["--model", model, *sizes, *more, "--threads", "1", "--results", str(tmp_path)]
    assert language.main(given) == 0
    shown = capsys.readouterr().out
    assert "prompt of 20" in shown and "step behind 8" in shown
    saved = results.load(language.NAME, tmp_path)
    assert saved is not None and len(saved["rows"]) == 2
    for row in saved["rows"].values():
        assert max(row["errors"][peer] for peer in language.PEERS) < 1e-4
        errors = [row["errors"][who] for who in quantised]
        assert errors[0] > 1e-4 and errors[-1] < 0.3 and errors == sorted(errors)
        reads = language.READS if row["case"][0] == "step" else ()
        assert {"ours", *language.QUANTISED, *language.PEERS, *reads} == set(row["seconds"])
        layer = 4 * 32 * 32 + 2 * 32 * 128 if model == "gpt2" else 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48
        assert row["read_bytes"] == 4 * (32 * 50 + layer)
    monkeypatch.setattr(language, "compared", lambda *_: pytest.fail("both are done"))
    assert language.main(given) == 0
