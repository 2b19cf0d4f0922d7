"""Checks of the pages: links, keys, fields, and their code, which is run."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from packaging.utils import canonicalize_name
from pydantic import BaseModel

from autotune.compiler.checking.check import TOLERANCE, check_network
from autotune.compiler.modes import precision_mode
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.config import RunConfig
from autotune.graph.frontends.onnx.model import load_model
from autotune.modes import PRECISIONS
from benchmarks import table
from costmodel.models.base import CostModel
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import Trial
from measure.provenance import Provenance
from measure.record import SCHEMA, Record
from search_space import te
from search_space.lower import cleanup, lower
from search_space.machines.registry import get_rules
from search_space.schedule.state import initial_state
from search_space.sketch.generate import derive
from targets import registry
from tests.autotune import fakes
from tests.autotune.compiler.test_network import two_layers
from tests.autotune.graph import nets
from tests.autotune.kept import make_untuned
from tests.interpreter import interpret
from tests.without_lab import is_left_out

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def page_name(page: Path) -> str:
    """Returns its path, which tells pages of one name apart."""
    return page.relative_to(ROOT).as_posix()


def code(page: Path) -> list[str]:
    """The Python in a page, block by block."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def run(page: Path, **names: Any) -> dict[str, Any]:
    """The names that all Python of a page defines, beside those that it is given."""
    exec(compile("\n".join(code(page)), str(page), "exec"), names)
    return names


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted configuration keys."""
    for name, item in section.model_fields.items():
        kind = item.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from keys(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_configuration_key_is_documented() -> None:
    text = (DOCS / "config.md").read_text()
    documented = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    assert documented == set(keys(RunConfig))


def test_every_field_of_a_record_is_documented() -> None:
    text = (DOCS / "records.md").read_text()
    documented = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    parts = {item.name for item in fields(Record) if item.compare}
    of_parts = {item.name for part in (Trial, Outcome, Provenance) for item in fields(part) if item.compare}
    assert documented == {"schema"} | parts | of_parts
    assert SCHEMA in text and all(f"`{kind}`" in text for kind in ErrorClass)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)  # code has [..](..), too
    for link in re.findall(r"\]\(([^)]+)\)", text):
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        assert place.startswith("http") or target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}, link


def test_extras_that_are_asked_for_exist() -> None:
    """Spelled as packages' metadata spell them: an older pip passes over `a_b` of a package that has `a-b`, and says so
    in a warning alone."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    known = set(map(canonicalize_name, declared))
    places = [*PAGES, ROOT / "Makefile", ROOT / ".ci/run", *(ROOT / "benchmarks").rglob("*.py")]
    asked = {
        extra.strip(): place.name
        for place in places
        for listed in re.findall(r"(?:pip install|\$\(INSTALL\))[^\n`]*?\.\[([\w,. -]+)\]", place.read_text())
        for extra in listed.split(",")
    }
    assert "all" in asked and "llama-cpp" in asked
    assert {extra: place for extra, place in asked.items() if extra not in known} == {}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_paths_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    shown = re.findall(
        r"`((?:search_space|targets|measure|costmodel|autotune|benchmarks|tests|configs)/[\w./]+)`", text
    )
    shown += [place for found in re.findall(r'ARGS="(tests[^"]*)"', text) for place in re.findall(r"tests\S*", found)]
    assert [place for place in shown if not ((ROOT / place).exists() or is_left_out(place))] == []
    made = set(re.findall(r"^make (\w+)|`make (\w+)", text, re.MULTILINE))
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name for pair in made for name in pair if name} <= set(re.findall(r"make (\w+)", listed))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_page_of_benchmarks_has_its_summary() -> None:
    linked = set(re.findall(r"\]\((benchmarks/\w+\.md)", (DOCS / "benchmarks.md").read_text()))
    assert linked == {f"benchmarks/{page.name}" for page in (DOCS / "benchmarks").glob("*.md")}


def test_the_tables_are_those_of_the_results() -> None:
    assert table.main(["--check"]) == 0


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four trials for each search of a page."""
    import autotune
    from autotune.tuner.tuner import tune

    monkeypatch.setattr(
        autotune, "tune", lambda *args, **options: tune(*args, **{**options, "trials": 4}), raising=False
    )


@pytest.mark.usefixtures("few_trials")
def test_the_readme_and_its_continuation_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    names = run(ROOT / "README.md")
    assert names["logits"].shape == (8, 10)
    result, output = names["result"], names["output"]
    np.testing.assert_allclose(output, result.workload.reference(names["data"], names["weight"]), rtol=1e-4, atol=1e-3)
    names = run(DOCS / "using.md")
    a, b = np.random.default_rng(0).random((2, 512, 512), np.float32)
    c = np.empty((512, 512), np.float32)
    names["kernel"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    left, right, bias = names["fused"].workload.make_inputs(seed=1)
    np.testing.assert_allclose(names["d"], np.tanh(left @ right + bias), rtol=1e-4, atol=1e-3)
    assert "parallel for C.i.0 in 16" in capsys.readouterr().out


@pytest.mark.usefixtures("few_trials")
@pytest.mark.parametrize(
    ("page", "output"),
    [
        ("index.md", "parallel"),
        ("tutorials/first_run.md", "GFLOP/s"),
        ("tutorials/compile_a_model.md", "conv2d+add+relu"),
        ("tutorials/write_an_operator.md", "candidates"),
        ("tutorials/cost_model_experiment.md", "after 4 trials"),
    ],
)
def test_the_code_of_a_tutorial_runs(
    page: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "compile" in page:
        pytest.importorskip("torch", reason="torch is not installed")
    module = ModuleType("tutorial")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look for their module
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(code(DOCS / page)), page, "exec"), module.__dict__)
    assert output in capsys.readouterr().out


def test_the_definition_of_its_page_is_a_workload() -> None:
    names: dict[str, Any] = {}
    exec(code(DOCS / "records.md")[1], names)
    workload = names["workload"]
    assert workload.operator == "tensors" and workload.flops == 384
    (x,) = workload.make_inputs(0)
    np.testing.assert_allclose(workload.reference(x), np.maximum(x, 0) + np.float32(0.1) * x, rtol=1e-6)


def test_the_pass_of_its_page_adds_what_is_negated_and_subtracted() -> None:
    page = run(DOCS / "passes.md")
    assert [node.op for node in page["pipeline"](page["EXAMPLE"]).nodes] == ["add"]


def test_the_network_of_its_page_is_quantised(capsys: pytest.CaptureFixture[str]) -> None:
    graph = nets.residual()
    sets = [[nets.feeds(graph, seed)] for seed in (1, 2)]
    found = run(DOCS / "quantisation.md", graph=graph, feeds=sets[0], others=sets[1])["found"]
    assert any(kind.dtype == "int8" for kind in map(found.graph.type, found.graph.constants))
    assert "dB" in capsys.readouterr().out


def test_the_code_of_importing_runs() -> None:
    assert run(DOCS / "importing.md")["graph"].nodes


def test_the_language_model_of_its_page_gives_logits(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(DOCS / "language_models.md")
    assert found["logits"].shape == (100,) and len(capsys.readouterr().out.splitlines()) == 2


def test_the_kernels_of_its_page_take_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    names = run(DOCS / "symbolic_sizes.md")
    assert names["kernel"].module.sizes == {"n": (8, 512)} and len(names["every"].kernels) == 8
    assert "min(Y.i.0 * 8, n - 8)" in capsys.readouterr().out


def test_the_cost_model_of_its_page_learns(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(code(DOCS / "adding_a_cost_model.md")[0], names)
    model = names["Linear"]()
    assert isinstance(model, CostModel)
    features = np.random.default_rng(0).random((40, 3, 5)).astype(np.float32)
    throughput = features.sum(axis=1) @ np.array([1.0, -1.0, 0.5, 0.0, 2.0])
    with pytest.raises(ValueError, match="must be fitted or loaded"):
        model.predict(features)
    model.fit(list(features), throughput)
    assert np.corrcoef(model.predict(features), throughput)[0, 1] > 0.9
    model.save(tmp_path / "model.txt")
    again = type(model)()
    again.load(tmp_path / "model.txt")
    np.testing.assert_allclose(again.predict(features), model.predict(features))


def test_the_strategy_of_its_page_climbs() -> None:
    kind = run(DOCS / "adding_a_search_strategy.md")["Climb"]
    space = fakes.space()
    strategy = kind(space, fakes.oracle(space), np.random.default_rng(0))
    rounds = []
    for _ in range(4):
        asked = strategy.ask(16)
        rounds.append(np.array([space.seconds(c.sketch, c.choices) for c in asked]))
        strategy.tell(asked, rounds[-1])
    assert np.nanmin(rounds[-1]) <= np.nanmin(rounds[0])


def test_the_sketch_rule_of_its_page_makes_kernels() -> None:
    before = get_rules("cpu")[:]
    try:
        run(DOCS / "adding_a_sketch_rule.md")
        x = te.placeholder((12, 40), name="x")
        y = te.compute((12, 40), lambda i, j: te.tanh(x[i, j]), name="y")
        target = registry.get("cpu")
        derived = derive(initial_state([y]), target.hardware)
        (draft,) = derived.drafts
        assert draft.name == "rows" and derived.dropped_count == 0 and not derived.refusals
        (group,) = draft.groups
        data = np.random.default_rng(0).standard_normal((12, 40), np.float32)
        for (unroll,) in group.table:
            state = draft.trace.substitute({group.columns[0]: int(unroll)}).apply(initial_state([y]))
            output = np.empty_like(data)
            target.load(target.build(cleanup(lower(state))))(data, output)
            np.testing.assert_allclose(output, np.tanh(data), rtol=1e-5, atol=1e-6)
    finally:
        get_rules("cpu")[:] = before


def test_the_precision_of_its_page_rounds_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = ModuleType("weights_bf16")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    exec(code(DOCS / "adding_a_precision.md")[0], page.__dict__)
    monkeypatch.setitem(PRECISIONS, page.__name__, f"{page.__name__}:WeightsBFloat16")
    model, settings = load_model(str(two_layers(tmp_path / "two.onnx"))), fakes.settings_with(threads=1)
    network = load_network(model, "two", CompileOptions(precision=precision_mode(page.__name__)))
    weights = [array.dtype.name for array in network.graph.constants.values() if array.ndim == 4]
    assert set(weights) == {"bfloat16"} and network.precision == page.__name__
    assert check_network(network, make_untuned(settings), settings).max_error < TOLERANCE


def test_the_operator_of_its_page_means_its_reference() -> None:
    operator = run(DOCS / "adding_an_operator.md")["RMS_NORM"]
    args = operator.arguments({"rows": 3, "columns": 20})
    tensors = operator.tensors(args, "direct")
    inputs = [np.random.default_rng(0).random(t.shape, np.float32) for t in tensors[:-1]]
    named = {t.name: array for t, array in zip(tensors[:-1], inputs, strict=True)}
    found = interpret(cleanup(lower(initial_state(tensors[-1:]))), named)["rms_norm"]
    np.testing.assert_allclose(found, operator.reference(args, *inputs), rtol=1e-5)
    assert operator.flops(args) == 240
