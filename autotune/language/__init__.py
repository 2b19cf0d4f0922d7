"""Language models: decoders that read a prompt at once, then give a token a step, with keys and values kept in place.

model = language.gpt2(language.GPT2(), weights)
network = language.compile(model, longest=1024)
tokens = network.generate([50256], 20)
"""

from __future__ import annotations

from autotune.language.compiled import LanguageModel, compile, load
from autotune.language.model import GPT2, Llama, Model, ModelError, Sizes, gpt2, llama
from autotune.language.reading import read_safetensors
from autotune.language.sampling import Sampler, TopK, greedy

__all__ = [
    "GPT2",
    "LanguageModel",
    "Llama",
    "Model",
    "ModelError",
    "Sampler",
    "Sizes",
    "TopK",
    "compile",
    "gpt2",
    "greedy",
    "llama",
    "load",
    "read_safetensors",
]
