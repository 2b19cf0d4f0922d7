"""A program of a user: `make types` checks it, so that the public names have types for whoever imports them."""

from __future__ import annotations

from typing import assert_type

import autotune
from search_space import workloads
from targets.executable import Executable

network = autotune.compile("model.onnx", threads=2, precision="bfloat16")
assert_type(network, Executable)
assert_type(autotune.load("folder"), Executable)
result = autotune.tune(workloads.matmul(64, 64, 64), trials=8)
assert_type(result, autotune.TuneResult)
assert_type(result.best_seconds, float)
