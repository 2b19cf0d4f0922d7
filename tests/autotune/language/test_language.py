"""Language models: a prompt at once and tokens one by one give what a plain decoder gives; what is refused."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional

import autotune
from autotune import language
from autotune.graph.evaluate import evaluate
from autotune.language import GPT2, LanguageModel, LanguageModelError, Llama, Model, building
from autotune.language.graphs import Decoder, state_names
from targets.manifest import MANIFEST, ExecutableError, write_manifest
from targets.native_executable import NativeExecutable
from tests.autotune.language.decoders import attend, gpt2_logits, gpt2_weights, llama_logits, llama_weights

pytestmark = pytest.mark.usefixtures("kernel_cache")

LONGEST = 40
SMALL_GPT2 = GPT2(vocabulary=61, hidden=32, layers=2, heads=4, positions=48)
SMALL_LLAMA = Llama(vocabulary=67, hidden=32, layers=2, heads=4, kv_heads=2, inner=48, head_width=12, biases=True)

Oracle = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def make_model(name: str) -> tuple[Model, Oracle]:
    if name == "gpt2":
        weights = gpt2_weights(SMALL_GPT2)
        return language.gpt2(SMALL_GPT2, weights), lambda tokens: gpt2_logits(SMALL_GPT2, weights, tokens)
    weights = llama_weights(SMALL_LLAMA)
    return language.llama(SMALL_LLAMA, weights), lambda tokens: llama_logits(SMALL_LLAMA, weights, tokens)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model_and_oracle(request: pytest.FixtureRequest) -> tuple[LanguageModel, Oracle]:
    model, oracle = make_model(request.param)
    assert repr(model).startswith(f"Model {model.name}: ") and "array" not in repr(model)
    return language.compile(model, LONGEST, threads=1), oracle


def test_it_says_what_it_is_in_a_few_lines(model_and_oracle: tuple[LanguageModel, Oracle]) -> None:
    network, _ = model_and_oracle
    title, sequences, kernels, memory = repr(network).splitlines()
    assert title == f"LanguageModel of {network.vocabulary} tokens: cpu, 1 thread"
    assert sequences.startswith(f"  sequences: {LONGEST} tokens at most, ")
    assert f"{len(network.step_network.manifest['steps'])} for a token" in kernels
    assert f"weights {network.weights_bytes / 1e6:.2f} MB" in memory


def prompt(network: LanguageModel, count: int, seed: int = 1) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, network.vocabulary, count)


def close(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * float(np.abs(expected).max()))


def test_weights_beyond_the_memory_reserved_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts of prompts of several lengths can take more than was reserved."""
    monkeypatch.setattr(building, "COPIES", 1)
    model, oracle = make_model("gpt2")
    network = language.compile(model, LONGEST, threads=1)
    tokens = prompt(network, 20)
    close(network.prefill(tokens[:-1]), oracle(tokens[:-1])[-1])
    close(network.step(int(tokens[-1])), oracle(tokens)[-1])


# ------------------------------------------------------------------ what it computes
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, LONGEST])
def test_a_prompt_gives_the_logits_of_its_last_token(
    model_and_oracle: tuple[LanguageModel, Oracle], count: int
) -> None:
    network, oracle = model_and_oracle
    tokens = prompt(network, count)
    close(network.prefill(tokens), oracle(tokens)[-1])
    assert network.position == count


@pytest.mark.parametrize("start", [1, 5, 16, 23])
def test_tokens_one_by_one_give_what_the_whole_prompt_gives(
    model_and_oracle: tuple[LanguageModel, Oracle], start: int
) -> None:
    network, oracle = model_and_oracle
    tokens = prompt(network, LONGEST)
    wanted = oracle(tokens)
    close(network.prefill(tokens[:start]), wanted[start - 1])
    for place in range(start, LONGEST):
        close(network.step(int(tokens[place])), wanted[place])


def test_a_shorter_prompt_sees_nothing_of_the_sequence_before_it(
    model_and_oracle: tuple[LanguageModel, Oracle],
) -> None:
    network, oracle = model_and_oracle
    network.prefill(prompt(network, LONGEST, seed=2))
    tokens = prompt(network, 4)
    network.prefill(tokens[:3])
    close(network.step(int(tokens[3])), oracle(tokens)[-1])


def test_generated_tokens_are_the_likeliest_of_all_before_them(model_and_oracle: tuple[LanguageModel, Oracle]) -> None:
    network, oracle = model_and_oracle
    tokens = prompt(network, 6)
    found = network.generate(tokens, 10)
    logits = oracle(np.array([*tokens, *found]))[5:-1]
    chosen = logits[np.arange(10), found]
    assert (chosen >= logits.max(-1) - 1e-3).all()
    assert network.generate(tokens, 10) == found
    assert network.generate(tokens, 10, stop=lambda token: True) == found[:1]
    assert network.generate(tokens, 0) == []


def test_sequences_of_one_model_go_on_side_by_side(model_and_oracle: tuple[LanguageModel, Oracle]) -> None:
    network, oracle = model_and_oracle
    other = network.another()
    mine, theirs = prompt(network, 9, seed=3), prompt(network, 9, seed=4)
    network.prefill(mine[:7])
    other.prefill(theirs[:5])
    for place in range(5, 9):
        found = other.step(int(theirs[place]))
        if place >= 7:
            close(network.step(int(mine[place])), oracle(mine)[place])
        close(found, oracle(theirs)[place])


def test_saved_and_loaded_it_gives_the_same(model_and_oracle: tuple[LanguageModel, Oracle], tmp_path: Path) -> None:
    network, _ = model_and_oracle
    folder = network.save(tmp_path / "model")
    tokens = prompt(network, 5)
    wanted = network.generate(tokens, 8)
    for mapped in (False, True):
        loaded = language.load(folder, mapped=mapped)
        assert loaded.longest == LONGEST
        assert loaded.generate(tokens, 8) == wanted
        both = (loaded.prefill_network, loaded.step_network)
        assert len({executable.weights.ctypes.data for executable in both}) == 1, "weights are in memory once"
        assert loaded.weights_bytes == max(executable.weights_bytes for executable in both)
        again = loaded.save(tmp_path / f"again{mapped}")
        assert {p.name: p.read_bytes() for p in again.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}
    assert type(autotune.load(folder)) is LanguageModel
    assert [path.name for path in folder.iterdir() if "weights" in path.name] == ["weights"]


def test_an_entry_point_is_pickled_and_saved_by_itself(
    model_and_oracle: tuple[LanguageModel, Oracle], tmp_path: Path
) -> None:
    step = language.load(model_and_oracle[0].save(tmp_path / "model")).step_network
    given = [np.zeros(p.at({"n": 2}).shape, p.dtype) for p in step.inputs]
    wanted = step(*given)
    for other in (pickle.loads(pickle.dumps(step)), autotune.load(step.save(tmp_path / "step"))):
        assert type(other) is NativeExecutable
        for array, expected in zip(other(*given), wanted, strict=True):
            np.testing.assert_array_equal(array, expected)


def test_in_bfloat16_it_is_near() -> None:
    model, oracle = make_model("llama")
    network = language.compile(model, LONGEST, threads=1, precision="bfloat16")
    tokens = prompt(network, 20)
    wanted = oracle(tokens)
    network.prefill(tokens[:12])
    for place in range(12, 20):
        found = network.step(int(tokens[place]))
        assert np.abs(found - wanted[place]).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_with_keys_and_values_in_float16_it_is_near(name: str, tmp_path: Path) -> None:
    model, oracle = make_model(name)
    network = language.compile(model, LONGEST, threads=1, states="float16")
    sizes = model.sizes
    assert network.state_bytes == 2 * 2 * sizes.layers * LONGEST * sizes.kv_heads * sizes.head_width
    tokens = prompt(network, 20)
    wanted = oracle(tokens)
    close(network.prefill(tokens[:12]), wanted[11])  # a prompt reads its keys and values before they are rounded
    steps = [network.step(int(token)) for token in tokens[12:]]
    errors = [np.abs(f - w).max() / np.abs(wanted).max() for f, w in zip(steps, wanted[12:], strict=True)]
    assert 1e-6 < max(errors) < 2.0**-10
    loaded = language.load(network.save(tmp_path / "model"))
    loaded.prefill(tokens[:12])
    np.testing.assert_array_equal(loaded.step(int(tokens[12])), steps[0])


def test_dtypes_of_states_that_there_are_not_are_refused() -> None:
    model, _ = make_model("gpt2")
    unknown: Any = "int8"
    with pytest.raises(LanguageModelError, match="must be float32 or float16, but got states='int8'"):
        language.compile(model, LONGEST, states=unknown)
    with pytest.raises(LanguageModelError, match="must be float32 if `precision` is bfloat16"):
        language.compile(model, LONGEST, states="float16", precision="bfloat16")


@pytest.mark.parametrize(
    ("name", "quantise", "activations", "most"),
    [("gpt2", "weights8", "floats", 0.02), ("gpt2", "weights8", "bytes", 0.03), ("llama", "weights4", "floats", 0.3)],
)
def test_with_weights_of_a_few_bits_it_is_near(
    name: str, quantise: str, activations: Literal["floats", "bytes"], most: float, tmp_path: Path
) -> None:
    model, oracle = make_model(name)
    network = language.compile(model, LONGEST, threads=1, quantise=quantise, group=16, activations=activations)
    tokens = prompt(network, 20)
    wanted = oracle(tokens)
    found = [network.prefill(tokens[:12]), *(network.step(int(token)) for token in tokens[12:])]
    errors = [np.abs(f - w).max() / np.abs(wanted).max() for f, w in zip(found, wanted[11:], strict=True)]
    assert 0 < max(errors) < most
    close(network.prefill(tokens), found[-1])
    network.save(tmp_path)
    np.testing.assert_array_equal(language.load(tmp_path).prefill(tokens[:12]), found[0])


def test_weights_that_cannot_be_of_a_few_bits_are_refused() -> None:
    model, _ = make_model("gpt2")
    with pytest.raises(ValueError, match="must be one of weights8, weights4 or None, but got quantise='int8'"):
        language.compile(model, LONGEST, quantise="int8")
    with pytest.raises(ValueError, match="group"):
        language.compile(model, LONGEST, quantise="weights4", group=-1)


# ------------------------------------------------------------------ graphs
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_graphs_evaluated_in_numpy_agree_with_the_oracle(name: str) -> None:
    model, oracle = make_model(name)
    decoder = Decoder(model, LONGEST)
    tokens = np.random.default_rng(5).integers(0, model.sizes.vocabulary, 7)
    first = decoder.prefill(6)
    values = evaluate(first, {"tokens": tokens[:6], "last": np.array([4])})
    logits, *cached = (values[name] for name in first.outputs)
    close(logits[0], oracle(tokens)[4])
    names = [name for layer in range(model.sizes.layers) for name in state_names(layer)]
    states = {
        name: np.concatenate([rows, np.full((1, *rows.shape[1:]), np.nan, np.float32)])
        for name, rows in zip(names, cached, strict=True)
    }
    values = evaluate(decoder.step(7), {"token": tokens[6:], "position": np.array([6]), **states})
    close(values["logits"][0], oracle(tokens)[6])


# ------------------------------------------------------------------ the oracle
@pytest.mark.parametrize("group", [1, 2, 4])
def test_the_oracle_attends_as_torch_does(group: int) -> None:
    rng = np.random.default_rng(group)
    q, k, v = (rng.standard_normal((9, heads, 6)) for heads in (4, 4 // group, 4 // group))
    given = [torch.from_numpy(x).permute(1, 0, 2)[None] for x in (q, k, v)]
    wanted = functional.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)
    np.testing.assert_allclose(attend(q, k, v), wanted[0].permute(1, 0, 2).reshape(9, -1).numpy(), atol=1e-12)


def test_the_oracle_is_a_block_of_torch_modules() -> None:
    sizes = replace(SMALL_GPT2, layers=1)
    weights = gpt2_weights(sizes)
    w = {name.removeprefix("transformer."): torch.from_numpy(array).double() for name, array in weights.items()}
    tokens = np.array([3, 1, 60, 7, 7])
    h = sizes.hidden

    def norm(x: torch.Tensor, at: str) -> torch.Tensor:
        return functional.layer_norm(x, (h,), w[f"{at}.weight"], w[f"{at}.bias"], sizes.epsilon)

    def linear(x: torch.Tensor, at: str) -> torch.Tensor:
        return functional.linear(x, w[f"{at}.weight"].T, w[f"{at}.bias"])

    x = w["wte.weight"][torch.from_numpy(tokens)] + w["wpe.weight"][:5]
    q, k, v = (
        part.reshape(5, sizes.heads, -1).transpose(0, 1)[None]
        for part in linear(norm(x, "h.0.ln_1"), "h.0.attn.c_attn").split(h, -1)
    )
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1).reshape(5, h)
    x = x + linear(mixed, "h.0.attn.c_proj")
    inner = functional.gelu(linear(norm(x, "h.0.ln_2"), "h.0.mlp.c_fc"), approximate="tanh")
    x = x + linear(inner, "h.0.mlp.c_proj")
    wanted = norm(x, "ln_f") @ w["wte.weight"].T
    np.testing.assert_allclose(gpt2_logits(sizes, weights, tokens), wanted.numpy(), atol=1e-10)


def test_the_oracle_normalises_by_mean_squares_as_torch_does() -> None:
    sizes = replace(SMALL_LLAMA, layers=1, tied=True)
    weights = llama_weights(sizes)
    # a layer whose products are 0 leaves embeddings as they are
    still = {name: np.zeros_like(a) if "o_proj" in name or "down" in name else a for name, a in weights.items()}
    tokens = np.array([5, 66, 0])
    table, scale = (torch.from_numpy(still[n]).double() for n in ("model.embed_tokens.weight", "model.norm.weight"))
    wanted = functional.rms_norm(table[tokens], (sizes.hidden,), scale, sizes.epsilon) @ table.T
    np.testing.assert_allclose(llama_logits(sizes, still, tokens), wanted.numpy(), atol=1e-10)


# ------------------------------------------------------------------ sampling
@given(st.integers(1, 20), st.floats(0.1, 5.0), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_token_is_drawn_among_the_likeliest(count: int, temperature: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.permutation(np.arange(20)).astype(np.float32)
    found = language.TopK(np.random.default_rng(seed), count, temperature)(logits)
    assert logits[found] >= 20 - count
    assert found == language.TopK(np.random.default_rng(seed), count, temperature)(logits)


def test_draws_follow_the_shares_of_the_softmax() -> None:
    logits = np.log(np.array([0.1, 0.6, 0.3], np.float32))
    sampler = language.TopK(np.random.default_rng(0))
    found = np.bincount([sampler(logits) for _ in range(4000)], minlength=3) / 4000
    np.testing.assert_allclose(found, [0.1, 0.6, 0.3], atol=0.03)
    assert language.TopK(np.random.default_rng(0), 1)(logits) == language.greedy(logits) == 1


@pytest.mark.parametrize(("options", "rule"), [({"count": 0}, "`count`"), ({"temperature": 0.0}, "`temperature`")])
def test_a_sampler_that_cannot_be_is_refused(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(LanguageModelError, match=rule):
        language.TopK(np.random.default_rng(0), **options)


# ------------------------------------------------------------------ what is refused
def test_tokens_that_are_none_are_refused(model_and_oracle: tuple[LanguageModel, Oracle]) -> None:
    network = model_and_oracle[0].another()
    with pytest.raises(LanguageModelError, match="must follow a prompt"):
        network.step(1)
    for tokens in ([], [0] * (LONGEST + 1), [0.5], [[1, 2]]):
        with pytest.raises(LanguageModelError, match=f"`tokens` must be 1 to {LONGEST} whole numbers"):
            network.prefill(np.array(tokens))
    for token in (-1, network.vocabulary):
        with pytest.raises(LanguageModelError, match=f"from 0 to {network.vocabulary - 1}, but got {token}"):
            network.prefill([0, token])
    network.prefill([0] * LONGEST)
    with pytest.raises(LanguageModelError, match=f"at most {LONGEST} tokens"):
        network.step(1)
    with pytest.raises(LanguageModelError, match=f"at most {LONGEST} tokens"):
        network.generate([1] * 30, 11)
    with pytest.raises(LanguageModelError, match="`count` must not be negative"):
        network.generate([1], -1)


@pytest.mark.parametrize("longest", [1, 7, 49])
def test_a_length_that_the_model_does_not_take_is_refused(longest: int) -> None:
    with pytest.raises(LanguageModelError, match="`longest` must be at least 8 and at most 48"):
        language.compile(make_model("gpt2")[0], longest)


def test_weights_that_are_missing_are_named() -> None:
    weights = gpt2_weights(SMALL_GPT2)
    del weights["transformer.h.1.mlp.c_fc.weight"], weights["transformer.ln_f.bias"]
    with pytest.raises(LanguageModelError, match=r"lack h\.1\.mlp\.c_fc\.weight, ln_f\.bias"):
        language.gpt2(SMALL_GPT2, weights)
    with pytest.raises(LanguageModelError, match="and 17 more"):
        language.llama(replace(SMALL_LLAMA, biases=False), {})


def test_weights_of_other_shapes_or_types_are_refused() -> None:
    weights = llama_weights(SMALL_LLAMA)
    name = "model.layers.0.mlp.up_proj.weight"
    with pytest.raises(
        LanguageModelError, match=r"layers\.0\.mlp\.up_proj\.weight of shape \[48, 32\], but got \[32, 48\]"
    ):
        language.llama(SMALL_LLAMA, {**weights, name: weights[name].T})
    with pytest.raises(LanguageModelError, match="is of int32"):
        language.llama(SMALL_LLAMA, {**weights, name: weights[name].astype(np.int32)})
    with pytest.raises(LanguageModelError, match="`rng` must be left out"):
        language.llama(SMALL_LLAMA, weights, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("sizes", "rule"),
    [
        (replace(SMALL_GPT2, heads=5), "`heads` must divide hidden"),
        (replace(SMALL_LLAMA, kv_heads=3), "`kv_heads` must divide heads"),
        (replace(SMALL_LLAMA, head_width=5), "`head_width` must be even"),
        (replace(SMALL_GPT2, layers=0), "`layers` must be at least 1"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(sizes: GPT2 | Llama, rule: str) -> None:
    with pytest.raises(LanguageModelError, match=rule):
        sizes.sizes  # noqa: B018


def test_rows_of_a_state_that_lie_elsewhere_are_refused(model_and_oracle: tuple[LanguageModel, Oracle]) -> None:
    step = model_and_oracle[0].step_network
    arrays = [np.zeros(p.at({"n": 5}).shape, p.dtype) for p in (*step.inputs, *step.outputs)]
    with pytest.raises(ExecutableError, match="`new_keys_0` must lie where row 4 of `keys_0` lies"):
        step.infer_at([array.ctypes.data for array in arrays], [5])


def test_a_step_called_by_itself_leaves_its_inputs_as_they_are(model_and_oracle: tuple[LanguageModel, Oracle]) -> None:
    network, oracle = model_and_oracle
    tokens = prompt(network, 6)
    network.prefill(tokens[:5])
    states = [state[:6].copy() for state in network._states]
    before = [state.copy() for state in states]
    logits, *rows = network.step_network(tokens[5:], np.array([5]), *states)
    close(logits[0], oracle(tokens)[-1])
    close(network.step(int(tokens[5])), oracle(tokens)[-1])
    for state, old, row, kept in zip(states, before, rows, network._states, strict=True):
        np.testing.assert_array_equal(state, old)
        np.testing.assert_array_equal(row, kept[5:6])


# ------------------------------------------------------------------ files
def test_torn_folders_are_refused(model_and_oracle: tuple[LanguageModel, Oracle], tmp_path: Path) -> None:
    folder = model_and_oracle[0].save(tmp_path)
    whole = (folder / "weights").read_bytes()
    (folder / "weights").write_bytes(whole[:-1])
    with pytest.raises(ExecutableError, match="must be those of the manifest"):
        language.load(folder)
    (folder / "weights").write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(ExecutableError, match="must be those of the manifest"):
        language.load(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    write_manifest({**manifest, "kind": "native"}, folder)
    with pytest.raises(ExecutableError, match="`kind` must be language, but got kind='native'"):
        language.load(folder)
    with pytest.raises(ExecutableError, match="must have a manifest"):
        language.load(tmp_path / "nowhere")


def test_weights_are_read_from_a_safetensors_file(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, 2], np.float16)}
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(arrays))
    found = language.read_safetensors(path)
    assert list(found) == ["a", "b"]
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LanguageModelError, match="must be a safetensors file, but: bytes 24 to 28"):
        language.read_safetensors(path)
    path.write_bytes(b"GGUF")
    with pytest.raises(LanguageModelError, match="must be a safetensors file"):
        language.read_safetensors(path)


def safetensors(arrays: dict[str, NDArray[Any]]) -> bytes:
    names, place, header = {"float32": "F32", "float16": "F16"}, 0, dict[str, Any](__metadata__={"format": "np"})
    for name, array in arrays.items():
        ends = [place, place + array.nbytes]
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": ends}
        place = ends[1]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in arrays.values())
