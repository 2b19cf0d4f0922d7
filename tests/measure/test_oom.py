"""The count of processes killed for memory, in file systems of each kind of control groups."""

from __future__ import annotations

import os
import signal

import pytest

from measure import oom
from measure.child import cause_of_death
from measure.errors import ErrorClass

EVENTS = "low 0\nhigh 12\nmax 3\noom 2\noom_kill {}\noom_group_kill 9\n"


def tree(root, files):
    """A file system."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/user/run\n", "sys/fs/cgroup/user/run/memory.events": EVENTS.format(4)}, 4),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": EVENTS.format(5)}, 5),
        ({"proc/self/cgroup": "0::/of/the/host\n", "sys/fs/cgroup/memory.events": EVENTS.format(6)}, 6),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n",
                "sys/fs/cgroup/memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
                "proc/vmstat": "nr_free_pages 1\noom_kill 70\n",
            },
            7,
        ),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "nr_free_pages 1\noom_kill 8\n"}, 8),
        ({"proc/vmstat": "oom_kill 9\n"}, 9),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "nr_free_pages 1\n"}, None),
        ({}, None),
    ],
)
def test_the_nearest_count_is_taken(tmp_path, files, count):
    assert oom.oom_kills(tree(tmp_path, files)) == count


def test_a_count_is_read_anew_each_time(tmp_path):
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.events": EVENTS.format(1)}
    assert oom.oom_kills(tree(tmp_path, files)) == 1
    tree(tmp_path, {"sys/fs/cgroup/a/memory.events": EVENTS.format(2)})
    assert oom.oom_kills(tmp_path) == 2


@pytest.mark.parametrize(
    ("count", "error", "outside", "message"),
    [
        (0, ErrorClass.crash, True, "was killed from outside (SIGKILL)"),
        (1, ErrorClass.out_of_memory, False, "was killed by the system for its memory"),
        (None, ErrorClass.crash, True, "(SIGKILL), and the system does not say whether for its memory"),
    ],
)
def test_a_kill_is_told_by_the_count(count, error, outside, message):
    death = cause_of_death(-signal.SIGKILL, "", count)
    assert (death.error, death.outside) == (error, outside) and message in death.how


def test_other_deaths_are_nobody_elses_doing():
    assert not cause_of_death(-signal.SIGSEGV, "", 1).outside
    assert cause_of_death(1, "terminate called: std::bad_alloc", 0).error is ErrorClass.out_of_memory


@pytest.mark.skipif(not os.path.exists("/proc/vmstat"), reason="needs Linux")
def test_this_machine_has_a_count_that_does_not_change_by_itself():
    assert oom.oom_kills() == oom.oom_kills()
