"""A writer of GGUF files, by the format's description, and random models in them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.language import GPT2, Llama
from autotune.language.gguf.architectures import GPT2_LAYER, LLAMA_LAYER
from autotune.language.gguf.blocks import TYPES, read_floats

Array = NDArray[Any]
Tensors = Mapping[str, tuple[tuple[int, ...], int, bytes]]
"""Name → shape with the innermost extent last, number of the type, and bytes."""
NUMBERS = {kind.name: number for number, kind in TYPES.items()}
ENDS = {"norm": "output_norm", "ln_f": "output_norm", "embed_tokens": "token_embd", "wte": "token_embd"}
ENDS |= {"lm_head": "output", "wpe": "position_embd"}

SMALL = Llama(vocabulary=67, hidden=32, layers=2, heads=4, kv_heads=2, inner=48, head_width=12, theta=5000.0)
"""A model of several heads with a head's width of its own."""


def write(path: Path, metadata: Mapping[str, Any], tensors: Tensors, version: int = 3) -> Path:
    """Writes a file; strings, lists, booleans, numbers and arrays of numbers are values of the metadata."""
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        out += string(key) + encode_value(value)
    offset = 0
    for name, (shape, number, data) in tensors.items():
        out += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], number, offset)
        offset += -(-len(data) // 32) * 32
    for _, _, data in tensors.values():
        out += bytes(-len(out) % 32) + data
    path.write_bytes(out)
    return path


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def encode_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + string(value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, np.ndarray):
        kinds = {"float32": 6, "int32": 5}
        return struct.pack("<IIQ", 9, kinds[str(value.dtype)], len(value)) + value.tobytes()
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))


def random_blocks(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> bytes:
    """Draws blocks whose values are about as large as those of a random model."""
    of = TYPES[NUMBERS[kind]]
    data = rng.integers(0, 256, (shape[0] * shape[1] // of.size, of.nbytes)).astype(np.uint8)
    # the float16 numbers of each block, and values of them that give numbers of a deviation of about 1/16
    places = {
        "Q6_K": {208: 3e-5},
        "Q4_K": {0: 3e-4, 2: 1.5e-3},
        "Q4_0": {0: 0.014},
        "Q4_1": {0: 0.014, 2: -0.1},
        "Q8_0": {0: 9e-4},
        "IQ4_NL": {0: 1e-3},
    }
    for at, scale in places.get(kind, {}).items():
        scales = (scale * rng.uniform(0.5, 1.5, len(data))).astype(np.float16)
        data[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if kind == "MXFP4":
        data[:, 0] = 122 + rng.integers(0, 2, len(data))
    return data.tobytes()


def stored_name(name: str, layer_names: Mapping[str, str]) -> str:
    """Translates a name of `transformers` to that of the file."""
    parts = name.removeprefix("model.").removeprefix("transformer.").split(".")
    if parts[0] not in ("layers", "h"):
        return ".".join((ENDS[parts[0]], parts[-1]))
    (part,) = (stored for stored, other in layer_names.items() if other == ".".join(parts[2:-1]))
    return f"blk.{parts[1]}.{part}.{parts[-1]}"


def as_neighbours(array: Array, heads: int) -> Array:
    """Puts outputs that are rotated together side by side, as files of the architecture `llama` have them."""
    return array.reshape(heads, 2, len(array) // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)


def llama_metadata(sizes: Llama, architecture: str) -> dict[str, Any]:
    values = {
        "block_count": sizes.layers,
        "embedding_length": sizes.hidden,
        "feed_forward_length": sizes.inner,
        "attention.head_count": sizes.heads,
        "attention.head_count_kv": sizes.kv_heads,
        "attention.layer_norm_rms_epsilon": sizes.epsilon,
        "rope.freq_base": sizes.theta,
        "attention.key_length": sizes.sizes.head_width,
        "attention.value_length": sizes.sizes.head_width,
    }
    return {"general.architecture": architecture, **{f"{architecture}.{name}": value for name, value in values.items()}}


def gpt2_metadata(sizes: GPT2) -> dict[str, Any]:
    values = {
        "block_count": sizes.layers,
        "embedding_length": sizes.hidden,
        "attention.head_count": sizes.heads,
        "attention.layer_norm_epsilon": sizes.epsilon,
    }
    return {"general.architecture": "gpt2", **{f"gpt2.{name}": value for name, value in values.items()}}


def llama_tensors(sizes: Llama, weights: Mapping[str, Array], architecture: str) -> dict[str, Any]:
    """Lists tensors in the dtypes of the weights."""
    tensors = {}
    for name, array in weights.items():
        stored = stored_name(name, LLAMA_LAYER)
        if architecture == "llama" and stored.split(".")[-2] in ("attn_q", "attn_k"):
            array = as_neighbours(array, sizes.heads if ".attn_q." in stored else sizes.kv_heads)
        tensors[stored] = tensor(array)
    return tensors


def gpt2_tensors(weights: Mapping[str, Array]) -> dict[str, Any]:
    """Lists tensors of GPT-2, whose products are transposed in files."""
    named = {stored_name(name, GPT2_LAYER): array for name, array in weights.items()}
    return {
        name: tensor(array.T if array.ndim == 2 and name.startswith("blk.") else array) for name, array in named.items()
    }


def tensor(array: Array) -> tuple[tuple[int, ...], int, bytes]:
    kind = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[str(array.dtype)]
    return array.shape, NUMBERS[kind], np.ascontiguousarray(array).tobytes()


def in_blocks(
    tensors: dict[str, Any], kinds: Mapping[str, str], rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Replaces tensors by random blocks.

    Args:
        tensors: tensors of a model.
        kinds: name of a tensor → type of its blocks.

    Returns:
        The tensors, and the values of those that were replaced.
    """
    values = {}
    for name, kind in kinds.items():
        shape = tensors[name][0]
        data = random_blocks(rng, shape, kind)
        tensors = {**tensors, name: (shape, NUMBERS[kind], data)}
        values[name] = read_floats(np.frombuffer(data, np.uint8).reshape(shape[0], -1), TYPES[NUMBERS[kind]])
    return tensors, values


TOKENIZERS = json.loads((Path(__file__).parent / "golden" / "tokenizers.json").read_text())
"""Vocabularies, and tokens of texts by the packages `tokenizers` and `sentencepiece`."""


def byte_pairs(rules: str) -> dict[str, Any]:
    """Returns a vocabulary of byte pairs that splits words by some rules."""
    golden = TOKENIZERS["byte_pairs"]
    return {
        "model": "gpt2",
        "pre": rules,
        "tokens": golden["tokens"],
        "merges": golden["merges"],
        "add_bos_token": False,
    }
