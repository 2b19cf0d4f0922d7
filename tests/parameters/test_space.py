"""Spaces of parameters: what strategies and models see of them, and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import search
from costmodel.features.knobs import KnobFeatures
from search_space.parameters import ExpressionError, Parameter, ParameterSpace, Restriction, T1Error, read_t1, write_t1


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
        (json.dumps(document(Values="os.listdir()")), "`Values` of a must be a list, but got 'os.listdir"),
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
