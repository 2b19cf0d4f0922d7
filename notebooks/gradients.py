# %% [markdown]
# # Gradients as programs
#
# A gradient of a tensor expression is a tensor expression. So it has a search space, candidates and kernels like any
# other. Here we derive the gradients of a convolution, look at them, tune them, and train a small network.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import autotune
from autotune.training.optimisers import AdamW
from search_space import te, workloads

# %% [markdown]
# ## Derive
#
# The convolution moves by two pixels. Each pixel of the data is read by up to four windows, so its gradient is a sum
# over those windows. `te.gradient` inverts the reads, and gives one product for each phase of the stride.

# %%
layer = workloads.conv2d(1, 28, 28, 32, 64, kernel=3, stride=2, padding=1, constant_weight=False)
data, weight, output = layer.tensors()
seed = te.placeholder(output.shape, name="seed")
d_data, d_weight = te.gradient(output, [data, weight], seed)


def show(tensor: te.Tensor, printed_stages: set[str]) -> None:
    """Prints the stages of a definition, inputs first."""
    for source in tensor.op.inputs:
        show(source, printed_stages)
    if tensor.op.body is not None and tensor.name not in printed_stages:
        printed_stages.add(tensor.name)
        over = f" summed over {', '.join(axis.name for axis in tensor.op.reduce_axis)}" if tensor.op.reduce_axis else ""
        print(f"{tensor.name}{list(tensor.shape)} = {tensor.op.body}{over}")


show(d_data, set())
print()
show(d_weight, set())

# %% [markdown]
# ## Tune
#
# Both gradients are workloads. Their operations a second are comparable to those of the layer itself. The phases
# multiply some zeros, as not every phase has as many taps as the largest.

# %%
kernels = {
    "the layer": layer,
    "gradient of the data": [weight, seed, d_data],
    "gradient of the weight": [data, seed, d_weight],
}
rates = {}
for name, definition in kernels.items():
    result = autotune.tune(definition, trials=12)
    rates[name] = layer.flops / result.best_seconds / 1e9
    print(f"{name}: {result.best_seconds * 1e6:.0f} µs, {rates[name]:.0f} GFLOP/s")

# %%
figure, axes = plt.subplots(figsize=(6, 2.2), layout="constrained")
axes.barh(list(rates), list(rates.values()))
axes.invert_yaxis()
axes.set_xlabel("GFLOP/s")
plt.show()

# %% [markdown]
# ## Train
#
# A training step is such gradients, joined with the forward pass and an optimiser in one executable.

# %%
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))
rng = np.random.default_rng(0)


def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws noisy images with one bright quarter, whose number is the label."""
    labels = rng.integers(0, 4, rows)
    images = rng.standard_normal((rows, 1, 16, 16), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        top, left = divmod(int(label), 2)
        image[0, 8 * top : 8 * top + 8, 8 * left : 8 * left + 8] += 1
    return images, labels


images, labels = draw(32)
step = autotune.compile_training(model, torch.from_numpy(images), torch.from_numpy(labels), optimiser=AdamW())
losses = []
for _ in range(100):
    images, labels = draw(32)
    losses.append(step.step(labels, images))

# %%
figure, axes = plt.subplots(figsize=(6, 2.2), layout="constrained")
axes.plot(losses)
axes.set_xlabel("step")
axes.set_ylabel("loss")
plt.show()

# %% [markdown]
# ## Look at the kernels
#
# The executable lists its kernels. Activations' derivatives are fused into the gradients that need them.

# %%
for number, kernel in enumerate(step.executable.manifest["steps"]):
    print(number, kernel["title"])
print(f"the loss fell from {losses[0]:.2f} to {np.mean(losses[-10:]):.2f}")
