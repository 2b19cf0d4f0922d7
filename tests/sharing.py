"""Groups of tests that one process must run, since they share something expensive that is then made once.

xdist's own `--dist=loadgroup` knows groups by a suffix of the tests' names, which it cannot set with pytest 9.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

MARK = re.compile(r'\bxdist_group\((?:name=)?"([^"]+)"\)')
SHARED = re.compile(r'\bscope="module"|^@cache$', re.MULTILINE)
NEIGHBOURS = 16
"""Tests of one file that are run one after another: what a process has loaded or keeps for one serves the next."""


def group_tests(nodeids: Iterable[str], root: Path) -> dict[str, str]:
    """Group of each test: the mark of its file; the file, where its tests share a fixture or a cache.

    In other files, `NEIGHBOURS` tests in a row are a group, where there are so many; the rest are tests by
    themselves, which come last, so that the processes end together.

    Args:
        nodeids: names of the tests, in the order of their files.
        root: folder that files in such names are below.
    """
    found: dict[str, str] = {}
    for name, tests in groupby(nodeids, key=lambda nodeid: nodeid.partition("::")[0]):
        shared, neighbours = _group_of_file(root / name), list(tests)
        whole = len(neighbours) - len(neighbours) % NEIGHBOURS
        for place, nodeid in enumerate(neighbours):
            found[nodeid] = shared or (f"{name}#{place // NEIGHBOURS}" if place < whole else nodeid)
    return found


@cache
def _group_of_file(file: Path) -> str | None:
    text = file.read_text()
    if mark := MARK.search(text):
        return mark[1]
    return str(file) if SHARED.search(text) else None


class Sharing(LoadScopeScheduling):
    """A scheduler that gives processes one group of tests after another, the largest first."""

    def schedule(self) -> None:
        if self.collection is None:
            nodeids = next(iter(self.registered_collections.values()))
            self._groups = group_tests(nodeids, self.config.rootpath)
            self._indices = {nodeid: place for place, nodeid in enumerate(nodeids)}
        super().schedule()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        # A group that is done need not be looked through again whenever a test ends, as all of them are.
        work, group = self.assigned_work[node], self._groups[self.registered_collections[node][item_index]]
        if all(work[group].values()):
            del work[group]

    def _assign_work_unit(self, node: WorkerController) -> None:
        group, unit = self.workqueue.popitem(last=False)
        self.assigned_work[node][group] = unit
        node.send_runtest_some([self._indices[nodeid] for nodeid, done in unit.items() if not done])

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
