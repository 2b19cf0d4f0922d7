"""Models whose executables a refactoring must leave as they are, and the program that compiles one of them.

`tests.same_executables` runs this file with the packages of one revision or another, so it uses the interface for users
alone: `autotune.compile`, `torch.compile`, and the classes of executables.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # run by its path, with the packages of another tree
    sys.path.append(str(Path(__file__).parent))
    from search_cases import SEARCHES, first_module, search
else:
    from tests.search_cases import SEARCHES, first_module, search

Case = Mapping[str, Any]

ZOO = (
    "alexnet",
    "bert_base",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
SMALL = (
    {},
    {"precision": "bfloat16"},
    {"precision": "float16"},
    {"precision": "mixed"},
    {"quantise": "int8"},
    {"quantise": "int8", "quantisation": {"method": "max", "least_decibels": 0.0}},
    {"quantise": "int8", "precision": "mixed"},
    {"quantise": "weights4"},
    {"quantise": "weights8", "quantisation": {"activations": "bytes", "group": None}},
    {"quantise": "weights4", "precision": "bfloat16"},
    {"algorithms": ["strassen", "winograd4_dot"]},
    {"target": "c"},
    {"target": "vta"},
)
"""Arguments of `autotune.compile` besides the model, for a convolutional network and a transformer."""
TORCH = (
    ("perceptron", {}),
    ("perceptron", {"precision": "bfloat16"}),
    ("perceptron", {"training": True}),
    ("perceptron", {"sizes": 0}),
    ("images", {}),
    ("images", {"precision": "float16"}),
    ("images", {"training": True}),
    ("attention", {}),
    ("attention", {"precision": "bfloat16"}),
    ("recurrent", {}),
    ("embedding", {}),
)
"""Modules that `torch.compile` is given, and options of the backend."""

LANGUAGE = ({}, {"precision": "bfloat16"}, {"quantise": "weights4"}, {"quantise": "weights8", "activations": "bytes"})
"""Arguments of `autotune.language.compile`."""


def _words(options: Case) -> str:
    return "-".join(f"{key}={value}" for key, value in options.items()) or "plain"


CASES: tuple[Case, ...] = (
    *(
        {"name": f"{model}-{_words(options)}", "build": model, "options": options}
        for model in ("images", "words")
        for options in SMALL
        if not (model == "words" and options.get("target") == "vta")
    ),
    {
        "name": "words-open",
        "build": "words",
        "options": {"sizes": {"n": [4, 64]}, "shapes": {"x": [1, "n", 32]}},
        "open": True,
    },
    *({"name": f"language-{_words(options)}", "language": True, "options": options} for options in LANGUAGE),
    *({"name": f"search-{name}", "search": name} for name in SEARCHES),
    *({"name": f"torch-{model}-{_words(options)}", "torch": model, "options": options} for model, options in TORCH),
)


def zoo_cases() -> list[Case]:
    """Models of the zoo in float32."""
    return [{"name": name, "model": name} for name in ZOO]


def images() -> Any:
    """A convolutional network with a residual, grouped, depthwise and pooling layers."""
    from onnx import helper

    rng = np.random.default_rng(0)
    nodes, weights = [], {}

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def conv(x: str, count: int, channels: int, size: int, group: int = 1, stride: int = 1) -> str:
        name = f"w{len(weights)}"
        weights[name] = 0.2 * rng.standard_normal((count, channels // group, size, size)).astype(np.float32)
        bias = f"w{len(weights)}"
        weights[bias] = rng.standard_normal(count).astype(np.float32)
        pads = [size // 2] * 4
        return add("Conv", x, name, bias, group=group, pads=pads, strides=[stride, stride], kernel_shape=[size, size])

    x = add("Relu", conv("x", 16, 3, 3, stride=2))
    y = add("Relu", conv(x, 16, 16, 3))
    x = add("Relu", add("Add", conv(y, 16, 16, 3), x))
    x = add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = add("HardSwish", conv(x, 32, 16, 1))
    x = add("Clip", conv(x, 32, 32, 5, group=32), *_limits(weights))
    x = add("Sigmoid", conv(x, 32, 32, 3, group=2))
    x = add("Flatten", add("GlobalAveragePool", x))
    weights["fc"] = rng.standard_normal((32, 10)).astype(np.float32)
    add("Softmax", add("MatMul", x, "fc"))
    return _model("images", nodes, weights, {"x": [1, 3, 32, 32]}, [1, 10])


def words() -> Any:
    """A layer of a transformer whose number of words is open."""
    from onnx import helper

    rng = np.random.default_rng(1)
    nodes, weights = [], {}

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], **attributes))
        return f"v{len(nodes) - 1}"

    def constant(array: Any) -> str:
        name = f"w{len(weights)}"
        weights[name] = np.asarray(array)
        return name

    def dense(x: str, rows: int, columns: int) -> str:
        weight = constant((rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32))
        return add("Add", add("MatMul", x, weight), constant(rng.standard_normal(columns).astype(np.float32)))

    def heads(x: str) -> str:
        return add("Transpose", add("Reshape", x, constant(np.array([1, -1, 4, 8], np.int64))), perm=[0, 2, 1, 3])

    def norm(x: str) -> str:
        gain = rng.standard_normal(32).astype(np.float32)
        return add("LayerNormalization", x, constant(gain), constant(gain[::-1].copy()), axis=-1)

    x = norm("x")
    query, key, value = (heads(dense(x, 32, 32)) for _ in range(3))
    scores = add("MatMul", query, add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = add("Softmax", add("Mul", scores, constant(np.float32(8**-0.5))), axis=-1)
    mixed = add("Transpose", add("MatMul", scores, value), perm=[0, 2, 1, 3])
    mixed = add("Reshape", mixed, constant(np.array([1, -1, 32], np.int64)))
    x = add("Add", dense(mixed, 32, 32), "x")
    x = add("Add", dense(add("Gelu", dense(norm(x), 32, 128), approximate="tanh"), 128, 32), x)
    return _model("words", nodes, weights, {"x": [1, "n", 32]}, [1, "n", 32])


def _limits(weights: dict[str, Any]) -> tuple[str, str]:
    weights["low"], weights["high"] = np.float32(0), np.float32(6)
    return "low", "high"


def _model(name: str, nodes: list[Any], weights: Mapping[str, Any], inputs: Mapping[str, Any], shape: Any) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, given) for name, given in inputs.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def make_module(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Makes a module of PyTorch and its inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if name == "perceptron":
        layers = [nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 10), nn.LogSoftmax(-1)]
        return nn.Sequential(*layers), (torch.randn(8, 24),)
    if name == "images":
        layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3)]
        return nn.Sequential(*layers, nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (torch.randn(2, 3, 16, 16),)
    if name == "attention":
        return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), (torch.randn(2, 12, 32),)
    if name == "recurrent":
        cell = nn.Linear(40, 24)

        class Recurrent(nn.Module):
            """Steps that are written out: `nn.LSTM` stays with PyTorch, and no executable is made of it."""

            def forward(self, rows: Any) -> Any:
                state = rows.new_zeros(2, 24)
                for step in range(6):
                    state = torch.tanh(cell(torch.cat([rows[:, step], state], 1)))
                return state

        return Recurrent().eval(), (torch.randn(2, 6, 16),)
    assert name == "embedding"
    return nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 16), nn.Tanh()), (torch.arange(24).reshape(2, 12) % 50,)


def observe(digests: list[dict[str, str]]) -> None:
    """Has every executable that is loaded from now on add the digests of its files and weights to a list."""
    from targets.executable import Executable

    plain: Callable[..., None] = Executable.__init__

    def note_files(
        self: Any, folder: Any, threads: Any = None, mapped: bool = False, weights: Any = None, *more: Any
    ) -> None:
        plain(self, folder, threads, mapped, weights, *more)
        files = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }
        if weights is not None:
            digest = hashlib.sha256()
            for part in [weights] if isinstance(weights, np.ndarray) else weights:
                digest.update(np.ascontiguousarray(part).tobytes())
            files["(weights)"] = digest.hexdigest()
        digests.append(files)

    Executable.__init__ = note_files  # type: ignore[method-assign, assignment]


def name_kernels_alike() -> None:
    """Leaves the digest of the packages' own code out of the names of kernels, where it is a part of a cache's key."""
    code = first_module("autotune.compiler.cache.code", "autotune.cache.code")
    code.code_digest = lambda: "any code"


def compile_case(case: Case) -> dict[str, str]:
    """Compiles a case and returns the digests of all files of its executables, by name; of a search, its records'."""
    if "search" in case:
        with tempfile.TemporaryDirectory() as folder:
            return search(case["search"], case["threads"], Path(folder), images)
    loaded: list[dict[str, str]] = []
    observe(loaded)
    options = {**case.get("options", {}), "threads": case["threads"]}
    if "torch" in case:
        import torch

        from autotune.pytorch.backend import autotune_backend

        module, inputs = make_module(case["torch"])
        compiled = torch.compile(module, backend=autotune_backend, options=options)
        if options.get("training"):
            compiled(*inputs).sum().backward()
        else:
            with torch.no_grad():
                compiled(*inputs)
    elif "language" in case:
        from autotune import language

        sizes = language.GPT2(vocabulary=96, hidden=64, layers=2, heads=4, positions=48)
        language.compile(language.gpt2(sizes), **options)
    else:
        import autotune

        model = case["model"] if "model" in case else {"images": images, "words": words}[case["build"]]()
        if case.get("build") == "words" and not case.get("open"):
            options["shapes"] = {"x": [1, 16, 32]}
        with tempfile.TemporaryDirectory() as folder:
            autotune.compile(model, **options).save(Path(folder) / "saved")
    return {f"{place}/{name}": digest for place, files in enumerate(loaded) for name, digest in files.items()}


if __name__ == "__main__":
    name_kernels_alike()
    print(json.dumps(compile_case(json.loads(sys.argv[1]))))
