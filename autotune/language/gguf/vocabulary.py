"""The tokenizer of a GGUF file, from its keys `tokenizer.ggml.*`.

A template of chats is a program, so it is not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.graph.types import Array
from autotune.language.gguf.container import GGUFFile
from autotune.language.tokenizers import BytePairs, SentencePieces, Tokenizer, Vocabulary
from autotune.language.tokenizers.splitting import RULES

UNKNOWN, CONTROL, LITERAL = 2, 3, 4
"""Types of tokens in files; others are usual ones, unused ones and bytes."""
BEGINS_AND_WORDS_FIRST = ("llama-bpe", "llama3", "llama-v3")
"""Rules whose words are not split if they are tokens; texts begin with a token, unless a key says otherwise."""
STOPS = ("eos", "eot", "eom")
"""Keys of tokens that end an answer."""
STOP_TEXTS = ("<|eot_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "<|eom_id|>")
"""Texts of control tokens that end an answer, in files that have no key of them."""


def read_tokenizer(file: GGUFFile, most: int) -> Tokenizer:
    """Reads the tokenizer of a file.

    Args:
        file: file.
        most: tokens of the model.

    Raises:
        LanguageModelError: the file has no tokenizer, its kind is unknown, or its parts do not fit together.
    """
    kind = _value(file, "model", str, "no_vocab")
    if kind not in ("gpt2", "llama"):
        raise file.error("must have a tokenizer of the kind gpt2 or llama", f"{kind!r:.80}")
    tokens = _value(file, "tokens", list)
    if len(tokens) > most:
        raise file.error(f"must have at most {most} tokens, as its model has", len(tokens))
    if kind == "llama":
        scores = _numbers(file, "scores", len(tokens))
        vocabulary = _vocabulary(file, tokens, begins=True)
        return SentencePieces(vocabulary, scores, _value(file, "add_space_prefix", bool, True))
    rules = _value(file, "pre", str, "gpt-2")
    if rules not in RULES:
        raise file.error(f"must split words by the rules {', '.join(RULES)}", f"{rules!r:.80}")
    ranks: dict[tuple[str, str], int] = {}
    for rank, merge in enumerate(_value(file, "merges", list)):
        middle = merge.find(" ", 1)  # the left part may be a space itself
        if not 0 < middle < len(merge) - 1:
            raise file.error("must have merges of two parts with a space between them", f"{merge!r:.80}")
        ranks.setdefault((merge[:middle], merge[middle + 1 :]), rank)
    special = rules in BEGINS_AND_WORDS_FIRST
    return BytePairs(_vocabulary(file, tokens, begins=special), ranks, rules, words_first=special)


def _vocabulary(file: GGUFFile, tokens: list[str], begins: bool) -> Vocabulary:
    kinds = (
        _numbers(file, "token_type", len(tokens))
        if "tokenizer.ggml.token_type" in file.metadata
        else np.ones(len(tokens))
    )
    control = kinds == CONTROL
    stops = {number for name in STOPS if (number := _token(file, name, len(tokens))) is not None}
    stops |= {number for number in np.flatnonzero(control).tolist() if tokens[number] in STOP_TEXTS}
    begin = _token(file, "bos", len(tokens)) if _value(file, "add_bos_token", bool, begins) else None
    unknown = _token(file, "unknown", len(tokens))
    if unknown is None and (kinds == UNKNOWN).any():
        unknown = int(np.argmax(kinds == UNKNOWN))
    return Vocabulary(tokens, control, kinds == LITERAL, begin, frozenset(stops), unknown)


def _value(file: GGUFFile, name: str, kind: type, default: Any = None) -> Any:
    value = file.metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, kind):
        raise file.error(f"must have a {kind.__name__} as `tokenizer.ggml.{name}`", type(value).__name__)
    return value


def _numbers(file: GGUFFile, name: str, count: int) -> Array:
    values = _value(file, name, np.ndarray)
    if len(values) != count:
        raise file.error(f"must have a number for each token as `tokenizer.ggml.{name}`", f"{len(values)} for {count}")
    return np.asarray(values)


def _token(file: GGUFFile, name: str, count: int) -> int | None:
    """Returns the token of a key; None if the file has no such key."""
    if f"tokenizer.ggml.{name}_token_id" not in file.metadata:
        return None
    token = _value(file, f"{name}_token_id", int)
    if not 0 <= token < count:
        raise file.error(f"must have one of its {count} tokens as `tokenizer.ggml.{name}_token_id`", token)
    return int(token)
