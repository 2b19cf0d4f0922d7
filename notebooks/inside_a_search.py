# %% [markdown]
# # Look inside a search
#
# A search is a loop of four steps: ask for candidates, measure them, tell the strategy, refit the cost model. Here
# the loop is written out, so that what the model believed of each candidate stands beside what was then measured.

# %%
import matplotlib.pyplot as plt
import numpy as np

from autotune.tuner import search
from autotune.tuner.scorer import ModelScorer
from costmodel.metrics import pairwise_accuracy
from costmodel.models import registry as models
from search_space import workloads
from search_space.space import generate
from targets import registry as targets

# %% [markdown]
# The workload is a convolution in int8 on a simulated accelerator: no noise, and each program is measured once. Its
# space has a few sketches, loop nests whose numbers are decisions.

# %%
target = targets.get("vta")
workload = workloads.conv2d_blocked(
    height=28, width=28, in_channels=64, out_channels=128, kernel=3, stride=2, padding=1, relu=True
)
space = generate(workload, target.hardware)
inputs = workload.make_inputs(seed=0)
for sketch in space.sketches:
    print(f"{sketch.name:30} {sketch.size:8,} candidates")


def measure(candidate):
    """Times a candidate, built and run here, in seconds."""
    (seconds,) = target.load(target.build(space.program(candidate))).bind(inputs).time(1)
    return seconds


# %% [markdown]
# ## The loop
#
# The scorer scores candidates: by the roofline and some noise until it has seen eight, by the cost model from then on.
# Two strategies go the same way; `random` never asks the scorer, so its rounds show what the model is worth anywhere
# in the space.

# %%
ROUNDS, BATCH = 4, 10


def run(name, seed=0, **options):
    """Runs a search, and returns rounds of (beliefs, seconds, sketches), each (BATCH,)."""
    scorer = ModelScorer(space, models.make("lightgbm", {}, seed), np.random.default_rng([seed, 1]))
    strategy = search.get(name)(space, scorer, np.random.default_rng([seed, 2]), **options)
    rounds = []
    for _ in range(ROUNDS):
        asked = strategy.ask(BATCH)
        beliefs = scorer.score(asked)
        seconds = np.array([measure(one) for one in asked])
        strategy.tell(asked, seconds)
        scorer.observe(asked, seconds)
        scorer.refit()
        rounds.append((beliefs, seconds, np.array([one.sketch for one in asked])))
    return rounds


runs = {"evolution": run("evolution", population=256), "random": run("random")}

# %% [markdown]
# ## Believed and measured
#
# One panel a round. The first shows the roofline's order, in -log of seconds; the others the model's prediction of
# the throughput relative to the best. The further right a point, the better it was thought to be; the higher, the
# faster it was.

# %%
best = min(seconds.min() for rounds in runs.values() for _, seconds, _ in rounds)
figure, panels = plt.subplots(2, ROUNDS, figsize=(12, 4), layout="constrained", sharey=True)
for row, (name, rounds) in zip(panels, runs.items(), strict=True):
    for number, (axes, (beliefs, seconds, sketches)) in enumerate(zip(row, rounds, strict=True)):
        axes.scatter(beliefs, best / seconds, s=12, c=sketches, cmap="tab10", vmin=0, vmax=9)
        right = pairwise_accuracy(beliefs, best / seconds)
        axes.set_title(f"{name}, round {number + 1}\n{right:.0%} of pairs right", fontsize="small")
        axes.set_xlabel("believed", fontsize="small")
    row[0].set_ylabel("best / seconds")
plt.show()

# %% [markdown]
# Colours are sketches. Random rounds spread over the space, and a model that knows it orders their pairs. Evolution's
# later rounds hold only what the model likes: they are close together, so their pairs are hard to order. A low
# accuracy there does not mean that the model is bad.
#
# ## Curves

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for name, rounds in runs.items():
    trials = np.concatenate([seconds for _, seconds, _ in rounds])
    left.plot(np.arange(1, len(trials) + 1), np.minimum.accumulate(trials) * 1e3, drawstyle="steps-post", label=name)
    right.boxplot(
        [seconds * 1e3 for _, seconds, _ in rounds],
        positions=np.arange(1, ROUNDS + 1) + (0.2 if name == "random" else -0.2),
        widths=0.3,
        boxprops={"color": "C1" if name == "random" else "C0"},
    )
    print(f"{name:10} best {trials.min() * 1e3:.3f} ms at trial {trials.argmin() + 1}")
left.set(xlabel="trials", ylabel="best latency, ms")
left.legend()
right.set_xticks(range(1, ROUNDS + 1), range(1, ROUNDS + 1))
right.set(xlabel="round", ylabel="latencies of the round, ms", yscale="log")
plt.show()

# %% [markdown]
# `autotune.tune` runs the same loop with pools of processes and records. `score` of a record is what the model
# believed of it, so all of this can be seen of any run; a `Callback` is told `rank_accuracy` after each round.
