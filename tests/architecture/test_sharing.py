"""Tests that share something expensive are run by one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import sharing

ROOT = Path(__file__).parents[2]


def test_groups_are_read_from_the_files(tmp_path: Path) -> None:
    marked, shared, plain = (tmp_path / name for name in ("marked.py", "shared.py", "plain.py"))
    marked.write_text('pytestmark = pytest.mark.xdist_group("ray")\n@pytest.fixture(scope="module")\n')
    shared.write_text('@pytest.fixture(scope="module", params=P)\ndef pool(): ...\n')
    plain.write_text('buffer("x", scope="local")\n')
    assert sharing.group_of(f"{marked}::test_a[x]") == "ray"
    assert sharing.group_of(f"{shared}::test_a") == sharing.group_of(f"{shared}::test_b") == str(shared)
    assert sharing.group_of(f"{plain}::test_a") == f"{plain}::test_a"


def test_a_file_that_shares_a_fixture_is_run_by_one_process() -> None:
    program = [sys.executable, "-m", "pytest", "-v", "-n", "2", "--dist=loadgroup", "-p", "no:cacheprovider"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    files = ["tests/contracts/test_pool_contract.py", "tests/architecture/test_layers.py"]
    options = ["-k", "closed or docs or layers or parents"]
    run = subprocess.run([*program, *options, *files], cwd=ROOT, env=kept, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    done = [line for line in run.stdout.splitlines() if "PASSED tests/contracts/test_pool_contract.py" in line]
    assert len(done) >= 3 and len({line.split()[0] for line in done}) == 1
