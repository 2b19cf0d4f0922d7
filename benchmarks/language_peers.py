"""What takes turns in `benchmarks.language`, each in a process of its own that answers lines of JSON.

`python -m benchmarks.language_peers PEER THREADS SIZES`: the first line says what making it took. A request is a case
(`prefill` or `step`, and how many tokens) and a number of samples; the answer has their seconds and the last logits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from autotune import language
from autotune.language.model import Layer, Linear, Model, Norm

Array = NDArray[Any]
UNSEEN = -1e30


class Peer(Protocol):
    """A decoder that runs cases."""

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        """A call that reads these tokens (`prefill`), or the last one behind the others (`step`), and gives logits."""


class Ours:
    """By this project.

    Attributes:
        seconds: that compiling took, without a cache.
    """

    def __init__(self, model: Model, longest: int, threads: int, quantise: str | None = None) -> None:
        self._network = language.compile(model, longest, threads=threads, quantise=quantise, cache="none")

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        """See `Peer`."""
        if what == "prefill":
            return lambda: self._network.prefill(tokens)
        self._network.prefill(tokens[:-1])

        def step() -> Array:
            self._network.position = len(tokens) - 1
            return self._network.step(int(tokens[-1]))

        return step


class Torch:
    """By PyTorch, eagerly, keys and values written to arrays of the greatest length."""

    def __init__(self, model: Model, longest: int, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._torch, self._model = torch, model
        s = model.sizes
        self._caches = [[torch.zeros(s.heads, longest, s.head_width) for _ in range(2)] for _ in model.layers]
        self._given: dict[int, Any] = {}

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        """See `Peer`."""
        if what == "prefill":
            return lambda: self._run(tokens, 0)
        self._run(tokens[:-1], 0)
        return lambda: self._run(tokens[-1:], len(tokens) - 1)

    def _tensor(self, array: Array) -> Any:
        key = array.ctypes.data
        if key not in self._given:
            self._given[key] = self._torch.from_numpy(array)
        return self._given[key]

    def _run(self, tokens: Array, past: int) -> Array:
        torch, model = self._torch, self._model
        functional = torch.nn.functional
        assert model.positions is not None
        width, end = model.sizes.head_width, past + len(tokens)

        def linear(x: Any, part: Linear) -> Any:
            assert part.bias is not None
            return torch.addmm(self._tensor(part.bias), x, self._tensor(part.weight))

        def normal(x: Any, part: Norm) -> Any:
            assert part.shift is not None
            scale, shift = self._tensor(part.scale), self._tensor(part.shift)
            return functional.layer_norm(x, x.shape[-1:], scale, shift, model.sizes.epsilon)

        def heads(x: Any) -> Any:
            return x.view(len(tokens), -1, width).transpose(0, 1)

        with torch.inference_mode():
            x = self._tensor(model.tokens)[torch.from_numpy(tokens)] + self._tensor(model.positions)[past:end]
            for layer, (keys, values) in zip(model.layers, self._caches, strict=True):
                read = normal(x, layer.first)
                query = heads(linear(read, layer.query))
                keys[:, past:end], values[:, past:end] = (
                    heads(linear(read, layer.key)),
                    heads(linear(read, layer.value)),
                )
                given = query[None], keys[None, :, :end], values[None, :, :end]
                mixed = functional.scaled_dot_product_attention(*given, is_causal=not past, scale=1.0)[0]
                x = x + linear(mixed.transpose(0, 1).reshape(len(tokens), -1), layer.joined)
                inner = functional.gelu(linear(normal(x, layer.second), layer.up), approximate="tanh")
                x = x + linear(inner, layer.down)
            found: Array = (normal(x[-1:], model.last) @ self._tensor(model.tokens).T)[0].numpy()
            return found


class OnnxRuntime:
    """By ONNX Runtime, with keys and values before the tokens as inputs and those up to the last one as outputs."""

    def __init__(self, model: Model, longest: int, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        data = exported(model).SerializeToString()
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        self._sizes = model.sizes

    def case(self, what: str, tokens: Array) -> Callable[[], Array]:
        """See `Peer`."""
        s, states = self._sizes, {}
        empty = np.zeros((s.heads, 0, s.head_width), np.float32)
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


def exported(model: Model) -> onnx.ModelProto:
    """A model of GPT-2's kind in ONNX: tokens (m,), positions (m,), a mask (m, n) and states (heads, past, d).

    Logits are those of the last token.
    """
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    s = model.sizes
    assert model.positions is not None

    def constant(array: Array) -> str:
        name = f"weight_{len(weights)}"
        weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(op: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"{op}_{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def linear(x: str, part: Linear) -> str:
        assert part.bias is not None
        return add("Gemm", x, constant(part.weight), constant(part.bias))

    def normal(x: str, part: Norm) -> str:
        assert part.shift is not None
        return add("LayerNormalization", x, constant(part.scale), constant(part.shift), epsilon=s.epsilon)

    split, joined = constant(np.array([0, s.heads, s.head_width])), constant(np.array([0, s.hidden]))

    def heads(x: str) -> str:
        return add("Transpose", add("Reshape", x, split), perm=[1, 0, 2])

    def block(x: str, number: int, layer: Layer) -> str:
        read = normal(x, layer.first)
        keys, values = (
            add("Concat", f"{kind}_{number}", heads(linear(read, part)), name=f"all_{kind}_{number}", axis=1)
            for kind, part in (("keys", layer.key), ("values", layer.value))
        )
        scores = add("MatMul", heads(linear(read, layer.query)), add("Transpose", keys, perm=[0, 2, 1]))
        mixed = add("MatMul", add("Softmax", add("Add", scores, "mask"), axis=-1), values)
        x = add("Add", x, linear(add("Reshape", add("Transpose", mixed, perm=[1, 0, 2]), joined), layer.joined))
        inner = add("Gelu", linear(normal(x, layer.second), layer.up), approximate="tanh")
        return add("Add", x, linear(inner, layer.down))

    x = add("Gather", constant(model.tokens), "tokens")
    x = add("Add", x, add("Gather", constant(model.positions), "positions"))
    for number, layer in enumerate(model.layers):
        x = block(x, number, layer)
    last = add("Gather", normal(x, model.last), constant(np.array([-1])))
    add("MatMul", last, constant(model.logits), name="logits")
    ends = [f"{kind}_{number}" for number in range(s.layers) for kind in ("keys", "values")]

    def told(name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [told(name, ["m"], TensorProto.INT64) for name in ("tokens", "positions")] + [told("mask", ["m", "n"])]
    inputs += [told(name, [s.heads, "past", s.head_width]) for name in ends]
    outputs = [told("logits", [1, s.vocabulary])]
    outputs += [told(f"all_{name}", [s.heads, "n", s.head_width]) for name in ends]
    graph = helper.make_graph(nodes, "gpt2", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


PEERS: dict[str, Callable[[Model, int, int], Peer]] = {
    "ours": Ours,
    "weights8": partial(Ours, quantise="weights8"),
    "weights4": partial(Ours, quantise="weights4"),
    "onnxruntime": OnnxRuntime,
    "torch": Torch,
}


def main(arguments: Sequence[str]) -> int:
    """Answers requests until the parent hangs up."""
    name, threads, sizes = arguments[0], int(arguments[1]), json.loads(arguments[2])
    longest = sizes.pop("longest")
    model = language.gpt2(language.GPT2(**sizes), rng=np.random.default_rng(0))
    start = time.perf_counter()
    peer = PEERS[name](model, longest, threads)
    _say({"seconds": time.perf_counter() - start})
    calls: dict[tuple[str, int], Callable[[], Array]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        what, count = request["case"]
        tokens = np.random.default_rng(count).integers(0, model.sizes.vocabulary, count)
        if (what, count) not in calls:
            calls = {(what, count): peer.case(what, tokens)}  # one sequence at a time
        call = calls[what, count]
        taken = []
        for _ in range(request["samples"]):
            start = time.perf_counter()
            logits = call()
            taken.append(time.perf_counter() - start)
        _say({"seconds": taken, "logits": logits.tolist()} if request.get("logits") else {"seconds": taken})
    return 0


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
