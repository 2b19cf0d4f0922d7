"""Models of the lab in MLflow: their metrics, their files, and the registry of models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from autotune.lab import tracked
from autotune.tracking.store import StoreError
from autotune.tracking.view import LAB
from costmodel.models import folder as folders
from tests.autotune.lab.shared_dataset import share
from tests.costmodel.fixture import FIXTURE, open_fixture

pytestmark = [pytest.mark.xdist_group("mlflow"), pytest.mark.timeout(300)]


def call(*arguments):
    return CliRunner().invoke(app, ["costmodel", *(str(argument) for argument in arguments)])


def test_models_that_are_kept_are_registered_and_load_from_the_registry(mlflow_database, tmp_path, monkeypatch):
    import mlflow.pyfunc
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    whole = open_fixture()
    data = share(monkeypatch, whole.select([whole.tasks[1], whole.tasks[4]]))  # a layer of each network
    uri = f"sqlite:///{mlflow_database}"
    to = ("--hold-out", "squeezenet", "--track", "mlflow", "--tracking-uri", uri)
    for version in ("1", "2"):
        done = call("train", FIXTURE, "--model", "ridge", "-o", "m", *to)
        assert done.exit_code == 0 and f"registered as autotune-ridge/{version}" in done.output, done.output
    compared = call("compare", FIXTURE, "--models", "ridge", *to)
    assert compared.exit_code == 0 and "registered" not in compared.output, compared.output
    client = MlflowClient(uri, uri)
    registered = {
        of.name: [str(version.version) for version in of.latest_versions] for of in client.search_registered_models()
    }
    assert registered == {"autotune-ridge": ["2"]}
    experiment = client.get_experiment_by_name(LAB)
    runs = client.search_runs([experiment.experiment_id])
    names = {run.info.run_name for run in runs}
    assert len(runs) == 2 + 4 and names == {"train ridge", "compare", "ridge", "roofline", "random"}
    assert {run.info.status for run in runs} == {"FINISHED"}
    training = json.loads((tmp_path / "m/training.json").read_text())
    (run, *_) = [run for run in runs if run.info.run_name == "train ridge"]
    assert run.data.metrics["top1"] == training["top1"] == run.data.metrics["squeezenet.top1"]
    assert run.data.params["cost_model"] == "ridge" and run.data.params["split.kind"] == "network"
    (table,) = [run for run in runs if run.info.run_name == "compare"]
    place = client.download_artifacts(table.info.run_id, "models.json", str(tmp_path))
    assert [row["name"] for row in json.loads(Path(place).read_text())["models"]] == ["ridge", "roofline", "random"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # which `set_tracking_uri` would leave behind for other tests
    features = data.features(data.tasks[0])[0].features
    _, model = folders.load(tmp_path / "m")
    np.testing.assert_array_equal(
        mlflow.pyfunc.load_model("models:/autotune-ridge/2").predict(features), model.predict(features)
    )
    store = tracked.open_store("mlflow", uri)
    version = client.get_model_version("autotune-ridge", "2")
    assert store.register_model(version.run_id, "autotune-ridge") == "autotune-ridge/2"  # once
    with pytest.raises(StoreError):
        store.register_model("nowhere", "autotune-ridge")


def test_names_and_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert tracked.registered_name("models/mine.py:Mine") == "autotune-models-mine.py-Mine"
    assert tracked.open_store("none", None) is None
    with pytest.raises(ValueError, match="`uri` must be sqlite:///FILE"):
        tracked.open_store("mlflow", "ftp://somewhere")
