# %% [markdown]
# # Design an accelerator
#
# VTA is a matrix accelerator whose buffers are chosen before it is built. How much memory is worth its place? Each
# design has its own best schedule, so each is tuned; the simulator says what it takes.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from autotune.config import RunConfig
from autotune.sweep import configuration_of, front, sweep
from measure.database import Database

# %% [markdown]
# ## The workload and the designs
#
# A configuration as in a file: a convolution in int8, a few trials. Fields of a design are log2 of bytes. Two of them
# vary, the buffers for inputs and for sums.

# %%
folder = tempfile.TemporaryDirectory()
config = RunConfig(
    name="designs",
    target="vta",
    workload={
        "operator": "conv2d_blocked",
        "height": 14,
        "width": 14,
        "in_channels": 64,
        "out_channels": 64,
        "kernel": 3,
        "padding": 1,
        "relu": True,
    },
    search={"batch": 8},
    trials=8,
    output=folder.name,
)
base = configuration_of(config, "the notebook")
print({name: 2**value // 1024 for name, value in base.items() if name.endswith("_buffer")}, "KiB")
variations = {"log_inp_buffer": [10, 12, 13], "log_acc_buffer": [11, 15]}

# %% [markdown]
# ## The sweep
#
# All combinations are tuned. One that no VTA can be, or for which the workload has no schedule, says why.

# %%
points = sweep(config, "the notebook", variations, Path(folder.name), print)

# %% [markdown]
# ## Memory against time
#
# Designs on the front are those that none is better than in both.

# %%
works = [point for point in points if not point.problem]
best = front(points)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
left.scatter([p.memory_bytes / 1024 for p in works], [p.seconds * 1e3 for p in works], alpha=0.6)
left.plot([p.memory_bytes / 1024 for p in best], [p.seconds * 1e3 for p in best], "C1", drawstyle="steps-post")
left.set(xlabel="all buffers, KiB", ylabel="latency, ms", ylim=(0, None))

grid = np.full([len(values) for values in variations.values()], np.nan)
for point in works:
    grid[tuple(values.index(point.values[name]) for name, values in variations.items())] = point.seconds * 1e3
image = right.imshow(grid, cmap="viridis_r")
right.set_yticks(range(grid.shape[0]), [f"{2 ** (v - 10)} KiB" for v in variations["log_inp_buffer"]])
right.set_xticks(range(grid.shape[1]), [f"{2 ** (v - 10)} KiB" for v in variations["log_acc_buffer"]])
right.set(xlabel="for sums", ylabel="for inputs")
figure.colorbar(image, label="latency, ms")
plt.show()
for point in best:
    print(f"{point.memory_bytes / 1024:.0f} KiB: {point.seconds * 1e3:.3f} ms with {point.name}")

# %% [markdown]
# ## Why
#
# Every trial's record says how busy the units were. Small buffers load the same data again and again: more bytes
# cross the memory port, and the matrix unit waits.

# %%
with Database(Path(folder.name) / "records.jsonl", readonly=True) as database:
    records = [record for record in database if record.ok]
folder.cleanup()
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.scatter(
    [record.metrics["dram_bytes"] / 1024 for record in records],
    [record.seconds * 1e3 for record in records],
    c=[record.metrics["gemm_utilisation"] for record in records],
)
axes.set(xlabel="moved to and from memory, KiB", ylabel="latency, ms", xscale="log")
figure.colorbar(axes.collections[0], label="share of cycles in which GEMM is busy")
plt.show()
