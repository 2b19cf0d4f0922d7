"""Spaces of parameters: what strategies and models see of them, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.tuner import search
from costmodel.features.knobs import KnobFeatures
from search_space.parameters import ExpressionError, Parameter, ParameterSpace, Restriction, T1Error, read_t1, write_t1
from search_space.parameters.listing import evaluate_list


def space() -> ParameterSpace:
    parameters = (
        Parameter("block", (32, 64, 128, 256)),
        Parameter("memory", ("shared", "global", "texture")),
        Parameter("factor", (-1.5, 0.0, 2.25)),
        Parameter("unroll", (False, True)),
        Parameter("one", (7,)),
    )
    restrictions = (Restriction("block <= 128 or memory != 'shared'"), Restriction("not unroll or factor > 0"))
    return ParameterSpace("made", parameters, restrictions)


def every(of: ParameterSpace) -> np.ndarray[Any, Any]:
    shape = [len(p.values) for p in of.parameters]
    return np.stack(np.unravel_index(np.arange(of.size), shape), axis=1).astype(np.int32)


def test_restrictions_hold_as_python_says() -> None:
    rows = every(space())
    legal = space().sketches[0].legal(rows)
    for row, found in zip(rows, legal, strict=True):
        v: dict[str, Any] = {**space().values(row)}
        assert found == ((v["block"] <= 128 or v["memory"] != "shared") and (not v["unroll"] or v["factor"] > 0))
    assert space().sketches[0].violations(rows)["not unroll or factor > 0"] == len(rows) // 3


def test_models_see_numbers_ranks_and_a_column_for_each_text() -> None:
    features = KnobFeatures(space())
    assert features.names[:5] == ("block", "memory=shared", "memory=global", "memory=texture", "factor")
    row = space().choices([{"block": 64, "memory": "global", "factor": 2.25, "unroll": True, "one": 7}])
    np.testing.assert_allclose(features(0, row)[0][:6], np.log2(1.0 + np.array([64, 0, 1, 0, 2, 1])), rtol=1e-6)


def test_configurations_come_back() -> None:
    rows = every(space())
    assert np.array_equal(space().choices([space().values(row) for row in rows]), rows)


def test_only_what_is_listed_is_legal() -> None:
    rows = every(space())[::7]
    few = ParameterSpace("few", space().parameters, (), rows)
    assert few.sketches[0].legal(every(space())).sum() == len(rows)
    assert few.sketches[0].legal(rows).all()


@pytest.mark.parametrize("strategy", ["annealing", "beam", "evolution", "random", "tpe", "cmaes", "nsga2"])
def test_every_strategy_searches_it(strategy: str) -> None:
    found = search.get(strategy)(
        space(), lambda sketch, choices: -choices.sum(axis=1).astype(float), np.random.default_rng(0)
    )
    met: set[tuple[int, ...]] = set()
    for _ in range(4):
        asked = found.ask(5)
        rows = np.array([candidate.choices for candidate in asked], np.int32)
        assert space().sketches[0].legal(rows).all()
        assert not met & {candidate.choices for candidate in asked}
        met |= {candidate.choices for candidate in asked}
        found.tell(asked, rows.sum(axis=1) + 1.0)


def test_a_file_reads_back(tmp_path: Path) -> None:
    write_t1(space(), tmp_path / "space.json")
    found = read_t1(tmp_path / "space.json")
    assert found.parameters == space().parameters
    assert [r.text for r in found.restrictions] == [r.text for r in space().restrictions]
    assert found.name == "made"


def document(**changes: Any) -> dict[str, Any]:
    parameter = {"Name": "a", "Type": "int", "Values": "[1, 2, 4]", **changes}
    return {"ConfigurationSpace": {"TuningParameters": [parameter], "Conditions": [{"Expression": "a > 1"}]}}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{", "must be a T1 file in JSON"),
        ("[]", "a T1 file must be an object"),
        ("{}", "`ConfigurationSpace` must be an object, but got None"),
        (json.dumps(document(Name="a b")), "`Name` of a parameter must be an identifier, but got 'a b'"),
        (json.dumps(document(Type="complex")), "`Type` of a must be one of int, uint, float, bool, string"),
        (json.dumps(document(Values="[1, 'x']")), "`Values` of a must be of type int, but got 'x'"),
        (json.dumps(document(Values="[1.5]")), "`Values` of a must be of type int, but got 1.5"),
        (json.dumps(document(Values="os.listdir()")), "`Values` of a: a list must be made of .*, but got os.listdir"),
        (json.dumps(document(Values="[[1], [2]]")), "`Values` of a: a list must be of numbers or texts, but got"),
        (json.dumps(document(Values="3")), "`Values` of a: a list must be of numbers or texts, but got '3'"),
        (json.dumps(document(Values=[])), "must be at least one, but a has none"),
        (json.dumps(document(Values=[1, 1])), "must differ, but a has 1 more than once"),
        (json.dumps(document(Name="b")), "must read parameters of the space"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, text: str, rule: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(T1Error, match=rule) as caught:
        read_t1(tmp_path / "bad.json")
    assert "\n" not in str(caught.value)


def test_bad_spaces_are_refused() -> None:
    with pytest.raises(ValueError, match="must have parameters"):
        ParameterSpace("none", ())
    with pytest.raises(ValueError, match="names of parameters must differ"):
        ParameterSpace("twice", (Parameter("a", (1,)), Parameter("a", (2,))))
    with pytest.raises(ExpressionError, match="but got 'b'"):
        ParameterSpace("other", (Parameter("a", (1,)),), (Restriction("b > 1"),))
    with pytest.raises(ValueError, match="numbers or texts, but a has both"):
        Parameter("a", (1, "x"))
    with pytest.raises(ValueError, match="must be finite"):
        Parameter("a", (1.0, float("nan")))
    with pytest.raises(ValueError, match="must have `a`"):
        ParameterSpace("one", (Parameter("a", (1,)),)).choices([{}])
    with pytest.raises(ValueError, match=r"`a` must be one of \[1\], but got 2"):
        ParameterSpace("one", (Parameter("a", (1,)),)).choices([{"a": 2}])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 4] + list(range(32, 128+1, 32))", [1, 2, 4, 32, 64, 96, 128]),
        ("[2**i for i in range(0, 4)]", [1, 2, 4, 8]),
        ("list(2**i for i in range(3))", [1, 2, 4]),
        ("list(range(2))", [0, 1]),
        ("(1, 2) + (3,)", [1, 2, 3]),
        ("[1] * 2 + 2 * [-3]", [1, 1, -3, -3]),
        ("[i * j for i in range(1, 3) for j in [3, 4] if not i == j and (i < 2 or j % 2 == 0)]", [3, 4, 8]),
        ("sorted([8, 4])[0:1]", None),
        ("['a', \"b\"]", ["a", "b"]),
        ("[True, False]", [True, False]),
        ("[int(7 / 2), 7 // 2, max(1, 2), min(1, 2), abs(-1), round(1.5), float(2)]", [3, 3, 2, 1, 1, 2, 2.0]),
        ("[2**40 + 1]", [2**40 + 1]),
        ("range(3)", [0, 1, 2]),
    ],
)
def test_lists_are_worked_out_as_python_would(text: str, values: list[Any] | None) -> None:
    if values is None:
        with pytest.raises(ExpressionError, match="a list must be made of"):
            evaluate_list(text)
        return
    assert evaluate_list(text) == values == list(eval(text))  # the oracle, on text of this file
    assert list(map(type, evaluate_list(text))) == list(map(type, values))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("range(10**9)", "at most 65536 values, but got 1000000000"),
        ("[0] * 10**9", "a list must be made of"),
        ("[i for i in range(60000) for j in range(60000)]", "at most 1048576 steps"),
        ("[9**9**9]", "an exponent must be at most 64"),
        ("[2**64]", "real and below 2\\*\\*63"),
        ("[(-8)**0.5]", "real and below"),
        ("[10.0**64**1 * 10.0**300 * 10.0**10]", "an exponent must be at most 64"),
        ("[1e308 * 10]", "must be finite"),
        ("[1 / 0]", "must be computable, but got .*: division by zero"),
        ("[1, 'a' + 'b']", "a list must be made of"),
        ("['a' * 10**9]", "a list must be made of"),
        ("[x]", "a list must be made of"),
        ("__import__('os').listdir()", "a list must be made of"),
        ("[i.real for i in range(3)]", "a list must be made of"),
        ("[(lambda: 1)()]", "a list must be made of"),
        ("open('x')", "made by range, list, .*, but got open"),
        ("sum([1])", "made by range, list, .*, but got sum"),
        ("[1", "must be a Python expression"),
        ("+".join(["[1]"] * 3000), "must be"),
    ],
)
def test_lists_that_are_too_much_or_none_are_refused(text: str, rule: str) -> None:
    with pytest.raises(ExpressionError, match=rule):
        evaluate_list(text)
