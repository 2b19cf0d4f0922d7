"""Templates: knobs become decision groups and sketches, and every candidate computes the reference."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_space import te, workloads
from search_space.ir.expr import Expr
from search_space.ir.stmt import For, walk_stmt
from search_space.schedule.errors import ScheduleError
from search_space.space import concrete, make_program
from search_space.template import TEMPLATES, Config, get, template
from search_space.template.knobs import list_orders, loop_kinds, split_rows
from targets import registry
from tests.interpreter import interpret
from tests.native import run_program

CPU = registry.get("cpu").hardware
VTA = registry.get("vta").hardware


@template("test.matmul")
def matmul(cfg, m, n, k):
    """A product with every kind of knob."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    cfg.define_split("tile_i", i, 2)
    cfg.define_split("tile_j", j, 2, "power2", tail="guard", max_factor=8)
    cfg.define_knob("parallel", [False, True])
    cfg.define_knob("step", [1, 2, 4])
    i0, i1 = cfg["tile_i"].apply(s, c, i)
    j0, j1 = cfg["tile_j"].apply(s, c, j)
    r0, r1 = s[c].split(r, factor=cfg["step"].var, tail="guard")
    cfg.define_reorder("order", [r0, i1], candidate=[[r0, i1], [i1, r0]])
    s[c].reorder(i0, j0, r0, i1, r1, j1)
    cfg["order"].apply(s, c, [r0, i1])
    cfg.define_annotate("vector", [r1, j1], "try_vec")
    cfg["vector"].apply(s, c, [r1, j1])
    if cfg["parallel"].val:
        s[c].parallel(i0)
    cfg.require("tile", cfg["tile_i"].size[1] * cfg["tile_j"].size[1], 24)
    return s, [a, b, c]


def draw(sketch, rng, count):
    """`count` legal candidates at random."""
    rows = [rng.integers(len(g.table), size=2000) for g in sketch.groups]
    choices = np.stack(rows, axis=1).astype(np.int32)
    return choices[sketch.legal(choices)][:count]


def compute_output(space, sketch, choice, inputs):
    """Interprets a candidate and returns its output."""
    program = make_program(space.workload, sketch.algorithm, sketch.trace(choice))
    names = [spec.name for spec in space.workload.inputs]
    return interpret(program, dict(zip(names, inputs, strict=True)))[space.workload.output.name]


def test_numbers_are_groups_and_choices_are_sketches():
    space = matmul(12, 10, 6).space(CPU)
    assert space.dropped_count == 0 and len(space.sketches) == 8
    assert [dict(c) for c in space.choices][:3] == [
        {"order": "01", "vector": "none", "parallel": "False"},
        {"order": "01", "vector": "none", "parallel": "True"},
        {"order": "01", "vector": "vectorize1", "parallel": "False"},
    ]
    for sketch in space.sketches:
        assert sketch.columns == ("tile_i:1", "tile_j:1", "step")
        assert [g.table.ravel().tolist() for g in sketch.groups] == [[1, 2, 3, 4, 6, 12], [1, 2, 4, 8], [1, 2, 4]]
    assert len({sketch.name for sketch in space.sketches}) == 8
    parallel = [
        any(isinstance(n, For) and n.kind == "parallel" for n in walk_stmt(s.program.body)) for s in space.sketches
    ]
    assert parallel == [c["parallel"] == "True" for c in space.choices]


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 7), st.integers(0, 7), st.integers(0, 1 << 30))
def test_every_candidate_computes_the_product(m, n, k, index, seed):
    space = matmul(m, n, k).space(CPU)
    sketch = space.sketches[index % len(space.sketches)]
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(spec.shape, np.float32) for spec in space.workload.inputs]
    (choice,) = draw(sketch, rng, 1)
    np.testing.assert_allclose(
        compute_output(space, sketch, choice, inputs), inputs[0] @ inputs[1], rtol=1e-5, atol=1e-5
    )
    replaced = concrete(sketch, sketch.values(choice))
    found = interpret(replaced, dict(zip(("A", "B"), inputs, strict=True)))["C"]
    np.testing.assert_allclose(found, inputs[0] @ inputs[1], rtol=1e-5, atol=1e-5)


def test_limits_of_a_template_are_kept():
    sketch = matmul(12, 10, 6).space(CPU).sketches[0]
    choices = np.stack(np.unravel_index(np.arange(sketch.size), [len(g.table) for g in sketch.groups]), axis=1)
    values = sketch.expand(choices.astype(np.int32))
    np.testing.assert_array_equal(sketch.legal(choices.astype(np.int32)), values[0] * values[1] <= 24)
    assert set(sketch.violations(choices.astype(np.int32))) == {"tile"}


LIBRARY = {
    "3x3": ("conv2d.cpu", workloads.conv2d(height=5, width=4, in_channels=4, out_channels=18, kernel=3, padding=1)),
    "strided": (
        "conv2d.cpu",
        workloads.conv2d(
            height=7, width=7, in_channels=3, out_channels=8, kernel=3, stride=2, bias=True, activation="relu"
        ),
    ),
    "vta": (
        "conv2d.vta",
        workloads.conv2d_blocked(height=5, width=4, in_channels=32, out_channels=32, kernel=3, padding=1, relu=True),
    ),
}


@pytest.mark.parametrize("case", LIBRARY)
def test_the_library_computes_the_reference_in_every_sketch(case):
    name, workload = LIBRARY[case]
    target = registry.get("vta" if name == "conv2d.vta" else "cpu")
    space = get(name)(workload).space(target.hardware)
    inputs = workload.make_inputs(0)
    rtol, atol = workload.tolerance
    rng = np.random.default_rng(0)
    assert len(space.sketches) == {"3x3": 8, "strided": 4, "vta": 2}[case]
    for sketch in space.sketches:
        for choice in draw(sketch, rng, 1):
            program = make_program(workload, sketch.algorithm, sketch.trace(choice))
            found = run_program(target, program, inputs)[0]
            np.testing.assert_allclose(found, workload.reference(*inputs), rtol=rtol, atol=atol, err_msg=sketch.name)


TINY = {
    "cpu": ("conv2d.cpu", LIBRARY["3x3"][1]),
    "vta": (
        "conv2d.vta",
        workloads.conv2d_blocked(height=2, width=1, in_channels=16, out_channels=16, kernel=3, padding=1),
    ),
}


@pytest.mark.parametrize("target", TINY)
def test_the_library_agrees_with_the_interpreter(target):
    name, workload = TINY[target]
    space = get(name)(workload).space(registry.get(target).hardware)
    inputs = workload.make_inputs(1)
    rtol, atol = workload.tolerance
    (choice,) = draw(space.sketches[-1], np.random.default_rng(1), 1)
    found = compute_output(space, space.sketches[-1], choice, inputs)
    np.testing.assert_allclose(found, workload.reference(*inputs), rtol=rtol, atol=atol)


def test_a_knob_is_a_choice_or_a_number():
    @template("test.either")
    def either(cfg, how):
        a = te.placeholder((12,), name="A")
        b = te.compute((12,), lambda i: a[i] + 1.0, name="B")
        s = te.create_schedule(b.op)
        cfg.define_split("tile", 12, 2)
        cfg.define_knob("k", [2, 3])
        if how == "choice":
            assert isinstance(cfg["k"].val, int) and cfg["k"].var == cfg["k"].val
            assert cfg["tile"].val[0] * cfg["tile"].val[1] == 12
        elif how == "number":
            assert isinstance(cfg["k"].var, Expr)
        elif how == "late":
            assert isinstance(cfg["k"].var, Expr)
            cfg["k"].val  # noqa: B018
        cfg["tile"].apply(s, b, s[b].op.axis[0])
        return s, [a, b]

    assert len(either("choice").space(CPU).sketches) == 12
    (sketch,) = either("number").space(CPU).sketches
    assert sketch.columns == ("k", "tile:1")
    (sketch,) = either("neither").space(CPU).sketches
    assert sketch.columns == ("tile:1",)  # what is not read is no knob
    with pytest.raises(ValueError, match="a knob must be read as a choice first .*, but got 'k'"):
        either("late").space(CPU)


def test_combinations_that_are_no_schedule_are_left_out():
    @template("test.parallel")
    def parallel(cfg, axes):
        a = te.placeholder((4, 6), name="A")
        r = te.reduce_axis((0, 6), "r")
        b = te.compute((4,), lambda i: te.sum(a[i, r], axis=r), name="B")
        s = te.create_schedule(b.op)
        cfg.define_knob("axis", axes)
        s[b].parallel(cfg["axis"].val)
        return s, [a, b]

    assert [dict(c) for c in parallel(["r", "i"]).space(CPU).choices] == [{"axis": "i"}]
    with pytest.raises(ScheduleError, match="a reduce loop must not be parallel"):
        parallel(["r"]).space(CPU)


def test_too_many_combinations_are_thinned_out_evenly_or_refused():
    @template("test.many")
    def many(cfg, knobs):
        a = te.placeholder((4,), name="A")
        b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
        for knob in range(knobs):
            cfg.define_knob(f"k{knob}", [0, 1]).val  # noqa: B018
        return te.create_schedule(b.op), [a, b]

    space = many(8).space(CPU)
    assert len(space.sketches) == 64 and space.dropped_count == 192
    assert {c["k0"] for c in space.choices} == {"0", "1"} == {c["k5"] for c in space.choices}
    with pytest.raises(ValueError, match="must have at most 1024 combinations of choices, but got more"):
        many(11).space(CPU)


def test_a_template_computes_one_thing():
    @template("test.two")
    def two(cfg, knob):
        a = te.placeholder((4,), name="A")
        more = cfg.define_knob("more", [1.0, 2.0]).val
        b = te.compute((4,), lambda i: a[i] + more, name="B")
        return te.create_schedule(b.op), [a, b]

    with pytest.raises(ValueError, match=r"template test.two must compute the same whatever is chosen"):
        two(0).space(CPU)


def test_a_workload_is_checked():
    conv = get("conv2d.cpu")
    with pytest.raises(ValueError, match="template conv2d.cpu must be given a workload, but got 3"):
        conv(3)
    with pytest.raises(ValueError, match="must be given a workload of conv2d, but got matmul"):
        conv(workloads.matmul(4, 4, 4))
    grouped = workloads.conv2d(height=4, width=4, in_channels=4, out_channels=4, groups=2)
    with pytest.raises(ValueError, match="must be given a float32 convolution of one group, but got .*groups=2"):
        conv(grouped).space(CPU)
    with pytest.raises(ValueError, match="must be given an accelerator"):
        get("conv2d.vta")(LIBRARY["vta"][1]).space(CPU)

    @template("test.other", operator="matmul")
    def other(cfg, workload):
        a = te.placeholder((4,), name="A")
        b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
        return te.create_schedule(b.op), [a, b]

    with pytest.raises(ValueError, match="must return the tensors of one of its workload's algorithms"):
        other(workloads.matmul(4, 4, 4)).space(CPU)


def test_the_algorithm_is_found_by_what_is_computed():
    @template("test.algorithms", operator="conv2d")
    def algorithms(cfg, workload):
        tensors = workload.tensors(cfg.define_knob("algorithm", ["direct", "im2col"]).val)
        return te.create_schedule(tensors[-1].op), tensors

    space = algorithms(LIBRARY["3x3"][1]).space(CPU)
    assert [sketch.algorithm for sketch in space.sketches] == ["direct", "im2col"]


def test_names_are_looked_up():
    assert TEMPLATES["test.matmul"] is matmul is get("test.matmul")
    with pytest.raises(ValueError, match="`template` must be one of .*; did you mean 'conv2d.cpu'"):
        get("conv2d.cpo")


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda cfg: cfg["tile"], "a knob must be defined before it is read .*, but got 'tile'"),
        (lambda cfg: [cfg.define_knob("k", [1]), cfg.define_knob("k", [2])], "a name of its own, but got 'k' twice"),
        (lambda cfg: cfg.define_knob("k", []), "`candidate` of k must have at least one value"),
        (lambda cfg: cfg.define_knob("k", ["a", "b"]).var, "`var` must be of a knob of whole numbers, but got k='a'"),
        (lambda cfg: cfg.define_split("t", 8, 2, "halves"), "`policy` of t must be one of factors, power2, verbose"),
        (lambda cfg: cfg.define_split("t", 8, 0), "`num_outputs` of t must be at least 1, but got num_outputs=0"),
        (lambda cfg: cfg.define_split("t", 8, tail="cut"), "`tail` of t must be one of exact, .*, but got tail='cut'"),
        (lambda cfg: cfg.define_split("t", te.IterVar("i.0", 0)), "`axis` of t must have an extent that is known"),
        (lambda cfg: cfg.define_split("t", 8, filter=lambda size: False), "`t` must have 1 to 65536 ways to split 8"),
        (lambda cfg: cfg.define_split("t", 8, candidate=[[2, 2]]), "`candidate` of t must be rows of 1 inner sizes"),
        (lambda cfg: cfg.define_reorder("o", ["a", "b"], "some"), "`policy` of o must be one of identity, all"),
        (
            lambda cfg: cfg.define_reorder("o", ["a", "b"], candidate=[[0, 0]]),
            r"orders of all 2 loops, but got \[0, 0\]",
        ),
        (
            lambda cfg: cfg.define_reorder("o", ["a", "b"], candidate=[["a", "b"], ["a", "c"]]),
            r"orders of all 2 loops, but got \['a', 'c'\]",
        ),
        (
            lambda cfg: cfg.define_split("t", 2048, 4, "verbose", tail="guard"),
            "`t` must have 1 to 65536 ways to split 2048 .*, but got more",
        ),
        (lambda cfg: cfg.define_annotate("a", ["i"], "fast"), "`policy` of a must be one of none, unroll, vec"),
        (lambda cfg: cfg.define_annotate("a", ["i"], "none", candidate=[["fast"]]), r"but got \['fast'\]"),
    ],
)
def test_wrong_knobs(define, message):
    with pytest.raises(ValueError, match=message):
        define(Config(CPU))


@given(st.integers(1, 48), st.integers(1, 4), st.sampled_from(["factors", "power2", "verbose"]))
@settings(max_examples=40, deadline=None)
def test_splits_are_those_that_a_search_through_all_finds(extent, outputs, policy):
    extent = extent if outputs < 4 else extent % 16 + 1
    rows = split_rows("t", extent, outputs, policy, "exact", None, None)
    assert len(set(rows)) == len(rows)
    wanted = [
        row
        for row in np.ndindex(*[extent] * (outputs - 1))
        if extent % int(np.prod([s + 1 for s in row], dtype=np.int64)) == 0
        and (policy != "power2" or all(s & (s + 1) == 0 for s in row))
    ]
    assert set(rows) == {tuple(s + 1 for s in row) for row in wanted}


def test_a_filter_is_asked_of_every_row():
    rows = split_rows("t", 8192, 4, "verbose", "guard", None, lambda sizes: sizes[1:3] == (1024, 2))
    assert rows == [(1024, 2, 1), (1024, 2, 2), (1024, 2, 3), (1024, 2, 4)]


def test_policies_of_orders_and_annotations():
    assert len(list_orders("o", "abc", "all", None)) == 6
    assert list_orders("o", "abc", "identity", None) == [(0, 1, 2)]
    assert list_orders("o", ["a", "b"], "all", [["b", "a"], [0, 1]]) == [(1, 0), (0, 1)]
    assert loop_kinds("a", 2, "vec") == [("", "vectorize")]
    assert loop_kinds("a", 2, "try_unroll") == [("", ""), ("", "unroll"), ("unroll", "unroll")]
    assert loop_kinds("a", 2, "try_unroll_vec")[3:] == [("", "vectorize"), ("unroll", "vectorize")]
    assert loop_kinds("a", 0, "try_unroll_vec") == [()]


def test_the_page_on_templates_holds():
    page = (Path(__file__).parents[3] / "docs" / "writing_a_template.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, "writing_a_template.md", "exec"), names)
    space = names["space"]
    assert len(space.sketches) == 8
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(spec.shape, np.float32) for spec in space.workload.inputs]
    (choice,) = draw(space.sketches[3], rng, 1)
    found = compute_output(space, space.sketches[3], choice, inputs)
    np.testing.assert_allclose(found, inputs[0] @ inputs[1], rtol=1e-5, atol=1e-5)
    calls = re.findall(r"^\| `(\w+)\(", page, re.MULTILINE)
    assert calls and all(hasattr(Config, call) for call in calls)
