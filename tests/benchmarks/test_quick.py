"""The quick check for what has become slower: a tree beside another, on a small network."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import quick, results
from benchmarks.quick import QuickError, compile_network, extract_tree, make_lines, resolve_base
from tests.autotune.compiler.test_network import two_layers

pytestmark = pytest.mark.usefixtures("kernel_cache")


def row(before: float, now: float, half: float = 1.0) -> dict[str, Any]:
    """Turns of a network, the second half of those now `half` times as long as the first."""
    halves = {"before": [before, before], "now": [now, now * half]}
    return {"seconds": {"before": before, "now": now}, "halves": halves}


def test_slower_is_what_is_beyond_the_share_and_the_noise() -> None:
    rows = {"same": row(1e-3, 1.02e-3), "worse": row(1e-3, 1.1e-3), "noisy": row(1e-3, 1.1e-3, 1.2)}
    lines, slower = make_lines({**rows, "faster": row(1e-3, 5e-4)}, 0.03)
    assert slower == ["worse"]
    assert lines[1] == ["worse", "1.000", "1.100", "1.10x", "slower"]
    assert lines[2] == ["noisy", "1.000", "1.100", "≈1.10x", ""] and lines[3][3:] == ["0.50x", ""]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)

    git("init", "-q")
    (folder / "a.txt").write_text("one")
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    (folder / "a.txt").write_text("two")
    git("commit", "-qam", "two")
    return folder


def test_the_newest_tag_is_the_release(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = resolve_base(None, repository)
    assert len(base) == 12 and base != resolve_base("HEAD", repository)
    for _ in range(2):  # the second time it is there
        assert (extract_tree(base, tmp_path, repository) / "a.txt").read_text() == "one"
    with pytest.raises(QuickError, match="git rev-parse --short=12 no_such.* must work, but: fatal"):
        resolve_base("no_such", repository)
    subprocess.run(["git", "tag", "-d", "v1"], cwd=repository, capture_output=True, check=True)
    head = resolve_base("HEAD", repository)
    monkeypatch.setattr(results, "load", lambda name: {"state": {"commit": head}})
    assert resolve_base(None, repository) == head
    monkeypatch.setattr(results, "load", lambda name: None)
    with pytest.raises(QuickError, match="a release must be tagged, or a revision named by `--base`"):
        resolve_base(None, repository)


def test_a_network_is_compared_and_what_cannot_be_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = two_layers(tmp_path / "two.onnx")
    monkeypatch.setattr(quick, "resolve_base", lambda named: "0123456789ab")
    monkeypatch.setattr(quick, "extract_tree", lambda commit, store: quick.ROOT)
    words = ["--networks", str(file), "--turns", "6", "--threads", "1", "--store", str(tmp_path / "store")]
    assert quick.main([*words, "--slower", "9"]) == 0
    said = capfd.readouterr().out
    assert "| network | 0123456789ab ms | now ms | ratio |  |" in said and "| two | " in said
    assert "slower: none" in said
    (kept,) = (tmp_path / "store" / "0123456789ab").iterdir()
    assert kept.name.startswith("two_1_") and (kept / "manifest.json").exists()
    assert quick.main(["--networks", str(tmp_path / "none.onnx"), *words[2:]]) == 2
    with pytest.raises(QuickError, match=r"must compile none, but says: .*none\.onnx"):
        compile_network(quick.ROOT, tmp_path / "none.onnx", tmp_path / "folder", 1)


def test_a_tree_from_before_the_protocol_of_processes_is_timed(tmp_path: Path) -> None:
    """The tree takes the modules that it lacks from this tree; all others are its own."""
    tree, later = tmp_path / "tree", {"checking", "channel.py", "child_main.py"}
    for folder in ("autotune", "autotune/compiler", "measure"):
        (tree / folder).mkdir(parents=True)
        for path in (quick.ROOT / folder).iterdir():
            if path.name not in later and not (tree / folder / path.name).exists() and path.name != "compiler":
                (tree / folder / path.name).symlink_to(path)
    for name in ("search_space", "targets", "costmodel"):
        (tree / name).symlink_to(quick.ROOT / name)
    file = two_layers(tmp_path / "two.onnx")
    places = {label: tmp_path / label for label in ("before", "now")}
    compile_network(quick.ROOT, file, places["before"], 1)
    row = quick.compare(file, {"before": tree, "now": quick.ROOT}, places, 1, 1)
    assert set(row["seconds"]) == {"before", "now"} and min(row["seconds"].values()) > 0
