"""Peer llama.cpp of `benchmarks.language`: a decoder of Llama's architecture in a GGUF file of 4 or 8 bits.

It needs `pip install '.[llama-cpp]'`, which compiles it on this machine.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.language.model import Model

Array = NDArray[Any]
AT_ONCE = 512
"""Tokens of a prompt that are computed together."""


def find_version() -> str | None:
    """Returns the version of llama-cpp-python, which fixes that of llama.cpp; None if a package is missing."""
    try:
        importlib.metadata.version("gguf")
        return importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return None


def write(model: Model, longest: int, bits: int, path: Path) -> None:
    """Writes a GGUF file of a model of Llama's architecture, with products in blocks of 32 weights; 32 bits: floats."""
    import gguf

    kinds = {4: gguf.GGMLQuantizationType.Q4_0, 8: gguf.GGMLQuantizationType.Q8_0}
    sizes = model.sizes
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(longest)
    writer.add_embedding_length(sizes.hidden)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(sizes.epsilon)
    writer.add_rope_dimension_count(sizes.head_width)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(sizes.vocabulary)
    writer.add_tokenizer_model("no_vocab")

    def product(name: str, weight: Array) -> None:
        """Writes a weight (inputs, outputs), which the file has transposed."""
        turned = np.ascontiguousarray(weight.T, np.float32)
        if bits in kinds:
            writer.add_tensor(name, gguf.quants.quantize(turned, kinds[bits]), raw_dtype=kinds[bits])
        else:
            writer.add_tensor(name, turned)

    def neighbours(weight: Array, heads: int) -> Array:
        """Permutes weights so that outputs which rotary positions rotate together are neighbours."""
        split = weight.reshape(len(weight), heads, 2, sizes.head_width // 2)
        return split.transpose(0, 1, 3, 2).reshape(weight.shape)

    writer.add_tensor("token_embd.weight", np.ascontiguousarray(model.tokens, np.float32))
    writer.add_tensor("output_norm.weight", np.asarray(model.last.scale, np.float32))
    product("output.weight", model.logits)
    for number, layer in enumerate(model.layers):
        at = f"blk.{number}"
        writer.add_tensor(f"{at}.attn_norm.weight", np.asarray(layer.first.scale, np.float32))
        writer.add_tensor(f"{at}.ffn_norm.weight", np.asarray(layer.second.scale, np.float32))
        query = layer.query.weight * np.float32(sizes.head_width**0.5)  # ours are scaled already
        product(f"{at}.attn_q.weight", neighbours(query, sizes.heads))
        product(f"{at}.attn_k.weight", neighbours(layer.key.weight, sizes.kv_heads))
        product(f"{at}.attn_v.weight", layer.value.weight)
        product(f"{at}.attn_output.weight", layer.output.weight)
        assert layer.gate is not None, "of Llama's kind"
        product(f"{at}.ffn_gate.weight", layer.gate.weight)
        product(f"{at}.ffn_up.weight", layer.up.weight)
        product(f"{at}.ffn_down.weight", layer.down.weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@cache
def load_library() -> tuple[Any, Any]:
    """Loads llama.cpp without its log; returns it, and the callback of the log, which it goes on to call."""
    import llama_cpp

    log = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(log, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    return llama_cpp, log


def quantise_file(source: Path, kind: str, path: Path) -> None:
    """Writes a file's model as one of llama.cpp's mixtures of types, such as `Q4_K_M`."""
    llama_cpp, _ = load_library()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    if llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), parameters):
        raise RuntimeError(f"llama.cpp must write a file of the type {kind}, but did not")


def make_llama_cpp(model: Model, longest: int, threads: int, bits: int) -> LlamaCpp:
    """Loads a model of ours in llama.cpp, by a file that is deleted."""
    with tempfile.TemporaryDirectory(prefix="autotune-gguf-") as folder:
        path = Path(folder) / "model.gguf"
        write(model, longest, bits, path)
        return LlamaCpp(path, longest, threads, model.sizes.vocabulary)


class LlamaCpp:
    """The library, called as its own programs do.

    Args:
        path: GGUF file.
        longest: tokens of a sequence at most.
        threads: threads that it runs on.
        vocabulary: number of tokens.
    """

    def __init__(self, path: Path, longest: int, threads: int, vocabulary: int) -> None:
        llama_cpp, _ = load_library()
        self._library, self._vocabulary = llama_cpp, vocabulary
        parameters = llama_cpp.llama_model_default_params()
        parameters.use_mmap = False  # so that it may lay weights out anew
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = longest, AT_ONCE, AT_ONCE
        options.n_threads = options.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError("llama.cpp must load the model that was written for it, but did not")

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        if what == "prefill":
            return lambda: self._run(tokens, 0)
        self._run(tokens[:-1], 0)
        return lambda: self._run(tokens[-1:], len(tokens) - 1)

    def _run(self, tokens: Array, past: int) -> Array:
        library = self._library
        library.llama_memory_seq_rm(library.llama_get_memory(self._context), 0, past, -1)
        given = (library.llama_token * len(tokens))(*tokens.tolist())
        code = library.llama_decode(self._context, library.llama_batch_get_one(given, len(tokens)))
        if code:
            raise RuntimeError(f"llama.cpp must decode, but gave the code {code}")
        logits = library.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(logits, (self._vocabulary,)).copy()
