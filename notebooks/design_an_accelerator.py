# %% [markdown]
# # Design an accelerator
#
# VTA is a matrix accelerator whose buffers are chosen before it is built. How much memory is worth its place? Each
# design has its own best schedule, so each is tuned; the simulator says what it takes.

# %%
import itertools
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import autotune
from autotune.tuner.search import NoLegalSchedule
from measure.local import LocalPool
from search_space import workloads
from targets.vta.hardware import PYNQ, ConfigurationError

# %% [markdown]
# ## The workload and the designs
#
# A convolution in int8, a few trials. Sizes of buffers are log2 of bytes. Two of them vary, those for inputs and for
# sums.

# %%
workload = workloads.conv2d_blocked(14, 14, in_channels=64, out_channels=64, kernel=3, padding=1, relu=True)
inputs, sums = [10, 12, 13], [11, 15]
print(f"as built: {2 ** (PYNQ.log_inp_buffer - 10)} KiB for inputs, {2 ** (PYNQ.log_acc_buffer - 10)} KiB for sums")

# %% [markdown]
# ## The sweep
#
# All combinations are tuned. One that no VTA can be, or for which the workload has no schedule, says why.

# %%
results = {}
with LocalPool() as pool:
    for log_inp, log_acc in itertools.product(inputs, sums):
        try:
            design = replace(PYNQ, log_inp_buffer=log_inp, log_acc_buffer=log_acc)
            result = autotune.tune(workload, target=design, trials=6, measure=pool)
        except (ConfigurationError, NoLegalSchedule) as error:
            print(f"{log_inp}, {log_acc}: {error}")
            continue
        results[log_inp, log_acc] = result
        print(f"{result.target}: {result.best_seconds * 1e3:.3f} ms")

# %% [markdown]
# ## Memory against time
#
# Designs on the front are those that none is better than in both.

# %%
memory = {key: sum(size for _, size in result.hardware.memories) / 1024 for key, result in results.items()}
times = {key: result.best_seconds * 1e3 for key, result in results.items()}
front = []
for key in sorted(results, key=lambda key: (memory[key], times[key])):
    if not front or times[key] < times[front[-1]]:
        front.append(key)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
left.scatter([*memory.values()], [*times.values()], alpha=0.6)
left.plot([memory[key] for key in front], [times[key] for key in front], "C1", drawstyle="steps-post")
left.set(xlabel="all buffers, KiB", ylabel="latency, ms", ylim=(0, None))

image = right.imshow([[times.get((i, s), np.nan) for s in sums] for i in inputs], cmap="viridis_r")
right.set_yticks(range(len(inputs)), [f"{2 ** (i - 10)} KiB" for i in inputs])
right.set_xticks(range(len(sums)), [f"{2 ** (s - 10)} KiB" for s in sums])
right.set(xlabel="for sums", ylabel="for inputs")
figure.colorbar(image, label="latency, ms")
plt.show()
for key in front:
    print(f"{memory[key]:.0f} KiB: {times[key]:.3f} ms with {results[key].target}")

# %% [markdown]
# ## Why
#
# Every trial's record says how busy the units were. Small buffers load the same data again and again: more bytes
# cross the memory port, and the matrix unit waits.

# %%
records = [record for result in results.values() for record in result.records if record.ok]
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.scatter(
    [record.metrics["dram_bytes"] / 1024 for record in records],
    [record.seconds * 1e3 for record in records],
    c=[record.metrics["gemm_utilisation"] for record in records],
)
axes.set(xlabel="moved to and from memory, KiB", ylabel="latency, ms", xscale="log")
figure.colorbar(axes.collections[0], label="share of cycles in which GEMM is busy")
plt.show()

# %% [markdown]
# `autotune sweep` does this from the command line: for whole networks, resumable, with a picture.
