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
from autotune.language.grouped import GroupedRows, GroupedWeight
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
        head_norms: whether queries and keys are normalised head by head, as Qwen3's are.
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
    head_norms: bool = False

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
        weight: (inputs, outputs), in floats or in groups of a few bits.
        bias: (outputs,); None: none.
    """

    weight: Array | GroupedWeight
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
        query: scaled, so that products with keys are scores, unless `query_norm` is.
        gate: weight of SwiGLU's gate; None: GELU.
        query_norm, key_norm: normalisations of each head of queries and of keys, (head_width,); None: none.
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
    query_norm: Norm | None = None
    key_norm: Norm | None = None


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
        divisors: divisors of the angles' frequencies (head_width / 2,), for sequences longer than those of the
            training; None: 1.
    """

    name: str
    sizes: Sizes
    tokens: Array | GroupedRows
    positions: Array | None
    layers: tuple[Layer, ...]
    last: Norm
    logits: Array | GroupedWeight
    theta: float = 10000.0
    divisors: Array | None = None

    def __repr__(self) -> str:
        """Formats a line without the weights."""
        return f"Model {self.name}: {parameters(self) / 1e6:.1f} million parameters, {self.sizes}"

    def turns(self, count: int) -> tuple[Array, Array]:
        """Computes cosines and sines of the first positions' angles, (count, head_width / 2) each."""
        half = self.sizes.head_width // 2
        frequencies = self.theta ** (-np.arange(half) / half)
        if self.divisors is not None:
            frequencies = frequencies / self.divisors
        angles = np.outer(np.arange(count), frequencies)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


Weight = Array | GroupedWeight | GroupedRows
"""A weight by name."""


def _check_shape(name: str, actual: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if actual != expected:
        raise LanguageModelError(f"`weights` must have {name} of shape {list(expected)}, but got {list(actual)}")


@dataclass
class _Weights:
    """Weights by name, or random ones.

    Attributes:
        arrays: weights by name; None: all are drawn.
        rng: draws all of them if no weights are given.
        prefixes: optional prefixes of names.
    """

    arrays: Mapping[str, Weight] | None
    rng: np.random.Generator | None
    prefixes: tuple[str, ...]
    missing: list[str] = field(default_factory=list)

    def find(self, name: str) -> Weight | None:
        """Looks up a weight as it is stored, with or without a prefix; returns None if it is missing."""
        arrays = self.arrays or {}
        return next((arrays[p + name] for p in ("", *self.prefixes) if p + name in arrays), None)

    def product(self, name: str, inputs: int, outputs: int, transposed: bool = True) -> Array | GroupedWeight:
        """Returns weights (inputs, outputs), whose floats may be stored `transposed`.

        Raises:
            LanguageModelError: they have another shape, or are not of floats.
        """
        weight = self.find(name)
        if isinstance(weight, GroupedWeight):
            _check_shape(name, weight.shape, (inputs, outputs))
            return weight
        return self.of(name, outputs, inputs).T if transposed else self.of(name, inputs, outputs)

    def logits(self, tokens: Array | GroupedRows, tied: bool) -> Array | GroupedWeight:
        """Returns the weights (hidden, vocabulary) of the logits; tied embeddings are one array if they are floats."""
        if tied and not isinstance(tokens, GroupedRows):
            return tokens.T
        vocabulary, hidden = tokens.shape
        return self.product("lm_head.weight", hidden, vocabulary)

    def rows(self, name: str, count: int, features: int) -> Array | GroupedRows:
        """Returns a table of embeddings (count, features), in floats or in groups.

        Raises:
            LanguageModelError: it has another shape, or is not of floats.
        """
        table = self.find(name)
        if not isinstance(table, GroupedRows):
            return self.of(name, count, features)
        _check_shape(name, table.shape, (count, features))
        return table

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
        weight = self.find(name)
        if weight is None:
            self.missing.append(name)
            return np.zeros(shape, np.float32)
        if isinstance(weight, GroupedWeight | GroupedRows):
            raise LanguageModelError(f"`weights` must have {name} in floats, but got groups of a few bits")
        array = np.asarray(weight)
        _check_shape(name, array.shape, shape)
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
    sizes: GPT2, weights: Mapping[str, Weight] | None = None, rng: np.random.Generator | None = None, name: str = "gpt2"
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
    tokens, positions = w.rows("wte.weight", s.vocabulary, h), w.of("wpe.weight", sizes.positions, h, scale=0.01)

    def norm(prefix: str) -> Norm:
        return Norm(w.of(f"{prefix}.weight", h, mean=1.0), w.of(f"{prefix}.bias", h))

    def linear(prefix: str, inputs: int, outputs: int) -> Linear:
        weight = w.product(f"{prefix}.weight", inputs, outputs, transposed=False)
        return Linear(weight, w.of(f"{prefix}.bias", outputs))

    layers = []
    for number in range(s.layers):
        at = f"h.{number}"
        query, key, value = _split_linear(linear(f"{at}.attn.c_attn", h, 3 * h), 3)
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
    last, logits = norm("ln_f"), w.logits(tokens, tied=True)
    w.check()
    return Model(name, s, tokens, positions, tuple(layers), last, logits)


def llama(
    sizes: Llama,
    weights: Mapping[str, Weight] | None = None,
    rng: np.random.Generator | None = None,
    name: str = "llama",
    divisors: Array | None = None,
) -> Model:
    """Makes a model of Llama's architecture.

    Args:
        sizes: sizes of the model.
        weights: names of `transformers.LlamaForCausalLM` → weights, with or without the leading `model.`; None: drawn.
        rng: draws them; None: one of seed 0.
        name: name of the executables.
        divisors: divisors of the rotary positions' frequencies, see `Model`.

    Raises:
        LanguageModelError: sizes that do not go together, weights that are missing or have other shapes.
    """
    s, w = sizes.sizes, _weights(weights, rng, "model.")
    h, n, queries, keys = s.hidden, s.inner, s.heads * s.head_width, s.kv_heads * s.head_width
    tokens, scale = w.rows("embed_tokens.weight", s.vocabulary, h), s.head_width**-0.5

    def linear(prefix: str, inputs: int, outputs: int, bias: bool = False) -> Linear:
        weight = w.product(f"{prefix}.weight", inputs, outputs)
        return Linear(weight, w.of(f"{prefix}.bias", outputs) if bias else None)

    def head_norm(prefix: str, factor: float) -> Norm | None:
        """Reads a normalisation of heads, whose scale contains that of the scores."""
        if not sizes.head_norms:
            return None
        return Norm(w.of(f"{prefix}.weight", s.head_width, mean=1.0) * np.float32(factor))

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
        norms = head_norm(f"{at}.self_attn.q_norm", scale), head_norm(f"{at}.self_attn.k_norm", 1.0)
        scaled = query if sizes.head_norms else _scale_linear(query, scale)
        layers.append(Layer(first, scaled, key, value, joined, second, gate, up, down, *norms))
    last = Norm(w.of("norm.weight", h, mean=1.0))
    logits = w.logits(tokens, sizes.tied)
    w.check()
    return Model(name, s, tokens, None, tuple(layers), last, logits, sizes.theta, divisors)


def _weights(weights: Mapping[str, Weight] | None, rng: np.random.Generator | None, prefix: str) -> _Weights:
    if weights is not None and rng is not None:
        raise LanguageModelError("`rng` must be left out where `weights` are given, but both are given")
    return _Weights(weights, rng or np.random.default_rng(0), (prefix,))


def _scale_linear(linear: Linear, scale: float) -> Linear:
    factor, weight = np.float32(scale), linear.weight
    scaled = weight.multiply(scale) if isinstance(weight, GroupedWeight) else weight * factor
    return Linear(scaled, None if linear.bias is None else linear.bias * factor)


def _split_linear(linear: Linear, count: int) -> list[Linear]:
    """Splits the outputs into equal parts."""
    weight, bias = linear.weight, linear.bias
    assert bias is not None
    if isinstance(weight, GroupedWeight):
        weights: list[Array | GroupedWeight] = [*weight.split(count)]
    else:
        weights = [np.ascontiguousarray(part) for part in np.split(weight, count, axis=1)]
    return [Linear(part, shift) for part, shift in zip(weights, np.split(bias, count), strict=True)]


def _divides(name: str, part: int, of: str, total: int) -> None:
    if part < 1 or total < 1 or total % part:
        raise LanguageModelError(f"`{name}` must divide {of}, but got {name}={part}, {of}={total}")


def list_weights(model: Model) -> list[Weight]:
    """Lists the weights that a step reads or chooses among, tied embeddings once."""
    arrays = (model.tokens, model.logits)
    tied = all(isinstance(array, np.ndarray) for array in arrays) and np.may_share_memory(*arrays)
    weights: list[Weight | None] = [model.tokens, model.positions, *([] if tied else [model.logits])]
    for part in (*(part for layer in model.layers for part in vars(layer).values()), model.last):
        weights += [] if part is None else list(vars(part).values())
    return [weight for weight in weights if weight is not None]


def parameters(model: Model) -> int:
    """Counts the numbers that a step reads or chooses among, tied embeddings once."""
    return sum(math.prod(weight.shape) for weight in list_weights(model))


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"ModelError": "LanguageModelError"})
