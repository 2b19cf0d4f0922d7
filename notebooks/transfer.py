# %% [markdown]
# # Transfer across workloads and targets
#
# A search that begins with what is known from other tasks can do with fewer trials. First searches are replayed on
# programs that were measured already, with and without the other layers of a small dataset; then another design of
# the accelerator is tuned with what is known of the first one.

# %%
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import autotune
from autotune.config import Search
from benchmarks.transfer_replay import Pool, replay
from costmodel.dataset import Dataset
from costmodel.models import registry as models
from costmodel.transfer import Options, Source
from targets import registry as targets

DATASET = Path(autotune.__file__).parents[1] / "tests/datasets/vta"
data = Dataset.open(DATASET)
data = data.select(data.tasks[2:5])
TRIALS = 32

# %% [markdown]
# ## Across workloads
#
# Thin lines are layers, thick ones their geometric mean. Each layer is searched among its own measured programs. What
# is learned from never holds the layer that is searched. A round has 8 trials; the search alone begins with the
# roofline's order.

# %%
alone, with_others, reports = [], [], []
for task in data.tasks:
    source = Source.of(data.select([other for other in data.tasks if other.workload != task.workload]))
    pool = Pool.of(data, task)
    transfer = source.for_task(pool.target(), Options("the other layers", method="residual"))
    alone.append(replay(pool, models.make("lightgbm", {}, 0), 0, TRIALS).curve / np.nanmin(pool.seconds))
    search = replay(pool, models.make("lightgbm", {}, 0), 0, TRIALS, transfer=transfer)
    with_others.append(search.curve / np.nanmin(pool.seconds))
    reports.append(search.report)

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
trials = np.arange(1, TRIALS + 1)
for curves, color, label in ((alone, "C0", "alone"), (with_others, "C1", "with the other layers")):
    for curve in curves:
        axes.plot(trials, curve, color=color, alpha=0.2)
    axes.plot(trials, np.exp(np.mean(np.log(curves), axis=0)), color=color, label=label)
axes.set(xlabel="trials", ylabel="best so far / best of all")
axes.legend()
plt.show()

# %% [markdown]
# ## The guard
#
# Other tasks may mislead. So the source chooses a share of each round, and a guard compares: which model had ordered
# the round's programs better, and whose choices were faster? Above 0 the evidence is for the source; below -1 it is
# dropped.

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for task, report in zip(data.tasks, reports, strict=True):
    rounds = report["rounds"]
    axes.plot([0, *(r["trials"] for r in rounds)], [0, *(r["evidence"] for r in rounds)], label=task.name[14:])
    kept = "kept" if report["kept"] else f"dropped after {report['dropped_at']} trials"
    print(f"{task.name:42} {kept}; share of the next round {report['share']:.2f}")
axes.axhline(-1, color="grey", linestyle="--", linewidth=0.8)
axes.set(xlabel="trials", ylabel="evidence for the source")
axes.legend(fontsize="xx-small")
plt.show()

# %% [markdown]
# ## Across targets
#
# Now for another design of the accelerator: a quarter of the memory for inputs and half for sums. Nothing was
# measured on it yet. `transfer` takes a dataset, a file of records or a saved model; the search is a real one, on the
# simulator.

# %%
folder = tempfile.TemporaryDirectory()
design = Path(folder.name) / "small.json"
fields = targets.get("vta").configuration()
fields = {
    **fields,
    "name": "small",
    "log_inp_buffer": fields["log_inp_buffer"] - 2,
    "log_acc_buffer": fields["log_acc_buffer"] - 1,
}
design.write_text(json.dumps(fields))

workload = data.tasks[2].workload
options = {"target": f"vta:{design}", "trials": 16, "search": Search(batch=8), "seed": 0}
results = {
    "alone": autotune.tune(workload, **options),
    "with the first design": autotune.tune(workload, **options, transfer=str(DATASET)),
}
folder.cleanup()

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for label, result in results.items():
    axes.plot(np.arange(1, len(result.curve) + 1), result.curve * 1e3, drawstyle="steps-post", label=label)
    print(f"{label:22} {result.best_seconds * 1e3:.3f} ms after {len(result.records)} trials")
axes.set(xlabel="trials", ylabel="best latency, ms")
axes.legend()
plt.show()

report = results["with the first design"].transfer
print(f"{report['source_programs']} programs of {report['source_tasks']} tasks; kept: {report['kept']}")
for r in report["rounds"]:
    shares = [None if share is None else f"{share:.0%}" for share in (r["source_accuracy"], r["local_accuracy"])]
    if None not in shares:  # a round that one of the two chose alone says nothing
        print(f"after {r['trials']:2} trials, pairs ordered right: {shares[0]} by the source, {shares[1]} without it")

# %% [markdown]
# A single seed on so few trials shows how it works, not how much it brings: that takes many tasks and seeds, see
# `python -m benchmarks.transfer`.
