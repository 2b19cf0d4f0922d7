"""Makes the golden files of this folder by the packages `gguf`, `tokenizers` and `sentencepiece`.

`python -m tests.autotune.language.golden.make`, in an environment that has them; tests need none of them.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import sentencepiece
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]
TYPES = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")
SCALES = {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2), "MXFP4": ()}
"""Bytes of the float16 numbers of a block; 0 for the other types."""
ROWS, DEPTH = 2, 512

CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = rf"{CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    rf"(?i:{CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "gpt-2": [pre_tokenizers.Split(Regex(GPT2), "isolated")],
    "llama-bpe": [pre_tokenizers.Split(Regex(LLAMA3), "isolated")],
    "qwen2": [pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated")],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(Regex(GPT2), "isolated")],
}
TEXTS = (
    "The schedule of a kernel is a trace of steps.",
    "  Two spaces,\ta tab\n\nand lines \r\n end  ",
    "It's WE'LL they'd I'M 'tis x's",
    "12345 numbers 1,000.50 and ²½ ٣٤ a1b22c333",
    "Größe, naïve café — Ελληνικά, 日本語のテキスト, 🙂👍🏽",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 2; } // ---- !!",
    "\u00a0no-break\u2003em\u3000wide\x1cseparator\x85next",
    "",
    " ",
    "e\u0301 \u200d zero-width",
)


def make_blocks() -> None:
    """Writes a tensor of random blocks of each type, and the values that the package decodes."""
    rng, values = np.random.default_rng(0), {}
    writer = gguf.GGUFWriter(str(FOLDER / "blocks.gguf"), "golden")
    writer.add_array("golden.numbers", [1, 2, 3])
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        size, nbytes = gguf.GGML_QUANT_SIZES[kind]
        data = rng.integers(0, 256, (ROWS * DEPTH // size, nbytes)).astype(np.uint8)
        for at in SCALES.get(name, (0,)):
            scale = rng.normal(0, 0.05, len(data)) if size > 1 else rng.normal(0, 1, len(data))
            narrow = scale.astype(np.float16).view(np.uint8).reshape(-1, 2)
            if name == "BF16":
                narrow = scale.astype(np.float32).view(np.uint16)[1::2].copy().view(np.uint8).reshape(-1, 2)
            data[:, at : at + 2] = narrow
        if name in ("Q4_K", "Q5_K"):
            data[0, 4:8] &= 0xC0  # scales of 0 beside shifts
        if name == "MXFP4":
            data[:, 0] = np.linspace(0, 250, len(data))
        data = data.reshape(ROWS, -1)
        values[name] = gguf.quants.dequantize(data, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed(FOLDER / "blocks.npz", **values)


def corpus() -> list[str]:
    """Returns the lines of a page, to train on."""
    return (ROOT / "docs" / "design.md").read_text().splitlines()


def make_byte_pairs() -> dict[str, Any]:
    """Trains byte pairs, and encodes the texts by each family's rules."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    state = json.loads(words.to_str())["model"]
    vocabulary, merges = state["vocab"], [tuple(merge) for merge in state["merges"]]
    cases = {}
    for rules, steps in SPLITS.items():
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=rules == "llama-bpe"))
        levels = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, levels])
        tokenizer.decoder = decoders.ByteLevel()
        cases[rules] = [tokenizer.encode(text).ids for text in TEXTS]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    return {"tokens": tokens, "merges": [" ".join(merge) for merge in merges], "cases": cases}


def make_sentence_pieces() -> dict[str, Any]:
    """Trains pieces, and encodes the texts."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=out,
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        num_threads=1,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    count = pieces.vocab_size()
    kinds = [
        2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 6 if pieces.is_byte(i) else 1
        for i in range(count)
    ]
    return {
        "tokens": [pieces.id_to_piece(i) for i in range(count)],
        "scores": [pieces.get_score(i) for i in range(count)],
        "kinds": kinds,
        "cases": [pieces.encode(text) for text in TEXTS],
    }


def main() -> None:
    """Writes all files."""
    make_blocks()
    document = {"texts": TEXTS, "byte_pairs": make_byte_pairs(), "sentence_pieces": make_sentence_pieces()}
    (FOLDER / "tokenizers.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
