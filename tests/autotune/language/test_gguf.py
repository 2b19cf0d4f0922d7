"""GGUF files: blocks as the package `gguf` decodes them, models as those of other files, errors."""

from __future__ import annotations

import logging
import runpy
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune import language
from autotune.graph.evaluate import evaluate
from autotune.language import GPT2, LanguageModelError, Llama, Model
from autotune.language.gguf.blocks import TYPES, decode_blocks, make_product, make_rows, read_floats
from autotune.language.gguf.container import GGUFFile
from autotune.language.graphs import Decoder
from autotune.language.grouped import GroupedRows, GroupedWeight
from autotune.language.model import list_weights
from search_space.operators.weights_only import dequantise
from tests.autotune.language import gguf_files as files
from tests.autotune.language.decoders import gpt2_logits, gpt2_weights, llama_logits, llama_weights
from tests.autotune.language.gguf_files import SMALL

GOLDEN = Path(__file__).parent / "golden"
MIXED = Llama(vocabulary=70, hidden=256, layers=1, heads=4, kv_heads=4, inner=256, tied=True)
KINDS = {
    "token_embd.weight": "Q6_K",
    "blk.0.attn_q.weight": "Q4_0",
    "blk.0.attn_k.weight": "Q8_0",
    "blk.0.attn_v.weight": "IQ4_NL",
    "blk.0.attn_output.weight": "MXFP4",
    "blk.0.ffn_gate.weight": "Q4_K",
    "blk.0.ffn_up.weight": "Q4_K",
    "blk.0.ffn_down.weight": "Q6_K",
}
"""Types of the tensors of `MIXED`; the embeddings are the weights of the logits, too."""


# ------------------------------------------------------------------ blocks
def compute_rows(rows: GroupedRows) -> NDArray[Any]:
    """Computes a table of embeddings as its graph does."""
    values = rows.numbers.reshape(*rows.scales.shape, -1) * rows.scales.astype(np.float32)[..., None]
    values = values if rows.shifts is None else values - rows.shifts[..., None]
    return values.reshape(rows.shape)


def test_blocks_of_every_type_are_decoded_as_the_package_does() -> None:
    file = GGUFFile(GOLDEN / "blocks.gguf")
    golden = np.load(GOLDEN / "blocks.npz")
    assert set(file.tensors) == set(golden) == {kind.name for kind in TYPES.values()} - {"F32"}
    assert file.metadata["golden.numbers"].tolist() == [1, 2, 3]
    for name, tensor in file.tensors.items():
        wanted, kind = golden[name], tensor.kind
        np.testing.assert_array_equal(read_floats(tensor.data, kind).astype(np.float32), wanted)
        if kind.decode is None:
            continue
        np.testing.assert_array_equal(compute_rows(make_rows(decode_blocks(tensor.data, kind))), wanted)
        weight = make_product(decode_blocks(tensor.data, kind), kind)
        assert weight.shape == wanted.T.shape and weight.bits == kind.bits
        scales = weight.scales.astype(np.float32)
        actual = dequantise({"bits": weight.bits, "k": wanted.shape[1]}, weight.numbers, scales, weight.zeros).T
        if weight.zeros is None:
            np.testing.assert_array_equal(actual, wanted)
        else:  # a zero is a quotient that is rounded, and multiplied again
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=2.0**-22 * float(np.abs(wanted).max()))


def test_a_group_of_equal_weights_has_the_scale_0_and_a_shift() -> None:
    block = np.zeros((1, 144), np.uint8)
    block[:, :4] = np.array([1.0, 0.5], np.float16).view(np.uint8)
    block[:, 8:12] = 3  # shifts of the first groups
    block[:, 16:] = 0xFF
    weight = make_product(decode_blocks(block, TYPES[12]), TYPES[12])
    found = dequantise({"bits": 4, "k": 256}, weight.numbers, weight.scales.astype(np.float32), weight.zeros)
    np.testing.assert_array_equal(found[:, 0], read_floats(block, TYPES[12])[0])
    assert found[0, 0] == -1.5 and found[255, 0] == 0


# ------------------------------------------------------------------ models
def assert_same(actual: Model, expected: Model) -> None:
    """Compares sizes and all weights bit by bit."""
    assert (actual.sizes, actual.theta) == (expected.sizes, expected.theta)
    for one, other in zip(list_weights(actual), list_weights(expected), strict=True):
        assert isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(actual.turns(9), expected.turns(9))


@pytest.mark.parametrize(
    ("architecture", "sizes"),
    [
        ("llama", replace(SMALL, biases=True)),
        ("llama", replace(SMALL, tied=True)),
        ("qwen2", replace(SMALL, biases=True)),
        ("qwen3", replace(SMALL, head_norms=True)),
    ],
)
def test_a_model_in_floats_is_that_of_the_same_weights_by_name(architecture: str, sizes: Llama, tmp_path: Path) -> None:
    weights = llama_weights(sizes)
    path = tmp_path / "model.gguf"
    files.write(path, files.llama_metadata(sizes, architecture), files.llama_tensors(sizes, weights, architecture))
    gguf = language.read_gguf(path)
    assert_same(gguf.model, language.llama(replace(sizes, epsilon=float(np.float32(sizes.epsilon))), weights))
    tokens = np.array([5, 17, 66, 3])
    graph = Decoder(gguf.model, 8).prefill(4)
    logits = evaluate(graph, {"tokens": tokens, "last": np.array([3])})["logits"][0]
    np.testing.assert_allclose(logits, llama_logits(sizes, weights, tokens)[-1], rtol=1e-4, atol=1e-4)


def test_biases_in_blocks_are_read_in_the_order_of_their_weights(tmp_path: Path) -> None:
    sizes = replace(SMALL, layers=1, head_width=16, biases=True)
    weights, rng = llama_weights(sizes), np.random.default_rng(0)
    tensors = files.llama_tensors(sizes, weights, "llama")
    for part, heads in {"q": 4, "k": 2, "v": 2}.items():
        data = files.random_blocks(rng, (1, heads * 16), "Q8_0")
        tensors[f"blk.0.attn_{part}.bias"] = (heads * 16,), files.NUMBERS["Q8_0"], data
        (values,) = read_floats(np.frombuffer(data, np.uint8).reshape(1, -1), TYPES[files.NUMBERS["Q8_0"]])
        halves = values if part == "v" else values.reshape(heads, 8, 2).swapaxes(1, 2).reshape(-1)
        weights[f"model.layers.0.self_attn.{part}_proj.bias"] = halves
    path = files.write(tmp_path / "model.gguf", files.llama_metadata(sizes, "llama"), tensors)
    assert_same(
        language.read_gguf(path).model,
        language.llama(replace(sizes, epsilon=float(np.float32(sizes.epsilon))), weights),
    )


def test_gpt2_in_floats_is_that_of_the_same_weights_by_name(tmp_path: Path) -> None:
    sizes = GPT2(vocabulary=61, hidden=32, layers=2, heads=4, positions=24, epsilon=0.0625)
    weights = gpt2_weights(sizes)
    path = files.write(tmp_path / "model.gguf", files.gpt2_metadata(sizes), files.gpt2_tensors(weights))
    expected = language.gpt2(sizes, weights)
    for one, other in zip(list_weights(language.read_gguf(path).model), list_weights(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_logits_of_gpt2_may_have_their_own_weights(tmp_path: Path) -> None:
    sizes = GPT2(vocabulary=61, hidden=32, layers=1, heads=4, positions=24)
    head = np.random.default_rng(0).standard_normal((61, 32)).astype(np.float16)
    tensors = files.gpt2_tensors(gpt2_weights(sizes)) | {"output.weight": files.tensor(head)}
    model = language.read_gguf(files.write(tmp_path / "model.gguf", files.gpt2_metadata(sizes), tensors)).model
    np.testing.assert_array_equal(model.logits, head.astype(np.float32).T)


def test_products_of_gpt2_in_blocks_are_split(tmp_path: Path) -> None:
    sizes = GPT2(vocabulary=61, hidden=32, layers=1, heads=4, positions=24)
    kinds = {"blk.0.attn_qkv.weight": "Q8_0", "blk.0.ffn_down.weight": "Q4_0", "token_embd.weight": "Q8_0"}
    weights = gpt2_weights(sizes)
    tensors, values = files.in_blocks(files.gpt2_tensors(weights), kinds, np.random.default_rng(0))
    model = language.read_gguf(files.write(tmp_path / "model.gguf", files.gpt2_metadata(sizes), tensors)).model
    weights["transformer.h.0.attn.c_attn.weight"] = values["blk.0.attn_qkv.weight"].T
    weights["transformer.h.0.mlp.c_proj.weight"] = values["blk.0.ffn_down.weight"].T
    weights["transformer.wte.weight"] = values["token_embd.weight"]
    tokens = np.array([5, 17, 60, 3])
    logits = evaluate(Decoder(model, 8).prefill(4), {"tokens": tokens, "last": np.array([3])})["logits"][0]
    np.testing.assert_allclose(logits, gpt2_logits(sizes, weights, tokens)[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("scaling", "factor"),
    [
        ({}, 1),
        ({"scaling.type": "linear"}, 1),
        ({"scaling.type": "linear", "scaling.factor": 4.0}, 4),
        ({"scaling.factor": 4.0}, 4),
        ({"scale_linear": 4.0}, 4),
        ({"scale_linear": 2.0, "scaling.factor": 4.0}, 4),
        ({"scaling.type": "none", "scaling.factor": 4.0}, 1),
    ],
)
def test_frequencies_of_rotary_positions_are_divided(scaling: dict[str, Any], factor: float, tmp_path: Path) -> None:
    weights, divisors = llama_weights(SMALL), np.array([1, 1, 2, 4, 8, 8], np.float32)
    tensors = {**files.llama_tensors(SMALL, weights, "llama"), "rope_freqs.weight": files.tensor(divisors)}
    metadata = files.llama_metadata(SMALL, "llama") | {f"llama.rope.{key}": value for key, value in scaling.items()}
    model = language.read_gguf(files.write(tmp_path / "model.gguf", metadata, tensors)).model
    del tensors["rope_freqs.weight"]
    alone = language.read_gguf(files.write(tmp_path / "alone.gguf", metadata, tensors)).model.turns(9)
    np.testing.assert_array_equal(alone, language.llama(SMALL, weights, divisors=np.full(6, float(factor))).turns(9))
    tokens = np.random.default_rng(1).integers(0, 67, 12)
    logits = evaluate(Decoder(model, 16).prefill(12), {"tokens": tokens, "last": np.array([11])})["logits"][0]
    wanted = llama_logits(SMALL, weights, tokens, divisors * factor)[-1]
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)


File = tuple[Path, dict[str, NDArray[Any]]]
"""A file, and its weights in floats by the names of `transformers`."""


def write_mixed(path: Path, kinds: dict[str, str], sizes: Llama = MIXED, more: dict[str, Any] | None = None) -> File:
    weights = llama_weights(sizes)
    tensors = files.llama_tensors(sizes, weights, "llama")
    tensors, values = files.in_blocks(tensors, kinds, np.random.default_rng(3))
    width = sizes.sizes.head_width
    for name in weights:
        stored = files.stored_name(name, files.LLAMA_LAYER)
        if stored in values:
            weights[name] = values[stored]
        if stored in values and stored.split(".")[-2] in ("attn_q", "attn_k"):
            halves = values[stored].reshape(sizes.heads, width // 2, 2, -1).swapaxes(1, 2)
            weights[name] = halves.reshape(values[stored].shape)
    return files.write(path, {**files.llama_metadata(sizes, "llama"), **(more or {})}, tensors), weights


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> File:
    return write_mixed(tmp_path_factory.mktemp("gguf") / "mixed.gguf", KINDS)


def test_blocks_are_not_widened_to_floats(mixed: File, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        model = language.read_gguf(mixed[0]).model
    (layer,) = model.layers
    for part in (layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down):
        assert part is not None and isinstance(part.weight, GroupedWeight)
    assert isinstance(model.tokens, GroupedRows) and isinstance(model.logits, GroupedWeight)
    (line,) = (record.getMessage() for record in caplog.records)
    assert "some types take more memory than in the file: Q6_K in 8 bits for embeddings and 8 bits " in line
    assert "IQ4_NL in 8 bits 0.1 MB for 0.0 MB" in line and "Q8_0" not in line and "float32" not in line


@pytest.mark.parametrize(("activations", "most"), [("floats", 1e-5), ("bytes", 0.05)])
def test_graphs_of_mixed_blocks_give_logits_of_their_values(activations: str, most: float, mixed: File) -> None:
    path, weights = mixed
    tokens = np.random.default_rng(2).integers(0, MIXED.vocabulary, 9)
    wanted = llama_logits(MIXED, weights, tokens)[-1]
    for halves in (True, False):
        graph = Decoder(language.read_gguf(path).model, 16, activations, halves).prefill(9)
        assert halves == any(array.dtype == np.float16 for array in graph.constants.values())
        logits = evaluate(graph, {"tokens": tokens, "last": np.array([8])})["logits"][0]
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=most * float(np.abs(wanted).max()))


def test_weights_in_blocks_are_not_quantised_again(mixed: File) -> None:
    with pytest.raises(LanguageModelError, match="`quantise` must be None for a model with weights of a few bits"):
        language.compile(language.read_gguf(mixed[0]).model, 16, threads=1, quantise="weights4")


def test_the_example_continues_a_text_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = Llama(vocabulary=600, hidden=32, layers=1, heads=2, kv_heads=2, inner=32, tied=True)
    tokenizer = {f"tokenizer.ggml.{name}": value for name, value in files.byte_pairs("qwen2").items()}
    path, weights = write_mixed(tmp_path / "model.gguf", dict.fromkeys(KINDS, "Q4_1"), sizes, tokenizer)
    networks: list[language.LanguageModel] = []
    compile = language.compile
    monkeypatch.setattr(
        language, "compile", lambda *args, **more: networks.append(compile(*args, **more)) or networks[0]
    )
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "generate.py"))
    example["main"]([str(path), "A kernel is", "--count", "4", "--threads", "1", "--longest", "24"])
    answer, _, figures = capsys.readouterr().out.partition("\n")[2].rpartition("\nprompt of ")
    gguf, (network,) = language.read_gguf(path), networks
    tokens = gguf.tokenizer.encode("A kernel is")
    assert figures.startswith(f"{len(tokens)}: ")
    tokens += network.generate(tokens, 4)
    assert answer == gguf.tokenizer.decode(tokens[-4:])
    wanted = llama_logits(sizes, weights, np.array(tokens))
    steps = [network.prefill(tokens[:-4]), *(network.step(token) for token in tokens[-4:])]
    for actual, expected in zip(steps, wanted[-5:], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


# ------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"general.architecture": "rwkv"}, "architectures llama, qwen2, qwen3, gpt2, but got 'rwkv'"),
        ({"general.architecture": np.zeros(2, np.int32)}, "be of one of the architectures"),
        ({"llama.block_count": 4_000_000_000}, "tensors of its architecture, but got no blk.2.attn_norm.weight"),
        ({"llama.block_count": 0}, "one number of 1 or more as `llama.block_count`, but got 0"),
        ({"llama.block_count": "2"}, "one number of 1 or more as `llama.block_count`, but got '2'"),
        ({"llama.feed_forward_length": 4_000_000_000}, r"blk.0.ffn_gate.weight of shape \[4000000000, 32\]"),
        ({"llama.attention.head_count_kv": np.array([2, 1], np.int32)}, "head_count_kv`, but got several"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "a number above 0 as .*, but got nan"),
        ({"llama.rope.scaling.type": "yarn"}, "linear or none as `llama.rope.scaling.type`, but got 'yarn'"),
        ({"llama.rope.scaling.attn_factor": 1.5}, "1 as `llama.rope.scaling.attn_factor`, but got 1.5"),
        ({"llama.rope.scale_linear": -2.0}, "a number above 0 as `llama.rope.scale_linear`, but got -2.0"),
        ({"llama.expert_count": 8}, "0 as `llama.expert_count`, but got 8"),
        ({"llama.rope.dimension_count": 6}, "12 as `llama.rope.dimension_count`, but got 6"),
        ({"general.alignment": 3}, "`general.alignment` of a power of two, 8 or more, but got 3"),
        ({"split.count": 2}, "all parts of a model, but got one of 2"),
    ],
)
def test_metadata_that_no_model_has_is_refused(change: dict[str, Any], rule: str, tmp_path: Path) -> None:
    metadata = files.llama_metadata(SMALL, "llama") | change
    tensors = files.llama_tensors(SMALL, llama_weights(SMALL), "llama")
    with pytest.raises(LanguageModelError, match=f"model.gguf: a GGUF file must .*{rule}"):
        language.read_gguf(files.write(tmp_path / "model.gguf", metadata, tensors))


@pytest.mark.parametrize(
    ("name", "entry", "rule"),
    [
        (
            "extra.weight",
            ((4,), 0, bytes(16)),
            r"no other tensors than its architecture has, but got extra.weight \[4\]",
        ),
        ("output_norm.weight", ((8,), 0, bytes(32)), r"output_norm.weight of shape \[32\], but got \[8\]"),
        ("output_norm.weight", ((256,), 10, bytes(84)), "types F32, .*, but got Q2_K of output_norm.weight"),
        ("output_norm.weight", ((32,), 99, bytes(84)), "but got type 99 of output_norm.weight"),
        ("output_norm.weight", ((33,), 8, bytes(34)), "the first a multiple of 32 for Q8_0, but got .33."),
        ("output_norm.weight", ((0, 32), 0, b""), "extents of 1 or more"),
        ("output_norm.weight", ((1, 1, 1, 1, 32), 0, bytes(128)), "1 to 4 dimensions, but got 5"),
        ("output_norm.weight", ((1 << 60, 32), 0, bytes(128)), "output_norm.weight at a multiple of 32 within its"),
    ],
)
def test_tensors_that_no_model_has_are_refused(name: str, entry: Any, rule: str, tmp_path: Path) -> None:
    tensors = files.llama_tensors(SMALL, llama_weights(SMALL), "llama") | {name: entry}
    with pytest.raises(LanguageModelError, match=rule):
        language.read_gguf(files.write(tmp_path / "model.gguf", files.llama_metadata(SMALL, "llama"), tensors))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_heads_of_an_odd_width_are_refused(architecture: str, tmp_path: Path) -> None:
    sizes = replace(SMALL, head_width=8)
    odd = {f"{architecture}.attention.{part}_length": 7 for part in ("key", "value")}
    tensors = files.llama_tensors(sizes, llama_weights(sizes), architecture)
    for layer in range(sizes.layers):
        for part, shape in {"q": (28, 32), "k": (14, 32), "v": (14, 32), "output": (32, 28)}.items():
            tensors[f"blk.{layer}.attn_{part}.weight"] = files.tensor(np.zeros(shape, np.float32))
    metadata = files.llama_metadata(sizes, architecture) | odd
    with pytest.raises(LanguageModelError, match="must have heads of an even width for rotary positions, but got 7"):
        language.read_gguf(files.write(tmp_path / "model.gguf", metadata, tensors))


def test_files_that_lie_about_their_sizes_are_refused_without_memory(tmp_path: Path) -> None:
    path, header = tmp_path / "model.gguf", struct.Struct("<4sIQQ")
    huge = (1 << 64) - 1
    key = files.string("a")
    cases = {
        b"": "at least 24 bytes, but got 0",
        header.pack(b"GGML", 3, 0, 0): "must begin with b'GGUF', but got b'GGML'",
        header.pack(b"GGUF", 1, 0, 0): "version 2 or 3 in little-endian order, but got 1",
        header.pack(b"GGUF", 3, huge, 0): "as many tensors as it says",
        header.pack(b"GGUF", 3, 0, huge): "as many keys as it says",
        header.pack(b"GGUF", 3, 0, 1) + struct.pack("<Q", huge) + bytes(8): "must have all bytes of its key",
        header.pack(b"GGUF", 3, 0, 1) + key + struct.pack("<IIQ", 9, 8, huge): "as many strings of a as it says",
        header.pack(b"GGUF", 3, 0, 1) + key + struct.pack("<IIQ", 9, 12, huge // 8): "as many numbers of a as it says",
        header.pack(b"GGUF", 3, 0, 1) + key + struct.pack("<IIQ", 9, 9, 1): "numbers, strings, or arrays of them",
        header.pack(b"GGUF", 3, 0, 2) + 2 * (key + struct.pack("<II", 4, 1)): "each key once, but got 'a' twice",
    }
    tracemalloc.start()
    for data, rule in cases.items():
        path.write_bytes(data)
        with pytest.raises(LanguageModelError, match=rule):
            GGUFFile(path)
    path.write_bytes(header.pack(b"GGUF", 3, 1, 0) + files.string("a\x1b[31m") + struct.pack("<IQIQ", 1, 1, 10, 0))
    with pytest.raises(LanguageModelError, match=r"but got Q2_K of a\?\[31m"):
        GGUFFile(path)
    same = {"a": ((8,), 0, bytes(32)), "b": ((8,), 0, bytes(32))}
    data = files.write(path, {}, same).read_bytes()
    place = data.index(b"b" + struct.pack("<I", 1)) + 1 + 4 + 8 + 4
    path.write_bytes(data[:place] + bytes(8) + data[place + 8 :])
    with pytest.raises(LanguageModelError, match="must have tensors that do not overlap, but got a and b"):
        GGUFFile(path)
    path.write_bytes(data.replace(files.string("b"), files.string("a")))
    with pytest.raises(LanguageModelError, match="must have each tensor once"):
        GGUFFile(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_damaged_file_is_read_or_refused_in_a_sentence(tmp_path: Path) -> None:
    sizes = replace(SMALL, vocabulary=600, layers=1)
    metadata = files.llama_metadata(sizes, "llama")
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in files.byte_pairs("qwen2").items()}
    tensors = files.llama_tensors(sizes, llama_weights(sizes), "llama")
    path = files.write(tmp_path / "model.gguf", metadata, tensors)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    start = data.rindex(b"blk.0") + 200  # behind the last entry of the list of tensors
    refused = 0
    for number in range(300):
        if number % 3 == 0:
            path.write_bytes(data[: rng.integers(len(data))])
        else:
            changed = bytearray(data)
            for place in rng.integers(0, 600 if number % 3 == 1 else start, 2):
                changed[place] = rng.integers(256)
            path.write_bytes(changed)
        try:
            _ = language.read_gguf(path).tokenizer
        except LanguageModelError as error:
            refused += 1
            assert str(path) in str(error) or "`" in str(error)
    assert 100 < refused < 300
