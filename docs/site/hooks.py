"""Pages of the site that are not files in docs/: notebooks, files that pages link to, and the pages at the root.

MkDocs calls the functions `on_...`. Pages link to files as GitHub resolves them. Here a link that leaves docs/ leads
to a page of the site that shows the file.
"""

from __future__ import annotations

import base64
import os
import re
import tempfile
import tomllib
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import jupytext
from jupyter_client.manager import KernelManager
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".py": "python", ".c": "c", ".sh": "bash", ".yaml": "yaml"}
"""Suffix of a file → the language of its highlighting."""
NOT_RUN = """!!! note
    This page shows the cells without their outputs. `make docs EXECUTE=true` runs the notebooks and shows both.

"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the version into the foot of each page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.copyright = f"Documentation of version {project['version']} · {config.copyright}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each notebook, for each page at the root and for each file that pages link to."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    for path in sorted((ROOT / "notebooks").rglob("*.py")):
        notebook = jupytext.read(path)
        if config.extra["execute"]:
            run_cells(notebook)
        for name, content in notebook_files(notebook, site_name(path)).items():
            files.append(File.generated(config, name, content=content))
    for path in linked_sources(files):
        files.append(File.generated(config, site_name(path), content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replaces links to files of the repository by links to the pages that show them.

    The front page gets no menu beside it.
    """
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    return LINK.sub(partial(_replace_link, page.file), markdown)


def _replace_link(file: File, link: re.Match[str]) -> str:
    target = linked_file(file, link[1])
    if target is None:
        return link[0]
    return os.path.relpath(site_name(target), PurePosixPath(file.src_uri).parent) + (link[2] or "")


def linked_file(file: File, link: str) -> Path | None:
    """Returns what a link leads to; None where it stays among the files of docs/, or leads nowhere."""
    folder = ROOT if file.src_uri in ROOT_PAGES else (ROOT / "docs" / file.src_uri).parent
    target = (folder / link).resolve()
    stays = target.is_relative_to(ROOT / "docs") and folder != ROOT
    return target if target.exists() and target.is_relative_to(ROOT) and not stays else None


def site_name(path: Path) -> str:
    """Returns the name, among the sources of the site, of the page that shows a file or a folder."""
    name = path.relative_to(ROOT)
    if name.parts[0] == "docs":
        return name.relative_to("docs").as_posix()
    if path.name in ROOT_PAGES:
        return path.name
    if name.parts[0] == "notebooks":
        return name.with_suffix(".md").as_posix()
    return f"source/{name.as_posix()}.md"


def linked_sources(files: Files) -> list[Path]:
    """Returns the files and folders, of no page yet, that pages link to; folders bring the files in them."""
    links = [
        linked_file(file, link) for file in files.documentation_pages() for link, _ in LINK.findall(file.content_string)
    ]
    named = {path for path in links if path is not None and site_name(path).startswith("source/")}
    return sorted(named | {path for folder in named if folder.is_dir() for path in folder.iterdir() if path.is_file()})


def source_page(path: Path) -> str:
    """Returns the page of a file of code, or of the list of a folder."""
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        return title + "\n".join(
            f"- [{entry.name}]({path.name}/{entry.name}.md)" for entry in sorted(path.iterdir()) if entry.is_file()
        )
    return title + fenced(path.read_text(), LANGUAGES.get(path.suffix, "text"))


def fenced(text: str, language: str) -> str:
    """Returns a block of code, or of what code has printed."""
    return f"~~~{language}\n{text.rstrip()}\n~~~\n\n"


def run_cells(notebook: NotebookNode) -> None:
    """Runs the cells of a notebook in a kernel at the root, and keeps their outputs in the notebook."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        try:
            NotebookClient(notebook, km=kernel, timeout=300, resources={"metadata": {"path": ROOT}}).execute()
        finally:
            kernel.shutdown_kernel(now=True)  # a client leaves a kernel alone that it was given


def notebook_files(notebook: NotebookNode, page: str) -> dict[str, str | bytes]:
    """Returns the page of a notebook and the pictures on it, by name; a notebook that was not run says so."""
    files: dict[str, str | bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(f"{cell.source}\n\n")
            continue
        parts.append(fenced(cell.source, "python"))
        for output in cell.outputs:
            picture = output.get("data", {}).get("image/png")
            if picture is not None:
                name = f"{Path(page).stem}_{len(files)}.png"
                files[Path(page).with_name(name).as_posix()] = base64.b64decode(picture)
                parts.append(f"![Picture of the cell above]({name})\n\n")
            else:
                text = output.get("text") or output["data"]["text/plain"]
                parts.append(fenced(re.sub(r"\x1b\[[\d;]*m", "", text), "text"))
    if not any(cell.get("execution_count") for cell in notebook.cells):
        parts.insert(1, NOT_RUN)
    return {**files, page: "".join(parts)}
