"""The documentation site is built strictly, its links lead to pages and anchors, and a browser opens it offline."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from nbformat import v4

from benchmarks.browser import BROWSERS, find_browser
from tests.architecture.test_docs import DOCS, PAGES, ROOT, code
from tests.without_lab import has_lab

pytestmark = pytest.mark.timeout(300)


OURS = ("autotune", "search_space", "costmodel", "measure", "targets")
PARTS = re.compile(r"<(li|ol|ul|table|tr|pre|blockquote|h[1-6])\b")
"""Parts of a page that both dialects of Markdown must see."""


class Document(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [link for name in ("href", "src") if (link := values.get(name))]
        self.anchors |= {anchor for name in ("id", "name") if (anchor := values.get(name))}


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` builds it."""
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    if not has_lab():
        pytest.skip("the pages of the laboratory are part of the site")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "EXECUTE": "false"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Address of a server that shows the site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def broken_links(site: Path) -> list[tuple[str, str]]:
    """Returns the internal links of all pages that lead to no file or no anchor, each behind its page."""
    documents = {path: Document(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    broken = []
    for path, document in documents.items():
        for link in document.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and anchor not in documents[target].anchors):
                broken.append((str(path.relative_to(site)), link))
    return broken


def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    assert broken_links(site) == []
    for page in [*DOCS.rglob("*.md"), *(ROOT / "notebooks").rglob("*.py")]:
        name = page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT)
        assert (site / name).with_suffix(".html").exists(), name


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a id="here" href="#here"></a><a href="#there"></a><img src="b.png">')
    assert broken_links(tmp_path) == [("a.html", "#there"), ("a.html", "b.png")]


def test_outputs_of_a_notebook_are_on_its_page() -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    hooks = runpy.run_path(str(DOCS / "site/hooks.py"))
    outputs = [v4.new_output("stream", text="\x1b[1mfast\x1b[0m"), v4.new_output("display_data", {"image/png": "AAEC"})]
    cells = [v4.new_markdown_cell("# Title"), v4.new_code_cell("1 + 1", outputs=outputs, execution_count=1)]
    made = hooks["notebook_files"](v4.new_notebook(cells=cells), "notebooks/one.md")
    assert made["notebooks/one_0.png"] == b"\x00\x01\x02"
    assert "~~~python\n1 + 1\n~~~" in made["notebooks/one.md"] and "~~~text\nfast\n~~~" in made["notebooks/one.md"]
    assert "(one_0.png)" in made["notebooks/one.md"] and "without their outputs" not in made["notebooks/one.md"]
    cells[1].update(outputs=[], execution_count=None)
    assert "without their outputs" in hooks["notebook_files"](v4.new_notebook(cells=cells), "one.md")["one.md"]


def test_pages_have_the_same_structure_here_and_on_github() -> None:
    """MkDocs's dialect wants four columns of indentation in lists, and an empty line before one."""
    config = pytest.importorskip("mkdocs.config", reason="mkdocs is not installed").load_config(
        str(ROOT / "mkdocs.yml")
    )
    here = import_module("markdown").Markdown(
        extensions=config.markdown_extensions, extension_configs=config.mdx_configs
    )
    there = MarkdownIt("commonmark").enable("table")
    unlike = {}
    for page in set(PAGES) - {ROOT / "README.md"}:  # which is no page of the site
        text = page.read_text()
        counts = [Counter(PARTS.findall(html)) for html in (here.reset().convert(text), there.render(text))]
        if counts[0] != counts[1]:
            unlike[page.name] = (counts[0] - counts[1], counts[1] - counts[0])
    assert unlike == {}


def test_names_that_pages_import_are_in_the_reference(site: Path) -> None:
    """A page that imports a module needs some name of it in the reference."""
    documents = [Document(path.read_text()) for path in (site / "reference").glob("*.html")]
    anchors = set().union(*(document.anchors for document in documents))
    described = anchors | {anchor.rpartition(".")[0] for anchor in anchors}
    missing = []
    for page in PAGES:
        for module, names in re.findall(r"^from ([\w.]+) import ([\w, ]+)$", "\n".join(code(page)), re.MULTILINE):
            imported = [f"{module}.{name.split(' as ')[0]}" for name in names.split(", ")]
            missing += [(page.name, name) for name in imported if name.split(".")[0] in OURS and name not in described]
    assert missing == []


def test_a_browser_opens_the_site_without_a_network(site: Path, address: str, tmp_path: Path) -> None:
    """A page of each folder, without an error in the console or a request to another host; the search finds a page."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser_path = find_browser()
    if browser_path is None:
        pytest.skip(f"a browser must be installed, one of {', '.join(BROWSERS)}, but there is none")
    errors, hosts = [], set()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        for path in {path.parent: path for path in sorted(site.rglob("*.html"))}.values():
            page.goto(f"{address}/{path.relative_to(site)}")
        page.goto(f"{address}/index.html")
        page.screenshot(path=tmp_path / "front.png")
        page.get_by_placeholder("Search").fill("sketch rule")
        page.locator(".md-search-result__link").first.wait_for(timeout=60_000)
        page.keyboard.press("Escape")
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("label[title='Dark colours']").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        browser.close()
    assert errors == [] and hosts == {urlsplit(address).netloc}
    assert (tmp_path / "front.png").stat().st_size > 20_000
