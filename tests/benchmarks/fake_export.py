"""A worker of the survey that exports a file which is no model: `python -m tests.benchmarks.fake_export REQUEST`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.survey.process import Facts


def main() -> None:
    """Writes a file, or fails where the model is called so."""
    request = json.loads(sys.argv[1])
    facts = Facts(Path(request["facts"]))
    facts.begin("export")
    with facts.failures():
        if request["name"] == "bug":
            raise ZeroDivisionError("a bug")
        Path(request["file"]).write_text("a model")
    facts.add(exporter="script", export_seconds=1.5)


if __name__ == "__main__":
    main()
