"""A worker of the survey that comes to what its model's name says: `python -m tests.benchmarks.fake_survey REQUEST`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.survey.process import Facts, within


def main() -> None:
    """Ends as the model is called."""
    request = json.loads(sys.argv[1])
    facts = Facts(Path(request["facts"]))
    within(request["memory_bytes"])
    name = request["name"]
    facts.begin("compile")
    with facts.failures():
        if name == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "slow":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
            Path(request["file"]).write_text(str(child.pid))
            time.sleep(300)
        if name == "big":
            bytearray(request["memory_bytes"])
        if name == "bug":
            raise ZeroDivisionError("a bug\nof two lines")
    facts.add(
        right=True, error=1e-7, reference="onnxruntime", seconds={"autotune": 1e-3, "onnxruntime": 2e-3}, stage=""
    )


if __name__ == "__main__":
    main()
