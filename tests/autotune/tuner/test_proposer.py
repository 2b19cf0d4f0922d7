"""The strategy that asks a program: what it is told, what is taken of its answers, and how it may fail."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.tuner.search import get
from tests.autotune import fakes

EXAMPLE = Path(__file__).parents[3] / "examples" / "propose_neighbours.py"


def make_proposer(space, seed=0, **options):
    return get("proposer")(space, fakes.oracle(space), np.random.default_rng(seed), **options)


def tell_seconds(strategy, space, candidates):
    strategy.tell(candidates, np.array([space.seconds(c.sketch, c.choices) for c in candidates]))


def program(folder, body):
    """A program that has read `request`, and prints what `body` makes `answer`; requests are kept in a file."""
    path = folder / "program.py"
    path.write_text(
        "import json, sys, time\n"
        "for number, line in enumerate(sys.stdin):\n"
        "    request = json.loads(line)\n"
        f"    open({str(folder / 'requests')!r}, 'a').write(line)\n"
        f"{body}\n"
        "    print(answer if isinstance(answer, str) else json.dumps(answer), flush=True)\n"
    )
    return f"{sys.executable} {path}"


def requests(folder):
    return [json.loads(line) for line in (folder / "requests").read_text().splitlines()]


def proposal(space, sketch, choices):
    of = space.sketches[sketch]
    values = of.expand(np.array([choices], np.int32))[:, 0].tolist()
    return {"sketch": of.name, "values": dict(zip(of.columns, values, strict=True))}


def test_what_a_program_proposes_is_measured_first_and_evolution_does_the_rest(tmp_path):
    space = fakes.space(limit=60)
    wanted = [
        proposal(space, 0, [0] * len(space.sketches[0].lengths)),
        proposal(space, 1, [1] * len(space.sketches[1].lengths)),
    ]
    command = program(tmp_path, f"    answer = {{'proposals': {wanted!r} if not number else []}}")
    strategy = make_proposer(space, command=command, first_epsilon=0.0, epsilon=0.0)
    asked = strategy.ask(6)
    assert [c.sketch for c in asked[:2]] == [0, 1] and set(asked[0].choices) == {0} and set(asked[1].choices) == {1}
    assert len(set(asked)) == 6
    tell_seconds(strategy, space, asked)
    more = strategy.ask(6)
    assert len({*asked, *more}) == 12
    first, second = requests(tmp_path)
    assert first["protocol"] == "autotune.proposer/1" and first["propose"] == 6 and first["history"] == []
    assert [s["name"] for s in first["sketches"]] == [s.name for s in space.sketches]
    assert first["sketches"][0]["decisions"][0]["rows"][0] == [1]
    assert "sketches" not in second and len(second["history"]) == 6
    assert second["history"][0] == {**wanted[0], "seconds": space.seconds(0, asked[0].choices)}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("no JSON", "an answer must be an object with a list `proposals`"),
        (None, "an answer must be an object with a list `proposals`"),
        (
            {"proposals": [{"sketch": ["good"], "values": {}}]},
            "`sketch` must be one of those given, but got \\['good'\\]",
        ),
        ({"proposals": [3]}, "a proposal must be an object with `sketch`"),
        ({"proposals": [{"sketch": "none", "values": {}}]}, "`sketch` must be one of those given, but got 'none'"),
        ({"proposals": [{"sketch": "0", "values": {}}]}, "`values` must have numbers for v0, but got \\[None\\]"),
        ({"proposals": [{"sketch": "0", "values": "first"}]}, "a proposal must be an object"),
        (
            {"proposals": [{"sketch": "0", "values": {"v0": 999}}]},
            "v0 must be a row of their decision, but got \\[999\\]",
        ),
        ({"proposals": [{"sketch": "0", "values": "largest"}]}, "values must keep every limit, but break registers"),
        ({"proposals": [{"sketch": "0", "values": "smallest"}] * 2}, "a proposal must be new"),
    ],
)
def test_what_cannot_be_taken_is_said_in_the_next_request(tmp_path, answer, reason):
    space = fakes.space(limit=60)
    sketch = space.sketches[0]
    filled = {"largest": [n - 1 for n in sketch.lengths], "smallest": [0] * len(sketch.lengths)}
    if isinstance(answer, dict):
        for one in answer["proposals"]:
            if isinstance(one, dict) and one.get("sketch") == "0":
                one["sketch"] = sketch.name
                if isinstance(one["values"], str) and one["values"] in filled:
                    one.update(proposal(space, 0, filled[one["values"]]))
    strategy = make_proposer(space, command=program(tmp_path, f"    answer = {answer!r}"))
    for _ in range(3):
        tell_seconds(strategy, space, strategy.ask(4))
    (rejected,) = {json.dumps(r) for r in requests(tmp_path)[2]["rejected"]}
    assert re.search(reason, json.loads(rejected)["reason"])


@pytest.mark.parametrize(
    "body",
    ["    sys.exit(3)", "    time.sleep(60); answer = {}", "    raise SystemExit"],
    ids=["ends", "hangs", "quits"],
)
def test_a_program_that_is_gone_does_not_end_the_search(tmp_path, body):
    space = fakes.space()
    strategy = make_proposer(space, command=program(tmp_path, body), timeout=0.5 if "sleep" in body else 20.0)
    for _ in range(2):
        asked = strategy.ask(8)
        assert len(asked) == 8
        tell_seconds(strategy, space, asked)
    assert len(requests(tmp_path)) == 1


@pytest.mark.parametrize(
    "command", ["true", "sh -c 'sleep 60 & sleep 60'", "/bin/sh -c 'printf \"\\\\377\\\\n\"; sleep 60'"]
)
def test_a_program_that_reads_nothing_does_not_end_the_search_either(command):
    space = fakes.space()
    strategy = make_proposer(space, command=command, timeout=0.5)
    strategy._untold = [{"much": "x" * (1 << 20)}]  # more than a pipe holds
    for _ in range(2):
        asked = strategy.ask(8)
        assert len(asked) == 8
        tell_seconds(strategy, space, asked)


def test_answers_of_other_workloads_are_not_played(tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps({"workload": "another", "answer": {"proposals": []}}) + "\n")
    strategy = make_proposer(fakes.space(), replay=str(file))
    strategy.ask(4)
    assert strategy._program is None


def test_a_search_is_played_again_from_its_answers(tmp_path):
    space, record = fakes.space(limit=60), tmp_path / "answers.jsonl"

    def search(**options):
        strategy, asked = make_proposer(space, 5, **options), []
        for _ in range(4):
            batch = strategy.ask(8)
            tell_seconds(strategy, space, batch)
            asked += batch
        return asked

    first = search(command=f"{sys.executable} {EXAMPLE}", record=str(record))
    assert len(record.read_text().splitlines()) == 4
    assert search(replay=str(record)) == first != search()
    fastest = min(space.seconds(c.sketch, c.choices) for c in first[:8])
    assert min(space.seconds(c.sketch, c.choices) for c in first) < fastest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "true", "replay": "x"}, "`command` and `replay` of proposer must not be given together"),
        ({"command": "/no/such/program"}, "`command` of proposer must be a program to start"),
        ({"replay": "none.jsonl"}, "`replay` of proposer must be a readable file, but got none.jsonl"),
        ({"share": 2.0}, "`share` of proposer must be from 0 to 1"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_proposer(fakes.space(), **options)
