"""Text of large expressions: each shared subterm once, and choices of many constants as tables."""

from __future__ import annotations

import re

from search_space import te, workloads
from search_space.ir.expr import const, eq, load, var
from search_space.ir.render import SharedText, is_large
from search_space.lower import lower
from search_space.schedule.state import initial_state
from tests.golden.cases import find_sketch, program


def test_text_of_shared_subterms_grows_with_their_number() -> None:
    e = load("x", (var("i"),), "float32")
    for number in range(1, 41):
        e = e * e + float(number)
    assert is_large([e], 10**5) and not is_large([var("i")], 1)
    text = str(e)
    assert len(text) < 4000 and text.count("x[i]") == 2 and str(e) is text
    assert text.endswith(" + 39.0") and " where t0 = x[i] * x[i] + 1.0; t1 = t0 * t0 + 2.0; " in text


def test_small_expressions_and_programs_are_written_as_trees() -> None:
    i, j = var("i"), var("j")
    assert str((i + j) * (i + j) // 3) == "(i + j) * (i + j) // 3"
    x = te.placeholder((4, 4), name="x")
    out = te.compute((4, 4), lambda a, b: (x[a, b] + 1) * (x[a, b] + 1), "out")
    assert "out[out.a, out.b] = (x[out.a, out.b] + 1.0) * (x[out.a, out.b] + 1.0)" in str(lower(initial_state([out])))


def test_names_are_defined_before_they_are_used_and_are_nobody_elses() -> None:
    a = load("t0", (var("t1"),), "float32") * 2.0 + 1.0
    shared = SharedText([a * a])
    assert shared.definitions == ["t0_ = t0[t1] * 2.0 + 1.0"] and shared.lines("y =", a * a) == ["y = t0_ * t0_"]
    total = a + a * a
    product = SharedText([total * total])
    assert product.definitions == ["t0_ = t0[t1] * 2.0 + 1.0", "t1_ = t0_ + t0_ * t0_"]
    assert product.lines("y =", total * total) == ["y = t1_ * t1_"], "a name needs no parentheses"


def test_a_choice_of_constants_is_a_table() -> None:
    i, x = var("i"), load("x", (var("j"),), "float32")
    chosen = const(9.0, "float32")
    for number in reversed(range(3)):
        chosen = te.if_then_else(eq(i, number), x * float(number + 2), chosen)
    shared = SharedText([chosen + 1.0])
    assert shared.definitions == [
        "table0 = case i:",
        "  0: x[j] * 2.0",
        "  1: x[j] * 3.0",
        "  2: x[j] * 4.0",
        "  else: 9.0",
    ]
    assert shared.has_tables and shared.lines("y =", chosen + 1.0) == ["y = table0 + 1.0"]
    assert SharedText([chosen]).lines("y =", chosen, "  if j < 3")[0] == "y = case i:  if j < 3"


def test_programs_of_transforms_have_readable_lines() -> None:
    """Every row of Winograd's matrices occurs once; before, lines had up to 18,746 characters."""
    conv = workloads.conv2d(height=28, width=28, in_channels=64, out_channels=64, kernel=3, padding=1)
    text = str(program(conv, find_sketch(conv, "winograd4:block/pad_root")))
    assert len(text) < 10_000 and max(map(len, text.splitlines())) < 500
    assert text.count("weight[0, 0, ") == 1 and re.search(r"table\d+ = case weight_tiles\.p1:\n +0: t\d+\n", text)
