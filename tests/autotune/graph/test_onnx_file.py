"""ONNX files read without their large weights hold what `onnx.load` reads, and are refused where they changed."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.onnx.file import (
    LEAST_BYTES,
    is_of_one_file,
    read_array,
    read_without_weights,
    reading_once,
)
from autotune.graph.frontends.onnx.importer import import_model
from autotune.graph.frontends.onnx.model import load_model

LARGE = LEAST_BYTES // 4


def model(*tensors: TensorProto, reads: str = "large") -> onnx.ModelProto:
    """x + large, and other initialisers."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [LARGE]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", reads], ["y"])], "g", kinds[:1], kinds[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="a" * 300)


def draw_tensor(name: str, dtype: str = "float32", count: int = LARGE) -> TensorProto:
    array = np.random.default_rng(count).standard_normal(count) * 9
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return numpy_helper.from_array(array.astype(helper.tensor_dtype_to_np_dtype(kind)), name)


def write_model(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def test_large_floats_stay_in_the_file_and_all_else_is_read(tmp_path: Path) -> None:
    tensors = [
        *(draw_tensor("large"), draw_tensor("half", "float16", 2 * LARGE), draw_tensor("double", "float64")),
        *(draw_tensor("small", count=LARGE - 1), draw_tensor("whole", "int32")),
        helper.make_tensor("listed", TensorProto.FLOAT, [LARGE], np.ones(LARGE)),
        numpy_helper.from_array(np.ones((4, LARGE // 4), np.float32), "square"),
    ]
    made = model(*tensors)
    path = write_model(tmp_path / "m.onnx", made)
    found = read_without_weights(path)
    assert found is not None
    assert found.ByteSize() < made.ByteSize() - 4 * LEAST_BYTES
    left = [t.name for t in found.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert left == ["large", "half", "double", "square"]
    for mine, theirs in zip(found.graph.initializer, made.graph.initializer, strict=True):
        wanted = numpy_helper.to_array(theirs)
        assert read_array(mine).dtype == wanted.dtype
        np.testing.assert_array_equal(read_array(mine), wanted)
    assert found.graph.node == made.graph.node
    assert (found.producer_name, found.opset_import) == (made.producer_name, made.opset_import)


def test_of_a_model_that_is_read_again_each_array_is_read_once(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx", model(draw_tensor("large")))

    def weights() -> np.ndarray:
        found = read_without_weights(path)
        assert found is not None
        return read_array(found.graph.initializer[0])

    known: dict[Hashable, np.ndarray] = {}
    with reading_once(known):
        first = weights()
        assert weights() is first and len(known) == 1
        write_model(path, model(draw_tensor("large", count=2 * LARGE)))
        os.utime(path, ns=(1, 1))
        assert weights().shape == (2 * LARGE,)  # it is another file now
    assert weights() is not weights()


def test_a_graph_is_the_same_either_way(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx", model(draw_tensor("large"), draw_tensor("small", count=3)))
    one, other = (import_model(load_model(path, weights=weights)) for weights in (False, True))
    assert (str(one.nodes), one.inputs, one.outputs) == (str(other.nodes), other.inputs, other.outputs)
    assert list(one.constants) == list(other.constants)
    for name, array in other.constants.items():
        np.testing.assert_array_equal(one.constants[name], array)


def test_torn_files_are_left_to_onnx(tmp_path: Path) -> None:
    (tmp_path / "torn.onnx").write_bytes(model(draw_tensor("large")).SerializeToString()[:-20])
    assert read_without_weights(tmp_path / "torn.onnx") is None
    (tmp_path / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(2 * LEAST_BYTES))
    assert read_without_weights(tmp_path / "noise.onnx") is None
    with pytest.raises(UnsupportedModelError, match="must be a complete ONNX file"):
        load_model(tmp_path / "noise.onnx", weights=False)


def test_a_stated_default_location_is_in_the_file(tmp_path: Path) -> None:
    tensor = draw_tensor("large")
    tensor.data_location = TensorProto.DEFAULT  # a field of its own, which onnx.save writes after it read another file
    found = read_without_weights(write_model(tmp_path / "m.onnx", model(tensor)))
    assert found is not None and is_of_one_file(found)
    assert found.ByteSize() < LEAST_BYTES


def test_large_floats_stay_in_separate_files_and_all_else_is_read(tmp_path: Path) -> None:
    tensors = [draw_tensor("large"), draw_tensor("half", "float16", 2 * LARGE), draw_tensor("small", count=3)]
    tensors.append(draw_tensor("whole", "int64"))
    made, path = model(*tensors), tmp_path / "m.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights", size_threshold=0)
    found = read_without_weights(path)
    assert found is not None and not is_of_one_file(found)
    left = [t.name for t in found.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    assert left == ["large", "half"] and not any(t.HasField("raw_data") for t in found.graph.initializer[:2])
    for mine, theirs in zip(found.graph.initializer, model(*tensors).graph.initializer, strict=True):
        np.testing.assert_array_equal(read_array(mine), read_array(theirs))
    (graph,) = {str(import_model(load_model(path, weights=weights)).nodes) for weights in (False, True)}
    assert "large" in graph
    os.utime(tmp_path / "weights", (1, 1))
    with pytest.raises(UnsupportedModelError, match="must stay as it is while it is compiled, but .* has changed"):
        read_array(found.graph.initializer[0])


@pytest.mark.filterwarnings("ignore:Ignoring unknown external data")
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("longer", "exceeds available data"),
        ("shorter", "must have 65536 bytes, but has 65532"),
        ("elsewhere", "outside the directory"),
        ("stamped", "outside the directory"),
        ("link", "symbolic link"),
        ("missing", "not regular file"),
    ],
)
def test_separate_files_are_read_only_as_onnx_reads_them(how: str, message: str, tmp_path: Path) -> None:
    made, path = model(draw_tensor("large")), tmp_path / "models" / "m.onnx"
    path.parent.mkdir()
    onnx.save(made, path, save_as_external_data=True, location="weights", size_threshold=0)
    changed, weights = onnx.load(path, load_external_data=False), path.parent / "weights"
    entries = {entry.key: entry for entry in changed.graph.initializer[0].external_data}
    if how in ("longer", "shorter"):
        entries["length"].value = str(int(entries["length"].value) + (4 if how == "longer" else -4))
    elif how == "missing":
        weights.unlink()
    else:
        target = weights.rename(tmp_path / "weights")
        if how == "link":
            weights.symlink_to(target)
        else:
            entries["location"].value = "../weights"
        if how == "stamped":
            facts = target.stat()
            stamp = f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
            changed.graph.initializer[0].external_data.add(key="stamp", value=stamp)
    write_model(path, changed)
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(load_model(path, weights=False))


@pytest.mark.parametrize("how", ["touched", "shortened", "removed"])
def test_a_file_that_changes_meanwhile_is_refused(how: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx", model(draw_tensor("large")))
    found = read_without_weights(path)
    assert found is not None
    if how == "touched":
        os.utime(path, (1, 1))
    elif how == "shortened":
        os.truncate(path, 1000)
    else:
        path.unlink()
    with pytest.raises(UnsupportedModelError, match="must stay as it is while it is compiled, but .* has changed"):
        read_array(found.graph.initializer[0])


@pytest.mark.parametrize("weights", [True, False])
def test_nodes_without_an_output_or_a_text_are_refused(weights: bool, tmp_path: Path) -> None:
    silent, garbled = model(draw_tensor("large")), model(draw_tensor("large"))
    del silent.graph.node[0].output[:]
    operator = garbled.graph.node[0].op_type.encode()
    for name, data in (
        ("silent", silent.SerializeToString()),
        ("garbled", garbled.SerializeToString().replace(operator, b"\xff" * len(operator), 1)),
    ):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        with pytest.raises(
            UnsupportedModelError, match="nodes of `model` must have an operator and an output|must be a complete"
        ):
            load_model(path, weights=weights)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_left_to_onnx(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(model(draw_tensor("large")).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.one_of(st.integers(0, 700), st.integers(len(whole) - 200, len(whole) - 1)))
        whole[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "m.onnx"
    path.write_bytes(whole)

    def read(weights: bool) -> object:
        try:
            graph = import_model(load_model(path, weights=weights))
        except ValueError:
            return None
        return {name: array.tobytes() for name, array in graph.constants.items()}, str(graph.nodes)

    assert read(False) == read(True)
