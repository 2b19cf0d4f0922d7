"""Which tests one process must run: those that share something expensive, so that it is made once.

xdist's own `--dist=loadgroup` knows groups by a suffix of the tests' names, which it cannot set with pytest 9.2.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

MARK = re.compile(r'\bxdist_group\((?:name=)?"([^"]+)"\)')
SHARED = re.compile(r'\bscope="module"|^@cache$', re.MULTILINE)


def group_of(nodeid: str, root: Path) -> str:
    """Group of a test: the mark of its file; the file, where tests share a fixture or a cache; else the test itself.

    Args:
        nodeid: of the test.
        root: that files in such names stand below.
    """
    return _group_of_file(root / nodeid.partition("::")[0]) or nodeid


@cache
def _group_of_file(file: Path) -> str | None:
    text = file.read_text()
    if mark := MARK.search(text):
        return mark[1]
    return str(file) if SHARED.search(text) else None


class Sharing(LoadScopeScheduling):
    """Gives processes one group of tests after another, the largest first."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid, self.config.rootpath)
