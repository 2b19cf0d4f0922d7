"""Peers of `benchmarks.language`, each in a process of its own that answers lines of JSON.

`python -m benchmarks.language_peers PEER THREADS SIZES`: the first line has the seconds of construction. A request is a
case (`prefill` or `step`, and a number of tokens) and a number of samples. The answer has their seconds and the last
logits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from autotune import language
from autotune.graph.quantise.weights import quantise_weights
from autotune.language.model import Layer, Linear, Model, Norm
from benchmarks.llama_cpp_peer import LlamaCpp, make_llama_cpp
from benchmarks.peers.nbits_peer import IN_BYTES

Array = NDArray[Any]
UNSEEN = -1e30
"""Score added to positions that a token must not see: the exponential of the sum is 0."""
GROUP = 32
"""Weights that share a scale."""


class Peer(Protocol):
    """A decoder that runs cases."""

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        """Makes a call that reads these tokens (`prefill`), or the last one after the others (`step`)."""


class Ours:
    """A decoder compiled by this project.

    Attributes:
        seconds: seconds of compiling without a cache.
    """

    def __init__(
        self,
        model: Model,
        longest: int,
        threads: int,
        quantise: str | None = None,
        activations: Literal["floats", "bytes"] = "floats",
    ) -> None:
        self._network = language.compile(
            model, longest, threads=threads, quantise=quantise, activations=activations, cache="none"
        )

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        if what == "prefill":
            return lambda: self._network.prefill(tokens)
        self._network.prefill(tokens[:-1])

        def step() -> Array:
            self._network.position = len(tokens) - 1
            return self._network.step(int(tokens[-1]))

        return step


class Torch:
    """A decoder in eager PyTorch, with keys and values in arrays of the greatest length."""

    def __init__(self, model: Model, longest: int, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._torch, self._model = torch, model
        s = model.sizes
        self._turns = model.turns(longest)
        self._caches = [[torch.zeros(s.kv_heads, longest, s.head_width) for _ in range(2)] for _ in model.layers]
        self._prompts: dict[tuple[int, tuple[int, ...]], Any] = {}

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        if what == "prefill":
            return lambda: self._run(tokens, 0)
        self._run(tokens[:-1], 0)
        return lambda: self._run(tokens[-1:], len(tokens) - 1)

    def _tensor(self, array: Array) -> Any:
        key = array.ctypes.data, array.strides  # logits may be the embeddings transposed
        if key not in self._prompts:
            self._prompts[key] = self._torch.from_numpy(array)
        return self._prompts[key]

    def _run(self, tokens: Array, past: int) -> Array:
        torch, model = self._torch, self._model
        functional = torch.nn.functional
        width, end = model.sizes.head_width, past + len(tokens)
        cosines, sines = (self._tensor(table)[past:end] for table in self._turns)

        def linear(x: Any, part: Linear) -> Any:
            if part.bias is None:
                return x @ self._tensor(part.weight)
            return torch.addmm(self._tensor(part.bias), x, self._tensor(part.weight))

        def normal(x: Any, part: Norm) -> Any:
            scale = self._tensor(part.scale)
            if part.shift is None:
                return functional.rms_norm(x, x.shape[-1:], scale, model.sizes.epsilon)
            return functional.layer_norm(x, x.shape[-1:], scale, self._tensor(part.shift), model.sizes.epsilon)

        def heads(x: Any) -> Any:
            return x.view(len(tokens), -1, width).transpose(0, 1)

        def turn(x: Any) -> Any:
            if model.positions is not None:
                return x
            first, second = x.chunk(2, dim=-1)
            return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)

        def inner(x: Any, layer: Layer) -> Any:
            if layer.gate is None:
                return functional.gelu(linear(x, layer.up), approximate="tanh")
            return functional.silu(linear(x, layer.gate)) * linear(x, layer.up)

        with torch.inference_mode():
            x = self._tensor(model.tokens)[torch.from_numpy(tokens)]
            if model.positions is not None:
                x = x + self._tensor(model.positions)[past:end]
            for layer, (keys, values) in zip(model.layers, self._caches, strict=True):
                read = normal(x, layer.first)
                query = turn(heads(linear(read, layer.query)))
                keys[:, past:end] = turn(heads(linear(read, layer.key)))
                values[:, past:end] = heads(linear(read, layer.value))
                given = query[None], keys[None, :, :end], values[None, :, :end]
                how = {"is_causal": not past, "scale": 1.0, "enable_gqa": model.sizes.group > 1}
                mixed = functional.scaled_dot_product_attention(*given, **how)[0]
                x = x + linear(mixed.transpose(0, 1).reshape(len(tokens), -1), layer.output)
                x = x + linear(inner(normal(x, layer.second), layer), layer.down)
            found: Array = (normal(x[-1:], model.last) @ self._tensor(model.logits))[0].numpy()
            return found


class OnnxRuntime:
    """A decoder in ONNX Runtime: earlier keys and values are inputs, and all up to the last token outputs.

    With `bits` the weights of products have so many bits, in groups of 32, and their factors are rounded to bytes.
    """

    def __init__(self, model: Model, longest: int, threads: int, bits: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        data = export_model(model, longest, bits).SerializeToString()
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self._sizes = model.sizes

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        s, states = self._sizes, {}
        empty = np.zeros((s.kv_heads, 0, s.head_width), np.float32)
        names = [f"{kind}_{layer}" for layer in range(s.layers) for kind in ("keys", "values")]
        states = dict.fromkeys(names, empty)
        if what == "step":
            _, *found = self._session.run(None, self._feed(tokens[:-1], 0, states))
            states, tokens = dict(zip(names, found, strict=True)), tokens[-1:]
        feed = self._feed(tokens, states[names[0]].shape[1], states)
        return lambda: np.asarray(self._session.run(None, feed)[0][0])

    @staticmethod
    def _feed(tokens: Array, past: int, states: dict[str, Array]) -> dict[str, Array]:
        positions = np.arange(past, past + len(tokens))
        mask = np.where(np.arange(past + len(tokens)) <= positions[:, None], 0, UNSEEN).astype(np.float32)
        return {"tokens": tokens, "positions": positions, "mask": mask, **states}


def export_model(model: Model, longest: int, bits: int | None = None) -> onnx.ModelProto:
    """Builds a decoder in ONNX: tokens (m,), positions (m,), a mask (m, n) and states (kv_heads, past, d).

    It has the logits of the last token.

    Args:
        longest: positions at most.
        bits: bits of the weights of products, in groups of 32 by `MatMulNBits`; None: floats.
    """
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    s = model.sizes

    def constant(array: Array) -> str:
        name = f"weight_{len(weights)}"
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(op: str, *inputs: str, name: str = "", outputs: int = 1, **attributes: Any) -> str:
        name = name or f"{op}_{len(nodes)}"
        names = [name, *(f"{name}_{place}" for place in range(1, outputs))]
        nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return name

    def few_bits(x: str, weight: Array) -> str:
        assert bits is not None
        numbers, scales = quantise_weights(weight, bits, GROUP)
        given = [constant(numbers.transpose(2, 0, 1)), constant(scales.T.reshape(-1).astype(np.float32))]
        sizes = {"K": weight.shape[0], "N": weight.shape[1], "bits": bits, "block_size": GROUP}
        return add("MatMulNBits", x, *given, domain="com.microsoft", **sizes, accuracy_level=IN_BYTES)

    def linear(x: str, part: Linear) -> str:
        if bits is not None:
            found = few_bits(x, part.weight)
            return found if part.bias is None else add("Add", found, constant(part.bias))
        if part.bias is None:
            return add("MatMul", x, constant(part.weight))
        return add("Gemm", x, constant(part.weight), constant(part.bias))

    def normal(x: str, part: Norm) -> str:
        if part.shift is None:
            return add("SimplifiedLayerNormalization", x, constant(part.scale), epsilon=s.epsilon, axis=-1)
        return add("LayerNormalization", x, constant(part.scale), constant(part.shift), epsilon=s.epsilon)

    def shape(*extents: int) -> str:
        return constant(np.array(extents))

    by_head, joined = shape(0, -1, s.head_width), shape(0, s.heads * s.head_width)
    grouped = shape(s.kv_heads, s.group, -1, s.head_width) if s.group > 1 else ""

    def heads(x: str) -> str:
        return add("Transpose", add("Reshape", x, by_head), perm=[1, 0, 2])

    x = add("Gather", constant(model.tokens), "tokens")
    if model.positions is not None:
        x = add("Add", x, add("Gather", constant(model.positions), "positions"))
        turns = None
    else:
        turns = [add("Gather", constant(table), "positions") for table in model.turns(longest)]

    def turn(x: str) -> str:
        if turns is None:
            return x
        cosines, sines = turns
        first = add("Split", x, outputs=2, axis=-1, num_outputs=2)
        second = f"{first}_1"
        left = add("Sub", add("Mul", first, cosines), add("Mul", second, sines))
        right = add("Add", add("Mul", second, cosines), add("Mul", first, sines))
        return add("Concat", left, right, axis=-1)

    def attend(query: str, keys: str, values: str) -> str:
        """Computes attention, (heads, m, d); queries of a group share keys."""
        if s.group > 1:
            one = constant(np.array([1]))
            query, keys, values = (
                add("Reshape", query, grouped),
                add("Unsqueeze", keys, one),
                add("Unsqueeze", values, one),
            )
        perm = [0, 2, 1] if s.group == 1 else [0, 1, 3, 2]
        scores = add("MatMul", query, add("Transpose", keys, perm=perm))
        mixed = add("MatMul", add("Softmax", add("Add", scores, "mask"), axis=-1), values)
        return mixed if s.group == 1 else add("Reshape", mixed, shape(s.heads, -1, s.head_width))

    def inner(x: str, layer: Layer) -> str:
        up = linear(x, layer.up)
        if layer.gate is None:
            return add("Gelu", up, approximate="tanh")
        gate = linear(x, layer.gate)
        return add("Mul", add("Mul", gate, add("Sigmoid", gate)), up)

    def block(x: str, number: int, layer: Layer) -> str:
        read = normal(x, layer.first)
        new = turn(heads(linear(read, layer.key))), heads(linear(read, layer.value))
        keys, values = (
            add("Concat", f"{kind}_{number}", rows, name=f"all_{kind}_{number}", axis=1)
            for kind, rows in zip(("keys", "values"), new, strict=True)
        )
        mixed = attend(turn(heads(linear(read, layer.query))), keys, values)
        x = add("Add", x, linear(add("Reshape", add("Transpose", mixed, perm=[1, 0, 2]), joined), layer.output))
        return add("Add", x, linear(inner(normal(x, layer.second), layer), layer.down))

    for number, layer in enumerate(model.layers):
        x = block(x, number, layer)
    last = add("Gather", normal(x, model.last), constant(np.array([-1])))
    last = add("MatMul", last, constant(model.logits)) if bits is None else few_bits(last, model.logits)
    add("Identity", last, name="logits")
    ends = [f"{kind}_{number}" for number in range(s.layers) for kind in ("keys", "values")]

    def describe_value(name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [describe_value(name, ["m"], TensorProto.INT64) for name in ("tokens", "positions")] + [
        describe_value("mask", ["m", "n"])
    ]
    inputs += [describe_value(name, [s.kv_heads, "past", s.head_width]) for name in ends]
    outputs = [describe_value("logits", [1, s.vocabulary])]
    outputs += [describe_value(f"all_{name}", [s.kv_heads, "n", s.head_width]) for name in ends]
    graph = helper.make_graph(nodes, model.name, inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


MODELS: dict[str, Callable[..., Model]] = {
    "gpt2": lambda rng, **sizes: language.gpt2(language.GPT2(**sizes), rng=rng),
    "llama": lambda rng, **sizes: language.llama(language.Llama(tied=True, **sizes), rng=rng),
}
PEERS: dict[str, Callable[[Model, int, int], Peer]] = {
    "ours": Ours,
    **{f"weights{bits}": partial(Ours, quantise=f"weights{bits}") for bits in (8, 4)},
    **{f"bytes{bits}": partial(Ours, quantise=f"weights{bits}", activations="bytes") for bits in (8, 4)},
    "onnxruntime": OnnxRuntime,
    **{f"onnxruntime{bits}": partial(OnnxRuntime, bits=bits) for bits in (8, 4)},
    "torch": Torch,
    **{f"llama_cpp{bits}": partial(make_llama_cpp, bits=bits) for bits in (8, 4)},
}


def choose_peer(name: str, threads: int, sizes: dict[str, Any]) -> tuple[Callable[[], Peer], int]:
    """Reads or draws a model, and chooses what runs it.

    Args:
        name: one of `PEERS`, or of `ours`, `bytes` and `llama_cpp` for a file.
        threads: threads that it runs on.
        sizes: `longest`, and `file`, the path of a GGUF file, or `model` and its sizes.

    Returns:
        Function that makes the peer, and the number of its tokens.
    """
    longest = sizes.pop("longest")
    if "file" not in sizes:
        model = MODELS[sizes.pop("model")](np.random.default_rng(0), **sizes)
        return partial(PEERS[name], model, longest, threads), model.sizes.vocabulary
    path = Path(sizes["file"])
    model = language.read_gguf(path).model
    if name == "llama_cpp":
        return partial(LlamaCpp, path, longest, threads, model.sizes.vocabulary), model.sizes.vocabulary
    activations: Literal["floats", "bytes"] = "bytes" if name == "bytes" else "floats"
    return partial(Ours, model, longest, threads, activations=activations), model.sizes.vocabulary


def main(arguments: Sequence[str]) -> int:
    """Answers requests until the parent hangs up."""
    make_peer, vocabulary = choose_peer(arguments[0], int(arguments[1]), json.loads(arguments[2]))
    start = time.perf_counter()
    peer = make_peer()
    _say({"seconds": time.perf_counter() - start})
    calls: dict[tuple[str, int], Callable[[], Array]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        what, count = request["case"]
        tokens = np.random.default_rng(count).integers(0, vocabulary, count)
        if (what, count) not in calls:
            calls = {(what, count): peer.case(what, tokens)}  # one sequence at a time
        call = calls[what, count]
        durations = []
        for _ in range(request["samples"]):
            start = time.perf_counter()
            logits = call()
            durations.append(time.perf_counter() - start)
        _say({"seconds": durations, "logits": logits.tolist()} if request.get("logits") else {"seconds": durations})
    return 0


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
