"""Decoders as sizes and weights: GPT-2's and Llama's, with Hugging Face's names of weights.

Graphs have the same operands for both: products with weights of shape (inputs, outputs), scaled queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from autotune.graph.types import Array
from search_space.dtypes import numpy_dtype
from search_space.former_names import former_attributes

STORED_DTYPES = ("float32", "float16", "bfloat16", "float64")
"""Dtypes of weights that are read; all are computed in float32 at first."""


class LanguageModelError(ValueError):
    """Sizes or weights that are no model, or tokens that a model does not take."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder.

    Attributes:
        vocabulary: number of tokens.
        hidden: features of a position.
        layers: number of layers.
        heads: heads of queries; `kv_heads` divides them: each head of keys and values serves a group of queries.
        inner: features between the two products of a layer's second half.
        head_width: features of a head.
        positions: positions that the model has embeddings of; None: any number.
        epsilon: epsilon of the normalisation.
    """

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    head_width: int
    positions: int | None
    epsilon: float

    def __post_init__(self) -> None:
        for name in ("vocabulary", "hidden", "layers", "heads", "kv_heads", "inner", "head_width"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise LanguageModelError(f"`{name}` must be at least 1, but got {name}={value!r}")
        if self.heads % self.kv_heads:
            raise LanguageModelError(
                f"`kv_heads` must divide heads, but got kv_heads={self.kv_heads}, heads={self.heads}"
            )

    @property
    def group(self) -> int:
        """Heads of queries to one of keys."""
        return self.heads // self.kv_heads


@dataclass(frozen=True)
class GPT2:
    """Sizes of a model of GPT-2's kind (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).

    Defaults are of the small one. See `Sizes`.
    """

    vocabulary: int = 50257
    hidden: int = 768
    layers: int = 12
    heads: int = 12
    positions: int = 1024
    inner: int | None = None
    epsilon: float = 1e-5

    @property
    def sizes(self) -> Sizes:
        """Sizes in the form that all decoders share.

        Raises:
            LanguageModelError: heads that do not divide `hidden`, or a size below 1.
        """
        _divides("heads", self.heads, "hidden", self.hidden)
        width, inner = self.hidden // self.heads, self.inner or 4 * self.hidden
        kept = self.vocabulary, self.hidden, self.layers, self.heads, self.heads, inner, width
        return Sizes(*kept, self.positions, self.epsilon)


@dataclass(frozen=True)
class Llama:
    """Sizes of a model of Llama's kind (Touvron et al., "LLaMA", 2023), with queries in groups. See `Sizes`.

    Attributes:
        theta: base of the rotary positions' angles.
        tied: whether logits are products with the embeddings.
        head_width: None: `hidden` divided by `heads`.
        biases: whether queries, keys and values have one, as Qwen2's do.
    """

    vocabulary: int = 32000
    hidden: int = 2048
    layers: int = 22
    heads: int = 32
    kv_heads: int = 4
    inner: int = 5632
    epsilon: float = 1e-5
    theta: float = 10000.0
    tied: bool = False
    head_width: int | None = None
    biases: bool = False

    @property
    def sizes(self) -> Sizes:
        """Sizes in the form that all decoders share.

        Raises:
            LanguageModelError: heads that do not divide `hidden`, an odd `head_width`, or a size below 1.
        """
        if self.head_width is None:
            _divides("heads", self.heads, "hidden", self.hidden)
        width = self.head_width or self.hidden // self.heads
        if width % 2:
            raise LanguageModelError(f"`head_width` must be even for rotary positions, but got head_width={width}")
        kept = self.vocabulary, self.hidden, self.layers, self.heads, self.kv_heads, self.inner, width
        return Sizes(*kept, None, self.epsilon)


@dataclass(frozen=True, eq=False)
class Linear:
    """x weight + bias.

    Attributes:
        weight: (inputs, outputs).
        bias: (outputs,); None: none.
    """

    weight: Array
    bias: Array | None = None


@dataclass(frozen=True, eq=False)
class Norm:
    """Normalisation of rows: by mean and variance if there is a shift, else by the mean square.

    Attributes:
        scale, shift: (hidden,).
    """

    scale: Array
    shift: Array | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """Attention and two products after it.

    Attributes:
        first, second: normalisations of the inputs of the two halves.
        query: scaled, so that products with keys are scores.
        gate: weight of SwiGLU's gate; None: GELU.
    """

    first: Norm
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    second: Norm
    gate: Linear | None
    up: Linear
    down: Linear


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A decoder.

    Attributes:
        name: name of the executables.
        sizes: sizes of the decoder.
        tokens: embeddings (vocabulary, hidden).
        positions: embeddings (positions, hidden); None: rotary ones.
        theta: base of the rotary positions' angles.
        layers: layers in order.
        last: normalisation before the logits.
        logits: (hidden, vocabulary).
    """

    name: str
    sizes: Sizes
    tokens: Array
    positions: Array | None
    layers: tuple[Layer, ...]
    last: Norm
    logits: Array
    theta: float = 10000.0

    def __repr__(self) -> str:
        """Formats a line without the weights."""
        return f"Model {self.name}: {parameters(self) / 1e6:.1f} million parameters, {self.sizes}"

    def turns(self, count: int) -> tuple[Array, Array]:
        """Computes cosines and sines of the first positions' angles, (count, head_width / 2) each."""
        half = self.sizes.head_width // 2
        angles = np.outer(np.arange(count), self.theta ** (-np.arange(half) / half))
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass
class _Weights:
    """Weights by name, or random ones.

    Attributes:
        arrays: weights by name; None: all are drawn.
        rng: draws all of them if no weights are given.
        prefixes: optional prefixes of names.
    """

    arrays: Mapping[str, Array] | None
    rng: np.random.Generator | None
    prefixes: tuple[str, ...]
    missing: list[str] = field(default_factory=list)

    def of(self, name: str, *shape: int, mean: float = 0.0, scale: float = 0.02) -> Array:
        """Returns the weight of a name, or draws one from a normal distribution.

        Raises:
            LanguageModelError: it has another shape, or is not of floats.
        """
        if self.arrays is None:
            assert self.rng is not None
            drawn = self.rng.standard_normal(shape, np.float32)
            drawn *= scale
            drawn += mean
            return drawn
        weight = next((self.arrays[p + name] for p in ("", *self.prefixes) if p + name in self.arrays), None)
        if weight is None:
            self.missing.append(name)
            return np.zeros(shape, np.float32)
        array = np.asarray(weight)
        if array.shape != shape:
            raise LanguageModelError(f"`weights` must have {name} of shape {list(shape)}, but got {list(array.shape)}")
        if str(array.dtype) not in STORED_DTYPES:
            raise LanguageModelError(
                f"`weights` must be of {' or '.join(STORED_DTYPES)}, but {name} is of {array.dtype}"
            )
        return array.astype(numpy_dtype("float32"), copy=False)

    def check(self) -> None:
        """Refuses weights of which some are missing.

        Raises:
            LanguageModelError: names them.
        """
        if self.missing:
            shown = ", ".join(self.missing[:4]) + (f" and {len(self.missing) - 4} more" if self.missing[4:] else "")
            raise LanguageModelError(f"`weights` must have all of the model, but lack {shown}")


def gpt2(
    sizes: GPT2, weights: Mapping[str, Array] | None = None, rng: np.random.Generator | None = None, name: str = "gpt2"
) -> Model:
    """Makes a model of GPT-2's architecture.

    Args:
        sizes: sizes of the model.
        weights: names of `transformers.GPT2LMHeadModel` → weights, with or without the leading `transformer.`; None:
            drawn.
        rng: draws them; None: one of seed 0.

    Raises:
        LanguageModelError: sizes that do not go together, weights that are missing or have other shapes.
    """
    s, w = sizes.sizes, _weights(weights, rng, "transformer.")
    h, n, scale = s.hidden, s.inner, s.head_width**-0.5
    tokens, positions = w.of("wte.weight", s.vocabulary, h), w.of("wpe.weight", sizes.positions, h, scale=0.01)

    def norm(prefix: str) -> Norm:
        return Norm(w.of(f"{prefix}.weight", h, mean=1.0), w.of(f"{prefix}.bias", h))

    def linear(prefix: str, inputs: int, outputs: int) -> Linear:
        return Linear(w.of(f"{prefix}.weight", inputs, outputs), w.of(f"{prefix}.bias", outputs))

    layers = []
    for number in range(s.layers):
        at = f"h.{number}"
        joint = linear(f"{at}.attn.c_attn", h, 3 * h)
        assert joint.bias is not None
        query, key, value = (
            Linear(np.ascontiguousarray(weight), bias)
            for weight, bias in zip(np.split(joint.weight, 3, axis=1), np.split(joint.bias, 3), strict=True)
        )
        layers.append(
            Layer(
                norm(f"{at}.ln_1"),
                _scale_linear(query, scale),
                key,
                value,
                linear(f"{at}.attn.c_proj", h, h),
                norm(f"{at}.ln_2"),
                None,
                linear(f"{at}.mlp.c_fc", h, n),
                linear(f"{at}.mlp.c_proj", n, h),
            )
        )
    last = norm("ln_f")
    w.check()
    return Model(name, s, tokens, positions, tuple(layers), last, tokens.T)


def llama(
    sizes: Llama,
    weights: Mapping[str, Array] | None = None,
    rng: np.random.Generator | None = None,
    name: str = "llama",
) -> Model:
    """Makes a model of Llama's architecture.

    Args:
        sizes: sizes of the model.
        weights: names of `transformers.LlamaForCausalLM` → weights, with or without the leading `model.`; None: drawn.
        rng: draws them; None: one of seed 0.

    Raises:
        LanguageModelError: sizes that do not go together, weights that are missing or have other shapes.
    """
    s, w = sizes.sizes, _weights(weights, rng, "model.")
    h, n, queries, keys = s.hidden, s.inner, s.heads * s.head_width, s.kv_heads * s.head_width
    tokens = w.of("embed_tokens.weight", s.vocabulary, h)

    def linear(prefix: str, inputs: int, outputs: int, bias: bool = False) -> Linear:
        weight = w.of(f"{prefix}.weight", outputs, inputs).T
        return Linear(weight, w.of(f"{prefix}.bias", outputs) if bias else None)

    layers = []
    for number in range(s.layers):
        at = f"layers.{number}"
        first = Norm(w.of(f"{at}.input_layernorm.weight", h, mean=1.0))
        query, key, value = (
            linear(f"{at}.self_attn.{part}_proj", h, width, sizes.biases)
            for part, width in (("q", queries), ("k", keys), ("v", keys))
        )
        joined = linear(f"{at}.self_attn.o_proj", queries, h)
        second = Norm(w.of(f"{at}.post_attention_layernorm.weight", h, mean=1.0))
        gate, up = (linear(f"{at}.mlp.{part}_proj", h, n) for part in ("gate", "up"))
        down = linear(f"{at}.mlp.down_proj", n, h)
        scaled = _scale_linear(query, s.head_width**-0.5)
        layers.append(Layer(first, scaled, key, value, joined, second, gate, up, down))
    last = Norm(w.of("norm.weight", h, mean=1.0))
    logits = tokens.T if sizes.tied else linear("lm_head", h, s.vocabulary).weight
    w.check()
    return Model(name, s, tokens, None, tuple(layers), last, logits, sizes.theta)


def _weights(weights: Mapping[str, Array] | None, rng: np.random.Generator | None, prefix: str) -> _Weights:
    if weights is not None and rng is not None:
        raise LanguageModelError("`rng` must be left out where `weights` are given, but both are given")
    return _Weights(weights, rng or np.random.default_rng(0), (prefix,))


def _scale_linear(linear: Linear, scale: float) -> Linear:
    factor = np.float32(scale)
    return Linear(linear.weight * factor, None if linear.bias is None else linear.bias * factor)


def _divides(name: str, part: int, of: str, total: int) -> None:
    if part < 1 or total < 1 or total % part:
        raise LanguageModelError(f"`{name}` must divide {of}, but got {name}={part}, {of}={total}")


def parameters(model: Model) -> int:
    """Counts the numbers that a step reads or chooses among, tied embeddings once."""
    arrays = [model.tokens, model.positions, *([] if model.logits.base is model.tokens else [model.logits])]
    for layer in model.layers:
        for part in vars(layer).values():
            arrays += [] if part is None else list(vars(part).values())
    return sum(math.prod(array.shape) for array in (*arrays, *vars(model.last).values()) if array is not None)


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"ModelError": "LanguageModelError"})
