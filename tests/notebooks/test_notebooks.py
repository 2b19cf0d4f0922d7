"""The notebooks run: each as a program, and one in a kernel, cell by cell, with its figures and its processes."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import matplotlib
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode

from autotune.run.sweep import SweepPoint, draw
from tests.notebooks import program

pytestmark = pytest.mark.xdist_group("notebooks")  # one process imports what they need, and forks

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
IN_A_KERNEL = ROOT / "notebooks" / "sketch_rule.py"

OUTPUTS = {
    "design_an_accelerator.py": "ms with vta:log_inp_buffer",
    "gradients.py": "the loss fell from",
    "inside_a_search.py": "evolution  best",
    "sketch_rule.py": "no failures",
    "transfer.py": "pairs ordered right",
}
"""Notebook -> what it says in its end."""


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_as_a_program_from_anywhere(notebook: Path, tmp_path: Path) -> None:
    check_run(notebook, OUTPUTS[notebook.name], tmp_path)


def check_run(notebook: Path, text: str, tmp_path: Path) -> None:
    """Runs a notebook as a program, and expects that it shows a text and leaves nothing behind."""
    folder, logs = tmp_path / "folder", tmp_path / "logs"
    folder.mkdir()
    logs.mkdir()
    done = program.run(notebook, folder, logs)
    assert done.code == 0, done.err
    assert text in done.out
    assert "Warning" not in done.err
    assert not list(folder.iterdir()), "a notebook leaves nothing behind"


def test_a_notebook_runs_in_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own draws into the notebook
    kernel = KernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "kernel"))
    notebook = jupytext.read(IN_A_KERNEL)
    NotebookClient(notebook, km=kernel, timeout=90, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.execution_count for cell in code(notebook))
    assert "best" in "".join(output.get("text", "") for output in outputs(notebook))
    assert count_figures(notebook) == sum("plt.show()" in cell.source for cell in code(notebook)) > 0


def test_a_sweep_draws_without_taking_the_notebooks_backend(tmp_path: Path) -> None:
    before = matplotlib.get_backend()
    try:
        matplotlib.use("svg")
        draw([SweepPoint({"log_inp_buffer": 15}, "design.json", 1024, 1e-3)], tmp_path / "sweep.png")
        assert matplotlib.get_backend() == "svg" and (tmp_path / "sweep.png").stat().st_size > 0
    finally:
        matplotlib.use(before)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_cells_of_text_and_code_for_any_place(notebook: Path) -> None:
    check_text(notebook)


def check_text(notebook: Path) -> None:
    """Expects cells of text and code, with figures drawn in one cell each, and no path of one machine."""
    text, found = notebook.read_text(), jupytext.read(notebook)
    assert found.metadata.jupytext["text_representation"]["format_name"] == "percent"
    first, *_ = found.cells
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    # A figure that is made in one cell and shown in another is drawn half done.
    cells = [cell.source for cell in code(found)]
    assert [source.count("plt.subplots(") for source in cells] == [source.count("plt.show()") for source in cells]
    assert sum(source.count("plt.show()") for source in cells) > 0
    assert re.findall(r"""["'](?:/|~|[A-Z]:)[^"']*["']""", text) == []
    assert "__file__" not in text.replace("autotune.__file__", "")  # a kernel has none


def test_every_notebook_is_listed() -> None:
    assert {path.name for path in NOTEBOOKS} == set(OUTPUTS) == list_notebooks("")
    assert not list((ROOT / "notebooks").rglob("*.ipynb"))


def list_notebooks(folder: str) -> set[str]:
    """Names of the notebooks of a folder, such as `lab/`, that the page names."""
    page = (ROOT / "docs" / "cost_model_lab.md").read_text()
    return set(re.findall(rf"\(\.\./notebooks/{folder}(\w+\.py)\)", page))


def code(notebook: NotebookNode) -> list[NotebookNode]:
    """Cells of code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    """Returns the outputs of the code cells."""
    return [output for cell in code(notebook) for output in cell.outputs]


def count_figures(notebook: NotebookNode) -> int:
    """Figures among the outputs."""
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))
