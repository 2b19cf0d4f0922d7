"""Splitting of a text into words before pairs of bytes are merged, by the rules of each family of models.

The rules are the patterns of the families' own files. Python's `re` knows no `\\p{L}`, so classes of characters are
written out by `unicodedata`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache

SPACES = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
"""Characters of Unicode's property White_Space; `\\s` of Python has four more."""

_SHORT = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = f"{_SHORT}| ?[<L>]+| ?[<N>]+| ?[^<S><L><N>]+|[<S>]+(?![^<S>])|[<S>]+"
LLAMA3 = (
    f"(?i:{_SHORT})|[^\\r\\n<L><N>]?[<L>]+|[<N>]{{1,3}}| ?[^<S><L><N>]+[\\r\\n]*"
    "|[<S>]*[\\r\\n]+|[<S>]+(?![^<S>])|[<S>]+"
)
QWEN2 = LLAMA3.replace("[<N>]{1,3}", "[<N>]")
DIGITS = "[<N>]"

RULES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("gpt-2", "gpt2", "mpt", "olmo", "phi-2", "jais"), (GPT2,)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe"), (LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), (QWEN2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), (DIGITS, GPT2)),
}
"""Names of rules in files → patterns; each splits the parts that the one before it left."""


def split_words(text: str, rules: str) -> Iterator[str]:
    """Splits a text into words, which joined are the text.

    Args:
        text: text.
        rules: one of `RULES`.
    """
    parts = [text]
    for pattern in RULES[rules]:
        parts = [word for part in parts for word in _split(part, _compile(pattern))]
    yield from parts


def _split(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yields the matches and what lies between them."""
    end = 0
    for match in pattern.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        yield match.group()
        end = match.end()
    if end < len(text):
        yield text[end:]


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern with classes of characters: `<L>` letters, `<N>` numbers, `<S>` spaces."""
    for name, members in (("<L>", _category("L")), ("<N>", _category("N")), ("<S>", SPACES)):
        pattern = pattern.replace(name, members)
    return re.compile(pattern)


@cache
def _category(first: str) -> str:
    """Writes out the characters whose category begins with a letter, as ranges of a class."""
    ranges, start = [], -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == first
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    return "".join(ranges)
