"""Training of a small network on synthetic images by one executable: python examples/train.py [--steps 200]."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import autotune
from autotune.training.optimisers import AdamW

Images = NDArray[np.float32]


def draw(rng: np.random.Generator, rows: int) -> tuple[Images, NDArray[np.int64]]:
    """Draws noisy images (rows, 1, 16, 16) with one bright quarter, whose number is the label."""
    labels = rng.integers(0, 4, rows)
    images = rng.standard_normal((rows, 1, 16, 16), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        top, left = divmod(int(label), 2)
        image[0, 8 * top : 8 * top + 8, 8 * left : 8 * left + 8] += 0.5
    return images, labels


def main() -> None:
    """Compiles a step, runs it, and prints the loss and the accuracy on new images."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--steps", type=int, default=200, help="steps of training (default 200)")
    steps = parser.parse_args().steps
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 4)),
    )
    images, labels = draw(rng, 32)
    step = autotune.compile_training(model, torch.from_numpy(images), torch.from_numpy(labels), optimiser=AdamW())
    for number in range(1, steps + 1):
        images, labels = draw(rng, 32)
        loss = step.step(labels, images)
        if number % max(1, steps // 10) == 0:
            print(f"step {number}: loss {loss:.3f}")
    model.load_state_dict(
        {name: torch.from_numpy(a) for name, a in {**step.parameters, **step.buffers}.items()}, strict=False
    )
    images, labels = draw(rng, 256)
    with torch.no_grad():
        right = model.eval()(torch.from_numpy(images)).argmax(1).numpy() == labels
    print(f"accuracy on 256 new images: {right.mean():.1%}")


if __name__ == "__main__":
    main()
