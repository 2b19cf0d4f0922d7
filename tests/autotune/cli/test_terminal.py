"""Commands at a terminal, as users run them: real processes, pipes whose reader is gone, 80 columns, a late Ctrl-C."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from autotune.tuner.interrupt import Interrupt

ROOT = Path(__file__).parents[3]
SMALL = "workload: {operator: matmul, m: 24, n: 32, k: 16}\ntrials: 6\nsearch: {batch: 3}\n"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def start(folder, *arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOTUNE_TRACKING": "none", **options.pop("environment", {})}
    command = [sys.executable, "-m", "autotune", *map(str, arguments)]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(command, cwd=folder, env=environment, **given)


@pytest.mark.parametrize(
    "arguments",
    [
        ["lower", "small.yaml", "--stage", "schedule"],
        ["tasks", "small.yaml"],
        ["schema"],
        ["worker", "--token-file", "token"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_whose_reader_is_gone_ends_without_a_word(folder, arguments):
    """The reader is that of `autotune lower ... | head`, gone before the first byte."""
    check_silence(folder, arguments)


def check_silence(folder, arguments):
    """Runs a command into a pipe that nobody reads, and expects it to end with no complaint."""
    (folder / "token").write_text("x" * 40)
    (folder / "token").chmod(0o600)
    reader, writer = os.pipe()
    os.close(reader)
    process = start(folder, *arguments, stdout=writer)
    os.close(writer)
    _, complained = process.communicate(timeout=120)
    logged = [line for line in complained.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]  # of a worker
    assert logged == [] and process.returncode == 1


def test_a_pipe_of_another_process_is_an_error_like_any(folder, monkeypatch):
    from typer.testing import CliRunner

    from autotune.cli.app import app

    def break_pipe(*arguments, **options):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.chdir(folder)
    monkeypatch.setattr("autotune.run.run.run", break_pipe)
    done = CliRunner().invoke(app, ["run", "small.yaml"])
    assert done.exit_code == 2 and "Broken pipe" in done.stderr


def screen(folder, *arguments, columns=80):
    """Runs a command on a terminal of `columns` columns; returns the lines that it shows and its exit code."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    process = start(
        folder,
        *arguments,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        environment={"TERM": "xterm", "COLUMNS": str(columns)},
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the last writer has closed it
        pass
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).splitlines(), process.wait(60)


def test_eighty_columns_show_what_matters(folder):
    """A run on real hardware: its table has a line a task, with latency, spread, rate and ratio."""
    name = "a_layer_with_a_name_of_thirty_two"
    (folder / "small.yaml").write_text(f"{SMALL}name: {name}\n")
    lines, code = screen(folder, "run", "small.yaml")
    assert code == 0, lines
    head = next(place for place, line in enumerate(lines) if line.split()[:1] == ["task"])
    table = lines[head : head + 2]
    assert all(len(line.rstrip()) <= 80 for line in table) and table[1].startswith(f" {name} ")
    assert {"latency", "spread", "GFLOP/s", "ratio"} <= set(table[0].split()), table
    assert re.search(r"\d (ns|µs|ms) ", table[1]) and re.search(r"\d\.\d\dx", table[1]), table


def test_ctrl_c_on_a_terminal_says_at_once_that_it_was_heard():
    ours, theirs = pty.openpty()
    code = "import os, signal\nfrom autotune.tuner.interrupt import Interrupt\nwith Interrupt() as interrupt:\n"
    code += "    os.kill(os.getpid(), signal.SIGINT)\n    assert interrupt.requested\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=theirs, timeout=60, check=True)
    os.close(theirs)
    assert done.returncode == 0 and b"stopping after the trials under way; Ctrl-C again stops at once" in os.read(
        ours, 400
    )
    os.close(ours)


def test_ctrl_c_is_heard_where_the_terminal_has_gone(monkeypatch):
    def fail(descriptor, text):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    monkeypatch.setattr(os, "write", fail)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.requested


def test_ctrl_c_during_the_reference_timing_keeps_the_run_and_says_how_to_go_on(folder):
    # A reference that is never done: what is pressed a moment late, on a busy machine, still comes in time.
    (folder / "onnxruntime.py").write_text("import time\n\ntime.sleep(600)\n")
    process = start(folder, "run", "small.yaml", process_group=0)
    for line in process.stdout:
        if line.startswith("timing the same layer on ONNX Runtime"):
            break
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    try:
        said, complained = process.communicate(timeout=100)
    finally:
        process.kill()  # which holds the machine's lock, for which other tests wait
    assert process.returncode == 130, complained
    assert complained.splitlines() == [
        "no reference timings: they were stopped",
        "stopped; every finished trial is kept. To go on: autotune run small.yaml --resume",
    ]
    (task,) = json.loads((folder / "runs/small/summary.json").read_text())["tasks"]
    assert task["trials"] == 6 and task["reference_seconds"] is None and "everything is in runs/small" in said
    assert (folder / "runs/small/best/small/schedule.txt").exists()


def test_a_closed_port_is_waited_for_with_a_word(folder):
    (folder / "token").write_text("x" * 40)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    process = start(folder, "run", "small.yaml", "--quiet", "--pool", f"rpc://{place}", "--token-file", "token")
    try:
        said = [process.stderr.readline()]
        while f"waiting for a worker or tracker at {place}, at most 30 s: " not in said[-1] and said[-1]:
            said.append(process.stderr.readline())
        assert said[-1], "it must say so before it ends"
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_the_shell_completes_commands(folder):
    environment = {"_AUTOTUNE_COMPLETE": "complete_bash", "COMP_WORDS": "autotune lo", "COMP_CWORD": "1"}
    code = "import sys; sys.argv[0] = 'autotune'; from autotune.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, capture_output=True
    )
    assert done.stdout.decode().split() == ["lower"]
