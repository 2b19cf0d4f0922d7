"""How MLflow's list of runs opens, and where in its browser a run is.

MLflow keeps the columns that a user has chosen in the user's browser. A view that is shared is a tag of the experiment,
which an address names; so the addresses that are printed here open the list with the figures of a run.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

COLUMNS = ("latency_ms", "gflops", "ratio")
"""Metrics of a run that the list opens with."""

_NAME = "autotune"
VIEW_TAG = f"mlflow.sharedViewState.{_NAME}"
"""Tag of an experiment that holds the view."""

_SECONDS = 20.0  # for an answer of the server


def view_state() -> str:
    """The view as MLflow 3 reads it: its page's own defaults but for the columns."""
    columns = [f"metrics.`{name}`" for name in COLUMNS]
    page = {
        "selectedColumns": ["attributes.`Source`", *columns],
        "columnOrder": [],
        "columnWidths": {},
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsVisibilityMap": {},
        "runsHiddenMode": "FIRST_10_RUNS",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "autoRefreshEnabled": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }
    found = {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
    }
    return json.dumps({**found, **page})


def links(address: str, run: str | None = None) -> tuple[str, str] | None:
    """Addresses of the list of runs and of a run in MLflow's browser; None where the store holds no run.

    Args:
        address: of the server.
        run: id; None: the newest one.

    Raises:
        OSError: the server does not answer.
    """
    if run is None:
        experiments = _ask(address, "experiments/search", {"max_results": 1000}).get("experiments", [])
        wanted = {"max_results": 1, "order_by": ["attributes.start_time DESC"]}
        ids = [experiment["experiment_id"] for experiment in experiments]
        newest = _ask(address, "runs/search", {**wanted, "experiment_ids": ids}).get("runs", []) if ids else []
        if not newest:
            return None
        found = newest[0]
    else:
        found = _ask(address, f"runs/get?run_id={run}")["run"]
    tags = {tag["key"]: tag["value"] for tag in found["data"].get("tags", [])}
    name = tags.get("mlflow.parentRunId", found["info"]["run_id"])  # of a task: the run that it belongs to
    experiment = f"{address}/#/experiments/{found['info']['experiment_id']}/runs"
    return f"{experiment}?viewStateShareKey={_NAME}", f"{experiment}/{name}"


def _ask(address: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    given = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{path}", given, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        said: dict[str, Any] = json.load(answer)
    return said
