"""Executables of open sizes: ONNX models whose shapes leave some open, held to ONNX's evaluator at many sizes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from autotune.compiler.executable.graph_family import GraphFamily
from autotune.compiler.executable.open_kernels import ConstantPacking, OpenKernels, choose_kernels
from autotune.compiler.executable.shapes import FIXED, NotOpen, Range, ShapeSet
from autotune.config import ConfigError
from autotune.graph.ir import Graph, GraphBuilder
from autotune.graph.types import TensorType
from autotune.schedule import Schedule
from search_space.schedule.trace import Trace
from search_space.workloads import Workload
from targets import registry
from targets.manifest import MANIFEST, ExecutableError, read_manifest, write_manifest
from targets.native_executable import FORMAT, NativeExecutable

pytestmark = pytest.mark.usefixtures("kernel_cache")

LONGEST, FEATURES = 24, 8


def draw_values(*shape: int) -> np.ndarray:
    """Draws the same values every time."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int | str], outputs: list[str]
) -> onnx.ModelProto:
    """A model of one input `x`."""
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "open", given, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def attention() -> onnx.ModelProto:
    """Causal attention with positions: constants of which each length takes the beginning, along one axis and two."""
    weights = {name: draw_values(3, FEATURES, FEATURES)[place] / 3 for place, name in enumerate("qkv")}
    weights["positions"] = draw_values(LONGEST, FEATURES)
    weights["mask"] = np.triu(np.full((LONGEST, LONGEST), -1e9, np.float32), 1)[None]
    weights |= {"zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64), "zeros": np.zeros(2, np.int64)}
    weights["scale"] = np.float32(FEATURES**-0.5)
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Slice", ["positions", "zero", "n", "zero"], ["p"]),
        helper.make_node("Add", ["x", "p"], ["h"]),
        *(helper.make_node("MatMul", ["h", name], [f"{name}h"]) for name in ("q", "k", "v")),
        helper.make_node("Transpose", ["kh"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["qh", "kt"], ["s"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
        helper.make_node("Concat", ["n", "n"], ["nn"], axis=0),
        helper.make_node("Add", ["one", "one"], ["two"]),
        helper.make_node("Concat", ["one", "two"], ["axes"], axis=0),
        helper.make_node("Slice", ["mask", "zeros", "nn", "axes"], ["m"]),
        helper.make_node("Add", ["scaled", "m"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["w"], axis=-1),
        helper.make_node("MatMul", ["w", "vh"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["y"]),
    ]
    return model(nodes, weights, [1, "n", FEATURES], ["y"])


def make_mean_model() -> onnx.ModelProto:
    """A mean over the length, which divides by it, the length twice over, and the input in one row."""
    weights = {"w": draw_values(FEATURES, 5), "row": np.array([-1], np.int64)}
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["xx"], axis=1),
        helper.make_node("MatMul", ["xx", "w"], ["y"]),
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[1], keepdims=0),
        helper.make_node("Reshape", ["x", "row"], ["r"]),
    ]
    return model(nodes, weights, [1, "n", FEATURES], ["y", "m", "r"])


def make_product_model() -> onnx.ModelProto:
    """A product of weights with transposed rows, which have more elements than the rest only if there are many."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Transpose", ["w"], ["v"], perm=[1, 0]),
        helper.make_node("MatMul", ["v", "t"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    return model(nodes, {"w": draw_values(FEATURES, 2)}, ["n", FEATURES], ["y"])


def convolution() -> onnx.ModelProto:
    """Returns a convolution for any number of images."""
    weights = {"w": draw_values(16, 4, 3, 3) / 6}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    return model(nodes, weights, ["n", 4, 9, 9], ["y"])


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int | str, ...]]] = {
    "attention": (attention, (1, "n", FEATURES)),
    "pooled": (make_mean_model, (1, "n", FEATURES)),
    "convolution": (convolution, ("n", 4, 9, 9)),
    "product": (make_product_model, ("n", FEATURES)),
}


def compile_model(name: str, low: int = 1, high: int = LONGEST) -> autotune.compiler.executable.Executable:
    make, shape = MODELS[name]
    return autotune.compile(make(), shapes={"x": shape}, sizes={"n": (low, high)}, threads=1)


def inputs(name: str, n: int) -> np.ndarray:
    shape = [n if extent == "n" else int(extent) for extent in MODELS[name][1]]
    return np.random.default_rng(n).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_one_executable_is_right_at_all_sizes(name: str) -> None:
    network = compile_model(name)
    oracle = ReferenceEvaluator(MODELS[name][0]())
    for n in (LONGEST, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 23):
        x = inputs(name, n)
        found, wanted = network(x), oracle.run(None, {"x": x})
        for mine, theirs in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def network() -> NativeExecutable:
    found = compile_model("attention", 2)
    assert isinstance(found, NativeExecutable)
    return found


def test_it_says_what_it_takes(network: NativeExecutable) -> None:
    assert network.sizes == {"n": (2, LONGEST)}
    assert [(p.name, p.shape, p.extents) for p in network.inputs] == [("x", (1, LONGEST, FEATURES), (1, "n", FEATURES))]
    assert "x[1, n, 8]" in (network.folder / f"{network.name}.h").read_text()
    for n in (1, LONGEST + 1):
        with pytest.raises(ExecutableError, match=f"size `n` must be 2 to {LONGEST}, but axis 1 of `x` is {n}"):
            network(inputs("attention", n))
    with pytest.raises(ExecutableError, match="must be float32 of shape"):
        network(np.zeros((1, 5, FEATURES + 1), np.float32))
    with pytest.raises(ExecutableError, match=r"`sizes` must be n from 2 to 24, but got \[25\]"):
        network.infer_at([64, 64], [25])
    with pytest.raises(ExecutableError, match=r"`sizes` must be n from 2 to 24, but got \[\]"):
        network.infer_at([64, 64])


def test_it_is_timed_at_the_sizes_of_the_last_call(network: NativeExecutable) -> None:
    network(inputs("attention", 5))
    assert network.time(3).shape == (3,)
    taken = network.profile(2).seconds
    titles = [step["title"] for step in network.manifest["steps"]]
    assert taken.shape == (2, len(titles)) and (taken >= 0).all()
    cases = titles.count(titles[-1])
    of_each = taken.reshape(2, cases, len(titles) // cases).sum((0, 2))
    assert cases > 1 and (of_each > 0).sum() == 1  # no other case ran


def test_it_is_saved_loaded_and_pickled(network: NativeExecutable, tmp_path: Path) -> None:
    x = inputs("attention", 11)
    wanted = network(x)
    for other in (autotune.load(network.save(tmp_path)), pickle.loads(pickle.dumps(network))):
        assert other.sizes == network.sizes
        np.testing.assert_array_equal(other(x), wanted)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("sizes", {"n": [0, 9]}, "`manifest.sizes` must be ranges by name"),
        ("sizes", {"n": 3}, "`manifest.sizes` must be ranges by name"),
        ("sizes", {"m": [1, 9]}, "`extents` of x must be of the sizes"),
        ("sizes", {"n": [2, 100]}, "`extents` of x must be its shape at the largest sizes"),
    ],
)
def test_sizes_that_cannot_be_are_refused(
    network: NativeExecutable, tmp_path: Path, key: str, value: object, why: str
) -> None:
    folder = network.save(tmp_path)
    write_manifest({**read_manifest(folder, FORMAT), key: value}, folder)
    with pytest.raises(ExecutableError, match=why):
        autotune.load(folder)
    assert (folder / MANIFEST).exists()


def test_extents_that_cannot_be_are_refused(network: NativeExecutable, tmp_path: Path) -> None:
    folder = network.save(tmp_path)
    manifest = read_manifest(folder, FORMAT)
    for bad in ("n", ["n"], [1, ["floordiv", "n", 1], 8], [1, ["mul", "n"], 8]):
        manifest["inputs"][0]["extents"] = bad
        write_manifest(manifest, folder)
        with pytest.raises(ExecutableError, match="`extents` of x must be"):
            autotune.load(folder)


def test_a_configuration_with_sizes_is_compiled(tmp_path: Path) -> None:
    onnx.save(attention(), tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text(
        f"model: {tmp_path}/m.onnx\noutput: {tmp_path}/run\ntrials: 0\nmeasure: {{threads: 1}}\n"
        f"network:\n  shapes: {{x: [1, n, {FEATURES}]}}\n  sizes: {{n: [2, 9]}}\n"
    )
    done = CliRunner().invoke(app, ["compile", str(tmp_path / "c.yaml")])
    assert done.exit_code == 0, done.output
    x = inputs("attention", 7)
    wanted = ReferenceEvaluator(attention()).run(None, {"x": x})[0]
    np.testing.assert_allclose(autotune.load(tmp_path / "run/network")(x), wanted, rtol=1e-4, atol=1e-5)
    refused = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml")])
    assert refused.exit_code != 0 and "`sizes` must be left out" in refused.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"shapes": {"x": (1, "n", 8)}, "sizes": {"n": (3, 3)}}, r"must be \[least, greatest\] of 1 or more"),
        ({"shapes": {"x": (1, "n", 8)}, "sizes": {"n": (0, 3)}}, r"must be \[least, greatest\]"),
        ({"shapes": {"x": (1, "n", 8)}}, "names in `shapes` must be among `sizes`"),
        (
            {"shapes": {"x": (1, 4, 8)}, "sizes": {"n": (1, 3)}},
            "each of `sizes` must stand in `shapes`, but n does not",
        ),
        ({"shapes": {"x": (1, "n", 8)}, "sizes": {"n": (1, 3)}, "trials": 8}, "`trials` must be left out"),
        ({"shapes": {"x": (1, "n", 8)}, "sizes": {"n": (1, 3)}, "precision": "mixed"}, "must be left out"),
        (
            {"shapes": {"x": (1, "n", 8)}, "sizes": {"n": (1, 3)}, "target": "c"},
            "one whose kernels take them, but got c",
        ),
    ],
)
def test_what_does_not_go_with_sizes_is_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        autotune.compile(attention(), **arguments)


def test_a_length_that_is_halved_is_refused() -> None:
    weights = {"w": np.ones((4, FEATURES, 3), np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1], strides=[2])]
    halved = model(nodes, weights, [1, FEATURES, "n"], ["y"])
    with pytest.raises(ConfigError, match="network.sizes: .* at all sizes"):
        autotune.compile(halved, shapes={"x": (1, FEATURES, "n")}, sizes={"n": (1, 40)}, threads=1)


# ------------------------------------------------------------------ graphs
def graph(n: int, *ops: str, scale: float = 2.0) -> Graph:
    """Element-wise operations on n rows, a softmax, and a product with weights of one value."""
    builder = GraphBuilder("graph", {"x": TensorType((n, 4), "float32")})
    value = "x"
    for op in ops:
        value = builder.add(op, [value])
    weights = builder.constant(np.full((4, 4), scale, np.float32))
    return builder.finish([builder.add("matmul", [builder.add("softmax", [value]), weights])])


def family(make: Callable[[int], Graph]) -> GraphFamily:
    return GraphFamily(lambda point: make(*point), ShapeSet.of({"n": (2, 32)}))


def test_graphs_that_differ_are_refused() -> None:
    assert family(lambda n: graph(n, "relu", "tanh")).count == 3
    with pytest.raises(NotOpen, match=r"must have the same kernels at all sizes, but has tanh in place of relu at 2"):
        family(lambda n: graph(n, "relu" if n > 9 else "tanh"))
    with pytest.raises(NotOpen, match="has softmax in place of relu at 2"):
        family(lambda n: graph(n, *(["relu"] if n > 9 else [])))
    with pytest.raises(NotOpen, match="the constant '.*' must be the same at all sizes, but is another one at 2"):
        family(lambda n: graph(n, scale=float(n)))


def test_a_fixed_shape_is_the_set_of_one_point() -> None:
    one = graph(5, "relu", "tanh")
    alone = GraphFamily(lambda point: one, FIXED)
    assert ShapeSet.of({}) is FIXED and alone.points == [()] and FIXED.exact == ((),)
    assert alone.scopes == [alone.largest] and alone.largest is alone.scope(())
    assert [(p.shape, p.extents) for p in map(alone.parameter, (*one.inputs, *one.outputs))] == [((5, 4), ())] * 2


# ------------------------------------------------------------------ ranges
def test_cells_have_all_sizes_once() -> None:
    for low, high in ((1, 3), (2, 9), (3, 4000), (130, 600), (1, 8)):
        found = ShapeSet.of({"n": (low, high)})
        sizes = [n for each in found.cells for n in range(each.least[0], each.greatest[0] + 1)]
        assert [n for (n,) in found.exact] + sizes == list(range(low, high + 1))
        assert found.least == (max(low, 2),) and max(found.samples) < (high,)
    pairs = ShapeSet.of({"b": (2, 40), "n": (3, 70)})
    held = [
        [all(a <= m <= b for m, (a, b) in zip((b_, n), r.spans, strict=True)) for r in pairs.cells]
        for b_ in range(2, 41)
        for n in range(3, 71)
    ]
    assert all(sum(each) == 1 for each in held)
    assert pairs.samples == tuple(each.least for each in pairs.cells)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"b": (1, 4), "n": (2, 70)}, "each must be at least 2, but got b from 1"),
        ({"n": (1, 2)}, "must have several of 2 and more, but n ends at 2"),
        ({"n": (7, 7)}, "must have several of 2 and more, but n ends at 7"),
    ],
)
def test_sizes_without_ranges_are_refused(sizes: dict[str, tuple[int, int]], why: str) -> None:
    with pytest.raises(NotOpen, match=why):
        ShapeSet.of(sizes)


def cells(*least: int) -> list[Range]:
    """Returns ranges that each end before the next one; the last has a single size."""
    return [Range((a,), (b - 1,)) for a, b in zip(least, (*least[1:], least[-1] + 1), strict=True)]


ALIKE = ConstantPacking("rows", 1000)


def test_each_range_has_the_schedules_that_lose_the_least() -> None:
    inf = np.inf
    seconds = np.array(
        [
            [[2.0, 4.0, 8.0, 16.0], [inf, 2.0, 4.0, 6.0], [inf, inf, 3.0, 6.0]],
            [[1.0, 1.0, 1.0, 1.0], [inf, 1.0, 1.0, 1.0], [inf, inf, 1.0, 1.0]],
        ]
    )
    found = choose_kernels(cells(2, 4, 8, 16), seconds, np.array([1, 3]), [[ALIKE] * 3] * 2)
    assert [(each.least, each.greatest) for each, _ in found] == [((2,), (3,)), ((4,), (7,)), ((8,), (16,))]
    assert [places[0] for _, places in found] == [0, 1, 2]
    assert found[0][1][1] == 0  # the others do not hold there


def test_a_range_that_saves_next_to_nothing_is_none() -> None:
    seconds = np.array([[[1.0, 1.0001, 1.0], [np.inf, 1.0, 1.0001]]])
    assert choose_kernels(cells(2, 4, 8), seconds, np.array([1]), [[ALIKE] * 2]) == [(Range((2,), (8,)), [0])]


def test_another_way_to_pack_must_be_worth_its_memory() -> None:
    def packings(gain: float) -> set[int]:
        seconds = np.array([[[1.0, 1.0 + gain], [np.inf, 1.0]]])
        found = choose_kernels(cells(2, 4), seconds, np.array([1]), [[ALIKE, ConstantPacking("columns", 1000)]])
        return {places[0] for _, places in found}

    assert packings(0.5) == {0, 1}
    assert packings(0.012) == {0}  # where it is alike, this is a range of its own
    seconds = np.array([[[1.0, 1.012], [np.inf, 1.0]]])
    assert len(choose_kernels(cells(2, 4), seconds, np.array([1]), [[ALIKE] * 2])) == 2


def test_a_kernel_that_takes_next_to_no_time_has_its_best_schedule_too() -> None:
    """All other kernels take 1e10 times as long, and schedules that do not hold cost more yet."""
    seconds = np.ones((2, 3, 27))
    seconds[0] = np.inf
    seconds[0, 0], seconds[0, 1, 3:], seconds[0, 2, 5:] = 1.002e-10, 1.001e-10, 1e-10
    found = choose_kernels(cells(*range(2, 29)), seconds, np.array([1, 20]), [[ALIKE] * 3] * 2)
    assert [places for _, places in found] == [[0, 0]]  # ranges of its own would save nothing
    seconds[1, :2, 5:] = seconds[1, 2, :5] = 1.5
    found = choose_kernels(cells(*range(2, 29)), seconds, np.array([1, 20]), [[ALIKE] * 3] * 2)
    assert [places for _, places in found] == [[0, 0], [2, 2]]


def test_a_kernel_without_a_size_takes_as_long_at_all_sizes() -> None:
    def two(n: int) -> Graph:
        builder = GraphBuilder("graph", {"x": TensorType((n, 4), "float32"), "fixed": TensorType((8, 4), "float32")})
        return builder.finish([builder.add("softmax", ["x"]), builder.add("softmax", ["fixed"])])

    def plain(workload: Workload) -> Schedule:
        return Schedule(workload.algorithms[0], Trace(()))

    ranges = OpenKernels(family(two), plain, registry.get("cpu"), 1, False).choose()
    fixed = [candidate for _, kernels in ranges for candidate in kernels if not candidate.terms]
    assert len(fixed) == len(ranges) and all(candidate is fixed[0] for candidate in fixed)
    assert np.ptp(fixed[0].seconds) == 0 and fixed[0].seconds[0] < 1e-3


def test_of_several_sizes_each_cell_is_a_range() -> None:
    every = ShapeSet.of({"b": (2, 40), "n": (3, 70)}).cells
    seconds = np.ones((1, 2, len(every)))
    seconds[0, 1, 1] = 0.5
    found = choose_kernels(every, seconds, np.array([1]), [[ALIKE] * 2])
    assert [each for each, _ in found] == list(every) and found[1][1] == [1] and found[0][1] == [0]
