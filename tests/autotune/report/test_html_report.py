"""The report: valid HTML that asks for nothing, with the figures of the runs in it, whatever names they have."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from typer.testing import CliRunner, Result

from autotune.cli.app import app
from autotune.report.html import charts
from autotune.report.html.data import load
from autotune.report.html.page import environment, page
from measure.database import Database
from measure.errors import ErrorClass
from measure.outcome import Outcome
from measure.pool import Trial
from measure.provenance import Kind, Provenance
from measure.record import Record
from search_space import workloads
from search_space.schedule.trace import compute_key
from search_space.workloads import Workload
from tests.measure.helpers import change_record

MATMUL = workloads.matmul(32, 32, 32)
SOFTMAX = workloads.softmax(8, 16)
NASTY = '<script>alert("&")</script><img src="http://x/y.png" onerror=\'z\'>'
SUMMARY = '{"schema": "autotune.summary/1", "config": {}, "host": {}, "tasks": [%s]}'
HOST = {"cpu": "Fast <1>", "cores": 2}


class Page(HTMLParser):
    """Tags that are balanced and known, attributes, and the text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert len({name for name, _ in attrs}) == len(attrs)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            assert "table" in self.open
            self.rows.append([])
        if tag in ("td", "th"):
            assert self.open[-1] == "tr"
            self.rows[-1].append("")
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, "only elements of SVG may close themselves"
        super().handle_startendtag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.rows and ("td" in self.open or "th" in self.open):
            self.rows[-1][-1] += data

    def find_rows(self, name: str) -> list[list[str]]:
        """Rows that begin with a name."""
        return [row for row in self.rows if row and row[0] == name]


def record(workload: Workload, order: int, seconds: float = math.nan, **changes: object) -> Record:
    """Trial number `order`, one second after the one before; a crash where it took no time."""
    failed = math.isnan(seconds)
    step = {"step": "pragma", "stage": "out", "axis": "i", "key": "number", "value": order}
    trial = Trial(
        workload.to_json(), "direct", [step], "cpu", 2, workload_key=workload.key, trace_key=compute_key([step])
    )
    outcome = Outcome(
        error=ErrorClass.crash if failed else ErrorClass.ok,
        message="the kernel <died>" if failed else "",
        latencies=() if failed else (seconds,),
        seconds=seconds,
        build_seconds=0.25,
        run_seconds=math.nan if failed else 0.5,
        host=HOST,
    )
    return change_record(Record(trial, outcome, Provenance(time=1000.0 + order, order=order)), **changes)


def task(name: str, workload: Workload, seconds: float | None, weight: int = 1) -> dict[str, object]:
    """A task's entry of a summary."""
    return {
        "name": name,
        "workload": workload.to_json(),
        "target": "cpu",
        "weight": weight,
        "algorithm": seconds and "direct",
        "best_seconds": seconds,
        "peak_share": seconds and 0.25,
        "reference": "onnxruntime",
        "reference_seconds": 4e-3,
        "metrics": {"cycles": 12345, "busy": 0.5},
        "phases": {"search": 1.0, "measure": 3.0},
    }


def write(folder: Path, records: list[Record], tasks: list[dict[str, object]], **config: object) -> Path:
    """A run folder."""
    folder.mkdir()
    with Database(folder / "records.jsonl") as database:
        for item in records:
            database.append(item)
    keys = {"name": folder.name, "seed": 0, "records": None, "search": {"batch": 8}, **config}
    document = {"schema": "autotune.summary/1", "config": keys, "host": HOST, "tasks": tasks}
    (folder / "summary.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """Six trials of two tasks, one of them failed, and two timings at the end."""
    records = [
        record(MATMUL, 0, 5e-3),
        record(MATMUL, 1),
        record(MATMUL, 2, 2e-3),
        record(SOFTMAX, 3, 1e-3),
        record(MATMUL, 4, 3e-3),
        record(SOFTMAX, 5, 0.9e-3),
        record(MATMUL, 2, 2.1e-3, provenance=Provenance(Kind.final, time=1010.0, order=2)),
        record(MATMUL, 9, 1e-9, seed=7),  # of another run that shares the file
    ]
    return write(tmp_path / "one", records, [task("product", MATMUL, 2.1e-3, 3), task("soft", SOFTMAX, 0.9e-3)])


@pytest.fixture
def other(tmp_path: Path) -> Path:
    records = [record(MATMUL, order, 4e-3 - order * 1e-3) for order in range(3)]
    return write(tmp_path / "other", records, [task("product", MATMUL, 2e-3)], seed=0, search={"batch": 16})


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_a_run_becomes_a_page(one: Path) -> None:
    done = call(one)
    assert done.exit_code == 0 and done.output == f"the report is {one / 'report.html'}\n"
    text = (one / "report.html").read_text()
    shown = Page(text)
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    ids = [value for _, name, value in shown.attributes if name == "id"]
    links = [value[1:] for tag, name, value in shown.attributes if (tag, name) == ("a", "href")]
    assert len(ids) == len(set(ids)) and links and set(links) <= set(ids)
    titles = next(row for row in shown.rows if row[0] == "task")
    product = dict(zip(titles, shown.find_rows("product")[0], strict=True))
    assert (
        product["trials"] == "4"
        and product["failed"] == "1"
        and product["latency"] == "2.100 ms"
        and product["times"] == "3"
    )
    assert product["in all"] == "6.300 ms" and product["of peak"] == "25%" and product["share"] == "88%"
    assert (
        product["reference"] == "onnxruntime" and product["its latency"] == "4.000 ms" and product["ratio"] == "1.90×"
    )
    assert product["metrics"] == "cycles 12,345, busy 50.0%"
    assert product["GFLOP/s"] == f"{MATMUL.flops / 2.1e-3 * 1e-9:.1f}"
    assert shown.find_rows("crash")[0] == ["crash", "1", "the kernel <died>"] and shown.find_rows("all")[0][1] == "1"
    assert "search 2.0 s, 25%" in shown.text and "measure 6.0 s, 75%" in shown.text
    assert shown.find_rows("cpu")[0] == ["cpu", "Fast <1>"] and shown.find_rows("search.batch")[0] == [
        "search.batch",
        "8",
    ]
    assert shown.tags["svg"] == 2 * 3 + 1  # the sum and two tasks, over trials and time; a bar


def test_the_page_asks_for_nothing(one: Path, other: Path) -> None:
    text = page([*load(one), *load(other)])
    shown = Page(text)
    assert not {"script", "link", "iframe", "object", "form", "base"} & set(shown.tags)
    assert not {name for _, name, _ in shown.attributes} & {"srcset", "onclick", "style", "action"}
    assert all(value.startswith("#") for _, name, value in shown.attributes if name == "href")
    assert not re.search(r"https?:|url\(|@import", text) and "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text and "@media print" in text and "width=device-width" in text


def test_curves_are_the_gains(one: Path) -> None:
    (run,) = load(one)
    product, soft = run.tasks
    assert [(step.trials, step.seconds) for step in product.gains] == [(1, 5e-3), (3, 2e-3)]
    assert [(step.trials, step.seconds) for step in soft.gains] == [(1, 1e-3), (2, 0.9e-3)]
    assert product.clocks == [0.75, 1.75, 2.75, 4.75] and run.clock == pytest.approx(10.75)
    # Timings at the end are no part of the curve; a task counts from the beginning with its first trial that worked.
    assert (
        product.final_timing is not None
        and product.final_timing.seconds == 2.1e-3
        and (product.trials, product.failures) == (4, 1)
    )
    assert product.final_timing.low <= 2.1e-3 <= product.final_timing.high
    assert [(step.trials, round(step.seconds, 6)) for step in run.steps] == [(1, 16e-3), (3, 7e-3), (6, 6.9e-3)]
    assert run.final_timing is None and soft.final_timing is None, "one of the tasks was not timed again"
    assert product.trials_to(2e-3) == 3 and product.trials_to(1e-3) is None
    assert run.building == 7 * 0.25 and run.running == 6 * 0.5


def test_tasks_that_take_most_come_first_with_their_schedules_and_the_roofline(one: Path) -> None:
    (one / "best/product").mkdir(parents=True)
    (one / "best/product/schedule.txt").write_text("split(<i>, 4)")
    (one / "best/product/program.txt").write_text("for i in 4:\n" * 2000)
    (one / "roofline.png").write_bytes(b"\x89PNG picture")
    text = page(load(one))
    assert "split(&lt;i&gt;, 4)" in text and "24,000 characters in program.txt" in text
    assert 'src="data:image/png;base64,iVBORyBwaWN0dXJl"' in text
    assert text.index(">product</a>") < text.index(">soft</a>")
    assert 'class="mark s0"' in text and 'class="error s0"' in text


def test_a_busy_machine_is_told(tmp_path: Path) -> None:
    finals = [
        record(MATMUL, 0, 1e-3 * (1 + 0.8 * (n > 2)), provenance=Provenance(Kind.final, time=1010.0 + n, order=0))
        for n in range(6)
    ]
    place = write(tmp_path / "busy", [record(MATMUL, 0, 1e-3), *finals], [task("product", MATMUL, 1.4e-3)])
    assert "two halves of its timings disagree" in page(load(place))


def test_a_pause_is_no_time_of_the_run(tmp_path: Path) -> None:
    late = [record(MATMUL, order, 1e-3, time=1000.0 + order + (9999 if order > 2 else 0)) for order in range(5)]
    (run,) = load(write(tmp_path / "late", late, [task("product", MATMUL, 1e-3)]))
    assert run.clock == 0.75 + 3


def test_runs_are_compared(one: Path, other: Path, tmp_path: Path) -> None:
    done = call(one, other, "-o", tmp_path / "both.html")
    assert done.exit_code == 0, done.output
    shown = Page((tmp_path / "both.html").read_text())
    found = shown.find_rows("product")[0]
    assert found == ["product", "2.100 ms", "1.00×", "3", "2.000 ms", "1.05×", "3"]  # near: 2.1 ms in a trial
    assert shown.find_rows("geometric mean")[0][1:6:2] == ["of 1", "", "1.05×"]
    assert shown.find_rows("search.batch")[0] == ["search.batch", "8", "16"]
    unlike = shown.rows[: shown.rows.index(shown.find_rows("seed")[0])]
    assert ["name", "one", "other"] in unlike  # the table of differences comes before that of all keys
    alone = Page(page([*load(other), *load(other)]))
    assert "The runs have the same configuration." in alone.text
    assert [row[0] for row in alone.rows if row and row[0].startswith("other (other)")][:2] == [
        "other (other)",
        "other (other) #2",
    ]


def test_latencies_of_unlike_threads_are_not_compared(one: Path, tmp_path: Path) -> None:
    records = [record(MATMUL, 0, 1e-3, threads=1)]
    slow = write(tmp_path / "slow", records, [task("product", MATMUL, 1e-3)])
    assert (
        "No task is in two of the runs: workload, target, threads and cache must be the same."
        in Page(page([*load(one), *load(slow)])).text
    )


def test_records_alone_are_a_run_for_each_seed(one: Path) -> None:
    runs = load(one / "records.jsonl")
    assert [run.name for run in runs] == ["one seed 0", "one seed 7"]
    assert runs[0].tasks[0].seconds == 2.1e-3 and runs[0].tasks[0].flops == MATMUL.flops
    shown = Page(page(runs))
    assert "Records alone say nothing of the configuration." in shown.text
    (one / "summary.json").unlink()
    (run,) = load(one)
    assert "no summary" in run.note and run.note in "".join(Page(page([run])).text)


def test_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    strange = change_record(record(MATMUL, 0, 1e-3), workload={"operator": NASTY, "args": {}}, workload_key=NASTY)
    broken = record(MATMUL, 1, message=NASTY, host={NASTY: NASTY})
    folder = write(tmp_path / "nasty", [broken], [task(NASTY, MATMUL, None)], name=NASTY, **{NASTY: NASTY})
    with Database(tmp_path / "r.jsonl") as database:
        database.append(strange)
    text = page([*load(folder), *load(tmp_path / "r.jsonl")])
    shown = Page(text)
    assert not {"script", "img"} & set(shown.tags) and NASTY not in text
    assert "".join(shown.text).count(NASTY) >= 6  # title, heading, run, task, message, host


@given(st.text(), st.text())
@settings(max_examples=50, deadline=None)
def test_any_text_comes_back_as_it_was(inside: str, attribute: str) -> None:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend([tag, str(attrs[0][1])])

        def handle_data(self, data: str) -> None:
            found.append(data)

    reader = Reader()
    template = environment().from_string('<p title="{{ title }}">{{ inside }}</p>')
    reader.feed(template.render(inside=inside, title=attribute))
    reader.close()
    assert found[:2] == ["p", attribute] and "".join(found[2:]) == inside
    assert template.render(inside=Markup("<b>x</b>"), title="") == '<p title=""><b>x</b></p>'


def test_of_many_hosts_the_busiest_are_described(tmp_path: Path) -> None:
    records = [record(MATMUL, k, 1e-3, host={"device": f"board-{k % 20}"}) for k in range(59)]
    shown = Page(page(load(write(tmp_path / "fleet", records, [task("product", MATMUL, 1e-3)]))))
    assert shown.find_rows("device")[0] == ["device", *(f"board-{k}" for k in range(6))]
    assert shown.find_rows("measurements")[0] == ["measurements", *(["3"] * 6)]
    assert "fleet: 14 further hosts made 41 measurements." in shown.text


def test_failures_alone_make_a_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "bad", [record(MATMUL, 0)], [task("product", MATMUL, None)])
    shown = Page(page(load(folder)))
    assert "Nothing worked, or nothing was recorded." in shown.text and shown.find_rows("product")[0][5] == "–"
    (folder / "records.jsonl").unlink()
    assert "The records are missing" in "".join(Page(page(load(folder))).text)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, r"a run must be a run folder or a records file, but .*x does not exist"),
        ({"x/notes.txt": ""}, r"a run must be a folder with summary.json or records.jsonl, but .*x has neither"),
        ({"x": ""}, r"a run must have records, but .*x holds none"),
        ({"x": "garbage\n"}, r"x:1: a record must be one line of JSON, but got garbage"),
        ({"x/summary.json": "{"}, r"summary.json: a summary must be a JSON document"),
        ({"x/summary.json": '{"schema": 3}'}, r"`schema` must be 'autotune.summary/1', but got schema=3"),
        ({"x/summary.json": '{"schema": "autotune.summary/1", "config": 1}'}, r"`config` must be a JSON dict"),
        ({"x/summary.json": SUMMARY % '{"name": 1}'}, r"`tasks` must be those of autotune.summary/1, but .*workload"),
        (
            {"x/summary.json": SUMMARY % '{"workload": {"operator": "x"}}'},
            r"`tasks` must be those of autotune.summary/1",
        ),
        ({"x/summary.json": SUMMARY % "7"}, r"`tasks` must be those of autotune.summary/1"),
    ],
)
def test_what_is_no_run_is_one_sentence(tmp_path: Path, files: dict[str, str], sentence: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = call(tmp_path / "x")
    assert done.exit_code == 2 and len(done.output.splitlines()) == 1
    assert re.search(sentence, done.output)


def test_an_output_that_cannot_be_written_is_one_sentence(one: Path, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none" / "r.html"):
        done = call(one, "-o", place)
        assert done.exit_code == 2
        assert done.output == f"`--output` must be a file in an existing folder, but got {place}\n"


def test_axes_have_round_values_inside() -> None:
    assert charts.linear_ticks(6) == [0, 1, 2, 3, 4, 5, 6] and charts.linear_ticks(2000)[-1] == 2000
    for low, high in ((1.0, 1000.0), (0.011, 0.012), (5.0, 5.7), (0.2, 30.0)):
        ticks = charts.log_ticks(low, high)
        assert 2 <= len(ticks) <= 8 and low <= min(ticks) and max(ticks) <= high and ticks == sorted(set(ticks))
    assert charts.step_chart("t", "x", "y", [charts.Curve("a", 0, [], [], 3)]) == ""
    assert charts.bar("t", [("a", 0.0)]) == ""
