"""The pictures of docs/gallery.md: `python -m benchmarks.gallery` (two minutes).

Two searches for one layer on the simulated VTA give the report, its tuning curves and the list of runs in MLflow. The
simulator is deterministic, so that both searches find the same on any machine. Maps of spaces are drawn from the
programs of tests/datasets/vta.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.browser import BROWSERS, find_browser
from benchmarks.pictures import new_figure
from benchmarks.results import DOCS
from costmodel.dataset import Dataset
from costmodel.features.program import program_features

ROOT = DOCS.parent
FOLDER = DOCS / "gallery"
LAYER = {"height": 7, "width": 7, "in_channels": 512, "out_channels": 512}
"""The layer of configs/vta_conv2d.yaml that is searched for: the last one of ResNet-18."""
STRATEGIES = ("evolution", "random")
"""Strategies of the two searches."""
TRIALS = 128


def tune(strategy: str, folder: Path) -> None:
    """Runs a search that begins with no known schedule and no pretrained model, tracked in `folder`."""
    keys = {
        **{f"workload.{name}": size for name, size in LAYER.items()},
        "search.strategy": strategy,
        "search.database": "none",
        "cost_model.pretrained": "none",
        "tracking.wait_s": 120,
    }
    options = ["--trials", str(TRIALS), "--seed", "0", "--output", strategy, "--track", "mlflow", "--quiet"]
    settings = [f"--set={key}={value}" for key, value in keys.items()]
    _autotune(folder, "run", str(ROOT / "configs/vta_conv2d.yaml"), *options, *settings)


def _autotune(folder: Path, *arguments: str) -> None:
    subprocess.run(command(*arguments), cwd=folder, env=environment(), check=True)


def command(*arguments: str) -> list[str]:
    """Returns the words of an `autotune` command."""
    return [sys.executable, "-m", "autotune", *arguments]


def environment() -> dict[str, str]:
    """Returns the environment of a command in another folder, tracked by MLflow whatever this one's says."""
    names = {name: value for name, value in os.environ.items() if name != "AUTOTUNE_TRACKING"}
    return {**names, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


def map_spaces(data: Dataset) -> Any:
    """Draws the programs of each task in the plane of the two main components of their features.

    Args:
        data: measured programs of one target.
    """
    figure = new_figure(9.0, 5.2)
    panels = figure.subplots(2, 3)
    for panel, task in zip(panels.flat, data.tasks, strict=True):
        positions, rows = [], []
        for of, features in data.features(task):
            positions.append(of)
            rows.append(program_features(features).T)  # (programs, features)
        order = np.concatenate(positions)
        points = principal_components(np.concatenate(rows))
        throughput, searched = data.throughput(task)[order], data.origin(task)[order] == "search"
        for chosen, marker, label in ((~searched, "o", "drawn at random"), (searched, "^", "from a search")):
            colours = {"c": throughput[chosen], "vmin": 0, "vmax": 1, "cmap": "viridis"}
            drawn = panel.scatter(*points[chosen].T, marker=marker, s=22, label=label, **colours)
        _, _, operator = task.name.partition("conv2d_blocked")
        panel.set(title=f"{operator}, {', '.join(task.networks)}", xticks=[], yticks=[])
        panel.title.set_fontsize(8)
    figure.colorbar(drawn, ax=panels, label="throughput / that of the fastest program", shrink=0.8)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return figure


def principal_components(rows: np.ndarray) -> np.ndarray:
    """Returns the two main components of standardised rows: (programs, features) -> (programs, 2)."""
    deviation = rows.std(axis=0)
    varying = deviation > 1e-9
    standard = (rows[:, varying] - rows[:, varying].mean(axis=0)) / deviation[varying]
    left, values, _ = np.linalg.svd(standard, full_matrices=False)
    return left[:, :2] * values[:2]


def take_pictures(folder: Path) -> None:
    """Takes pictures of the report in `folder`, and of the list of the runs that are tracked there."""
    from playwright.sync_api import sync_playwright

    ui = command("ui", ".", "--port", "0")
    with subprocess.Popen(ui, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1100, "height": 560})
                page.goto((folder / "report.html").as_uri())
                page.screenshot(path=FOLDER / "report.png")
                page.add_style_tag(content="details details {display: none}")  # schedules and programs
                page.locator("details[open]").first.screenshot(path=FOLDER / "curves.png")
                page = browser.new_page(viewport={"width": 1500, "height": 420})
                page.goto(address)
                for strategy in STRATEGIES:
                    page.get_by_text(strategy, exact=True).first.wait_for(timeout=90_000)
                page.screenshot(path=FOLDER / "mlflow.png")
                browser.close()
        finally:
            server.send_signal(signal.SIGINT)


def main() -> int:
    """Makes the pictures."""
    if find_browser() is None:
        sys.exit(f"a browser must be installed, one of {', '.join(BROWSERS)}, but there is none")
    FOLDER.mkdir(exist_ok=True)
    map_spaces(Dataset.open(ROOT / "tests/datasets/vta")).savefig(FOLDER / "spaces.png", dpi=100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for strategy in STRATEGIES:
            tune(strategy, folder)
        _autotune(folder, "report", *STRATEGIES, "-o", "report.html")
        take_pictures(folder)
    for path in sorted(FOLDER.glob("*.png")):
        sys.stderr.write(f"{path} is drawn\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
