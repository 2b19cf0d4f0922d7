"""`autotune ui` and `autotune track`: what is missing is uploaded, and MLflow's browser opened on the store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

from autotune.config import ConfigError
from autotune.tracking.facts import checked_uri, database_file, database_uri
from autotune.tracking.spool import FOLDER, SpoolError, driver_lives, read_state, read_store, spools
from autotune.tracking.store import StoreError
from autotune.tracking.uploader import only_uploader, run_folders, upload_run
from autotune.tracking.view import links
from measure.notices import notice_if_slow
from search_space.extras import require

HOST = "127.0.0.1"

ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # two processes in place of nine
    "PYTHONWARNINGS": "ignore",
}

_PLUGIN = Path(__file__).parent / "plugin"  # where `mlflow server` finds the page that it begins with
_APP = "autotune"  # its name there
_ADDRESS = re.compile(rf"running on (http://{re.escape(HOST)}:\d+)")
_GRACE = 5.0  # seconds
_PATIENCE = 60.0  # seconds that another uploader may take


class Browser:
    """MLflow's server, for this host alone.

    Args:
        uri: sqlite:///FILE.
        port: port to listen on; 0: any free port.
    """

    def __init__(self, uri: str, port: int = 0) -> None:
        require("`autotune ui`", "mlflow")
        file = database_file(uri)
        artifacts = [] if file is None else ["--artifacts-destination", (file.parent / "mlartifacts").as_uri()]
        options = ["--backend-store-uri", uri, *artifacts, "--host", HOST, "--port", str(port), "--workers", "1"]
        options += ["--app-name", _APP]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options],
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(_PLUGIN), *map(_folder, sys.path)])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is ours to handle
        )

    @property
    def pid(self) -> int:
        """Process id, of the group's leader."""
        return self._process.pid

    def address(self) -> str:
        """Waits until the server listens; its address.

        Raises:
            StoreError: it ended instead.
        """
        output = self._process.stdout
        assert output is not None
        said: deque[str] = deque(maxlen=5)
        for line in output:
            said.append(line.strip())
            if found := _ADDRESS.search(line):
                threading.Thread(target=_drain, args=(output,), daemon=True).start()
                return found[1]
        raise StoreError(f"MLflow's server must start, but it ended: {' '.join(said)[-500:]}")

    def wait(self) -> int:
        """Waits until the server ends; its exit code."""
        return self._process.wait()

    def terminate(self) -> None:
        """Asks the server and its workers to end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Ends the server and its workers; may be called twice."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()


def serve(uri: str, port: int, say: Callable[[str], None], run: str | None = None) -> None:
    """Shows the store until Ctrl-C or SIGTERM; tells where the list of runs is, and the newest one.

    Args:
        uri: sqlite:///FILE.
        port: port to listen on; 0: any free port.
        say: shows a sentence to the user.
        run: id of the run in place of the newest.

    Raises:
        StoreError: the server does not start, or ends by itself.
    """
    print("starting MLflow's browser, which takes some seconds", file=sys.stderr)
    browser = Browser(uri, port)
    stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        browser.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        try:
            address = browser.address()
            found = links(address, run)
            say(f"{address if found is None else found[0]} shows the runs in {uri}; Ctrl-C ends it")
            if found is not None:
                say(f"newest run: {found[1]}")
        except OSError as error:
            if not stopped:
                say(f"{address} shows the runs in {uri}; Ctrl-C ends it\nthe newest run is not known: {error}")
        except StoreError:
            if not stopped:
                raise
        code = browser.wait()
        if not stopped:
            raise StoreError(f"MLflow's server must run until it is stopped, but it ended with exit code {code}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        browser.stop()


def track(run_folder: Path) -> str:
    """Uploads what a run folder holds that its store has not got; where it is then.

    Raises:
        ConfigError: no run that was tracked lies there.
        StoreError: something could not be uploaded.
    """
    found = spools(run_folder)
    if not found:
        raise ConfigError(f"`RUN` must be the folder of a tracked run, but {run_folder} holds no {FOLDER}/0001")
    goes_on = any(map(driver_lives, found))
    with notice_if_slow(f"uploading {run_folder}"), only_uploader(run_folder, 0.0 if goes_on else _PATIENCE) as alone:
        if not alone:
            why = "the run goes on" if goes_on else "it takes over a minute"
            raise StoreError(f"{run_folder}: the process beside the run must be done uploading, but {why}")
        if problems := upload_run(run_folder):
            raise StoreError("\n".join(problems))
    return read_store_address(run_folder)


def read_store_address(run_folder: Path) -> str:
    """Finds the address of the store of the last run in a folder.

    Raises:
        StoreError: the run wrote nothing, or what it wrote is no event.
    """
    try:
        store = read_store(spools(run_folder)[-1])
    except SpoolError as error:
        raise StoreError(str(error)) from error
    if store is None:
        raise StoreError(f"{run_folder}: a run must have begun to be tracked, but its spool is empty")
    return store[1]


def show(folder: Path, uri: str | None, port: int, say: Callable[[str], None]) -> None:
    """Uploads what runs have left, and shows their store until Ctrl-C; of a server it tells the address.

    Args:
        folder: folder of run folders, or one of them.
        uri: address of the store; None: that of the run folder, or the database in `folder`.
        port: port to listen on; 0: any free port.
        say: shows a sentence to the user.

    Raises:
        ConfigError: there is nothing to show.
        StoreError: the browser does not start.
    """
    runs = [folder] if spools(folder) else run_folders(folder)
    if uri is None:
        uri = read_store_address(folder) if spools(folder) else database_uri(folder)
    try:
        uri = checked_uri(uri)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for run in runs:
        try:
            track(run)
        except StoreError as error:
            say(f"not uploaded: {error}")
    file = database_file(uri)
    if file is None:
        say(f"the server at {uri} shows its runs itself")
        with suppress(OSError):  # away, or behind a login, which the user's browser has
            if (places := links(uri, _read_run_id(folder))) is not None:
                say(f"all runs: {places[0]}\nnewest run: {places[1]}")
        return
    if not file.is_file():
        raise ConfigError(f"`FOLDER` must hold tracked runs, or `--uri` name their store, but there is no {file}")
    serve(uri, port, say, _read_run_id(folder))


def _read_run_id(folder: Path) -> str | None:
    """Reads the id of the last run in a run folder; None if it is no run folder, or was never uploaded."""
    last = spools(folder)[-1:]
    return read_state(last[0]).runs.get("") if last else None


def _folder(entry: str) -> str:
    """Converts an entry of `sys.path` for PYTHONPATH, which reads an empty entry differently."""
    return entry or "."


def _drain(output: IO[str]) -> None:
    """Reads what a server says, which would block it otherwise."""
    for _ in output:
        pass
