"""Words that the rules of prose are written in, read from `words.toml`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_WORDS = {
    key: frozenset(text.split())
    for key, text in tomllib.loads((Path(__file__).parent / "words.toml").read_text()).items()
}
FORBIDDEN_HEADS = _WORDS["forbidden_heads"]
ENTRY_HEADS = _WORDS["entry_heads"]
SUBJECTS = _WORDS["subjects"]
EMPTY_NAMES = _WORDS["empty_names"]
NOUNS_TOO = _WORDS["nouns_too"]
BASE_FORMS = _WORDS["verbs"]
FIELD_TERMS = _WORDS["field_terms"]
STORED_NAMES = _WORDS["stored_names"]

DIALECT = r"\b[iI]s none\b|\b(?:are|was|were) none\b|\b[sS]tands?\b(?! for\b| in for\b| still\b| out\b| alone\b|-)"
"""Pattern of turns that have a plain word: "has no", "is", "applies"."""

NOUN_SIGNS = frozenset({"of", "that", "which", "whose", "who", "per"})
"""Words behind one of `NOUNS_TOO` in the third person that make a noun of it."""

DETERMINERS = frozenset({"a", "all", "an", "any", "both", "each", "every", "its", "one", "the", "this", "two"})
"""Words behind one of `NOUNS_TOO` that make a verb of it."""


def third_person(verb: str) -> str:
    """Returns "tries" for "try", "passes" for "pass" and "reads" for "read"."""
    irregular = {"do": "does", "have": "has", "be": "is", "go": "goes"}
    if verb in irregular:
        return irregular[verb]
    if verb.endswith("y") and verb[-2] not in "aeou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z", "zero")) else f"{verb}s"


THIRD_PERSON = frozenset(map(third_person, BASE_FORMS | {"have", "go"}))
"""Verbs that a function's docstring may begin with, in the third person."""


def is_participle(word: str) -> bool:
    """Tells whether a word of small letters is a past participle."""
    if word in _WORDS["no_participles"]:
        return False
    return re.fullmatch(r"[a-z]{2,}ed", word) is not None or word in _WORDS["irregular_participles"]


def is_verb(first: str, second: str) -> bool:
    """Tells whether a docstring that begins with two words, punctuation included, begins with a verb.

    A form that is a noun, too, is a verb by its second word: "Names the axes", but "Names of axes".
    """
    word, follower = first.rstrip(",.:;").lower(), second.rstrip(",.:;").lower()
    if word not in BASE_FORMS | THIRD_PERSON:
        return False
    if word not in NOUNS_TOO:
        return True
    if word in THIRD_PERSON:
        if (word, follower) in (("checks", "that"), ("tests", "that"), ("shows", "that"), ("notes", "that")):
            return True
        return first[-1] not in ",:." and follower not in NOUN_SIGNS
    return follower in DETERMINERS or second.startswith("`")


def is_noun(first: str, second: str) -> bool:
    """Tells whether a docstring that begins with two words, punctuation included, does not begin with a verb."""
    word, follower = first.rstrip(",.:;").lower(), second.rstrip(",.:;").lower()
    return word not in THIRD_PERSON or (word in NOUNS_TOO and (follower not in DETERMINERS or first[-1] in ",:"))
