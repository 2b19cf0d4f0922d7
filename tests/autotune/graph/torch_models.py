"""Small networks of PyTorch as people use them: residual, inverted residual, transformers of images and of text."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

CHANNELS = 16
WIDTH, HEADS = 32, 2
ModuleAndInputs = tuple[nn.Module, dict[str, torch.Tensor]]


def make_norm_convolution(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution and its batch normalisation, whose statistics are not those it begins with."""
    norm = nn.BatchNorm2d(after)
    assert norm.running_mean is not None and norm.running_var is not None
    nn.init.normal_(norm.running_mean, std=0.1)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    convolution = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, norm)


class Residual(nn.Module):
    """A basic block of a ResNet."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            make_norm_convolution(before, after, 3, stride),
            make_norm_convolution(after, after, 3),
        )
        self.shortcut = make_norm_convolution(before, after, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """A block of a MobileNet-V2 with squeeze and excitation, as V3 has it."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.wide = nn.Sequential(make_norm_convolution(channels, inner, 1), nn.Hardswish())
        self.depth = nn.Sequential(make_norm_convolution(inner, inner, 5, groups=inner), nn.ReLU6())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, 8, 1), nn.ReLU(), nn.Conv2d(8, inner, 1))
        self.narrow = make_norm_convolution(inner, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.depth(self.wide(x))
        return x + self.narrow(inner * torch.sigmoid(self.squeeze(inner)))


class Encoder(nn.Module):
    """A layer of a transformer: attention by `scaled_dot_product_attention`, then GELU between two products."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.before = before
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.before:
            x = x + self._attend(self.first(x))
            return x + self._fed(self.second(x))
        x = self.first(x + self._attend(x))
        return self.second(x + self._fed(x))

    def _attend(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.joint(x).reshape(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        found = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(found.transpose(1, 2).reshape(batch, length, WIDTH))

    def _fed(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(nn.functional.gelu(self.inner(x)))


class Patches(nn.Module):
    """The head of a vision transformer: patches, a class token, positions."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 17, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(x.shape[0], -1, -1), found], dim=1) + self.positions


class Words(nn.Module):
    """The head of a text transformer: embeddings of words and of places, normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(50, WIDTH), nn.Embedding(8, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1])))


class First(nn.Module):
    """The first of a sequence, as a class token is taken."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0]


class Counting(nn.Module):
    """A module that writes to its own buffer: its output is the input's positive part times the number of its runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return torch.relu(x) * self.count


def _residual() -> ModuleAndInputs:
    stem = [make_norm_convolution(3, CHANNELS, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Residual(CHANNELS, CHANNELS, 1), Residual(CHANNELS, 2 * CHANNELS, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * CHANNELS, 10)]
    return nn.Sequential(*stem, *blocks, *head), {"image": torch.randn(1, 3, 32, 32)}


def _make_inverted() -> ModuleAndInputs:
    stem = [make_norm_convolution(3, CHANNELS, 3, 2), nn.Hardswish()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(CHANNELS, 10)]
    return nn.Sequential(*stem, InvertedResidual(CHANNELS, 48), *head), {"image": torch.randn(1, 3, 32, 32)}


def _image_transformer() -> ModuleAndInputs:
    layers = [Encoder(True), Encoder(True), nn.LayerNorm(WIDTH), First(), nn.Linear(WIDTH, 10)]
    return nn.Sequential(Patches(), *layers), {"image": torch.randn(1, 3, 32, 32)}


def _text_transformer() -> ModuleAndInputs:
    layers = [Encoder(False), Encoder(False), First(), nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(Words(), *layers), {"ids": torch.randint(0, 50, (1, 8))}


MODELS: dict[str, Callable[[], ModuleAndInputs]] = {
    "residual": _residual,
    "inverted": _make_inverted,
    "image_transformer": _image_transformer,
    "text_transformer": _text_transformer,
}
"""Name → what makes the module and its inputs by name."""
