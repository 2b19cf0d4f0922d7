"""Sentence pieces: characters of a text, merged to the pieces of the highest scores; others are bytes.

Kudo, Richardson, "SentencePiece", 2018, with pieces found by merging.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.graph.types import Array
from autotune.language.tokenizers.base import Tokenizer, Vocabulary
from autotune.language.tokenizers.merging import merge_parts

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""Character that stands for a space in vocabularies."""
BYTE = re.compile("<0x([0-9A-F]{2})>")


class SentencePieces(Tokenizer):
    """Tokenizer by pieces.

    Args:
        vocabulary: tokens, with `SPACE` in the place of spaces; those of bytes are `<0x00>` to `<0xFF>`, and no
            characters are merged to them.
        scores: scores of the tokens (tokens,).
        add_space: whether a text begins with a space.
    """

    def __init__(self, vocabulary: Vocabulary, scores: Array, add_space: bool = True) -> None:
        super().__init__(vocabulary)
        self._scores, self._add_space = scores, add_space
        matches = [(BYTE.fullmatch(text), number) for number, text in enumerate(vocabulary.tokens)]
        self._bytes = {int(match[1], 16): number for match, number in reversed(matches) if match}
        self._pieces = {text: number for text, number in vocabulary.pieces.items() if not BYTE.fullmatch(text)}

    def _encode_part(self, text: str) -> Iterator[int]:
        text = (" " if self._add_space else "") + text
        for part in merge_parts(text.replace(" ", SPACE), self._cost):
            if part in self._pieces:
                yield self._pieces[part]
                continue
            for byte in part.encode("utf-8", "surrogateescape"):
                number = self._bytes.get(byte, self.vocabulary.unknown)
                if number is None:
                    raise self._missing(part)
                yield number

    def _cost(self, left: str, right: str) -> float | None:
        number = self._pieces.get(left + right)
        return None if number is None else -float(self._scores[number])

    def _decode_token(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        if match := BYTE.fullmatch(text):
            return bytes([int(match[1], 16)])
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")
