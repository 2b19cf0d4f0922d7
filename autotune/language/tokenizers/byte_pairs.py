"""Byte pairs: words as UTF-8, whose bytes are merged in the order of a list of pairs.

Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units", 2016; of bytes by Radford et
al., "Language models are unsupervised multitask learners", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from autotune.language.tokenizers.base import Tokenizer, Vocabulary
from autotune.language.tokenizers.merging import merge_parts
from autotune.language.tokenizers.splitting import split_words


def _byte_characters() -> dict[int, str]:
    """Returns byte → the printable character that stands for it in vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


CHARACTERS = _byte_characters()
BYTES = {character: byte for byte, character in CHARACTERS.items()}
CACHED_WORDS = 1 << 16


class BytePairs(Tokenizer):
    """Tokenizer by pairs of bytes.

    Args:
        vocabulary: tokens, in characters that stand for bytes.
        ranks: pair → its place in the list; a pair that would be a control token is not merged.
        rules: rules that split a text into words, see `splitting.RULES`.
        words_first: whether a word that is a token is not split.
    """

    def __init__(
        self, vocabulary: Vocabulary, ranks: Mapping[tuple[str, str], int], rules: str, words_first: bool = False
    ) -> None:
        super().__init__(vocabulary)
        control = vocabulary.number_texts(vocabulary.control).keys() - vocabulary.pieces.keys()
        self._ranks = {pair: rank for pair, rank in ranks.items() if "".join(pair) not in control}
        self._rules, self._words_first = rules, words_first
        self._word = lru_cache(CACHED_WORDS)(self._encode_word)

    def _encode_part(self, text: str) -> Iterator[int]:
        for word in split_words(text, self._rules):
            yield from self._word(word)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        numbers = self.vocabulary.pieces
        characters = "".join(CHARACTERS[byte] for byte in word.encode("utf-8", "surrogateescape"))
        if self._words_first and characters in numbers:
            return (numbers[characters],)
        tokens = []
        for part in merge_parts(characters, lambda left, right: self._ranks.get((left, right))):
            # A merged part that is no token is left as its bytes.
            for token in (part,) if part in numbers else part:
                number = numbers.get(token, self.vocabulary.unknown)
                if number is None:
                    raise self._missing(token)
                tokens.append(number)
        return tuple(tokens)

    def _decode_token(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        if self.vocabulary.literal[token] or any(character not in BYTES for character in text):
            return text.encode("utf-8", "surrogateescape")
        return bytes(BYTES[character] for character in text)
