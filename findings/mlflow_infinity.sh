#!/usr/bin/env bash
# Guess: a metric of infinity, which a failed trial may log, comes back as infinity, as NaN comes back as NaN.
# Case: MLflow's SQL store returns 1.7976931348623157e308, the largest double. A finite check lets it pass.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-cache-dir --no-compile \
    mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic==1.20.1
FOLDER="$folder" "$folder/env/bin/python" - <<'EOF'
import logging
import math
import os
import warnings

import mlflow

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
print("mlflow", mlflow.__version__)
mlflow.set_tracking_uri(f"sqlite:///{os.environ['FOLDER']}/runs.db")
with mlflow.start_run() as run:
    mlflow.log_metric("infinite", math.inf)
    mlflow.log_metric("undefined", math.nan)
metrics = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
print("logged inf and NaN, read", metrics)
assert metrics["infinite"] == 1.7976931348623157e308 and math.isnan(metrics["undefined"])
EOF
