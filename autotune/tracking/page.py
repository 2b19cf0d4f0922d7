"""MLflow's server with a first page that opens the newest run's experiment, its columns those of a run.

`mlflow server --app-name autotune` finds `app` by the entry point in `plugin`; only that process imports this module.
MLflow's own first page is a demonstration of language models; it is still there, under "Home".
"""

from __future__ import annotations

from pathlib import Path

from flask import Response
from mlflow.server import app as flask_app
from mlflow.server.fastapi_app import app

SCRIPT = Path(__file__).with_name("start.js")


def first_page() -> Response:
    """Serves MLflow's page with our script before its own."""
    folder = flask_app.static_folder
    assert folder is not None
    page = (Path(folder) / "index.html").read_text()
    script = f"<head><script>{SCRIPT.read_text()}</script>"
    return Response(page.replace("<head>", script, 1), mimetype="text/html", headers={"Cache-Control": "no-store"})


flask_app.view_functions["serve"] = first_page

__all__ = ["app", "first_page"]
