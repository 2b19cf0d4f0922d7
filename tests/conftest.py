"""Options of the tests, the fixture of golden files, and what lets tests run in several processes."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from autotune.compiler import schedules
from measure.worker import GARBAGE
from targets.threads import host_cores
from tests.golden.compare import Golden
from tests.stores import migrated_database, mlflow_database

settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
settings.load_profile("untimed")
os.environ.setdefault("AUTOTUNE_TRACKING", "none")  # tests of tracking say so; no other pays for it
os.environ["AUTOTUNE_CACHE"] = "none"  # tests of the cache have one of their own
# nobody's own schedules: where a search begins must not depend on who runs the tests
os.environ["XDG_DATA_HOME"] = str(Path(tempfile.gettempdir()) / "autotune-tests-have-no-data")

FEWEST = schedules.FEWEST

__all__ = ["golden", "migrated_database", "mlflow_database", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist=loadgroup`: tests that share something are run by one process."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.sharing import Sharing

    return Sharing(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are processors: those of a cluster, of a fleet and of time-outs mostly wait."""
    return host_cores() + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freezes the collected tests, so that the garbage collector does not go through them again and again.

    It runs as seldom as in the processes that build kernels.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each test process has a temporary folder of its own, and in it a lock of its own on building and timing.

    With the user's, processes of one test run, and whatever else measures on this machine, would wait for each other.
    Inductor compiles its headers once for all of them.
    """
    folder = str(tmp_path_factory.mktemp("tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(_folder_of_run(tmp_path_factory) / "inductor"))
        patch.setenv("TMPDIR", folder)
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def schedules_in_this_process() -> Iterator[None]:
    """Tests choose schedules in their own process, since their kernels are few and small.

    Tests of those processes use `compile_workers`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "FEWEST", sys.maxsize)
        yield


@pytest.fixture
def compile_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets processes choose schedules where there are many, as users have it."""
    monkeypatch.setattr(schedules, "FEWEST", FEWEST)


@pytest.fixture(scope="module")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of kernels that the processes of a test run share: a kernel of several tests is compiled once.

    It is for modules that look at results. A test that compiles twice to compare, or that replaces a part of the
    compiler, would find the kernels of another test instead.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE", str(_folder_of_run(tmp_path_factory) / "kernel-cache"))
        yield


def _folder_of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # each process has its own in that one


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with `tests/golden/text/NAME`, or writes it there."""
    folder = Path(__file__).parent / "golden" / "text"
    return Golden(folder, update=bool(request.config.getoption("--update-golden")))
