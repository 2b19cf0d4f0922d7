"""The comparison of a small decoder with ONNX Runtime and PyTorch; its table."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.language import Llama
from benchmarks import language
from benchmarks.interleave import measure_turns
from benchmarks.language_peers import LlamaCpp, Ours, choose_peer
from tests.autotune.language import gguf_files
from tests.autotune.language.decoders import llama_weights
from tests.benchmarks.waiting import waiting

pytestmark = pytest.mark.usefixtures("kernel_cache")


def test_files_are_compared_with_llama_cpp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Process(nullcontext[Any]):
        """A runtime of the file, which takes 2 ms or, if it is llama.cpp, 3 ms."""

        def __init__(self, name: str, threads: int, settings: dict[str, Any]) -> None:
            super().__init__(self)
            assert Path(settings["file"]).read_bytes() == b"Q4_K_M"
            self.seconds = 0.003 if name == "llama_cpp" else 0.002

        def logits(self) -> NDArray[np.float64]:
            return np.array([1.0, 2.0])

    monkeypatch.setattr(language, "PeerProcess", Process)
    monkeypatch.setattr(language, "write", lambda model, longest, bits, path: path.write_bytes(b"floats"))
    monkeypatch.setattr(language, "quantise_file", lambda source, kind, path: path.write_bytes(kind.encode()))
    monkeypatch.setattr(
        language, "measure_turns", lambda turns, *_, **__: {"seconds": {n: p.seconds for n, p in turns.items()}}
    )
    monkeypatch.setattr(language, "figures", lambda turns: turns)
    monkeypatch.setattr(language, "beside", lambda row, ours, peer: f"{ours} {peer}")
    sizes = [
        "--vocabulary",
        "50",
        "--hidden",
        "32",
        "--layers",
        "1",
        "--heads",
        "2",
        "--kv_heads",
        "1",
        "--inner",
        "64",
    ]
    assert language.main(["--gguf", "Q4_K_M", *sizes]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| Q4_K_M, 0 MB | ours ms | ours, data in bytes ms | llama.cpp ms | ratio |"
    assert len(lines) == 2 + len(language.CASES)
    assert lines[2] == "| prefill 128 | 2.00 (0.0%) | 2.00 (0.0%) | 3.00 (0.0%) | ours llama_cpp |"


def test_a_peer_of_a_file_has_its_vocabulary(tmp_path: Path) -> None:
    sizes = Llama(vocabulary=67, hidden=32, layers=1, heads=2, kv_heads=1, inner=32)
    tensors = gguf_files.llama_tensors(sizes, llama_weights(sizes), "llama")
    path = gguf_files.write(tmp_path / "model.gguf", gguf_files.llama_metadata(sizes, "llama"), tensors)
    for name, kind in (("ours", Ours), ("bytes", Ours), ("llama_cpp", LlamaCpp)):
        make_peer, vocabulary = choose_peer(name, 1, {"file": str(path), "longest": 64})
        assert isinstance(make_peer, partial) and make_peer.func is kind and vocabulary == 67


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
