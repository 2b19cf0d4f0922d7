"""Commands on target cuda where there is no GPU: kernels are printed and compiled, a run says why it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli.app import app
from targets.cuda.target import CudaTarget

CONFIG = "workload: {operator: matmul, m: 48, n: 64, k: 32}\ntarget: cuda\ntrials: 4\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CudaTarget, "unavailable", lambda self: "target cuda must run on a machine with a GPU")
    (tmp_path / "small.yaml").write_text(CONFIG)
    return "small.yaml"


def test_lower_prints_the_text_and_what_it_takes(config: str) -> None:
    result = CliRunner().invoke(app, ["lower", config, "--target", "cuda:sm_80"])
    assert result.exit_code == 0, result.output
    titles = [line for line in result.output.splitlines() if line.startswith("== ")]
    assert titles == ["== schedule", "== program", "== cuda", "== resources", "== assembly"]
    assert "blockIdx.x for" in result.output and "__syncthreads();" in result.output
    assert "# compiled for sm_80 by NVRTC" in result.output and " registers, " in result.output
    assert ".target sm_80" in result.output


def test_one_stage(config: str) -> None:
    result = CliRunner().invoke(app, ["lower", config, "--stage", "resources"])
    assert result.exit_code == 0 and result.output.startswith("== resources\n# compiled for sm_90")


def test_a_target_that_is_not_known_is_refused(config: str) -> None:
    result = CliRunner().invoke(app, ["lower", config, "--target", "cuda:sm_10"])
    assert result.exit_code == 2
    assert "`target` cuda must be followed by one of sm_80" in result.output


def test_a_run_ends_with_a_sentence_before_anything_is_made(config: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", config])
    assert result.exit_code == 2
    assert "small.yaml:target: target cuda must run on a machine with a GPU" in result.output
    assert not (tmp_path / "runs").exists()


def test_a_worker_ends_with_it_too(config: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x" * 32)
    (tmp_path / "token").chmod(0o600)
    result = CliRunner().invoke(app, ["worker", "--target", "cuda", "--token-file", "token"])
    assert result.exit_code == 2 and "target cuda must run on a machine with a GPU" in result.output
