"""Decoders from GGUF files: sizes from the metadata, weights by the names that `gpt2` and `llama` read.

Names and keys are those of llama.cpp's converter, https://github.com/ggml-org/llama.cpp/blob/master/gguf-py.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotune.graph.types import Array
from autotune.language.gguf.blocks import decode_blocks, make_product, make_rows, read_floats
from autotune.language.gguf.container import GGUFFile, StoredTensor
from autotune.language.grouped import GroupedRows, GroupedWeight
from autotune.language.model import GPT2, Llama, Model, Weight, gpt2, llama

_LOG = logging.getLogger(__name__)

LLAMA_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GPT2_LAYER = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
EMBEDDINGS, LOGITS = "token_embd.weight", "output.weight"
DIVISORS = "rope_freqs.weight"
"""Divisors of the rotary positions' frequencies, which Llama 3.1 and later ones have."""

Shapes = dict[str, tuple[str, tuple[int, ...]]]
"""Name in the file → name that the model is made from, and shape."""


def read_model(file: GGUFFile) -> Model:
    """Makes the model of a file.

    Raises:
        LanguageModelError: the architecture is unknown, its metadata is missing or invalid, or tensors do not fit it.
    """
    parts, architecture = (file.metadata.get(key) for key in ("split.count", "general.architecture"))
    if isinstance(parts, int) and parts > 1:
        raise file.error("must have all parts of a model", f"one of {parts}")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        allowed = ", ".join(ARCHITECTURES)
        raise file.error(f"must be of one of the architectures {allowed}", f"{architecture!r:.80}")
    return ARCHITECTURES[architecture](_Metadata(file, architecture))


class _Metadata:
    """Values of an architecture's keys, each checked.

    Args:
        file: file that has them.
        architecture: name of the architecture, the first part of the keys.
    """

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file, self.architecture = file, architecture

    def size(self, name: str, default: int | None = None) -> int:
        """Returns a positive number, which an array may give once for each layer."""
        value = self._value(name, default)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            value = value[0].item()
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            shown = "several" if isinstance(value, np.ndarray) else f"{value!r:.80}"
            raise self.file.error(f"must have one number of 1 or more as `{self.architecture}.{name}`", shown)
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """Returns a number above 0."""
        value = self._value(name, default)
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.file.error(f"must have a number above 0 as `{self.architecture}.{name}`", f"{value!r:.80}")
        return float(value)

    def require(self, name: str, choices: tuple[object, ...]) -> None:
        """Refuses a value other than the choices, of which the first is the default.

        Raises:
            LanguageModelError: the value is not one of them.
        """
        value = self._value(name, choices[0])
        if not isinstance(value, str | int | float) or value not in choices:
            rule = f"must have {' or '.join(map(str, choices))} as `{self.architecture}.{name}`"
            raise self.file.error(rule, f"{value!r:.80}")

    def _value(self, name: str, default: object) -> Any:
        return self.file.metadata.get(f"{self.architecture}.{name}", default)


# ------------------------------------------------------------------ architectures
def _llama(data: _Metadata) -> Model:
    file, architecture = data.file, data.architecture
    heads, hidden = data.size("attention.head_count"), data.size("embedding_length")
    width = data.size("attention.key_length", max(1, hidden // heads))
    if width % 2:
        raise file.error("must have heads of an even width for rotary positions", width)
    data.require("attention.value_length", (width,))
    data.require("rope.dimension_count", (width,))
    data.require("expert_count", (0,))
    data.require("attention.sliding_window", (0,))
    data.require("rope.scaling.type", ("linear", "none"))
    data.require("rope.scaling.attn_factor", (1,))
    biases, head_norms = "blk.0.attn_q.bias" in file.tensors, "blk.0.attn_q_norm.weight" in file.tensors
    sizes = Llama(
        vocabulary=_embeddings(file).shape[0],
        hidden=hidden,
        layers=data.size("block_count"),
        heads=heads,
        kv_heads=data.size("attention.head_count_kv", heads),
        inner=data.size("feed_forward_length"),
        epsilon=data.real("attention.layer_norm_rms_epsilon"),
        theta=data.real("rope.freq_base", 10000.0),
        tied=LOGITS not in file.tensors,
        head_width=width,
        biases=biases,
        head_norms=head_norms,
    )
    queries, keys, n = heads * width, sizes.kv_heads * width, sizes.inner
    vectors = {"attn_norm": hidden, "ffn_norm": hidden}
    vectors |= {"attn_q_norm": width, "attn_k_norm": width} if head_norms else {}
    products = {
        "attn_q": (queries, hidden),
        "attn_k": (keys, hidden),
        "attn_v": (keys, hidden),
        "attn_output": (hidden, queries),
        "ffn_gate": (n, hidden),
        "ffn_up": (n, hidden),
        "ffn_down": (hidden, n),
    }
    with_bias = ("attn_q", "attn_k", "attn_v") if biases else ()
    shapes: Shapes = {"output_norm.weight": ("norm.weight", (hidden,))}
    shapes |= _ends(sizes.vocabulary, hidden, "embed_tokens.weight", sizes.tied)
    optional = {DIVISORS: (width // 2,)}
    layers = _layers(sizes.layers, "layers", LLAMA_LAYER, vectors, products, with_bias)
    # The files of this architecture, and of no other one, have outputs that are rotated together as neighbours.
    orders = {"attn_q": heads, "attn_k": sizes.kv_heads} if architecture == "llama" else {}
    weights = _Reading(file, shapes, layers, optional, orders, width).weights()
    return llama(sizes, weights, name=architecture, divisors=_divisors(data))


def _gpt2(data: _Metadata) -> Model:
    file, hidden = data.file, data.size("embedding_length")
    positions = file.tensors.get("position_embd.weight")
    if positions is None:
        raise file.error("must have the tensors of its architecture", "no position_embd.weight")
    sizes = GPT2(
        vocabulary=_embeddings(file).shape[0],
        hidden=hidden,
        layers=data.size("block_count"),
        heads=data.size("attention.head_count"),
        positions=positions.shape[0],
        inner=data.size("feed_forward_length", 4 * hidden),
        epsilon=data.real("attention.layer_norm_epsilon"),
    )
    n = sizes.inner or 4 * hidden
    products = {
        "attn_qkv": (3 * hidden, hidden),
        "attn_output": (hidden, hidden),
        "ffn_up": (n, hidden),
        "ffn_down": (hidden, n),
    }
    vectors = {"attn_norm": hidden, "ffn_norm": hidden}
    shapes: Shapes = {f"output_norm.{kind}": (f"ln_f.{kind}", (hidden,)) for kind in ("weight", "bias")}
    shapes["position_embd.weight"] = "wpe.weight", (sizes.positions, hidden)
    shapes |= _ends(sizes.vocabulary, hidden, "wte.weight", LOGITS not in file.tensors)
    layers = _layers(sizes.layers, "h", GPT2_LAYER, vectors, products, (*vectors, *products))
    weights = _Reading(file, shapes, layers, {}, {}, 0, transposed=True).weights()
    model, head = gpt2(sizes, weights), weights.get("lm_head.weight")
    if head is None:
        return model
    # `gpt2` ties logits to embeddings in floats; a file may have both.
    logits = head if isinstance(head, GroupedWeight) else np.asarray(head, np.float32).T
    return replace(model, logits=logits)


ARCHITECTURES: dict[str, Callable[[_Metadata], Model]] = {
    "llama": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "gpt2": _gpt2,
}
"""Architectures that are read; `llama` is also that of Mistral's models and many others."""


def _embeddings(file: GGUFFile) -> StoredTensor:
    tensor = file.tensors.get(EMBEDDINGS)
    if tensor is None:
        raise file.error("must have the tensors of its architecture", f"no {EMBEDDINGS}")
    return tensor


def _ends(vocabulary: int, hidden: int, embeddings: str, tied: bool) -> Shapes:
    """Lists the embeddings and, unless they are `tied`, the weights of the logits."""
    ends: Shapes = {EMBEDDINGS: (embeddings, (vocabulary, hidden))}
    return ends if tied else {**ends, LOGITS: ("lm_head.weight", (vocabulary, hidden))}


def _layers(
    count: int,
    prefix: str,
    names: Mapping[str, str],
    vectors: Mapping[str, int],
    products: Mapping[str, tuple[int, int]],
    biases: tuple[str, ...],
) -> Iterator[Shapes]:
    """Lists the tensors of each layer in turn; `count` is a number of the file, which may lie."""
    for layer in range(count):
        shapes: Shapes = {}
        for part, shape in {**{part: (size,) for part, size in vectors.items()}, **products}.items():
            stored, name = f"blk.{layer}.{part}", f"{prefix}.{layer}.{names[part]}"
            shapes[f"{stored}.weight"] = f"{name}.weight", shape
            if part in biases:
                shapes[f"{stored}.bias"] = f"{name}.bias", shape[:1]
        yield shapes


def _divisors(data: _Metadata) -> Array | None:
    """Returns divisors of the rotary positions' frequencies (head_width / 2,); None: 1.

    The scaling is linear unless the file names another type, and an older key has its factor, as llama.cpp reads them.
    """
    tensor = data.file.tensors.get(DIVISORS)
    divisors = None if tensor is None else read_floats(tensor.data, tensor.kind)[0].astype(np.float64)
    factor = data.real("rope.scaling.factor", data.real("rope.scale_linear", 1.0))
    if factor == 1 or data.file.metadata.get(f"{data.architecture}.rope.scaling.type") == "none":
        return divisors
    return np.asarray((1.0 if divisors is None else divisors) * factor, np.float64)


class _Reading:
    """Reading of the weights of a model, after all of their shapes were checked.

    Args:
        file: file that has them.
        shapes: tensors outside of layers.
        layers: tensors of each layer.
        optional: shapes of further tensors that the file may have.
        orders: products of queries or keys whose outputs are neighbours if they are rotated together → their heads.
        width: features of a head.
        transposed: whether the model takes the transposition of products in floats.
    """

    def __init__(
        self,
        file: GGUFFile,
        shapes: Shapes,
        layers: Iterator[Shapes],
        optional: Mapping[str, tuple[int, ...]],
        orders: Mapping[str, int],
        width: int,
        transposed: bool = False,
    ) -> None:
        self._file, self._orders, self._width, self._is_transposed = file, orders, width, transposed
        self._shapes = dict(shapes)
        self._check(shapes)
        for layer in layers:  # ends at the first missing tensor
            self._check(layer)
            self._shapes |= layer
        for name, tensor in file.tensors.items():
            if name not in self._shapes and optional.get(name) != tensor.shape:
                raise file.error(
                    "must have no other tensors than its architecture has", f"{name:.80} {list(tensor.shape)}"
                )
        self._wider: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def _check(self, shapes: Shapes) -> None:
        for name, (_, shape) in shapes.items():
            tensor = self._file.tensors.get(name)
            if tensor is None:
                raise self._file.error("must have the tensors of its architecture", f"no {name}")
            if tensor.shape != shape:
                raise self._file.error(f"must have {name} of shape {list(shape)}", list(tensor.shape))

    def weights(self) -> dict[str, Weight]:
        """Reads all weights; a line of the log says which ones take more memory than in the file."""
        weights: dict[str, Weight] = {}
        for name, (target, shape) in self._shapes.items():
            tensor = self._file.tensors[name]
            parts = None
            if len(shape) == 2 and tensor.kind.decode is not None and name != "position_embd.weight":
                parts = decode_blocks(self._in_order(tensor.name, tensor.data), tensor.kind)
            if parts is None:
                read: list[Weight] = [self._read_floats(name, tensor)]
            elif name != EMBEDDINGS:
                read = [make_product(parts, tensor.kind)]
            elif LOGITS in self._shapes:
                read = [make_rows(parts)]
            else:
                read = [make_rows(parts), make_product(parts, tensor.kind)]
            weights |= dict(zip((target, "lm_head.weight"), read, strict=False))
            self._note(tensor, read)
        if self._wider:
            sizes = (
                f"{what} {now / 1e6:.1f} MB for {before / 1e6:.1f} MB" for what, (now, before) in self._wider.items()
            )
            _LOG.warning("%s: some types take more memory than in the file: %s", self._file.path, ", ".join(sizes))
        return weights

    def _read_floats(self, name: str, tensor: StoredTensor) -> Array:
        values = self._in_order(name, read_floats(tensor.data, tensor.kind).reshape(tensor.shape))
        is_product = len(tensor.shape) == 2 and name.startswith("blk.")
        return values.T if self._is_transposed and is_product else values

    def _in_order(self, name: str, outputs: Array) -> Array:
        """Returns outputs (outputs, ...) of a tensor in the order of halves in place of neighbours."""
        _, _, part, *_ = *name.split("."), "", "", ""
        if part not in self._orders:
            return outputs
        count = self._orders[part]
        order = np.arange(count * self._width).reshape(count, self._width // 2, 2).transpose(0, 2, 1).reshape(-1)
        return outputs[order]

    def _note(self, tensor: StoredTensor, read: Sequence[Weight]) -> None:
        """Notes the bytes of the weights of a tensor, if they are more than in the file."""
        now, forms = 0, []
        for weight in read:
            if isinstance(weight, GroupedWeight | GroupedRows):
                now += sum(array.nbytes for array in weight.arrays)
                forms.append(f"{weight.bits} bits" if isinstance(weight, GroupedWeight) else "8 bits for embeddings")
            else:
                now += 4 * weight.size
                forms.append("float32")
        if now > tensor.data.nbytes:
            total = self._wider[f"{tensor.kind.name} in {' and '.join(forms)}"]
            total[0] += now
            total[1] += tensor.data.nbytes
