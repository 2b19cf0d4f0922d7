#!/usr/bin/env bash
# Guess: an integer parameter of 1 to 4 is proposed uniformly by random search, and evenly by others if nothing is
# better.
# Case: nevergrad rounds a number between the bounds, so random search proposes each end half as often as an inner
# value. NGOpt with a constant loss proposes the ends in a twentieth of its trials. `Choice` does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile numpy==2.4.6 nevergrad==1.0.12
"$folder/env/bin/python" - <<'EOF'
from collections import Counter

import nevergrad

print("nevergrad", nevergrad.__version__)
trials = 2000


def shares(name, parameter):
    parameter.random_state.seed(0)
    optimizer = nevergrad.optimizers.registry[name](parameter, budget=trials)
    seen = Counter()
    for _ in range(trials):
        candidate = optimizer.ask()
        seen[candidate.value] += 1
        optimizer.tell(candidate, 0.0)
    return {value: seen[value] / trials for value in (1, 2, 3, 4)}


integer = lambda: nevergrad.p.Scalar(lower=1, upper=4).set_integer_casting()
random, guided = shares("RandomSearch", integer()), shares("NGOpt", integer())
choice = shares("RandomSearch", nevergrad.p.Choice([1, 2, 3, 4]))
print("RandomSearch", random)
print("NGOpt", guided)
print("RandomSearch with Choice", choice)
assert max(random[1], random[4]) < 0.2 and min(random[2], random[3]) > 0.3
assert guided[1] + guided[4] < 0.1
assert min(choice.values()) > 0.2
EOF
