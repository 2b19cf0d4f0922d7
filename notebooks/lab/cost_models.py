# %% [markdown]
# # Train and compare cost models
#
# A cost model orders programs by speed before they are measured. Here several learn the same measured programs, and
# are evaluated on a network that they have not seen. The dataset is small: some layers on a simulated accelerator,
# which says the same on any machine.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import autotune
from autotune.lab.evaluate import compare
from autotune.lab.evaluate.evaluation import predictions
from costmodel.dataset import Dataset, split_by_network
from costmodel.models import registry

CHECKOUT = Path(autotune.__file__).parents[1]
data = Dataset.open(CHECKOUT / "tests/datasets/vta")
for task in data.tasks:
    print(f"{task.name:42} {data.count(task):3} programs, of {', '.join(task.networks)}")

# %% [markdown]
# ## What was measured
#
# Half of the programs were drawn at random and half come from a search. Latencies compare within a task only, so
# models learn throughput relative to the task's best: 1 is the fastest program, 0 one that failed.

# %%
data = data.select(data.tasks[1:5])  # two layers of each network: half the features to make
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for task in data.tasks:
    for origin, style in (("random", ":"), ("search", "-")):
        found = np.sort(data.throughput(task)[data.origin(task) == origin])
        color = f"C{data.tasks.index(task)}"
        axes.plot(
            found, np.linspace(0, 1, len(found)), style, color=color, label=f"{task.name.split('_')[2]}, {origin}"
        )
axes.set(xlabel="throughput / that of the best", ylabel="share of programs")
axes.legend(fontsize="x-small", ncols=2)
plt.show()

# %% [markdown]
# ## Train and evaluate
#
# The split holds a whole network back. `compare` teaches each model the rest and yields its metrics; `roofline` (an
# estimate that learns nothing) and `random` say what the others must beat.

# %%
split = split_by_network(data, ["squeezenet"])
names = ["lightgbm", "lightgbm_pairwise", "lightgbm_lambdarank", "ridge", "roofline", "random"]
rows = {row.name: row for row in compare(data, split, names, speed=False)}
print(f"{'model':20} top-1  top-5  pairwise  peak@5")
for name, row in rows.items():
    of = row.evaluation
    print(f"{name:20} {of.top[1]:.3f}  {of.top[5]:.3f}  {of.pairwise:8.3f}  {of.peak:6.3f}")

# %% [markdown]
# The roofline knows this accelerator's memories and its matrix unit, so it is hard to beat here; on a CPU it is not.
# Top-k asks what a network would take if only the k best-predicted programs of each task were measured: 1 means that
# the fastest is among them. Pairwise accuracy counts all pairs alike, the slow ones too, so the two need not agree.

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
positions = np.arange(len(rows))
for number, (label, metric) in enumerate({"top-1": lambda e: e.top[1], "pairwise": lambda e: e.pairwise}.items()):
    axes.bar(positions + 0.4 * number, [metric(row.evaluation) for row in rows.values()], 0.4, label=label)
axes.set_xticks(positions + 0.2, rows, rotation=20, fontsize="small")
axes.set(ylim=(0, 1), ylabel="score")
axes.axhline(0.5, color="grey", linewidth=0.5)
axes.legend()
plt.show()

# %% [markdown]
# ## Program by program
#
# A model that learned an order has scores without a unit; what counts is that the points rise.

# %%
task = split.test(data)[0].task
figure, panels = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharey=True)
for axes, name in zip(panels, ("lightgbm", "lightgbm_pairwise", "roofline"), strict=True):
    axes.scatter(predictions(rows[name].model, data, task), data.throughput(task), s=12, alpha=0.6)
    axes.set(title=name, xlabel="score")
panels[0].set_ylabel("throughput / that of the best")
plt.show()

# %% [markdown]
# ## Keep it
#
# What was learned is saved as text, and reads back to the same scores. `autotune costmodel train` does all of this
# from the command line, and a search is guided by `cost_model: {name: lightgbm_pairwise}`.

# %%
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "model.txt"
    rows["lightgbm_pairwise"].model.save(file)
    again = registry.make("lightgbm_pairwise", {}, seed=0)
    again.load(file)
    print(f"{file.stat().st_size / 1024:.0f} KiB of text")
np.testing.assert_array_equal(predictions(again, data, task), predictions(rows["lightgbm_pairwise"].model, data, task))
