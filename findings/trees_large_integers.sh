#!/usr/bin/env bash
# Guess: trees tell neighbouring integers apart, whatever type an array has that holds them exactly.
# Case: XGBoost, CatBoost and scikit-learn's random forest read features as float32, so 2**24 and 2**24 + 1 are one
# value. LightGBM tells them apart in arrays of float64, but not of int64. Only scikit-learn's gradient boosting over
# histograms always does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile \
  numpy==2.4.6 scikit-learn==1.9.1 lightgbm==4.7.0 xgboost==3.2.0 catboost==1.2.10
"$folder/env/bin/python" - <<'EOF'
import catboost
import lightgbm
import numpy as np
import sklearn
import xgboost
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

for package in (catboost, lightgbm, sklearn, xgboost):
    print(package.__name__, package.__version__)

models = {
    "XGBoost": lambda: xgboost.XGBRegressor(n_estimators=20, random_state=0),
    "CatBoost": lambda: catboost.CatBoostRegressor(
        iterations=50, learning_rate=0.3, verbose=False, allow_writing_files=False, random_seed=0
    ),
    "random forest": lambda: RandomForestRegressor(20, random_state=0),
    "LightGBM": lambda: lightgbm.LGBMRegressor(n_estimators=20, min_child_samples=1, verbose=-1, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=1),
}


def list_blind_models(base, kind):
    """Lists the models that do not tell an integer from the next one."""
    parity = np.arange(400) % 2
    other = np.arange(400) // 200  # a feature that says nothing, so that none is left without a feature
    features = np.stack([base + parity, other], axis=1).astype(kind)
    fitted = {name: make().fit(features, parity.astype(float)) for name, make in models.items()}
    return {name for name, model in fitted.items() if np.ptp(model.predict(features)) < 0.01}


float32_readers = {"XGBoost", "CatBoost", "random forest"}
cases = (
    (2**23, np.int64, set()),
    (2**24, np.float64, float32_readers),
    (2**24, np.int64, float32_readers | {"LightGBM"}),
)
for base, kind, expected in cases:
    blind = list_blind_models(base, kind)
    print(kind.__name__, base, "not told from the next integer by", sorted(blind) or "no model")
    assert blind == expected
EOF
