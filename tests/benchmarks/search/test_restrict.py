"""Restricted spaces: what is kept, listed and told apart."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.search import restrict
from benchmarks.search.restrict import Restriction, digest, legal_rows, thin
from search_space import decisions, workloads
from search_space.space import generate
from targets import registry
from tests.benchmarks.search.tiny import TINY


def test_thinning_keeps_the_ends_of_a_table_and_the_order():
    whole = TINY.make_space()
    space = TINY.restriction(whole).apply(whole)
    assert 1 < len(space.sketches) < len(whole.sketches)
    by_name = {sketch.name: sketch for sketch in whole.sketches}
    for cut in space.sketches:
        sketch = by_name[cut.name]
        tables = {group.name: group.table.tolist() for group in sketch.groups}
        for group in cut.groups:
            rows = group.table.tolist()
            assert len(rows) == (2 if group.name == "out.w" else len(tables[group.name]))
            assert rows[0] == tables[group.name][0] and rows[-1] == tables[group.name][-1]
            assert rows == [row for row in tables[group.name] if row in rows]


def test_a_restriction_is_plain_data():
    restriction = TINY.restriction(TINY.make_space())
    again = Restriction.from_json(json.loads(json.dumps(restriction.to_json())))
    assert again == restriction


def test_legal_candidates_are_the_same_in_blocks(monkeypatch):
    sketch = TINY.make_space().sketches[0]
    whole = legal_rows(sketch)
    assert sketch.legal(whole).all() and 0 < len(whole) < sketch.size
    monkeypatch.setattr(decisions, "BLOCK", 7)
    np.testing.assert_array_equal(legal_rows(sketch), whole)


def test_a_restricted_candidate_is_one_of_the_whole_space():
    whole = TINY.make_space()
    space = TINY.restriction(whole).apply(whole)
    by_name = {sketch.name: sketch for sketch in whole.sketches}
    for cut in space.sketches:
        sketch = by_name[cut.name]
        known = {tuple(sketch.values(row).items()) for row in legal_rows(sketch)}
        assert {tuple(cut.values(row).items()) for row in legal_rows(cut)} <= known


def test_without_pruning_there_are_more_candidates_and_correct_ones_only():
    workload = workloads.matmul(24, 70, 16)
    whole = generate(workload, registry.get("cpu").hardware, ["direct"])
    pruned, free = (thin(whole, most={"matmul.i": 40}, pruned=p).apply(whole) for p in (True, False))
    fewer, more = (sum(len(legal_rows(sketch)) for sketch in space.sketches) for space in (pruned, free))
    assert fewer < more <= free.size
    for sketch in free.sketches:  # what lowering asks for still holds
        assert {c.name for c in sketch.constraints} >= {c.name for c in sketch.program.constraints}


def test_too_large_a_sketch_is_refused(monkeypatch):
    monkeypatch.setattr(restrict, "MOST", 10)
    with pytest.raises(ValueError, match=r"`sketch` must have at most 10 candidates, but got direct:.* of \d+"):
        legal_rows(TINY.make_space().sketches[0])


@pytest.mark.parametrize(
    ("sketches", "message"),
    [
        ({"direct:x": {}}, r"`sketches` must be of direct:k\.0.*, but got 'direct:x'"),
        ({"direct:k.0>h.0>w.0": {"out.z": ((1,),)}}, "`groups` must be of sketch direct:.*, but got 'out.z'"),
        ({"direct:k.0>h.0>w.0": {"out.h": ((9, 9),)}}, r"`rows` must be of the table of out.h, but got \(9, 9\)"),
    ],
)
def test_what_the_space_does_not_have_is_refused(sketches, message):
    with pytest.raises(ValueError, match=message):
        Restriction(sketches).apply(TINY.make_space())


def test_a_group_that_is_not_there_is_not_thinned():
    with pytest.raises(ValueError, match=r"`most` must be of the groups out.k, .*, but got 'out.z'"):
        thin(TINY.make_space(), most={"out.z": 3})


def test_the_digest_tells_schedules_tables_and_limits_apart():
    whole = TINY.make_space()
    first = digest(whole)
    assert digest(TINY.make_space()) == first
    sketch = whole.sketches[0]
    others = [
        replace(sketch, steps=type(sketch.steps)(sketch.steps.steps[:-1])),
        replace(sketch, groups=(*sketch.groups[:-1], replace(sketch.groups[-1], table=sketch.groups[-1].table[:1]))),
        replace(sketch, hardware=replace(sketch.hardware, most_nests=1), _cache={}),
        replace(sketch, name="another"),
    ]
    found = {digest(replace(whole, sketches=(other, *whole.sketches[1:]))) for other in others}
    assert len(found) == len(others) and first not in found


@settings(max_examples=20, deadline=None)
@given(most=st.dictionaries(st.sampled_from(["out.k", "out.h", "out.w", "out.rc"]), st.integers(1, 6)))
def test_no_more_rows_are_kept_than_wanted(most):
    whole = TINY.make_space()
    space = thin(whole, most=most).apply(whole)
    for cut, sketch in zip(space.sketches, whole.sketches, strict=True):
        for group, full in zip(cut.groups, sketch.groups, strict=True):
            assert len(group.table) == min(len(full.table), most.get(group.name, len(full.table)))
