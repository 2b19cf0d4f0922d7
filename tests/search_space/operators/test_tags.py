"""Tags of stages are those that rules know: a misspelt one is refused where the stage is made."""

from __future__ import annotations

import json
import re

import pytest

from search_space import te, te_json
from search_space.schedule.state import initial_state
from search_space.tags import Tag

X = te.placeholder((4,), name="x")


def make_tagged(tag: Tag | str) -> te.Tensor:
    return te.compute((4,), lambda i: X[i] * 2.0, name="double", tag=tag)


@pytest.mark.parametrize("tag", Tag)
def test_text_and_member_make_the_same_stage(tag: Tag) -> None:
    found = [te_json.to_json([X, make_tagged(one)]) for one in (tag, tag.value)]
    assert found[0] == found[1] and type(found[0]["stages"][0]["tag"]) is str
    assert json.loads(json.dumps(found[0]))["stages"][0]["tag"] == tag.value
    assert te_json.from_json(found[0])[-1].op.tag is tag is make_tagged(tag.value).op.tag


def test_a_schedule_keeps_the_tag() -> None:
    out = te.compute((4,), lambda i: make_tagged(Tag.PAD)[i] + 1.0, name="out")
    (stage,) = (s for s in initial_state([out]).stages if s.name == "double")
    assert stage.tag is Tag.PAD


@pytest.mark.parametrize("tag", ["padd", "PAD", "pad "])
def test_a_misspelt_tag_is_refused(tag: str) -> None:
    known = "pad, constant, library, transform, filters, pairs, words, slices, panel, sparse"
    with pytest.raises(ValueError, match=re.escape(f"`tag` must be one of {known}, but got tag={tag!r}")):
        make_tagged(tag)
