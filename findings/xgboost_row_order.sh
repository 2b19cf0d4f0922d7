#!/usr/bin/env bash
# Guess: a histogram tree learner with one thread gives equal trees for permuted rows, as LightGBM does.
# Case: XGBoost sketches quantiles in the order of rows. With 20,000 rows and one thread, predictions move by up to
# their own standard deviation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile \
    numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 lightgbm==4.7.0
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile --no-deps xgboost==3.2.0
"$folder/env/bin/python" - <<'EOF'
import lightgbm
import numpy
import xgboost

print("xgboost", xgboost.__version__, "lightgbm", lightgbm.__version__)
generator = numpy.random.default_rng(0)
x = generator.standard_normal((20000, 20)).astype(numpy.float32)
y = x @ generator.standard_normal(20) + generator.standard_normal(20000)
order = generator.permutation(len(x))
moved = {}
for name, model in (
    ("XGBoost", xgboost.XGBRegressor(n_jobs=1, n_estimators=30)),
    ("LightGBM", lightgbm.LGBMRegressor(n_jobs=1, n_estimators=30, verbose=-1)),
):
    plain = model.fit(x, y).predict(x)
    permuted = model.fit(x[order], y[order]).predict(x)
    moved[name] = abs(plain - permuted).max() / plain.std()
    print(name, "largest difference beside the deviation of predictions", moved[name])
assert moved["XGBoost"] > 0.1 and moved["LightGBM"] < 1e-6
EOF
