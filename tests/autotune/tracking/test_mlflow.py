"""MLflow as a store: on its embedded database, through a server that is away and comes back, and in a browser."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.tracking.browser import serve
from autotune.tracking.launch import Uploads
from autotune.tracking.spool import State, pending, read_state, spools, write_state
from autotune.tracking.store import Input, MetricPoint, StoreError
from autotune.tracking.uploader import Upload
from autotune.tracking.view import COLUMNS, links
from benchmarks.browser import BROWSERS, find_browser
from costmodel.models import registry as models
from measure.database import Database
from tests.autotune.tracking.test_spool import story, write_spool
from tests.costmodel.data import population

pytestmark = [pytest.mark.xdist_group("mlflow"), pytest.mark.timeout(300)]

SMALL = "workload: {operator: matmul, m: 24, n: 32, k: 16}\nsearch: {batch: 6, finalists: 0}\n"


def make_client(uri):
    from mlflow.tracking import MlflowClient

    return MlflowClient(uri, uri)


def read_runs(uri, experiment):
    """The run that tasks belong to, and the runs of the tasks by name."""
    client = make_client(uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    (parent,) = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    children = {run.info.run_name: run for run in found if run is not parent}
    assert {run.data.tags["mlflow.parentRunId"] for run in children.values()} == {parent.info.run_id}
    return client, parent, children


def history(client, run, name):
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def wait_for(condition, seconds=100.0):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "never came true"
        time.sleep(0.05)
    return found


def test_the_store_keeps_everything_once(mlflow_database, tmp_path):
    from autotune.tracking.mlflow_store import MLflowStore

    uri = f"sqlite:///{mlflow_database}"
    told = story(tmp_path)
    told[0] |= {"uri": uri, "backend": "mlflow"}
    model, (features, throughput) = models.get("lightgbm")(), population(60)
    model.fit(list(features), throughput)
    model.save(tmp_path / "learned.txt")
    told[7] |= {"path": str(tmp_path / "learned.txt")}
    many = [{"event": "series", "task": "conv", "name": "trial_seconds", "points": [[i, 1.5, i] for i in range(2100)]}]
    wide = [{"event": "task", "task": "conv", "parameters": {f"p{i}": "x" * 7000 for i in range(120)}}]
    spool = write_spool(tmp_path, [*told[:2], *wide, *many, *told[2:]])
    for _ in range(2):  # the second time with no memory of the first
        Upload(spool).catch_up()
        assert not pending(spool)
        client, parent, children = read_runs(uri, "e")
        child = children["conv"]
        assert parent.info.status == child.info.status == "FINISHED" and parent.info.start_time == 1000
        assert parent.data.params == {"trials": "8"} and child.data.params["weight"] == "2"
        assert len(child.data.params) == 121 and len(child.data.params["p7"]) == 6000
        assert len(history(client, child, "trial_seconds")) == 2102
        assert history(client, child, "best_seconds") == [(2, 1.0)] == history(client, child, "errors.crash")
        assert history(client, parent, "best_seconds") == [(2, 2.0)]
        assert [i.dataset.name for i in parent.inputs.dataset_inputs] == ["r"]
        assert {file.path for file in client.list_artifacts(child.info.run_id)} == {"best", "cost_model"}
        write_state(spool, State())
    import mlflow.pyfunc

    place = client.download_artifacts(child.info.run_id, "cost_model", str(tmp_path))
    assert not [path for path in Path(place).rglob("*") if path.suffix == ".pkl"]
    np.testing.assert_array_equal(mlflow.pyfunc.load_model(place).predict(features), model.predict(features))
    store = MLflowStore(uri, "e")
    store.log_parameters(parent.info.run_id, {"trials": "9", "new": "1"})
    parent = client.get_run(parent.info.run_id)
    assert parent.data.params == {"trials": "8", "new": "1"} and parent.data.tags["resumed.trials"] == "9"
    client.delete_run(parent.info.run_id)  # by the user, and then the run goes on
    client.delete_experiment(parent.info.experiment_id)
    assert MLflowStore(uri, "e").open_run("k", "n", 0, {}, {}, None) == parent.info.run_id
    assert client.get_run(parent.info.run_id).info.lifecycle_stage == "active"
    with pytest.raises(StoreError, match=f"{re.escape(uri)}: .*nowhere"):
        store.log_metrics("nowhere", [MetricPoint("a", 1.0, 0, 0)])
    with pytest.raises(StoreError):
        store.log_input("nowhere", Input("a", "b", "c", "d"))


def test_a_driver_that_is_killed_and_resumed_is_one_run(mlflow_database, tmp_path, monkeypatch):
    """The run has the local pool, and an uploader from its start."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(f"{SMALL}trials: 3000\ntracking: {{backend: mlflow, live_after_s: 0}}\n")
    run, uri = tmp_path / "runs/small", f"sqlite:///{mlflow_database}"
    command = [sys.executable, "-m", "autotune", "run", "small.yaml", "--quiet"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as driver:
        try:
            wait_for(lambda: driver.poll() is None and spools(run) and read_state(spools(run)[0]).runs)
        finally:
            driver.kill()
    wait_for(lambda: read_state(spools(run)[0]).ended)  # the uploader outlived it, and says what became of it
    client, parent, _ = read_runs(uri, "small")
    assert parent.info.status == "KILLED" and not pending(spools(run)[0])
    with Database(run / "records.jsonl", readonly=True) as database:
        known = len(database)
    monkeypatch.setattr("autotune.run.run._references", lambda *given: ([None], None))
    monkeypatch.setattr(Uploads, "prepare", lambda self: None)  # the rest is for the foreground
    again = call("run", "small.yaml", "--resume", "--quiet", "--trials", known + 6, "--track", "mlflow")
    assert again.exit_code == 0, again.output
    assert call("track", run).output == f"everything of {run} is in {uri}\n"
    client, parent, children = read_runs(uri, "small")
    assert parent.info.status == children["small"].info.status == "FINISHED" and len(children) == 1
    assert parent.data.tags["resumed.trials"] == str(known + 6)
    assert parent.data.metrics["trials"] == known + 6
    with Database(run / "records.jsonl", readonly=True) as database:
        measured = {record.provenance.order: record.seconds for record in database if record.ok}
    told = history(client, children["small"], "trial_seconds")
    assert len(dict(told)) == len(told) and set(told) <= set(measured.items())
    steps = [step for step, _ in history(client, children["small"], "trials")]
    assert len(set(steps)) == len(steps) and steps[-1] == known + 6
    assert call("track", tmp_path / "small.yaml").exit_code == 2


def test_a_command_that_waits_has_told_everything(mlflow_database, tmp_path):
    """The test reads the store's file at once, as a script may that follows the run."""
    (tmp_path / "small.yaml").write_text(f"{SMALL}trials: 6\ntracking: {{wait_s: 120}}\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "AUTOTUNE_TRACKING": "mlflow"}
    command = [sys.executable, "-m", "autotune", "run", "small.yaml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    with sqlite3.connect(mlflow_database) as database:
        statuses = database.execute("select name, status from runs").fetchall()
        (trials,) = database.execute("select max(value) from metrics where key = 'trials'").fetchone()
    assert done.returncode == 0 and done.stderr == ""
    assert {status for _, status in statuses} == {"FINISHED"} and len(statuses) == 2 and trials == 6
    assert list((tmp_path / "runs/mlartifacts").glob("*/artifacts/summary.json"))
    lines = done.stdout.splitlines()
    shown = lines.index("everything is in runs/small")
    *waited, last = lines[shown + 1 :]
    assert waited in ([], [f"uploading to sqlite:///{mlflow_database}, for at most 120 s"])
    assert last == f"tracked in sqlite:///{mlflow_database}; `autotune ui runs/small` shows it"


def test_a_new_database_is_seen_whole_or_not_at_all(tmp_path):
    from autotune.tracking.mlflow_store import make_whole

    file, seen, made = tmp_path / "runs/mlflow.db", [], []

    def make(path):
        for _ in range(5):
            with open(path, "a") as stream:
                stream.write("step\n")
            seen.append(file.read_text() if file.exists() else "")
            time.sleep(0.01)
        made.append(path)

    threads = [threading.Thread(target=make_whole, args=(file, make)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) <= {"", "step\n" * 5} and len(made) == 3 and file.read_text() == "step\n" * 5
    make_whole(file, lambda path: made.append(path))
    assert len(made) == 3 and list(file.parent.iterdir()) == [file]


@pytest.fixture
def browser_binary():
    if found := find_browser():
        return found
    pytest.skip(f"a browser must be installed, one of {', '.join(BROWSERS)}, but there is none")


def test_a_server_that_is_away_and_back_gets_everything_and_shows_it(
    mlflow_database, tmp_path, monkeypatch, browser_binary
):
    """`autotune ui` is the server here: its store is filled through it, and its page is opened."""
    sync_api = pytest.importorskip("playwright.sync_api")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(f"{SMALL}trials: 6\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, run = f"http://127.0.0.1:{port}", tmp_path / "away/small"
    monkeypatch.setattr("autotune.run.run._references", lambda *given: ([None], None))
    options = ["--track", "mlflow", "--tracking-uri", address, "--output", run]
    done = call("run", "small.yaml", *options, "--set", "tracking.live_after_s=0")
    assert done.exit_code == 0 and "6/6 trials" in done.output  # nobody is there, and the run does not care
    wait_for(lambda: read_state(spools(run)[0]).problem)
    assert pending(spools(run)[0])
    refused = call("track", run)
    assert refused.exit_code == 2 and address in refused.stderr
    command = [sys.executable, "-m", "autotune", "ui", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        said = server.stdout.readline()
        assert said.startswith(address) and said.endswith(
            f" shows the runs in sqlite:///{mlflow_database}; Ctrl-C ends it\n"
        )
        assert len(_family(server.pid)) == 3  # this command, MLflow's, and one that serves
        assert call("track", run).output == f"everything of {run} is in {address}\n"
        client, parent, children = read_runs(address, "small")
        assert parent.info.status == "FINISHED" and parent.data.metrics["trials"] == 6
        assert {file.path for file in client.list_artifacts(parent.info.run_id)} >= {"records.jsonl", "summary.json"}
        place = client.download_artifacts(children["small"].info.run_id, "best/schedule.txt", str(tmp_path))
        assert Path(place).read_text() == (run / "best/small/schedule.txt").read_text()
        hosts = set()
        with sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_binary, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1900, "height": 900})  # only columns in sight are there
            page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
            runs, newest = links(address)
            assert newest == f"{address}/#/experiments/{parent.info.experiment_id}/runs/{parent.info.run_id}"
            page.goto(address)  # which opens the list
            page.get_by_text(parent.info.run_name).first.wait_for(timeout=90_000)
            page.wait_for_url(lambda url: url.startswith(f"{runs}?"), timeout=90_000)  # once it shows it
            assert "viewState" not in page.url
            for title in COLUMNS:
                page.get_by_role("columnheader", name=title.split("`")[1]).first.wait_for(timeout=90_000)
            assert not page.get_by_text("shared view").count()
            page.goto(f"{newest}/artifacts/report.html")
            page.frame_locator("iframe").get_by_text("small").first.wait_for(timeout=90_000)
            page.goto(f"{address}/#/experiments/{parent.info.experiment_id}/runs/{children['small'].info.run_id}")
            page.get_by_text("best_seconds").first.wait_for(timeout=90_000)
            browser.close()
        assert hosts == {f"127.0.0.1:{port}"}  # the page works offline
        family = _family(server.pid)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    finally:
        for pid in reversed(_family(server.pid)):
            os.kill(pid, signal.SIGKILL)
        server.wait()
        server.stdout.close()


def test_what_the_browser_cannot_show(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nothing = call("ui")
    assert nothing.exit_code == 2 and "`FOLDER` must hold tracked runs" in nothing.stderr
    wrong = call("ui", "--uri", "runs")
    assert wrong.exit_code == 2 and "`uri` must be sqlite:///FILE" in wrong.stderr
    assert call("ui", "--uri", "http://host:80").output == "the server at http://host:80 shows its runs itself\n"
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/mlflow.db").touch()
    monkeypatch.setattr(sys, "executable", "/bin/false")  # a server that ends before it listens
    broken = call("ui", "--port", "0")
    assert broken.exit_code == 2 and "MLflow's server must start, but it ended" in broken.stderr


class ServedBrowser:
    """Stands for MLflow's server, which Ctrl-C ends."""

    def __init__(self, uri, port):
        self.code = 0

    def address(self):
        return "http://127.0.0.1:5000"

    def wait(self):
        os.kill(os.getpid(), signal.SIGINT)
        return self.code

    def terminate(self):
        pass

    stop = terminate


@pytest.mark.parametrize("parent", ["", "p"])
def test_the_newest_run_is_linked(monkeypatch, parent):
    """The server's answer names it; a task's run is replaced by the run that it belongs to."""
    asked, said = [], []
    run = {
        "info": {"run_id": "t", "experiment_id": "7"},
        "data": {"tags": [{"key": "mlflow.parentRunId", "value": "p"}]},
    }

    def answer(address, path, body=None):
        asked.append(path)
        if path == "experiments/search":
            return {"experiments": [{"experiment_id": "7"}]}
        return {"run": run} if path.startswith("runs/get") else {"runs": [run] if parent else []}

    monkeypatch.setattr("autotune.tracking.view._ask", answer)
    monkeypatch.setattr("autotune.tracking.browser.Browser", ServedBrowser)
    serve("sqlite:///a.db", 0, said.append)
    place = "http://127.0.0.1:5000/#/experiments/7/runs"
    shown = place if parent else "http://127.0.0.1:5000"
    lines = [f"newest run: {place}/p"] if parent else []
    assert said == [f"{shown} shows the runs in sqlite:///a.db; Ctrl-C ends it", *lines]
    assert links("http://a", "t")[1] == "http://a/#/experiments/7/runs/p" and asked[-1] == "runs/get?run_id=t"


def _family(pid):
    """A process and its descendants, the eldest first; none where it is gone."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(member for child in children for member in _family(int(child)))]
