"""Networks whose training is measured, in plain PyTorch with random weights, and a batch for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.rows import convolution
from costmodel.features import SECONDS, FeatureExtractor
from costmodel.models.attention import Batches, compute_loss, make_network
from costmodel.models.learner import Programs
from search_space.space import generate
from targets import registry


@dataclass(frozen=True)
class Example:
    """A network with one batch.

    Attributes:
        module: network in training mode; its output has classes in the second axis.
        inputs: arguments of its call.
        targets: class of each sample, pixel or word; with a loss of its own, what this compares outputs with.
        loss: function of the output and the targets to a tensor of one element.
    """

    module: nn.Module
    inputs: tuple[Tensor, ...]
    targets: Tensor
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy


def make_convolution(
    *arguments: int, relu: bool = True, inner: type[nn.Module] = nn.ReLU, **options: int
) -> nn.Sequential:
    """Makes a convolution, normalisation over the batch, and perhaps an activation."""
    layers: list[nn.Module] = [nn.Conv2d(*arguments, bias=False, **options), nn.BatchNorm2d(arguments[1])]
    return nn.Sequential(*layers, inner()) if relu else nn.Sequential(*layers)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al., "Deep residual learning for image recognition", 2016)."""

    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        first = make_convolution(c, k, 3, stride=stride, padding=1)
        self.inner = nn.Sequential(first, make_convolution(k, k, 3, padding=1, relu=False))
        same = stride == 1 and c == k
        self.shortcut: nn.Module = nn.Identity() if same else make_convolution(c, k, 1, stride=stride, relu=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """Makes ResNet-18."""
    layers: list[nn.Module] = [make_convolution(3, 64, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for k, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [BasicBlock(channels, k, stride), BasicBlock(k, k, 1)]
        channels = k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class InvertedResidual(nn.Module):
    """A depthwise convolution between two 1x1 ones (Sandler et al., "MobileNetV2: inverted residuals", 2018)."""

    def __init__(self, c: int, k: int, stride: int, widen: int) -> None:
        super().__init__()
        wide = c * widen
        layers = [make_convolution(c, wide, 1, inner=nn.ReLU6)] if widen > 1 else []
        layers += [make_convolution(wide, wide, 3, stride=stride, padding=1, groups=wide, inner=nn.ReLU6)]
        self.inner = nn.Sequential(*layers, make_convolution(wide, k, 1, relu=False))
        self.has_shortcut = stride == 1 and c == k

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return x + out if self.has_shortcut else out


def mobilenet_v2() -> nn.Module:
    """Makes MobileNet-V2."""
    layers: list[nn.Module] = [make_convolution(3, 32, 3, stride=2, padding=1, inner=nn.ReLU6)]
    channels = 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for widen, k, count, stride in table:
        for number in range(count):
            layers.append(InvertedResidual(channels, k, stride if number == 0 else 1, widen))
            channels = k
    layers += [make_convolution(320, 1280, 1, inner=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


class TransformerLayer(nn.Module):
    """Attention and a perceptron, each behind a normalisation, as in GPT-2 and ViT."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.queries_keys_values(self.norm(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.projection(out.transpose(1, 2).reshape(n, length, width))
        return x + self.perceptron(self.second_norm(x))


class VisionTransformer(nn.Module):
    """ViT-tiny (Dosovitskiy et al., "An image is worth 16x16 words", 2021)."""

    def __init__(self, width: int = 192, heads: int = 3, depth: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.layers = nn.Sequential(*(TransformerLayer(width, heads, False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.positions
        out: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return out


class Gpt2(nn.Module):
    """GPT-2 of six narrow layers (Radford et al., "Language models are unsupervised multitask learners", 2019)."""

    def __init__(self, words: int = 8192, width: int = 384, heads: int = 6, depth: int = 6, length: int = 64) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.Sequential(*(TransformerLayer(width, heads, True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.layers(self.words(x) + self.positions)))
        return out.flatten(0, 1)


class WordLstm(nn.Module):
    """Two recurrent layers over embeddings; the last state gives a class."""

    def __init__(self, words: int = 1000, width: int = 256) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, 128), nn.LSTM(128, width, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.lstm(self.words(x))[0]))
        return out.flatten(0, 1)


class UNet(nn.Module):
    """U-Net with transposed convolutions (Ronneberger et al., "U-Net: convolutional networks", 2015)."""

    def __init__(self, widths: Sequence[int] = (16, 32, 64, 128), classes: int = 4) -> None:
        super().__init__()
        pairs = list(zip((3, *widths), widths, strict=False))
        self.down = nn.ModuleList([self._double(c, k) for c, k in pairs])
        self.up = nn.ModuleList([nn.ConvTranspose2d(k, c, 2, stride=2) for c, k in pairs[:0:-1]])
        self.merging = nn.ModuleList([self._double(2 * c, c) for c, _ in pairs[:0:-1]])
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def _double(c: int, k: int) -> nn.Module:
        return nn.Sequential(make_convolution(c, k, 3, padding=1), make_convolution(k, k, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for number, layers in enumerate(self.down):
            x = layers(self.pool(x) if number else x)
            levels.append(x)
        for up, layers, level in zip(self.up, self.merging, levels[-2::-1], strict=True):
            x = layers(torch.cat([level, up(x)], 1))
        out: Tensor = self.head(x)
        return out


class CostModelNetwork(nn.Module):
    """The network of the cost model `attention`; its scores are corrections of the roofline's."""

    def __init__(self, features: int, hidden: int = 64) -> None:
        super().__init__()
        self.network = make_network(features, hidden)
        nn.init.normal_(self.network.last.weight, std=0.1)  # at 0, layers before it have no gradient in the first step

    def forward(self, x: Tensor, mask: Tensor, estimates: Tensor) -> Tensor:
        out: Tensor = self.network(x, mask) - estimates
        return out


def compute_ranking_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Computes the loss of the cost model `attention` from logarithms of throughput, and throughput."""
    loss: Tensor = compute_loss(scores, targets[0], targets[1])
    return loss


def make_cost_model(programs: int = 256) -> Example:
    """Makes the cost model `attention` and a batch: random candidates of a 3x3 convolution, for Zen 4.

    The features are those of a search. Throughput is the roofline's, with random factors.
    """
    rng = np.random.default_rng(0)
    space = generate(convolution(28, 128, 128), registry.get("cpu:znver4").hardware, ["direct", "winograd2"])
    features: list[NDArray[np.float32]] = []
    for sketch in space.sketches:
        rows = [rng.integers(len(group.table), size=8 * programs) for group in sketch.groups]
        choices = np.stack(rows, axis=1).astype(np.int32)
        choices = choices[sketch.legal(choices)][: -(-programs // len(space.sketches))]
        features += list(FeatureExtractor(sketch.program, sketch.columns, sketch.hardware)(sketch.expand(choices)))
    speed = np.exp2(-np.array([program[0, SECONDS] for program in features]) + rng.normal(0, 0.5, len(features)))
    every = Programs(features, speed / speed.max(), np.zeros(len(features), np.int64), many=False)
    batches = Batches(every)
    x, mask, estimates, target, throughput = batches.draw(rng, programs)
    module = CostModelNetwork(len(batches.mean))
    return Example(module, (x, mask, estimates), torch.stack([target, throughput]), compute_ranking_loss)


def _images(module: nn.Module) -> Example:
    return Example(module, (torch.randn(8, 3, 224, 224),), torch.randint(1000, (8,)))


def _words(module: nn.Module, words: int) -> Example:
    return Example(module, (torch.randint(words, (8, 64)),), torch.randint(words, (512,)))


EXAMPLES: Mapping[str, Callable[[], Example]] = {
    "resnet18": lambda: _images(resnet18()),
    "mobilenet_v2": lambda: _images(mobilenet_v2()),
    "vit_tiny": lambda: _images(VisionTransformer()),
    "gpt2_6_layers": lambda: _words(Gpt2(), 8192),
    "lstm": lambda: _words(WordLstm(), 1000),
    "cost_model": make_cost_model,
    "unet": lambda: Example(UNet(), (torch.randn(4, 3, 128, 128),), torch.randint(4, (4, 128, 128))),
}
"""Networks by name; each is made with weights and a batch of the present seed."""
