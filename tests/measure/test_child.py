"""The one protocol of child processes: what a child may do wrong, and that nothing of it is left afterwards."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from measure.channel import Channel, ChannelError, LineChannel
from measure.child import Child, ChildError, Process, Program
from measure.errors import ErrorClass

pytestmark = pytest.mark.timeout(60)
LATE = 0.3


@pytest.fixture
def child() -> Iterator[Child]:
    with Child({"note": "a note", "cores": sorted(os.sched_getaffinity(0))[:1]}, "tests.measure.deeds") as child:
        yield child


def has_ended(pid: int) -> bool:
    """Tells whether a process is gone, or dead and not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def soon(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; the test's time-out ends one that never does."""
    while not condition():
        time.sleep(0.005)


def test_requests_are_answered_in_order_with_bytes_of_any_size(child: Child) -> None:
    cores = sorted(os.sched_getaffinity(0))[:1]
    for blob in (b"", b"abc", bytes(range(256)) * 20_000):  # more than a socket holds
        assert child.ask({"do": "nothing"}, blob, 30.0) == ({"cores": cores, "options": "a note"}, blob[::-1])


def test_what_a_library_prints_is_no_answer(child: Child) -> None:
    assert child.ask({"do": "print"}, b"x", 30.0)[1] == b"x"
    assert child.last_words() == "a library prints\nand warns"


def test_a_refusal_is_an_answer(child: Child) -> None:
    assert child.ask({"do": "refuse"}, seconds=30.0) == ({"refused": "a deed must be good, but got refuse"}, b"")
    assert child.ask({"do": "nothing"}, b"x", 30.0)[1] == b"x"


FAULTS = {
    "exit": (ErrorClass.crash, "died (exit code 3)"),
    "abort": (ErrorClass.crash, "died (SIGABRT): LLVM ERROR: cannot select"),
    "raise": (ErrorClass.crash, "RuntimeError: a fault in our own code"),
    "hang": (ErrorClass.run_timeout, f"was killed after its time-out of {LATE:g} s"),
    "half": (ErrorClass.run_timeout, f"was killed after its time-out of {LATE:g} s"),
    "rubbish": (ErrorClass.unknown, "broke the protocol: "),
    "no_object": (ErrorClass.unknown, "broke the protocol: a header must be an object, but got []"),
    "too_much": (ErrorClass.unknown, "broke the protocol: a message must have at most"),
}


@pytest.mark.parametrize("deed", FAULTS)
def test_each_fault_is_an_error_and_the_process_has_ended(child: Child, deed: str) -> None:
    error, how = FAULTS[deed]
    child.ask({"do": "nothing"}, seconds=30.0)  # it is up
    late = LATE if error is ErrorClass.run_timeout else 30.0
    with pytest.raises(ChildError, match="a process must answer, but it ") as raised:
        child.ask({"do": deed}, seconds=late)
    death = raised.value.death
    assert (death.error, death.outside) == (error, False) and how in death.how
    assert has_ended(child.pid) and not child.alive
    with pytest.raises(ChildError):  # a request to one that has ended is no other error
        child.ask({"do": "nothing"}, seconds=30.0)


def test_one_that_hangs_up_and_does_not_end_is_ended(child: Child) -> None:
    with pytest.raises(ChildError, match="hung up and did not end"):
        child.ask({"do": "hang_up"}, seconds=30.0)
    assert has_ended(child.pid)


def test_one_that_somebody_kills_was_killed_from_outside(child: Child) -> None:
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildError) as raised:
        child.ask({"do": "nothing"}, seconds=30.0)
    assert raised.value.death.outside


def test_one_that_takes_no_message_is_late(child: Child) -> None:
    child.ask({"do": "nothing"}, seconds=30.0)
    os.kill(child.pid, signal.SIGSTOP)
    with pytest.raises(ChildError, match=r"did not take a message within 0\.3 s"):
        child.ask({"do": "nothing"}, bytes(1 << 22), LATE)
    assert has_ended(child.pid)


@pytest.mark.parametrize("how", ["pressed", "asked"])
def test_ctrl_c_leaves_no_process_whose_answer_comes_late(child: Child, how: str) -> None:
    child.ask({"do": "nothing"}, seconds=30.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test before may have left another
    if how == "pressed":
        threading.Timer(LATE, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        child.ask({"do": "sleep", "seconds": 5.0}, seconds=30.0, stop=(lambda: True) if how == "asked" else None)
    signal.signal(signal.SIGINT, before)
    assert has_ended(child.pid)
    with pytest.raises(ChildError, match="was ended"):
        child.ask({"do": "nothing"}, seconds=30.0)


def test_ctrl_c_of_a_terminal_is_not_for_children(child: Child) -> None:
    child.ask({"do": "nothing"}, seconds=30.0)
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid != os.getsid(0)


@pytest.mark.parametrize("then", ["hang", "exit"])
def test_what_a_child_has_started_ends_with_it(child: Child, tmp_path: Path, then: str) -> None:
    file = tmp_path / "pid"
    child.ask({"do": "nothing"}, seconds=30.0)
    with pytest.raises(ChildError):
        child.ask({"do": "start", "file": str(file), "then": then}, seconds=1.0 if then == "hang" else 30.0)
    soon(lambda: has_ended(int(file.read_text())))


def test_a_child_ends_when_its_parent_hangs_up(child: Child) -> None:
    child.ask({"do": "nothing"}, seconds=30.0)
    child.channel.close()
    soon(lambda: not child.alive)
    assert child.kill() == 0


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", f"import os, sys, time\n{code}"]


ECHO = "for line in sys.stdin: print(line.strip()[::-1])"


def test_a_program_answers_lines() -> None:
    with Program(python(ECHO)) as program:
        assert [program.exchange(text, 30.0) for text in (b"ab", b"", b"x" * (1 << 20) + b"y")] == [
            b"ba",
            b"",
            b"y" + b"x" * (1 << 20),
        ]


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("sys.exit(3)", "died (exit code 3)"),
        ("time.sleep(600)", "was killed after its time-out of 0.3 s"),
        ("print('no end', end=''); time.sleep(600)", "was killed after its time-out of 0.3 s"),
        ("print('x' * 5000, end=''); time.sleep(600)", "broke the protocol: a message must have at most 1000 bytes"),
        ("print('x' * 5000); time.sleep(600)", "broke the protocol: a message must have at most 1000 bytes"),
    ],
)
def test_faults_of_a_program(code: str, how: str) -> None:
    with Program(python(code), most=1000) as program, pytest.raises(ChildError) as raised:
        program.exchange(b"?", 0.3 if "time-out" in how else 30.0)
    assert how in raised.value.death.how and has_ended(program.pid)


def test_a_program_that_is_none_cannot_be_started() -> None:
    before = set(os.listdir("/proc/self/fd"))
    for command in (["/no/such/program"], []):
        with pytest.raises((OSError, IndexError)):
            Program(command)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_process_that_is_closed_twice_and_holds_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    children: list[Process] = [Child({"note": ""}, "tests.measure.deeds"), Program(python(ECHO))]
    for child in children:
        child.close()
        child.close()
        assert child.channel.fileno() == -1
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", [Channel, LineChannel])
def test_messages_keep_their_ends_however_they_are_cut(kind: type[Channel]) -> None:
    """Bytes come one by one: what is there of a message stays, and a descriptor is readable while one is left."""
    source, into = os.pipe()
    end, out = os.pipe()
    with os.fdopen(into, "wb", buffering=0) as file:
        reader, frame = kind(source, out), kind(end, os.dup(into))
        data = b"".join(frame._frame(message) for message in (b"one", b"", b"three"))
        found = []
        for number in range(len(data)):
            file.write(data[number : number + 1])
            try:
                found.append(reader.receive(0.0))
            except TimeoutError:
                continue
        assert found == [b"one", b"", b"three"]
        frame.close()
    assert reader.receive(1.0) is None
    reader.close()


def test_a_frame_is_read_and_nothing_of_the_next() -> None:
    source, into = os.pipe()
    reader = Channel(source, into)
    reader.send(b"one")
    reader.send(b"two")
    assert reader.receive(1.0) == b"one"
    assert select.select([reader], [], [], 0.0)[0] == [reader]
    assert reader.receive(1.0) == b"two"
    assert not select.select([reader], [], [], 0.0)[0]
    reader.close()


def test_a_message_that_is_too_long_is_refused_before_it_is_read() -> None:
    source, into = os.pipe()
    reader = Channel(source, into, most=3)
    reader.send(b"abc")
    assert reader.receive(1.0) == b"abc"
    reader.send(b"abcd")
    with pytest.raises(ChannelError, match="a message must have at most 3 bytes, but got 4"):
        reader.receive(1.0)
    reader.close()
