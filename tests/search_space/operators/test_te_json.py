"""Definitions as plain data: they come back as they were, equal ones are equal text, and bad data is refused."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space import te, te_json
from search_space.ir import expr as ir
from search_space.ir.expr import BOOL, DTYPES, FLOATS, Expr, walk
from search_space.lower import cleanup, lower
from search_space.operators.naming import over
from search_space.schedule.state import initial_state, operations, rename_loads
from search_space.workloads import Workload
from tests.properties.programs import PROGRAMS
from tests.search_space.operators.cases import EVERY, make_gated_product

Tensors = list[te.Tensor]


def again(tensors: Tensors) -> Tensors:
    """A definition after its way through text."""
    data = te_json.to_json(tensors)
    text = te_json.text(data)
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    back = te_json.from_json(json.loads(text))
    assert te_json.text(te_json.to_json(back)) == text
    return back


def loops(tensors: Tensors) -> str:
    return str(cleanup(lower(initial_state(tensors[-1:], inputs=tensors[:-1]))))


@pytest.mark.parametrize(("workload", "algorithm"), EVERY, ids=str)
def test_operators_lower_to_the_same_loops(workload: Workload, algorithm: str) -> None:
    tensors = workload.tensors(algorithm)
    assert loops(again(tensors)) == loops(tensors)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, (_, dtypes) in PROGRAMS.items() for d in dtypes])
def test_programs_of_every_dtype_lower_to_the_same_loops(name: str, dtype: str) -> None:
    output = PROGRAMS[name][0](dtype)
    tensors = [te.Tensor(op) for op in operations(output) if op.body is None] + output
    assert loops(again(tensors)) == loops(tensors)


SHAPE = (3, 4)
ROW, COLUMN = ir.var("i"), ir.var("j")
INPUTS = {dtype: te.placeholder(SHAPE, dtype, f"x_{dtype}") for dtype in DTYPES}
INDEX_PAIRS = [(ROW, COLUMN), (2 - ROW, COLUMN), ((ROW + COLUMN) % 3, COLUMN), (ROW, (COLUMN * 2 + 1) // 3)]


def numbers(dtype: str) -> st.SearchStrategy[Any]:
    if dtype in FLOATS:
        finite = st.floats(width=16 if dtype == "float16" else 32, allow_nan=False)
        return st.one_of(finite, st.just(math.nan))  # one NaN: its sign and payload mean nothing
    bits = ir.BITS[dtype]
    return st.integers(0, 255) if dtype == "uint8" else st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@st.composite
def values(draw: st.DrawFn, dtype: str, depth: int) -> Expr:
    """An expression of `dtype` with any of the operators."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if dtype == "int64" and draw(st.booleans()):
            return draw(st.sampled_from([ROW, COLUMN]))
        if draw(st.booleans()):
            return ir.const(draw(st.booleans() if dtype == BOOL else numbers(dtype)), dtype)
        at = draw(
            st.sampled_from(
                [(ROW, COLUMN), (2 - ROW, COLUMN), ((ROW + COLUMN) % 3, COLUMN), (ROW, (COLUMN * 2 + 1) // 3)]
            )
        )
        return INPUTS[dtype][at]
    same = values(dtype, depth - 1)
    kind = draw(st.sampled_from(["binary", "binary", "select", "cast", "shared", "special"]))
    if kind == "select":
        return ir.select(draw(values(BOOL, depth - 1)), draw(same), draw(same))
    if kind == "cast":
        return draw(values(draw(st.sampled_from(DTYPES)), depth - 1)).astype(dtype)
    if kind == "shared":
        part = draw(same)
        return ir.make("max", part, ir.make("min", part, draw(same)))
    if kind == "special" and dtype in FLOATS:
        return ir.call(draw(st.sampled_from(ir.MATH)), draw(same))
    if dtype == BOOL:
        if kind == "special":
            return ir.make(draw(st.sampled_from(["and", "or"])), draw(same), draw(same))
        number = values(draw(st.sampled_from(DTYPES)), depth - 1)
        return ir.make(draw(st.sampled_from(["lt", "le", "eq", "ne"])), draw(number), draw(number))
    operators = ["add", "sub", "mul", "min", "max", *(["div"] if dtype in FLOATS else [])]
    if kind == "special" and dtype not in FLOATS:
        divisor = draw(numbers(dtype).filter(bool))
        return ir.make(draw(st.sampled_from(["floordiv", "mod"])), draw(same), ir.const(divisor, dtype))
    return ir.make(draw(st.sampled_from(operators)), draw(same), draw(same))


def define(body: Expr) -> Tensors:
    """The definition with that body."""
    output = te.compute(SHAPE, over(["i", "j"], lambda i, j: body), name="out")
    return [*output.op.inputs, output]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DTYPES).flatmap(lambda dtype: values(dtype, 4)))
def test_any_expression_comes_back_as_it_was(body: Expr) -> None:
    tensors = define(body)
    back = again(tensors)
    before, after = ((t[-1].op.body, {x: x.name for x in t[:-1]}) for t in (tensors, back))
    assert before[0] is not None and after[0] is not None
    assert rename_loads(*before) is rename_loads(*after)
    assert [(n.op, n.dtype) for n in walk(before[0])] == [(n.op, n.dtype) for n in walk(after[0])]


def test_what_is_shared_is_written_once() -> None:
    x = te.placeholder((4,), name="x")
    value = x[ROW] + 1.0
    for _ in range(60):  # a tree of 2**60 leaves
        value = value * value
    output = te.compute((4,), over(["i"], lambda i: value), name="y")
    assert len(te_json.text(te_json.to_json([x, output]))) < 3000
    (body,) = [t.op.body for t in again([x, output])[-1:]]
    assert body is not None and len(list(walk(body))) == len(list(walk(value)))


def test_equal_definitions_are_equal_text_whoever_wrote_them() -> None:
    first, second = (te_json.text(te_json.to_json(make_gated_product())) for _ in range(2))
    assert first == second
    data = te_json.to_json(make_gated_product())
    data["stages"][1], data["stages"][2] = data["stages"][2], data["stages"][1]
    assert te_json.text(te_json.to_json(te_json.from_json(data))) == first, "another order of the same stages"
    data["stages"][0]["tag"] = "pad"
    assert te_json.text(te_json.to_json(te_json.from_json(data))) != first


def test_names_that_clash_are_told_apart_as_in_schedules() -> None:
    x, y = te.placeholder((3,), name="x"), te.placeholder((3,), name="x")
    z = te.compute((3,), lambda i: x[i] - y[i], name="x")
    assert [t.name for t in again([x, y, z])] == ["x", "x_1", "x_2"]
    assert loops(again([y, x, z])).count("x_1[x_2.i] - x[x_2.i]") == 1, "inputs are in the order given"


A, B = te.placeholder((3,), name="A"), te.placeholder((3,), name="B")
SUM = te.compute((3,), lambda i: A[i] + B[i], name="C")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([], "must end with the output, which is computed, but got none"),
        ([A], "must end with the output, which is computed, but got A"),
        ([A, SUM], r"each placeholder that the output reads \(A, B\) once, then the output, but got A, C"),
        ([A, B, B, SUM], "but got A, B, B, C"),
        ([SUM, A, B], "must end with the output"),
        ([A, B, te.placeholder((3,), name="D"), SUM], r"\(A, B\) once, .*but got A, B, D, C"),
        ([A, B, SUM, te.compute((3,), lambda i: SUM[i], name="E")], r"\(A, B\) once"),
        ([A, "B", SUM], "must be te tensors, .* but got 'B'"),
        (SUM, "must be a list of inputs and the output"),
        ([te.compute((3,), lambda i: i + 0, name="a b")], "a name of letters, digits, _ and ., but got 'a b'"),
    ],
    ids=str,
)
def test_lists_that_are_no_definition(tensors: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        te_json.from_json(te_json.to_json(tensors))


def change_value(*path: Any, value: Any) -> Any:
    """The data of `make_gated_product` with one value replaced."""
    data = copy.deepcopy(te_json.to_json(make_gated_product()))
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


def body(value: Any) -> Any:
    return change_value("stages", 0, "body", value=value)


def nested(levels: int) -> Any:
    out: Any = ["load", "a", "i", "r"]
    for _ in range(levels):
        out = ["call", "exp", out]
    return out


LOAD = ["load", "a", "i", "r"]
REFUSED_DATA: list[tuple[Callable[[], Any], str]] = [
    (lambda: 3, "a definition must have the keys inputs, stages, but got 3"),
    (lambda: {"inputs": []}, "a definition must have the keys inputs, stages, but got inputs"),
    (lambda: {"inputs": [], "stages": []}, "must end with the output"),
    (lambda: {"inputs": {}, "stages": []}, "`inputs` must be a list, but got inputs={}"),
    (
        lambda: change_value("inputs", 0, value={"name": "a"}),
        "an? input must have the keys name, shape, dtype, constant",
    ),
    (
        lambda: change_value("inputs", 0, "name", value="b"),
        "`name` must be unique in a definition, but got name='b' twice",
    ),
    (lambda: change_value("inputs", 0, "name", value='x"; ret'), "`name` must be a name of letters"),
    (
        lambda: change_value("inputs", 0, "shape", value=[5, 0]),
        "extents of a must be integers of at least 1, but got 0",
    ),
    (lambda: change_value("inputs", 0, "dtype", value="float64"), "`dtype` must be one of .*, but got dtype='float64'"),
    (lambda: change_value("inputs", 0, "dtype", value=["float32"]), "`dtype` of a must be a name"),
    (
        lambda: change_value("inputs", 0, "constant", value=1),
        "`constant` of a must be true or false, but got constant=1",
    ),
    *(
        (
            partial(change_value, "inputs", 0, "mean", value=mean),
            f"`mean` of a must be a finite number of at least 0, but got mean={mean!r}",
        )
        for mean in (math.nan, math.inf, True, -5, "3")
    ),
    (lambda: change_value("stages", 0, value=[]), r"a stage must have the keys name, tag, .*, but got \[\]"),
    (lambda: change_value("stages", 0, "tag", value=None), "`tag` of product must be text"),
    (lambda: change_value("stages", 0, "tag", value="padding"), "`tag` must be one of pad, .*, but got tag='padding'"),
    (lambda: change_value("stages", 0, "axes", value=[["i"]]), r"`axes` of product must be pairs of name and extent"),
    (
        lambda: change_value("stages", 0, "axes", value=[["r", 3]]),
        "axes of product must have distinct names, but got r",
    ),
    (lambda: change_value("stages", 0, "axes", value=[["i", True]]), "extents of product must be integers"),
    (
        lambda: change_value("stages", 0, "reducer", value="mean"),
        "`reducer` of product must be one of sum, max, min, prod",
    ),
    (lambda: change_value("stages", 0, "reducer", value=None), "`reducer` of product must be given with reduce axes"),
    (lambda: change_value("stages", 1, "body", value=LOAD), "name an axis among i, j, but got 'r'"),
    (
        lambda: change_value("stages", 3, "body", value=["load", "shifted", "i", "j"]),
        "must all be read .*, but got gate",
    ),
    (lambda: body("k"), "an expression of product must name an axis among i, j, r, but got 'k'"),
    (lambda: body(2.5), "be an integer, an axis or a list that starts with an operator, but got 2.5"),
    (lambda: body(True), "be an integer, an axis or a list that starts with an operator, but got True"),
    (lambda: body([]), "a list that starts with an operator"),
    (lambda: body(["pow", LOAD, LOAD]), "must start with one of add, sub, .*, but got .*pow"),
    (lambda: body(["add", LOAD]), "must have 2 operands"),
    (lambda: body(["add", LOAD, 1]), "must have operands of one dtype, not float32 and int64"),
    (lambda: body(["and", LOAD, LOAD]), "operands of `and` must be bool"),
    (lambda: body(["div", "i", 2]), "operands of `div` must be floating-point"),
    (lambda: body(["mod", "i", 0]), "the divisor must not be zero"),
    (lambda: body(["load", "product", "i", "j"]), "load from an earlier tensor among a, b, bias"),
    (lambda: body(["load", "a", "i"]), "must have 2 operands"),
    (lambda: body(["load", "a", "i", LOAD]), "load at integers, not at .*float32"),
    (lambda: body(["select", "i", LOAD, LOAD]), "select on a bool between values of one dtype"),
    (lambda: body(["call", "gamma", LOAD]), r"must be \['call', one of exp, .*, a value\]"),
    (lambda: body(["call", "exp", "i"]), "call exp on floating point, not on int64"),
    (lambda: body(["cast", "float64", LOAD]), r"must be \['cast', one of float32"),
    (lambda: body(["const", "int8", 128]), "hold a value of int8"),
    (lambda: body(["const", "bool", 1]), "hold a value of bool"),
    (lambda: body(["const", "float32", "huge"]), "hold a value of float32"),
    (lambda: body(["const", "float32", 10**400]), "hold a value of float32"),
    (lambda: body(1 << 63), "hold a value of int64"),
    (lambda: body(["ref", 0]), "refer to an earlier of 0 shared expressions"),
    (lambda: body(["lt", "i", "j"]), "be numbers where the reducer is sum"),
    (lambda: body(nested(10_000)), "must be at most 200 levels deep"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED_DATA, ids=[m for _, m in REFUSED_DATA])
def test_bad_data_is_refused_with_rule_and_value(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        te_json.from_json(make())
    assert len(str(caught.value)) < 500
    with pytest.raises(ValueError, match=message):
        Workload.from_json({"operator": "tensors", "args": {"definition": make()}})


def test_levels_that_are_allowed_are_read() -> None:
    assert len(te_json.from_json(body(["mul", nested(150), ["load", "b", "r", "j"]]))) == 4
