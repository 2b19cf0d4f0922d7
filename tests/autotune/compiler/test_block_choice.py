"""Blocks of sparse weights: those of the table without measurements, and the fastest of a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

import autotune
from autotune.compiler.block_choice import ChooseBlocks, never_measured, read_seconds
from autotune.compiler.lock import lock_text
from autotune.compiler.options import CompileOptions
from autotune.compiler.prepare import load_network
from autotune.compiler.selection import Limits
from autotune.compiler.tasks import list_tasks
from autotune.graph.ir import Graph
from autotune.tuner.task import Task
from autotune.tuner.untimed import select_by_roofline
from measure.database import Database
from search_space.schedule.trace import compute_key
from search_space.workloads import Workload
from tests.autotune.fakes import settings_with
from tests.autotune.graph.onnx_models import model_from, runtime
from tests.autotune.graph.passes.test_sparse_products import layer
from tests.measure.helpers import change_record, record
from tests.search_space.operators.test_sparse import prune


def blocks(graph: Graph) -> list[tuple[int, int]]:
    """Columns and depth of the blocks of each sparse product."""
    shapes = [graph.type(node.inputs[1]).shape for node in graph.nodes if node.op.startswith("sparse")]
    return [(columns, depth) for *_, depth, columns in shapes]


def block_size(workload: Workload) -> tuple[int, int]:
    columns, depth = workload.anchor.args["block"]
    return columns, depth


def sparse_tasks(graph: Graph) -> list[Task]:
    """Tasks of the first choice, then its alternatives."""
    result = ChooseBlocks(0.5, 1).apply(graph)
    own = [task for task in list_tasks(result.graph) if task.workload.anchor.operator == "sparse_matmul"]
    return [*own, *result.fact]


def test_the_fastest_measured_blocks_are_taken() -> None:
    graph = layer(prune(32, 64, (16, 1), 0.3))
    seconds = {(16, 1): 3.0, (8, 1): 1.0}
    unmeasured = ChooseBlocks(0.5, 1).apply(graph)
    assert blocks(unmeasured.graph) == [(16, 1)]
    assert [block_size(task.workload) for task in unmeasured.fact] == [(8, 1), (4, 1)]
    assert unmeasured.fact[0].name == "sparse_matmul_24x32_64_8x1_add_relu_alternative1"
    measured = ChooseBlocks(0.5, 1, lambda workload: seconds.get(block_size(workload))).apply(graph)
    assert blocks(measured.graph) == [(8, 1)]
    assert {block_size(task.workload) for task in measured.fact} == {(16, 1), (4, 1)}


def test_blocks_that_are_far_from_the_best_are_not_measured() -> None:
    assert ChooseBlocks(0.5, 1).apply(layer(prune(32, 64, (1, 1), 0.1))).fact == ()


def test_records_say_how_long_kernels_take(tmp_path: Path) -> None:
    graph, settings, records = layer(prune(32, 64, (16, 1), 0.3)), settings_with(threads=1), tmp_path / "records.jsonl"
    assert read_seconds(records, settings, Limits()) is never_measured
    first, *others = (task.workload for task in sparse_tasks(graph))
    with Database(records) as database:
        for workload, seconds in ((first, 3e-3), (others[0], 1e-3)):
            trial = {"workload_key": workload.key, "target": "cpu", "threads": 1, "cache": settings.measure.cache}
            database.append(change_record(record(seconds), trace=[], trace_key=compute_key([]), **trial))
    seconds = read_seconds(records, settings, Limits())
    assert [seconds(workload) for workload in (first, *others)] == [3e-3, 1e-3, None]
    assert blocks(ChooseBlocks(0.5, 1, seconds).apply(graph).graph) == [block_size(others[0])]


def test_blocks_are_those_of_a_lock_file(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = model_from(nodes, {"x": np.zeros((3, 16), np.float32)}, {"w": prune(16, 32, (16, 1), 0.3)})
    network = load_network(model, "pruned", CompileOptions(sparsity=0.5))
    task = network.alternatives[0]
    lock = tmp_path / "schedules.lock"
    lock.write_text(lock_text([select_by_roofline(task, settings_with(threads=1))]))
    executable = autotune.compile(model, sparsity=0.5, cache="none", threads=1, lock=lock)
    (step,) = executable.manifest["steps"]
    assert step["workload"] == task.workload.key


def test_a_search_measures_the_alternatives(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    model = model_from(nodes, {"x": np.zeros((3, 16), np.float32)}, {"w": prune(16, 32, (16, 1), 0.3)})
    network = autotune.compile(model, sparsity=0.5, trials=3, cache="none", threads=1, output=tmp_path)
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(network(x)), runtime(model, {"x": x})[0], 1e-5, 1e-5)
    plain = load_network(model, "plain", CompileOptions(sparsity=0.5))
    listed = [task.workload for task in (*plain.tasks, *plain.alternatives)]
    with Database(tmp_path / "records.jsonl", readonly=True) as database:
        searched = {found.workload_key for found in database}
    (step,) = network.manifest["steps"]
    assert len(listed) == 3 and searched <= {each.key for each in listed} and step["workload"] in searched
