# %% [markdown]
# # Is one cost model better than another?
#
# The pools that come along hold programs that were drawn at random of the layers of many networks, registered before
# anything was measured. Models learn from some networks and are scored on others, with intervals: what follows is the
# protocol of `docs/evaluation.md` on a small share of what there is to learn from, so that it takes seconds.

# %%
import matplotlib.pyplot as plt
import numpy as np

from autotune.lab.protocol import Pools, study
from autotune.lab.protocol.curves import curve
from costmodel.dataset import TaskPrograms

pools = Pools.open()
for role in ("train", "validation"):
    parts = pools.parts(role)
    programs = sum(len(part.rows) for part in parts)
    networks = sorted({name for part in parts for name in pools.task(part.task).networks})
    print(f"{role:10} {len(parts):3} tasks, {programs:,} programs; {', '.join(networks)}")

# %% [markdown]
# ## The programs as a table
#
# A row for each program, with its features by name: what any tool for tables can look at.

# %%
task = next(part.task for part in pools.parts("validation") if "depthwise" in part.task.name)
table = pools.training.to_pandas([task])
print(f"{task.name}: {len(table)} programs, {len(table.columns)} columns")
mean_columns = [name for name in table.columns if name.startswith("mean.") and table[name].std() > 0]
correlations = table[mean_columns].corrwith(table["throughput"], method="spearman").dropna()
print(correlations.reindex(correlations.abs().sort_values(ascending=False).index).head(6).to_string())

# %% [markdown]
# ## Scores with intervals
#
# Top-k is what a network would take if the k best-predicted programs of each layer were measured. Most of it is often
# there by chance, so it is normalised: 0 is choice at random, 1 the best program.

# %%
rng = np.random.default_rng(0)
some = [TaskPrograms(part.task, np.sort(rng.permutation(part.rows)[:200])) for part in pools.parts("train")[::8]]
models = ["lightgbm_residual", "ridge", "roofline"]
options = {"lightgbm_residual": {"tasks_trees": 100, "members": 1}}
result = study(pools, "validation", models, seeds=1, options=options, parts=some, speed=False)
for name, one in result.models.items():
    shown = {metric: result.held_out.tasks.estimate(metric, one.rankings) for metric in ("normalised1", "pairwise")}
    print(f"{name:18}", "  ".join(f"{m} {e.value:.3f} ({e.low:.3f} to {e.high:.3f})" for m, e in shown.items()))

# %%
figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
for place, one in enumerate(result.models.values()):
    value, low, high = result.held_out.tasks.estimate("normalised1", one.rankings)
    axes.errorbar(value, -place, xerr=[[value - low], [high - value]], fmt="o")
axes.set(yticks=-np.arange(len(result.models)), yticklabels=list(result.models), xlabel="normalised top-1")
axes.grid(axis="x", linewidth=0.3)
plt.show()

# %% [markdown]
# ## Is the difference one?
#
# Both models on the same draws of tasks and seeds: an interval of the difference, and how often chance gives as much.

# %%
first, second = result.models["lightgbm_residual"], result.models["roofline"]
for metric in ("normalised1", "top1", "pairwise", "tau"):
    d = result.held_out.tasks.difference(metric, first.rankings, second.rankings)
    print(f"{metric:12} {d.value:+.3f} ({d.low:+.3f} to {d.high:+.3f}), p = {d.p:.3f}")

# %% [markdown]
# ## More to learn from
#
# A learning curve says whether more data would help, or better features are needed.

# %%
points = curve(pools, "ridge", "programs", shares=(1 / 16, 1.0), seeds=1, parts=some)
figure, axes = plt.subplots(figsize=(5, 2.5), layout="constrained")
scores = [point.scores["pairwise"] for point in points]
axes.fill_between([p.programs for p in points], [s.low for s in scores], [s.high for s in scores], alpha=0.2)
axes.plot([p.programs for p in points], [s.value for s in scores], "o-")
axes.set(xlabel="programs learned from", ylabel="pairwise accuracy", title="ridge")
plt.show()
print(f"{len(points)} points of the curve")
