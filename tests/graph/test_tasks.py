"""Tasks of networks: which, how often, and layers that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from autotune.graph.onnx_model import ModelError, load_model
from autotune.graph.tasks import extract
from search_space import workloads
from tests.graph.helpers import save, save_conv, weight


def test_resnet50_has_24_distinct_layers_among_53_convolutions_and_one_dense() -> None:
    tasks = extract(load_model("resnet50"))
    dense = [task for task in tasks if task.workload.operator == "dense"]
    convolutions = [task for task in tasks if task.workload.operator == "conv2d"]
    assert len(convolutions) == 23
    assert sum(task.weight for task in convolutions) == 53
    assert [(task.name, task.weight) for task in dense] == [("dense_1_2048_1000", 1)]
    assert tasks[0].name == "conv7x7_224x224_3_64_s2"
    assert tasks[-1] == dense[0]
    by_name = {task.name: task for task in tasks}
    assert len(by_name) == len(tasks)
    assert by_name["conv3x3_56x56_64_64_s1"].weight == 3
    assert by_name["conv3x3_56x56_64_64_s1"].workload == workloads.conv2d(
        height=56, width=56, in_channels=64, out_channels=64, kernel=3, padding=1
    )


def test_resnet50_adds_up_to_its_known_operations() -> None:
    total = sum(task.weight * task.workload.flops for task in extract(load_model("resnet50")))
    assert total == pytest.approx(2 * 4.09e9, rel=0.002)  # multiply-adds of ResNet-50 with strides in its 3x3 layers


@pytest.mark.parametrize(
    ("name", "distinct", "total"), [("vgg19", 12, 19), ("squeezenet", 18, 26), ("densenet121", 67, 121)]
)
def test_counts_of_other_networks(name: str, distinct: int, total: int) -> None:
    tasks = extract(load_model(name))
    assert (len(tasks), sum(task.weight for task in tasks)) == (distinct, total)


def test_one_channel_a_group_is_depthwise() -> None:
    tasks = extract(load_model("shufflenet"))
    found = next(task for task in tasks if task.workload.operator == "depthwise_conv2d")
    assert found.name == "depthwise3x3_56x56_112_s2"
    assert found.workload == workloads.depthwise_conv2d(1, 56, 56, 112, 3, 2, 1)


def test_groups_are_kept() -> None:
    found = next(task for task in extract(load_model("alexnet")) if "_g2" in task.name)
    assert found.workload.args["groups"] == 2
    assert found.workload.inputs[1].shape == (5, 5, 48, 256)


def test_attributes_reach_the_workload(tmp_path: Path) -> None:
    path = save_conv(
        tmp_path / "m.onnx",
        (2, 8, 9, 12),
        (16, 8, 3, 1),
        bias=True,
        strides=[2, 3],
        pads=[2, 0, 2, 0],
        dilations=[2, 1],
    )
    (task,) = extract(load_model(path))
    assert task.name == "conv3x1_9x12_8_16_s2x3_d2x1"
    assert task.workload.output.shape == (2, 5, 4, 16)
    assert len(task.workload.inputs) == 3


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ({"auto_pad": "SAME_UPPER"}, (6, 6)),
        ({"auto_pad": "VALID", "pads": [1, 1, 1, 1]}, (4, 4)),
        ({"pads": [1, 0, 1, 0]}, (6, 4)),
    ],
)
def test_padding(tmp_path: Path, attributes: dict[str, object], size: tuple[int, int]) -> None:
    (task,) = extract(load_model(save_conv(tmp_path / "m.onnx", **attributes)))
    assert task.workload.output.shape[1:3] == size


@pytest.mark.parametrize(
    ("attributes", "shown"),
    [
        ({"pads": [0, 0, 1, 1]}, r"pads=\[0, 0, 1, 1\]"),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, r"auto_pad=SAME_UPPER, total=\[1, 1\]"),
    ],
)
def test_asymmetric_padding(tmp_path: Path, attributes: dict[str, object], shown: str) -> None:
    model = load_model(save_conv(tmp_path / "m.onnx", **attributes))
    with pytest.raises(ModelError, match="Conv node 'only' must be padded alike before and after, but got " + shown):
        extract(model)


def test_convolution_of_one_dimension(tmp_path: Path) -> None:
    model = load_model(save_conv(tmp_path / "m.onnx", (1, 8, 6), (16, 8, 3)))
    with pytest.raises(ModelError, match=r"must be two-dimensional, .*got input shape=\(1, 8, 6\)"):
        extract(model)


def test_same_layer_counts_once_and_products_are_told_apart(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Gemm", ["b", "w", "c"], ["d"], transB=1),
        helper.make_node("MatMul", ["d", "z"], ["e"]),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 8), "z": (8, 5)}, [weight("w", 8, 8), weight("c", 8)])
    tasks = extract(load_model(path))
    assert [(task.name, task.weight) for task in tasks] == [
        ("dense_4_8_8", 2),
        ("dense_4_8_8_2", 1),
        ("matmul_4_5_8", 1),
    ]
    assert not tasks[2].workload.inputs[1].constant


def test_leading_dimensions_of_a_dense_layer_are_rows_and_batched_products_are_left_out(
    tmp_path: Path,
) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("MatMul", ["a", "x"], ["b"])]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3, 3)}, [weight("w", 3, 3)])
    assert [task.name for task in extract(load_model(path))] == ["dense_6_3_3"]


@pytest.mark.parametrize(("attributes", "shown"), [({"alpha": 0.5}, "alpha=0.5"), ({"transA": 1}, "transA=1")])
def test_gemm_that_no_workload_describes(tmp_path: Path, attributes: dict[str, float], shown: str) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], name="only", **attributes)
    model = load_model(save(tmp_path / "m.onnx", [node], {"x": (8, 8)}, [weight("w", 8, 8)]))
    with pytest.raises(ModelError, match="Gemm node 'only' .* but got " + shown):
        extract(model)


def test_bias_that_is_not_one_a_column(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["x", "w", "c"], ["y"], name="only")
    model = load_model(save(tmp_path / "m.onnx", [node], {"x": (4, 8)}, [weight("w", 8, 8), weight("c", 4, 1)]))
    with pytest.raises(ModelError, match=r"must add 8 values a row, but got shape=\(4, 1\)"):
        extract(model)


def test_operand_of_unknown_shape(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="only"),
    ]
    model = load_model(save(tmp_path / "m.onnx", nodes, {"x": (4, 8)}, [weight("w", 8, 8)]))
    with pytest.raises(ModelError, match=r"MatMul node 'only' must have a shape that can be inferred, but got f=\?"):
        extract(model)
