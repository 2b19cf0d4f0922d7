#!/usr/bin/env bash
# Guess: Kernel Tuner with `max_fevals` = 20 returns 20 results, one for each configuration that it measured.
# Case: a result is listed each time that a strategy asks for it. basinhopping lists more than 60 rows of 20
# configurations; dual_annealing stops with fewer than 20. The budget counts distinct configurations, results do not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 scipy==1.17.1 kernel-tuner==1.5.0
FOLDER="$folder" "$folder/env/bin/python" - <<'EOF'
import contextlib
import io
import itertools
import json
import os
import random
from importlib.metadata import version

import kernel_tuner
import numpy

print("kernel_tuner", version("kernel_tuner"))
parameters = {"a": [1, 2, 4, 8], "b": [1, 2, 4, 8], "c": [0, 1, 2, 3]}
entries = {}
for values in itertools.product(*parameters.values()):
    a, b, c = values
    time = 1 + abs(a - 4) + abs(b - 2) + abs(c - 1) / 2
    stages = ("compile", "verification", "benchmark", "strategy", "framework")
    fields = {f"{stage}_time": 0 for stage in stages}
    row = {"time": time, "times": [time], "timestamp": "2026-01-01 00:00:00", **fields}
    entries[",".join(map(str, values))] = dict(zip(parameters, values)) | row
cache = {"device_name": "simulated", "kernel_name": "k", "problem_size": 64, "tune_params_keys": list(parameters)}
cache |= {"tune_params": parameters, "objective": "time", "cache": entries}
seen = {}
for strategy in ("random_sample", "basinhopping", "dual_annealing"):
    with open(os.path.join(os.environ["FOLDER"], "cache.json"), "w") as stream:
        json.dump(cache, stream)
    random.seed(0)
    numpy.random.seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        rows, _ = kernel_tuner.tune_kernel(
            *("k", "void k() {}", 64, [], parameters),
            lang="C",
            strategy=strategy,
            strategy_options={"max_fevals": 20},
            cache=stream.name,
            simulation_mode=True,
        )
    seen[strategy] = len(rows), len({tuple(row[name] for name in parameters) for row in rows})
    print(strategy, "rows", seen[strategy][0], "configurations", seen[strategy][1])
assert seen["random_sample"] == (20, 20)
assert seen["basinhopping"][0] > 60 and seen["basinhopping"][1] <= 20
assert seen["dual_annealing"][1] < 20 < seen["dual_annealing"][0]
EOF
