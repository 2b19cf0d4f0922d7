"""Configurations that are traps: one sentence each, at once, and ordinary ones as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.config import ConfigError, load_config, parse_overrides, strict_yaml
from search_space import strict_json

MATMUL = "workload: {operator: matmul, m: 8, n: 8, k: 8}\ntrials: 1\n"


def bomb(indent: str = "") -> str:
    """Each line ten times the one before: a thousand million in all."""
    lines = [f"{indent}a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{indent}{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join(lines) + "\n"


TRAPS = [
    (bomb() + MATMUL, ":4: a configuration must be YAML, but there must be at most 10000 values, aliases expanded"),
    (MATMUL + "search:\n  options:\n" + bomb("    "), "there must be at most 10000 values, aliases expanded"),
    ("workload: &a {operator: matmul, m: *a}\n", ":1: .* an alias must not stand within what it stands for"),
    ("workload: " + "[" * 3000 + "]" * 3000, ":1: .* values must be at most 32 deep in each other"),
    ("workload: " + "{a: " * 99 + "1" + "}" * 99, "values must be at most 32 deep in each other"),
    (MATMUL + "seed: " + "9" * 5000, ":3: .* an integer must fit 64 bits, but got one of 5000 characters"),
    (MATMUL + "seed: 0x" + "f" * 9000, "an integer must fit 64 bits, but got one of 9002 characters"),
    (MATMUL + "seed: 1" + ":10" * 3000, "an integer must fit 64 bits, but got one of 9001 characters"),
    (MATMUL.replace("m: 8", "m: 100000000000000000000"), "an integer must fit 64 bits, but got 100000000000000000000"),
    (
        MATMUL.replace("m: 8", "m: 10000000000"),
        "a tensor must have at most 2147483648 elements, but got 80000000000: a",
    ),
    (MATMUL + "measure: {timeout_s: .inf}", ":3: .* a number must be finite, but got .inf"),
    (MATMUL + "cost_model: {exploration: .nan}", ":3: .* a number must be finite, but got .nan"),
    (MATMUL + "trials: 2", ":3: .* a key must come once, but got 'trials' again"),
    (MATMUL.replace("n: 8", "m: 9"), ":1: .* a key must come once, but got 'm' again"),
    (MATMUL + "name: !!timestamp 2020-99-99", "each value must be what its tag says"),
    (MATMUL + "name: !!bool x", "each value must be what its tag says"),
    (MATMUL + "seed: [" + "x, " * 9000 + "]", r"seed: must be a valid integer, but got \['x', .*\.\.\.\]"),
    ("# " + "x" * (1 << 20), "it must have at most 1048576 characters, but got 1048577"),
]


@pytest.mark.parametrize(("text", "message"), TRAPS, ids=range(len(TRAPS)))
def test_traps_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trap.yaml"
    file.write_text(text)
    if "elements" not in message:
        with pytest.raises(ConfigError, match=message) as caught:
            load_config(file)
        told = str(caught.value)
    else:
        done = CliRunner().invoke(app, ["lower", str(file)])
        assert done.exit_code == 2
        told = done.stderr
    assert len(told) < 600 and len(told.splitlines()) == 1


def test_traps_of_overrides_are_one_sentence(tmp_path: Path) -> None:
    for text in ("9" * 5000, "[" * 500, ".inf", "{a: 1, a: 2}", "!!float x"):
        with pytest.raises(ConfigError, match="`--set` must have a YAML value, but got") as caught:
            parse_overrides([f"seed={text}"])
        assert len(str(caught.value)) < 400
    file = tmp_path / "matmul.yaml"
    file.write_text(MATMUL)
    with pytest.raises(ConfigError, match="a key must be at most 32 deep, but got"):
        load_config(file, {".".join(["search"] * 2000): 1})


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {m: 4}\nb: &y {<<: *x, n: 8}\nc: {<<: *y, m: 9}\n",
        "a: [1, -2, 0x10, 1_000, 1.5, 1e3, true, null, ~, text, 'quoted', \"x\\n\"]\nb: |\n  lines\n",
        "",
        "- 9223372036854775807\n- -9223372036854775808\n",
        "a: &x [1, 2]\nb: [*x, *x]\n",
    ],
)
def test_ordinary_texts_mean_what_they_did(text: str) -> None:
    assert strict_yaml.loads(text) == yaml.safe_load(text)


def test_shipped_configurations_mean_what_they_did() -> None:
    for file in sorted((Path(__file__).parents[3] / "configs").glob("*.yaml")):
        assert strict_yaml.loads(file.read_text()) == yaml.safe_load(file.read_text())


def test_a_date_is_text() -> None:
    assert strict_yaml.loads("name: 2020-01-01") == {"name": "2020-01-01"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "a key must come once, but got 'a' again"),
        ("9" * 5000, "an integer must fit 64 bits, but got one of 5000 digits"),
        ("[NaN]", "a number must be finite, but got NaN"),
        ("[" * 100_000 + "]" * 100_000, "lists and objects are too deep in each other"),
        ("{", "^it ends at line 1, column 2: Expecting property name"),
        ("no JSON at all", "^got 'no' at line 1, column 1: Expecting value$"),
        ('{"a":\n x}', "^got 'x}' at line 2, column 2: Expecting value$"),
    ],
)
def test_json_with_traps_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strict_json.loads(text)


def test_ordinary_json_means_what_it_did() -> None:
    assert strict_json.loads('{"a": [1, -2.5, null, true, "x"]}') == {"a": [1, -2.5, None, True, "x"]}
    assert strict_json.loads("[Infinity]", finite=False) == [float("inf")]
