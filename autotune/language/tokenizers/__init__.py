"""Tokenizers: text to tokens and back, by byte pairs or by sentence pieces."""

from __future__ import annotations

from autotune.language.tokenizers.base import Tokenizer, Vocabulary
from autotune.language.tokenizers.byte_pairs import BytePairs
from autotune.language.tokenizers.sentence_pieces import SentencePieces

__all__ = ["BytePairs", "SentencePieces", "Tokenizer", "Vocabulary"]
