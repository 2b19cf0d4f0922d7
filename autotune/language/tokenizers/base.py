"""The interface of a tokenizer, and the vocabulary that it has."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.graph.types import Array
from autotune.language.model import LanguageModelError


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Tokens by number.

    Attributes:
        tokens: texts of the tokens, in the form that the tokenizer stores.
        control: bool (tokens,), of tokens that stand for no text, such as the end of a sequence.
        literal: bool (tokens,), of tokens whose text is taken out of a text before anything else.
        begin: token that begins each text; None: none.
        stops: tokens that end an answer.
        unknown: token of a character that no other token has; None: none.
    """

    tokens: Sequence[str]
    control: Array
    literal: Array
    begin: int | None = None
    stops: frozenset[int] = frozenset()
    unknown: int | None = None

    def number_texts(self, selection: Array) -> dict[str, int]:
        """Maps the text of each selected token to its number, the first of several.

        Args:
            selection: bool (tokens,).
        """
        return {self.tokens[number]: number for number in reversed(np.flatnonzero(selection).tolist())}

    @cached_property
    def pieces(self) -> dict[str, int]:
        """Text → number of the tokens that parts of a text may become: no control tokens, and not the unknown one."""
        selection = ~self.control
        if self.unknown is not None:
            selection[self.unknown] = False
        return self.number_texts(selection)


class Tokenizer(ABC):
    """Tokenizer of texts.

    Args:
        vocabulary: tokens.

    Attributes:
        stops: tokens that end an answer.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary, self.stops = vocabulary, vocabulary.stops

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    def __repr__(self) -> str:
        """Formats a line for vocabularies of any size."""
        return f"{type(self).__name__} of {len(self)} tokens"

    def encode(self, text: str, control: bool = False) -> list[int]:
        """Encodes a text.

        Args:
            text: text.
            control: whether names of control tokens in the text, such as `<|im_end|>`, stand for these tokens. For text
                of a stranger they should not.

        Raises:
            LanguageModelError: the vocabulary has no token of a character.
        """
        vocabulary = self.vocabulary
        tokens = [] if vocabulary.begin is None else [vocabulary.begin]
        pattern, numbers = self._with_control if control else self._without_control
        # A text (even at the beginning) is followed by a literal token, and so on.
        for place, part in enumerate(pattern.split(text)):
            if place % 2:
                tokens.append(numbers[part])
            elif part:
                tokens.extend(self._encode_part(part))
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """Decodes tokens; control tokens have no text, and bytes that are no UTF-8 become the replacement character.

        Raises:
            LanguageModelError: a token is not of the vocabulary.
        """
        parts = bytearray()
        for token in tokens:
            if not 0 <= token < len(self):
                raise LanguageModelError(f"`tokens` must be from 0 to {len(self) - 1}, but got {token}")
            if not self.vocabulary.control[token]:
                parts += self._decode_token(int(token))
        return parts.decode("utf-8", "replace")

    @abstractmethod
    def _encode_part(self, text: str) -> Iterator[int]:
        """Encodes a text without literal tokens."""

    @abstractmethod
    def _decode_token(self, token: int) -> bytes:
        """Returns the bytes of a token."""

    @cached_property
    def _with_control(self) -> tuple[re.Pattern[str], dict[str, int]]:
        return self._pattern(self.vocabulary.literal | self.vocabulary.control)

    @cached_property
    def _without_control(self) -> tuple[re.Pattern[str], dict[str, int]]:
        return self._pattern(self.vocabulary.literal)

    def _pattern(self, selection: Array) -> tuple[re.Pattern[str], dict[str, int]]:
        """Compiles the pattern of some tokens, the longest first, and maps their texts to numbers.

        Without any token the pattern never matches.
        """
        numbers = self.vocabulary.number_texts(selection)
        escaped = [re.escape(text) for text in sorted(numbers, key=lambda text: (-len(text), text)) if text]
        return re.compile(f"({'|'.join(escaped) or '(?!)'})"), numbers

    def _missing(self, character: str) -> LanguageModelError:
        return LanguageModelError(f"`text` must have characters of the vocabulary, but got {character!r}")
