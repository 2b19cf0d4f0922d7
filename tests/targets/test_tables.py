"""Numbers of four bits taken out of words: by tables on AVX-512, by shifts and masks elsewhere, the same to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import te, workloads
from search_space.ir.expr import const, load
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.base import Target
from targets.cpu.tables import match_lookup

HOST = registry.get("cpu")
needs_avx512 = pytest.mark.skipif("avx512f" not in HOST.hardware.features, reason="needs AVX-512")


def nibbles(index: int, zero: int) -> Workload:
    """Numbers of words, less a zero."""
    words = te.placeholder((37,), "int32", "words")
    body = te.compute((37,), lambda i: (((words[i] >> 4 * index) % 16) - zero).astype("float32"), name="numbers")
    return Workload.of([words, body])


@pytest.mark.parametrize("spec", ["cpu", "cpu:haswell"])
@pytest.mark.parametrize(("index", "zero"), [(0, 0), (3, 8), (7, -2)])
def test_numbers_are_taken_out_of_words(spec: str, index: int, zero: int) -> None:
    target, workload = registry.get(spec), nibbles(index, zero)
    words = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 37).astype(np.int32)
    sketch = generate(workload, target.hardware).sketches[0]
    module = target.build(
        make_program(workload, sketch.algorithm, sketch.trace(np.zeros(len(sketch.groups), np.int32)))
    )
    found = HOST.load(module).bind([words]).run(1)
    np.testing.assert_array_equal(found, ((words.view(np.uint32) >> 4 * index) % 16).astype(np.float32) - zero)
    assert "srem" not in module.llvm_ir


def test_what_is_a_table() -> None:
    word = load("words", [const(0)], "int32")
    table = match_lookup(((word >> 4) % 16 - 8).astype("float32"))
    assert table is not None and table.entries == tuple(map(float, range(-8, 8))) and table.word is word >> 4
    others = (word % 8, word * 2, word % 16 + word, (word % 16) * 2)
    assert all(match_lookup(other.astype("float32")) is None for other in others)
    assert match_lookup((word % 16).astype("uint8")) is None


def assembly(target: Target, workload: Workload) -> str:
    sketch = generate(workload, target.hardware).sketches[0]
    rng = np.random.default_rng(0)
    choices = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], 1).astype(np.int32)
    row = choices[sketch.legal(choices)][0]
    return target.assembly(target.build(make_program(workload, sketch.algorithm, sketch.trace(row))))


@needs_avx512
def test_a_product_neither_masks_nor_converts_on_avx512() -> None:
    text = assembly(registry.get("cpu"), workloads.matmul_nbits(1, 128, 256))
    assert "vpermps" in text and "vcvtdq2ps" not in text and "vpandd" not in text


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_product_is_the_same_on_avx2(bits: int, zeros: bool) -> None:
    target, workload = registry.get("cpu:haswell"), workloads.matmul_nbits(2, 40, 64, bits, 16, zeros)
    text, inputs = assembly(target, workload), workload.make_inputs(0)
    assert "zmm" not in text and "ymm" in text
    sketch = generate(workload, target.hardware).sketches[0]
    rng = np.random.default_rng(0)
    choices = np.stack([rng.integers(len(g.table), size=200) for g in sketch.groups], 1).astype(np.int32)
    for row in choices[sketch.legal(choices)][:3]:
        module = target.build(make_program(workload, sketch.algorithm, sketch.trace(row)))
        found = HOST.load(module).bind(inputs).run(2)
        rtol, atol = workload.tolerance
        np.testing.assert_allclose(found, workload.reference(*inputs), rtol, atol)
