"""Language models of GGUF files, the files of llama.cpp: weights, sizes and the tokenizer in one file.

gguf = autotune.language.read_gguf("model.gguf")
network = autotune.language.compile(gguf.model)
print(gguf.tokenizer.decode(network.generate(gguf.tokenizer.encode("Once upon a time"), 20)))
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autotune.language.gguf.architectures import read_model
from autotune.language.gguf.container import GGUFFile
from autotune.language.gguf.vocabulary import read_tokenizer
from autotune.language.model import Model
from autotune.language.tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class GGUFModel:
    """A language model of a GGUF file.

    Attributes:
        model: decoder to compile.
        metadata: values of the file by key: numbers, strings, lists of strings, and arrays of numbers (n,).
    """

    model: Model
    metadata: Mapping[str, Any] = field(repr=False)
    _file: GGUFFile = field(repr=False)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the file, which is read at the first use.

        Raises:
            LanguageModelError: the file has none, or one of an unknown kind, or its vocabulary is damaged.
        """
        return read_tokenizer(self._file, self.model.sizes.vocabulary)


def read_gguf(path: str | os.PathLike[str]) -> GGUFModel:
    """Reads a language model from a GGUF file.

    Weights in blocks of 4 or 8 bits stay so if a product of weights in groups holds them, and others become wider; a
    line of the log says how many bytes that takes. Weights in float32 are pages of the file.

    Args:
        path: path of the file; one of several parts must be joined before.

    Raises:
        LanguageModelError: the file is no GGUF file, is damaged or ends too early, or its architecture or types are not
            known.
        OSError: it cannot be read.
    """
    file = GGUFFile(path)
    return GGUFModel(read_model(file), file.metadata, file)
