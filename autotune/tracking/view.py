"""Columns of MLflow's list of runs, and addresses of runs in its browser.

MLflow keeps the columns that a user has chosen in the user's browser. The columns to begin with are a tag of the
experiment, as a view that is shared would be; `autotune.tracking.page` gives them to a browser that has chosen none.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

COLUMNS = (
    "params.`search.strategy`",
    "params.`trials`",
    "tags.`algorithm`",
    "metrics.`latency_ms`",
    "metrics.`spread`",
    "metrics.`ratio`",
    "metrics.`gflops`",
)
"""Columns of the list of runs at first, as MLflow names them."""

LAB = "cost models"
"""Experiment of the lab."""

LAB_COLUMNS = (
    "params.`cost_model`",
    "metrics.`top1`",
    "metrics.`top5`",
    "metrics.`pairwise`",
    "metrics.`recall`",
    "metrics.`fit_seconds`",
)
"""Columns of the list of the lab's models at first."""

VIEW_TAG = "mlflow.sharedViewState.autotune"
"""Tag of an experiment that holds the view; on a server, `viewStateShareKey=autotune` in an address asks for it."""

_NAME = "attributes.`Run Name`"  # a column that comes first, and is wide enough for names
_SECONDS = 20.0  # for an answer of the server


def view_state(experiment: str) -> str:
    """Encodes the view of an experiment as MLflow 3 reads it: the defaults of its page except for the columns."""
    page = {
        "selectedColumns": list(LAB_COLUMNS if experiment == LAB else COLUMNS),
        "columnOrder": [_NAME],
        "columnWidths": {_NAME: 310},
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
    state = {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
    }
    return json.dumps({**state, **page})


def links(address: str, run: str | None = None) -> tuple[str, str] | None:
    """Makes the addresses of the list of runs and of a run in MLflow's browser; None if the store holds no run.

    Args:
        address: address of the server.
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
        run_info = newest[0]
    else:
        run_info = _ask(address, f"runs/get?run_id={run}")["run"]
    tags = {tag["key"]: tag["value"] for tag in run_info["data"].get("tags", [])}
    name = tags.get("mlflow.parentRunId", run_info["info"]["run_id"])  # of a task: the run that it belongs to
    experiment = f"{address}/#/experiments/{run_info['info']['experiment_id']}/runs"
    return experiment, f"{experiment}/{name}"


def _ask(address: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    given = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/api/2.0/mlflow/{path}", given, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        said: dict[str, Any] = json.load(answer)
    return said
