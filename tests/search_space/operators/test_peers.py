"""The references against PyTorch and ONNX Runtime, whose word on what an operator means is the field's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from search_space import workloads
from search_space.workloads import Workload
from tests.search_space.operators.cases import SMALL

Array = np.ndarray


def compare(workload: Workload, expected: Array, inputs: list[Array]) -> None:
    rtol, atol = workload.tolerance
    np.testing.assert_allclose(workload.reference(*inputs), expected, rtol=rtol, atol=2 * atol)


def floats(*operators: str) -> list[Workload]:
    """Cases of these operators in float32."""
    found = [w for w in SMALL if w.operator in operators and w.args.get("dtype", "float32") == "float32"]
    assert {w.operator for w in found} == set(operators)
    return found


def outside(padding: Any) -> list[int]:
    """Padding as torch.nn.functional.pad takes it: the last axis first, before and after."""
    return [n for p in reversed(padding) for n in ((p, p) if isinstance(p, int) else p)]


CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "conv2d_transpose")


@pytest.mark.parametrize("workload", floats(*CONVOLUTIONS), ids=str)
def test_convolutions_against_torch(workload: Workload) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    args, inputs = workload.args, workload.make_inputs(2)
    x = torch.from_numpy(np.moveaxis(inputs[0], -1, 1).copy())
    weight = inputs[1]
    if workload.operator == "depthwise_conv2d":
        weight = weight[:, :, None]
    rank = weight.ndim - 2
    outer = (rank, rank + 1) if workload.operator == "conv2d_transpose" else (rank + 1, rank)
    weight = torch.from_numpy(weight.transpose(*outer, *range(rank)).copy())
    options: dict[str, Any] = {"bias": torch.from_numpy(inputs[2])} if args["bias"] else {}
    options |= {"stride": args["stride"], "padding": args["padding"]}
    if workload.operator == "conv2d_transpose":
        out = torch.nn.functional.conv_transpose2d(x, weight, output_padding=args["output_padding"], **options)
    else:
        groups = args.get("groups", args.get("channels"))
        function = getattr(torch.nn.functional, f"conv{rank}d")
        x, options["padding"] = torch.nn.functional.pad(x, outside(args["padding"])), 0
        out = function(x, weight, dilation=args["dilation"], groups=groups, **options)
    if args["activation"] is not None:
        out = getattr(torch.nn.functional, args["activation"])(out)
    compare(workload, np.moveaxis(out.numpy(), 1, -1), inputs)


def poolings() -> list[Workload]:
    """Returns the poolings that torch has; its means need windows padded alike on both sides."""
    alike = [w for w in floats("avg_pool2d") if all(isinstance(p, int) for p in w.args["padding"])]
    return [*floats("max_pool2d"), *alike]


@pytest.mark.parametrize("workload", poolings(), ids=str)
def test_pooling_against_torch(workload: Workload) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    args, (data,) = workload.args, workload.make_inputs(3)
    x, options = torch.from_numpy(data).permute(0, 3, 1, 2), {"kernel_size": args["kernel"], "stride": args["stride"]}
    if workload.operator == "avg_pool2d":
        options |= {"count_include_pad": args["count_padding"], "padding": args["padding"]}
    else:
        x = torch.nn.functional.pad(x, outside(args["padding"]), value=float("-inf"))
    out = getattr(torch.nn.functional, workload.operator)(x, **options)
    compare(workload, out.permute(0, 2, 3, 1).numpy(), [data])


@pytest.mark.parametrize("name", ["relu", "relu6", "sigmoid", "tanh", "gelu", "silu", "erf", "rsqrt", "log"])
def test_functions_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    workload = workloads.elementwise(name, (3, 4001))
    (data,) = workload.make_inputs(4)
    function = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    compare(workload, function(torch.from_numpy(data).double()).float().numpy(), [data])


def onnx_case(workload: Workload) -> tuple[str, dict[str, Any]]:
    """The node that means the same, and its attributes."""
    args = workload.args
    if workload.operator == "softmax":
        return "Softmax", {"axis": 1}
    if workload.operator == "layer_norm":
        return "LayerNormalization", {"axis": 1, "epsilon": args["epsilon"]}
    if workload.operator == "reduce":
        names = {
            "sum": "ReduceSum",
            "max": "ReduceMax",
            "min": "ReduceMin",
            "prod": "ReduceProd",
            "mean": "ReduceMean",
            "pivoted_mean": "ReduceMean",
        }
        return names[args["reducer"]], {"keepdims": 0}
    return "MatMul", {}


@pytest.mark.parametrize("workload", floats("softmax", "layer_norm", "matmul", "batch_matmul", "reduce"), ids=str)
def test_the_others_against_onnxruntime(workload: Workload) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnx import TensorProto, helper, numpy_helper

    kind, attributes = onnx_case(workload)
    inputs = workload.make_inputs(5)
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for s in workload.inputs]
    fixed = []
    if workload.operator == "reduce":
        fixed = [numpy_helper.from_array(np.array(workload.args["axes"], np.int64), "axes")]
    node = helper.make_node(kind, [v.name for v in values] + [f.name for f in fixed], ["out"], **attributes)
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, workload.output.shape)
    graph = helper.make_graph([node], "one", values, [out], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = run.run(None, {s.name: a for s, a in zip(workload.inputs, inputs, strict=True)})
    compare(workload, found, inputs)
