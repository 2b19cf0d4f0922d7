"""Tokenizers of GGUF files: tokens as other packages make them, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune import language
from autotune.language import LanguageModelError
from autotune.language.tokenizers.merging import merge_parts
from tests.autotune.language import gguf_files as files
from tests.autotune.language.decoders import llama_weights
from tests.autotune.language.gguf_files import SMALL, TOKENIZERS


def read_tokenizer(tmp_path: Path, vocabulary: dict[str, Any]) -> language.Tokenizer:
    """Writes a model with a vocabulary, and reads its tokenizer."""
    sizes = replace(SMALL, vocabulary=len(vocabulary["tokens"]))
    metadata = files.llama_metadata(sizes, "llama")
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in vocabulary.items()}
    path = files.write(tmp_path / "model.gguf", metadata, files.llama_tensors(sizes, llama_weights(sizes), "llama"))
    return language.read_gguf(path).tokenizer


def sentence_pieces(**more: Any) -> dict[str, Any]:
    golden = TOKENIZERS["sentence_pieces"]
    scores, kinds = np.array(golden["scores"], np.float32), np.array(golden["kinds"], np.int32)
    return {"model": "llama", "tokens": golden["tokens"], "scores": scores, "token_type": kinds, **more}


@pytest.mark.parametrize("rules", sorted(TOKENIZERS["byte_pairs"]["cases"]))
def test_byte_pairs_are_those_of_the_package_tokenizers(rules: str, tmp_path: Path) -> None:
    tokenizer = read_tokenizer(tmp_path, files.byte_pairs(rules))
    for text, wanted in zip(TOKENIZERS["texts"], TOKENIZERS["byte_pairs"]["cases"][rules], strict=True):
        assert tokenizer.encode(text) == wanted, text
        assert tokenizer.decode(wanted) == text


def test_sentence_pieces_are_those_of_the_package_sentencepiece(tmp_path: Path) -> None:
    tokenizer = read_tokenizer(tmp_path, sentence_pieces(bos_token_id=1, eos_token_id=2))
    assert repr(tokenizer) == "SentencePieces of 700 tokens" and tokenizer.stops == {2}
    for text, wanted in zip(TOKENIZERS["texts"], TOKENIZERS["sentence_pieces"]["cases"], strict=True):
        assert tokenizer.encode(text) == [1, *wanted], text
        assert tokenizer.decode([1, *wanted]) == (f" {text}" if text else "")
    without = read_tokenizer(tmp_path, sentence_pieces(add_bos_token=False, bos_token_id=1, add_space_prefix=False))
    assert without.decode(without.encode("a kernel")) == "a kernel"


def test_control_tokens_of_a_text_are_read_on_request_alone(tmp_path: Path) -> None:
    tokens = [*TOKENIZERS["byte_pairs"]["tokens"], "<|im_end|>", "<tool>"]
    kinds = np.array([1] * (len(tokens) - 2) + [3, 4], np.int32)
    tokenizer = read_tokenizer(tmp_path, {**files.byte_pairs("qwen2"), "tokens": tokens, "token_type": kinds})
    end, tool = len(tokens) - 2, len(tokens) - 1
    text = "a<tool>b<|im_end|>"
    assert end not in tokenizer.encode(text) and tool in tokenizer.encode(text)
    assert tokenizer.encode(text, control=True)[-1] == end and tokenizer.stops == {end}
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, control=True)) == "a<tool>b"
    with pytest.raises(LanguageModelError, match=f"from 0 to {tool}, but got {tool + 1}"):
        tokenizer.decode([tool + 1])


NEW_LINE = ["<0x0A>", *"<0xA>", "<0", "<0x", "<0x0", "<0x0A"]


@pytest.mark.parametrize(
    ("tokens", "kinds", "text", "expected", "with_control"),
    [
        (["<unk>", "<s>", "<", "s", ">", "<s"], {0: 2, 1: 3}, "<s>", [5, 4], [1]),
        (["<s>", "<", "s", ">", "<s", "<s>"], {5: 3}, "<s>", [0], [5]),
        (["<unk>", "<", "u", ">", "<u", "<u>"], {5: 2}, "<u>", [4, 3], [4, 3]),
        (NEW_LINE, {0: 6}, "<0x0A>", [9, 5], [9, 5]),
        (NEW_LINE, {}, "<0x0A>\n", [9, 5, 0], [9, 5, 0]),
    ],
)
def test_no_pieces_are_merged_to_tokens_that_are_no_text(
    tokens: list[str], kinds: dict[int, int], text: str, expected: list[int], with_control: list[int], tmp_path: Path
) -> None:
    types = np.array([kinds.get(number, 1) for number in range(len(tokens))], np.int32)
    scores = np.zeros(len(tokens), np.float32)
    tokenizer = read_tokenizer(
        tmp_path,
        {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, "add_space_prefix": False},
    )
    assert tokenizer.encode(text) == expected and tokenizer.encode(text, control=True) == with_control
    assert tokenizer.decode(expected) == text


@pytest.mark.parametrize(("rules", "merges"), [("llama-bpe", []), ("qwen2", ["P A", "PA D"])])
def test_no_bytes_are_merged_to_control_tokens(rules: str, merges: list[str], tmp_path: Path) -> None:
    tokens = ["P", "A", "D", "PA", "PAD", "PAD"]
    types = np.array([1, 1, 1, 1, 3, 3], np.int32)
    vocabulary = {"model": "gpt2", "pre": rules, "tokens": tokens, "merges": merges or ["A P"], "token_type": types}
    tokenizer = read_tokenizer(tmp_path, {**vocabulary, "add_bos_token": False})
    assert tokenizer.encode("PAD") == ([3, 2] if merges else [0, 1, 2])
    assert tokenizer.encode("PAD", control=True) == [4]
    types[5] = 1  # a token of text with the same name
    tokenizer = read_tokenizer(tmp_path, {**vocabulary, "add_bos_token": False})
    assert tokenizer.encode("PAD") == [5] and tokenizer.encode("PAD", control=True) == [4]


def test_pairs_are_merged_in_order_and_in_few_steps() -> None:
    ranks = {("a", "b"): 0, ("b", "c"): 1, ("ab", "c"): 2, ("a", "a"): 3}
    cost = ranks.get
    assert merge_parts("abcbc", lambda left, right: cost((left, right))) == ["abc", "bc"]
    assert merge_parts("aaaaa", lambda left, right: cost((left, right))) == ["aa", "aa", "a"]
    assert merge_parts("", lambda left, right: None) == []
    calls = 0

    def count_calls(left: str, right: str) -> float | None:
        nonlocal calls
        calls += 1
        return 0 if len(left) == len(right) else None

    merge_parts("a" * 4096, count_calls)
    assert calls < 5 * 4096, "a long word takes no square of its length"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"model": "bert"}, "tokenizer of the kind gpt2 or llama, but got 'bert'"),
        ({"pre": "unheard"}, "must split words by the rules gpt-2, .*, but got 'unheard'"),
        ({"merges": ["ab"]}, "merges of two parts with a space between them, but got 'ab'"),
        (
            {"token_type": np.ones(3, np.int32)},
            "a number for each token as `tokenizer.ggml.token_type`, but got 3 for 600",
        ),
        ({"eos_token_id": 600}, "one of its 600 tokens as `tokenizer.ggml.eos_token_id`, but got 600"),
        ({"tokens": "x"}, "must have a list as `tokenizer.ggml.tokens`, but got str"),
        ({"model": "llama"}, "must have a ndarray as `tokenizer.ggml.scores`, but got NoneType"),
    ],
)
def test_a_tokenizer_that_is_none_is_refused(change: dict[str, Any], rule: str, tmp_path: Path) -> None:
    vocabulary = files.byte_pairs("qwen2") | change
    sizes = replace(SMALL, vocabulary=600)
    metadata = files.llama_metadata(sizes, "llama")
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in vocabulary.items()}
    path = files.write(tmp_path / "model.gguf", metadata, files.llama_tensors(sizes, llama_weights(sizes), "llama"))
    gguf = language.read_gguf(path)
    with pytest.raises(LanguageModelError, match=rule):
        _ = gguf.tokenizer
