"""MLflow as a tracking store: on an embedded SQLite database, or on a server.

Only uploaders import this module, for MLflow takes seconds to import; a measuring worker never does.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune import __version__
from autotune.tracking.facts import database_file
from autotune.tracking.model import write_folder
from autotune.tracking.store import Input, MetricPoint, StoreError, TrackingStore
from autotune.tracking.view import VIEW_TAG, view_state
from search_space.scratch import ScratchFolder

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the uploader has a patience of its own
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Environment of MLflow, where the user has not set it otherwise."""

for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)

import mlflow.pyfunc  # noqa: E402
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag, ViewType  # noqa: E402
from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: E402
from mlflow.tracking import MlflowClient  # noqa: E402
from sqlalchemy.exc import SQLAlchemyError  # noqa: E402

logging.getLogger("mlflow").setLevel(logging.WARNING)
logging.getLogger("mlflow.utils.requirements_utils").setLevel(logging.ERROR)  # of a checkout that is not installed
logging.getLogger("alembic").setLevel(logging.WARNING)

KEY = "autotune.key"
ARTIFACTS = "mlartifacts"
"""Folder beside an embedded database in which the files of its runs lie."""

_KIND = "custom_model_development"  # the browser shows runs and their curves, not conversations
_VALUE = 6000  # characters of a parameter


class MLflowStore(TrackingStore):
    """Store in MLflow; a task is a child run.

    Args:
        uri: sqlite:///FILE, or the address of a server.
        experiment: name.
    """

    def __init__(self, uri: str, experiment: str) -> None:
        self._uri = uri
        self._ids: dict[str, str] = {}  # key → id
        self._key_prefixes: set[str] = set()  # beginnings of the keys that were looked for
        with self._store_errors():
            file = database_file(uri)
            if file is not None:
                make_whole(file, _create_database)
            self._client = MlflowClient(uri, uri)
            existing = self._client.get_experiment_by_name(experiment)
            if existing is not None and existing.lifecycle_stage == "deleted":
                self._client.restore_experiment(existing.experiment_id)
            self._experiment = (
                existing.experiment_id if existing is not None else self._create_experiment(experiment, file)
            )
            if existing is None or existing.tags.get(VIEW_TAG) != view_state(experiment):
                self._client.set_experiment_tag(self._experiment, VIEW_TAG, view_state(experiment))

    def open_run(
        self,
        key: str,
        name: str,
        time_ms: int,
        tags: Mapping[str, str],
        parameters: Mapping[str, str],
        parent: str | None,
    ) -> str:
        with self._store_errors():
            if (found := self._find_run(key)) is not None:
                self.set_status(found, "RUNNING", None)
                self.log_parameters(found, parameters)
                return found
            all_tags = {**tags, KEY: key, **({"mlflow.parentRunId": parent} if parent else {})}
            run = str(self._client.create_run(self._experiment, time_ms, all_tags, name).info.run_id)
            self._client.log_batch(run, params=[Param(name, value[:_VALUE]) for name, value in parameters.items()])
            self._ids[key] = run
            return run

    def log_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        with self._store_errors():
            there = self._client.get_run(run).data.params
            cut = {name: value[:_VALUE] for name, value in parameters.items()}
            changed = [RunTag(f"resumed.{n}", v) for n, v in cut.items() if n in there and there[n] != v]
            new = [Param(name, value) for name, value in cut.items() if name not in there]
            self._client.log_batch(run, params=new, tags=changed)

    def log_metrics(self, run: str, points: Sequence[MetricPoint]) -> None:
        with self._store_errors():
            self._client.log_batch(run, [Metric(of.name, of.value, of.time_ms, of.step) for of in points])

    def log_tags(self, run: str, tags: Mapping[str, str]) -> None:
        with self._store_errors():
            self._client.log_batch(run, tags=[RunTag(name, value) for name, value in tags.items()])

    def log_file(self, run: str, path: Path, folder: str) -> None:
        with self._store_errors():
            self._client.log_artifact(run, str(path), folder or None)

    def log_model(self, run: str, path: Path, kind: str) -> None:
        """Copies the model such that `mlflow.pyfunc.load_model("runs:/ID/cost_model")` loads it."""
        with self._store_errors(), ScratchFolder("model") as place:
            data = write_folder(Path(place) / "data", path, kind)
            model_folder = Path(place) / "cost_model"
            mlflow.pyfunc.save_model(
                str(model_folder),
                loader_module="autotune.tracking.model",
                data_path=str(data),
                pip_requirements=[f"autotune-tensor=={__version__}"],
            )
            self._client.log_artifacts(run, str(model_folder), "cost_model")

    def register_model(self, run: str, name: str) -> str:
        """Makes the version that `mlflow.pyfunc.load_model("models:/NAME/VERSION")` loads."""
        with self._store_errors():
            with suppress(MlflowException):  # there is one of that name; if it is something else, the next call says so
                self._client.create_registered_model(name)
            known = self._client.search_model_versions(f"name = '{name}' and run_id = '{run}'")
            if known:
                return f"{name}/{known[0].version}"
            source = f"{self._client.get_run(run).info.artifact_uri}/cost_model"
            return f"{name}/{self._client.create_model_version(name, source, run).version}"

    def log_input(self, run: str, data: Input) -> None:
        with self._store_errors():
            dataset = Dataset(data.name, data.digest, "local", json.dumps({"uri": data.source}))
            tags = [InputTag("mlflow.data.context", data.context)]
            self._client.log_inputs(run, datasets=[DatasetInput(dataset, tags)])

    def set_status(self, run: str, status: str, time_ms: int | None) -> None:
        with self._store_errors():
            if time_ms is None:
                self._client.update_run(run, status)
            else:
                self._client.set_terminated(run, status, time_ms)

    def _find_run(self, key: str) -> str | None:
        """Finds the run with this key, if any, by one query for all keys with the same beginning."""
        first = key.partition("/")[0]
        if first not in self._key_prefixes:
            token: str | None = None
            while token is None or token:
                query = f"tags.`{KEY}` LIKE '{first}%'"
                page = self._client.search_runs([self._experiment], query, ViewType.ALL, page_token=token)
                for run in page:
                    self._ids[run.data.tags[KEY]] = run.info.run_id
                    if run.info.lifecycle_stage == "deleted":
                        self._client.restore_run(run.info.run_id)
                token = page.token or ""
            self._key_prefixes.add(first)
        return self._ids.get(key)

    def _create_experiment(self, experiment: str, file: Path | None) -> str:
        place = None if file is None else (file.parent / ARTIFACTS).as_uri()
        try:
            return str(self._client.create_experiment(experiment, place, {"mlflow.experimentKind": _KIND}))
        except MlflowException as error:
            found = self._client.get_experiment_by_name(experiment)
            if found is None or error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            return str(found.experiment_id)  # another run was faster

    @contextmanager
    def _store_errors(self) -> Iterator[None]:
        """Turns a store's failure into one sentence."""
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            said = str(error).strip().splitlines()
            raise StoreError(f"{self._uri}: {said[0][:300] if said else type(error).__name__}") from error


def make_whole(file: Path, make: Callable[[Path], None]) -> None:
    """Makes a missing file in one step, so that no process ever reads a part of it.

    A new database is migrated for seconds, in many steps: who opened it meanwhile would migrate it, too, and fail.

    Args:
        file: path of the database; an existing one stays unchanged, also if another process was faster.
        make: writes the whole file to the path that it is given.
    """
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as place:
        partial = Path(place) / file.name
        make(partial)
        with suppress(FileExistsError):
            os.link(partial, file)


def _create_database(file: Path) -> None:
    """Makes a database of today's schema; the place of its files is beside where it will lie."""
    store = SqlAlchemyStore(f"sqlite:///{file}", (file.parent.parent / ARTIFACTS).as_uri())  # type: ignore[no-untyped-call]
    store.engine.dispose()
