"""Language models: decoders that read a prompt at once, then give a token a step, with keys and values kept in place.

model = language.gpt2(language.GPT2(), weights)
network = language.compile(model, longest=1024)
tokens = network.generate([50256], 20)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.language.api import LanguageModel, compile, load
from autotune.language.gguf import GGUFModel, read_gguf
from autotune.language.model import GPT2, LanguageModelError, Llama, Model, Sizes, gpt2, llama
from autotune.language.reading import read_safetensors
from autotune.language.sampling import Sampler, TopK, greedy
from autotune.language.tokenizers import Tokenizer
from search_space.former_names import former_attributes

__all__ = [
    "GGUFModel",
    "GPT2",
    "LanguageModel",
    "Llama",
    "Model",
    "LanguageModelError",
    "Sampler",
    "Sizes",
    "Tokenizer",
    "TopK",
    "compile",
    "gpt2",
    "greedy",
    "llama",
    "load",
    "read_gguf",
    "read_safetensors",
]


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"ModelError": "LanguageModelError"})
