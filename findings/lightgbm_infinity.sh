#!/usr/bin/env bash
# Guess: trees order infinity behind all numbers, so a split can separate it from them, as it can -inf.
# Case: LightGBM separates -inf, but never +inf from the largest finite value of a feature. 1e30 it separates.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile \
    numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 lightgbm==4.7.0
"$folder/env/bin/python" - <<'EOF'
import lightgbm
import numpy

print("lightgbm", lightgbm.__version__)
y = numpy.tile(numpy.arange(4.0), 50)


def predictions(values):
    x = numpy.tile(numpy.array(values)[:, None], (50, 1))
    model = lightgbm.LGBMRegressor(n_estimators=200, min_child_samples=1, min_data_in_bin=1, verbose=-1, n_jobs=1)
    return model.fit(x, y).predict(x[:4]).round(3)


large, infinite = predictions([-1e30, 0, 1, 1e30]), predictions([-numpy.inf, 0, 1, numpy.inf])
print("targets 0 to 3 of -1e30, 0, 1, 1e30:", large)
print("targets 0 to 3 of -inf, 0, 1, inf:", infinite)
assert abs(large - y[:4]).max() < 0.01
assert infinite.tolist() == [0, 1, 2.5, 2.5]
EOF
