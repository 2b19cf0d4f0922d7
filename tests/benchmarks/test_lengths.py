"""The comparison of a network for all lengths with one for each, on a small encoder; its table."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import autotune
from autotune.graph.zoo import bert_base
from benchmarks import lengths, results
from benchmarks.interleave import measure_turns

pytestmark = pytest.mark.usefixtures("kernel_cache")

SMALL = partial(bert_base.build, hidden=32, heads=2)


def test_an_encoder_takes_all_lengths() -> None:
    model = SMALL(layers=1, sequence=9, vocabulary=40, any_sequence=True)
    network = autotune.compile(model, shapes={"tokens": (1, "n")}, sizes={"n": (1, 9)}, threads=1)
    oracle = ReferenceEvaluator(model)
    for n in (1, 2, 5, 9):
        tokens = np.arange(n, dtype=np.int64)[None] * 3
        np.testing.assert_allclose(network(tokens), oracle.run(None, {"tokens": tokens})[0], rtol=1e-4, atol=1e-4)


def test_lengths_are_compared_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lengths.bert_base, "build", SMALL)
    monkeypatch.setattr(lengths, "LONGEST", 9)
    monkeypatch.setattr(lengths, "WORDS", 40)
    monkeypatch.setattr(lengths, "LENGTHS", (1, 4))
    monkeypatch.setattr(lengths, "PEERS", ("onnxruntime",))
    monkeypatch.setattr(
        lengths, "measure_turns", lambda turns, repeat, **_: measure_turns(turns, repeat, 1e-4, 0, 1e-4)
    )
    given = ["--layers", "1", "--threads", "1", "--results", str(tmp_path)]
    assert lengths.main(given) == 0
    assert "geometric mean over 2" in capsys.readouterr().out
    saved = results.load(lengths.NAME, tmp_path)
    assert saved is not None
    for row in saved["rows"].values():
        assert set(row["seconds"]) == {"all", "each", "onnxruntime"} and max(row["errors"].values()) < 1e-4
    monkeypatch.setattr(lengths, "Bert", lambda *_: pytest.fail("both are done"))
    assert lengths.main(given) == 0
    assert lengths.main([*given, "--rows", "5"]) == 2


def test_the_zoo_keeps_its_fixed_models() -> None:
    fixed = SMALL(layers=1, sequence=9)
    assert [d.dim_value for d in fixed.graph.input[0].type.tensor_type.shape.dim] == [1, 9]
    assert isinstance(fixed, onnx.ModelProto) and not any(node.op_type == "Shape" for node in fixed.graph.node)
