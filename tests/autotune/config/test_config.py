"""The configuration: its keys, their rules, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.config import ConfigError, in_file, json_schema, load_config, parse_overrides
from autotune.naming import file_name

ROOT = Path(__file__).parents[3]


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return write


def test_defaults(write):
    config = load_config(write("model: resnet50"))
    assert config.name == "job" and config.target == "cpu" and config.trials == 64 and config.seed == 0
    assert config.search.strategy == "evolution" and config.search.batch == 32
    assert config.cost_model.name == "lightgbm"
    assert config.measure.pool == "local" and config.measure.cache == "warm"
    assert config.folder == Path("runs/job") and config.records_path == Path("runs/job/records.jsonl")


def test_a_workload_takes_the_sizes_of_its_operator(write):
    config = load_config(write("workload: {operator: matmul, m: 3, n: 4, k: 5}"))
    assert config.workload.operator == "matmul" and config.workload.arguments == {"m": 3, "n": 4, "k": 5}


def test_overrides_win_and_reach_any_key(write):
    given = parse_overrides(["search.batch=8", "measure.cache=network", "search.options.population=64"])
    config = load_config(write("model: resnet50\nsearch: {batch: 16}"), given)
    assert config.search.batch == 8 and config.measure.cache == "network"
    assert config.search.options == {"population": 64}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model: r\ntrails: 3", "job.yaml:trails: must be one of the known keys; did you mean 'trials'"),
        ("model: r\nsearch: {stratgy: x}", "job.yaml:search.stratgy: .*; did you mean 'strategy'"),
        (
            "model: r\nzzz: 3",
            "job.yaml:zzz: must be one of the known keys name, model, target, trials, seed, measure, network",
        ),
        ("model: r\ntrials: -1", "job.yaml:trials: must be greater than or equal to 0, but got -1"),
        ("model: r\ntrials: '8'", "job.yaml:trials: must be a valid integer, but got '8'"),
        ("model: r\ntrials: 1.5", "job.yaml:trials: must be a valid integer.*but got 1.5"),
        ("model: r\nseed: true", "job.yaml:seed: must be a valid integer, but got True"),
        ("model: r\nmeasure: {cache: cold}", "job.yaml:measure.cache: must be 'warm' or 'network', but got"),
        ("model: r\nname: a/b", "job.yaml:name: must match pattern"),
        ("model: r\nname: ..", r"job.yaml:name: must match pattern .* but got '\.\.'"),
        ("model: r\nname: .", "job.yaml:name: must match pattern"),
        ("workload: {m: 3}", "job.yaml:workload.operator: must be given"),
        ("trials: 3", "job.yaml: a run must have one of model, workload, collect, but got none"),
        ("model: r\nworkload: {operator: x}", "job.yaml: a run must have one of .*, but got model and workload"),
        ("- 1", "job.yaml: a configuration must be a mapping of keys, but got list"),
        ("model: r\n  trials: {", "job.yaml:2: a configuration must be YAML"),
    ],
)
def test_mistakes_are_named_by_file_and_path(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write(text))


def test_every_mistake_is_told(write):
    with pytest.raises(ConfigError) as caught:
        load_config(write("model: r\ntrials: -1\nseed: -1"))
    assert len(str(caught.value).splitlines()) == 2


def test_the_file_is_named_once_and_where_a_key_is_meant_alone():
    with pytest.raises(ConfigError, match="^job.yaml:search: no$"), in_file("other.yaml"), in_file("job.yaml"):
        raise ConfigError("no", "search")
    with pytest.raises(ConfigError, match="^job.yaml: no$"), in_file("job.yaml"):
        raise ConfigError("no", "")
    with pytest.raises(ConfigError, match="^`--stage` must be$"), in_file("job.yaml"):
        raise ConfigError("`--stage` must be")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        ConfigError, match="nowhere.yaml: a configuration must be a YAML or .onnx file, .* no such file"
    ):
        load_config(tmp_path / "nowhere.yaml")


def test_bad_overrides(write):
    with pytest.raises(ConfigError, match="`--set` must be key=value, but got 'trials'"):
        parse_overrides(["trials"])
    with pytest.raises(ConfigError, match="job.yaml:trials: a key that holds others must be .* got 3"):
        load_config(write("model: r\ntrials: 3"), {"trials.a": 1})
    with pytest.raises(ConfigError, match="job.yaml:search.strategyy: .*did you mean 'strategy'"):
        load_config(write("model: r"), {"search.strategyy": 1})


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_configurations_that_we_ship_are_valid(path):
    assert load_config(path).name == path.stem


def test_the_published_schema_is_today_s():
    published = json.loads((ROOT / "docs" / "config.schema.json").read_text())
    assert published == json_schema(), "run `autotune schema --output docs/config.schema.json`"
    assert set(published["properties"]) == {
        *("name", "model", "workload", "sizes", "collect", "target", "trials", "seed", "search", "cost_model"),
        *("measure", "network", "records", "output", "lock", "cache", "tracking"),
    }
    assert published["additionalProperties"] is False


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "../../etc/passwd", "\0", "\ud800", "x" * 500, "\u00e9" * 200])
def test_what_is_called_by_any_name_stays_in_its_folder(name):
    called = file_name(name)
    assert Path("folder", called).parent == Path("folder") and called not in ("", ".", "..")
    assert len(called.encode()) <= 255 and called != file_name(f"{name}x")


def test_a_name_that_is_a_files_own_is_left_as_it_is():
    for name in ("conv2d3x3_56x56x64_64_add_relu", "a.b", ".hidden", "-"):
        assert file_name(name) == name
