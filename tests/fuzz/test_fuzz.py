"""The fuzzers in a small form, and that they would find what is wrong; `make fuzz` is the long one."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.autotune.graph.onnx_models import model_from
from tests.fuzz import broadcasts, kinds, networks, operators, programs, runner, schedules, special, streams
from tests.fuzz.__main__ import main
from tests.fuzz.graphs import random_model
from tests.fuzz.nodes import OPS
from tests.fuzz.verdicts import Refusal, Wrong
from tests.fuzz.worker import RIGHT, WRONG, verdict

PRODUCT: programs.Program = {
    "inputs": [
        {"shape": [5, 7], "dtype": "float32", "constant": False},
        {"shape": [7, 9], "dtype": "float32", "constant": True},
    ],
    "nodes": [
        {"op": "unary", "of": [0], "attrs": {"f": "absolute"}},
        {"op": "matmul", "of": [2, 1], "attrs": {"turn_left": False, "turn_right": False}},
        {"op": "unary", "of": [3], "attrs": {"f": "relu"}},
    ],
}


@pytest.mark.parametrize("first", [0, 40])
def test_random_programs_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + 25):
        schedules.check(programs.draw(seed), seed)


def test_random_programs_have_every_operation_and_dtype() -> None:
    drawn = [programs.draw(seed) for seed in range(300)]
    assert {node["op"] for program in drawn for node in program["nodes"]} == set(OPS)
    assert {given["dtype"] for program in drawn for given in program["inputs"]} == set(programs.DTYPES)
    assert sum(1 in given["shape"] for program in drawn for given in program["inputs"]) > 80
    assert drawn[:20] == [programs.draw(seed) for seed in range(20)]


@pytest.mark.parametrize(
    ("shape", "other"),
    [
        ((2, 3, 10), (2, 1, 10)),
        ((2, 5, 6), (2, 1, 6)),
        ((2, 3, 5, 2), (2, 1, 5, 2)),
    ],
)
def test_every_candidate_reads_an_operand_broadcast_along_a_middle_axis(
    shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    """Two vectors read overlapping blocks of the operand, of which the later one lies further inside of the array."""
    given = [{"shape": list(s), "dtype": "float32", "constant": False} for s in (shape, other)]
    program = {"inputs": given, "nodes": [{"op": "binary", "of": [0, 1], "attrs": {"f": "add"}}]}
    for processor in broadcasts.usable_processors():
        schedules.check(program, 0, processor, candidates=100)


def test_random_broadcasts_agree_with_numpy() -> None:
    for seed in (*range(40), 96, 405):
        broadcasts.check(broadcasts.draw(seed), seed)


def test_random_broadcasts_differ_in_what_is_broadcast() -> None:
    drawn = [broadcasts.draw(seed) for seed in range(200)]
    assert {len(program["inputs"][0]["shape"]) for program in drawn} >= set(broadcasts.RANKS)
    others = [given["shape"] for program in drawn for given in program["inputs"][1:]]
    assert sum(1 in shape[1:-1] for shape in others) > 80
    assert {given["dtype"] for program in drawn for given in program["inputs"]} == set(broadcasts.DTYPES)


def test_random_graphs_agree_with_onnx_runtime() -> None:
    ran, refused = 0, []
    for seed in range(12):
        try:
            networks.check(random_model(np.random.default_rng(seed)), seed)
            ran += 1
        except Refusal as refusal:
            refused.append(str(refusal))
    assert ran >= 9, refused


def test_random_graphs_on_special_values_agree_with_float64() -> None:
    ran, refused = 0, []
    for seed in range(16):
        try:
            special.check(special.draw(np.random.default_rng(seed)), seed)
            ran += 1
        except Refusal as refusal:
            refused.append(str(refusal))
    assert ran >= 10, refused


def test_special_values_are_held_element_by_element() -> None:
    """A large element gives a small one no room, and NaN or an infinity in its place is noticed."""
    exact = np.array([1e6, 1.0, np.nan, np.inf, 1e300])
    narrow = np.array([1e6, 1.0, np.nan, np.inf, np.inf], np.float32)
    room = np.array([1.0, 1e-6, 0.0, 0.0, 0.0])
    special.compare("y", np.float32([1e6 + 0.5, 1.0, np.nan, np.inf, -7.0]), exact, narrow, room)
    for place, wrong in ((1, 1.5), (2, 0.0), (2, np.inf), (3, -np.inf), (3, 3e38), (0, np.nan)):
        ours = np.float32([1e6, 1.0, np.nan, np.inf, 0.0])
        ours[place] = wrong
        with pytest.raises(Wrong, match=rf"y must agree with float64 .* at \({place},\)"):
            special.compare("y", ours, exact, narrow, room)


def test_random_streams_agree_with_the_interpreter() -> None:
    for seed in range(4):
        streams.check(None, seed)


def test_samples_of_pytorch_agree_with_eager() -> None:
    """Twelve operators, in all types and changes."""
    ran, refused = 0, []
    for seed in range(2000, 2012):
        try:
            operators.check(operators.draw(seed), seed)
            ran += 1
        except Refusal as refusal:
            refused.append(str(refusal))
    assert ran >= 9, refused


def test_operators_are_drawn_in_turns_and_in_every_form() -> None:
    count = len(operators.samples_of_pytorch())
    drawn = [operators.draw(seed) for seed in range(count)]
    assert len({of["operator"] for of in drawn}) == count
    assert {of["change"] for of in drawn} == set(operators.CHANGES)
    assert {of["dtype"] for of in drawn} == set(operators.DTYPES)
    assert 100 < sum(of["training"] for of in drawn) < 250


def test_a_wrong_operator_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding names all that repeats it; smaller is the sample as it is, without gradients."""
    of = {"operator": "add", "sample": 4, "dtype": "float16", "change": "spread", "training": True}
    assert list(operators.smaller(of)) == [{**of, "training": False}, {**of, "change": "none"}]
    of["training"] = False
    operators.check(of, 3)
    right = operators.autotune_backend

    def wrong(module: Any, inputs: Any, **options: Any) -> Any:
        run = right(module, inputs, **options)
        return lambda *given: [value * 1.1 for value in run(*given)]

    monkeypatch.setattr(operators, "autotune_backend", wrong)
    with pytest.raises(Wrong, match="add sample 4 float16 spread training=False seed 3: result 0 must be .* but got"):
        operators.check(of, 3)
    with pytest.raises(Refusal, match="results are not determined"):
        operators.check({**of, "operator": "empty_like", "dtype": "float32", "change": "none"}, 3)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_case_survives_text(kind: str) -> None:
    seed = 4 if kind == "special" else 3  # whose third case cannot be judged
    case = kinds.draw_case(kind, seed)
    assert json.loads(json.dumps(case)) == case == kinds.draw_case(kind, seed)
    assert verdict(case)["verdict"] == RIGHT


def test_a_wrong_value_is_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with a mistake in one operation is reduced to that operation."""
    relu = OPS["unary"].evaluate

    def wrong(attrs: Any, a: Any) -> Any:
        return relu(attrs, a) + (attrs["f"] == "absolute") * np.float32(0.01)

    monkeypatch.setitem(OPS, "unary", schedules.programs.OPS["unary"].__class__(OPS["unary"].expression, wrong))
    with pytest.raises(Wrong, match=r"must agree with NumPy within .*, but got .* of 45 wrong"):
        schedules.check(PRODUCT, 0)

    class Here:
        def ask(self, case: Any) -> Any:
            return {**verdict(case), "case": case}

    found = runner.reduce_case(Here(), Here().ask({"kind": "program", "seed": 0, "of": PRODUCT}))  # type: ignore[arg-type]
    assert [node["attrs"] for node in found["case"]["of"]["nodes"]] == [{"f": "absolute"}]


def test_a_wrong_network_is_found_and_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.ones((4, 3), np.float32)
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["m"])]
    model = model_from(
        [*nodes, helper.make_node("Tanh", ["m"], ["y"])], {"x": np.ones((2, 4), np.float32)}, {"w": weight}
    )
    networks.check(model, 0)
    compiled = networks.compiled_outputs
    monkeypatch.setattr(networks, "compiled_outputs", lambda *given: [a * np.float32(1.001) for a in compiled(*given)])
    with pytest.raises(Wrong, match="y must agree with ONNX Runtime within"):
        networks.check(model, 0)
    small = [[node.op_type for node in one.graph.node] for one in networks.smaller(model)]
    assert small == [["Abs"], ["Abs", "MatMul"], ["MatMul", "Tanh"], ["Tanh"]]
    for one in networks.smaller(model):
        assert all(numpy_helper.to_array(w).shape == (4, 3) for w in one.graph.initializer)
        with pytest.raises(Wrong, match="must agree with ONNX Runtime"):
            networks.check(one, 0)


def test_what_crashes_or_runs_on_is_a_finding_and_the_next_case_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = runner.Worker()
    try:
        case = kinds.draw_case("program", 3)
        assert worker.ask(case)["verdict"] == RIGHT
        process = worker._alive()
        os.kill(process.pid, signal.SIGSTOP)
        monkeypatch.setattr(runner, "SECONDS", 0.3)
        late = worker.ask(case)
        assert late["verdict"] == WRONG and "must end within" in late["why"]
        monkeypatch.setattr(runner, "SECONDS", 120.0)
        worker._alive().kill()
        assert worker.ask(case)["why"] == "crash: exit code -9"
        assert worker.ask(case)["verdict"] == RIGHT
    finally:
        worker.close()


def test_the_command_counts_and_ends_with_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*arguments: str) -> tuple[int, str]:
        few = ["--graphs", "0", "--c-programs", "1", "--broadcasts", "1", "--torch", "0", "--special", "0"]
        monkeypatch.setattr(sys, "argv", ["fuzz", "--jobs", "1", "--seed", "2", *few, *arguments])
        return main(), capsys.readouterr().out

    code, text = call("--programs", "4", "--streams", "1")
    assert code == 0 and "program: 4 right, 0 wrong, 0 refused" in text
    assert "broadcast: 1 right" in text and "stream: 1 right" in text
    code, text = call("--programs", "99", "--minutes", "0")
    assert code == 1 and "too few were run in 0 minutes" in text
    wrong = {"kind": "program", "seed": 0, "of": {"inputs": PRODUCT["inputs"], "nodes": [{"op": "none"}]}}
    (tmp_path / "case.json").write_text(json.dumps(wrong))
    code, text = call("--case", str(tmp_path / "case.json"))
    assert code == 1 and text.startswith("wrong KeyError")


def test_one_mistake_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand cases with one message are made smaller once; another mistake is another finding."""

    class BrokenWorker:
        def ask(self, case: Any) -> Any:
            kind = "shape" if case["seed"] % 2 else "value"
            return {"verdict": WRONG, "why": f"Wrong: {kind} {case['seed']} sha256=ab{case['seed']}", "case": case}

        def close(self) -> None:
            pass

    monkeypatch.setattr(runner, "Worker", BrokenWorker)
    outcome = runner.fuzz({"stream": 30}, 0, 1.0, 2, tell=lambda text: None)
    assert len(outcome.findings) == 2 and 30 <= outcome.wrong["stream"] <= 31 and not outcome.right
