"""Gradient-boosted trees applied to whole populations, many times as fast as by their library.

QuickScorer (Lucchese et al., SIGIR 2015): the leaves of a tree are the bits of a word, from left to right. Every node
whose test fails clears the bits of its left subtree, in any order; the first remaining bit is the leaf. There are no
branches, so that a node costs a compare and a masked `and` for a vector of rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.native import ATTRIBUTES, compile_function

ROWS = 64  # rows that are processed at a time
MAX_LEAVES = 32  # bits of a word
_F, _I, _D = f"<{ROWS} x float>", f"<{ROWS} x i32>", f"<{ROWS} x double>"


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees as arrays.

    Attributes:
        ends: int64 (trees,), number of nodes up to and including each tree.
        features: int64 (nodes,), index of the feature that a node tests.
        thresholds: float32 (nodes,); a row passes if its feature is at most the threshold.
        masks: int32 (nodes,); leaves that remain possible if it does not pass.
        leaves: float64 (trees, MAX_LEAVES), the last leaf in the first column.
    """

    ends: NDArray[np.int64]
    features: NDArray[np.int64]
    thresholds: NDArray[np.float32]
    masks: NDArray[np.int32]
    leaves: NDArray[np.float64]

    @staticmethod
    def from_lightgbm(text: str) -> Forest:
        """Parses the trees of a LightGBM model file.

        Raises:
            ValueError: a tree is not supported: it has categories, missing values, or too many leaves.
        """
        ends: list[int] = []
        nodes: list[tuple[int, float, int]] = []
        leaves = []
        for block in text.split("\nTree=")[1:]:
            fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
            values = [float(v) for v in fields["leaf_value"].split()]
            if len(values) > MAX_LEAVES or any(int(t) & ~2 for t in fields.get("decision_type", "").split()):
                raise ValueError(
                    f"a tree must have at most {MAX_LEAVES} leaves and numeric features without missing values, "
                    f"but got leaves={len(values)}, decision_type={fields.get('decision_type')}"
                )
            nodes += _nodes(fields) if len(values) > 1 else []
            ends.append(len(nodes))
            leaves.append([0.0] * (MAX_LEAVES - len(values)) + _left_to_right(fields, values)[::-1])
        thresholds = _round_down(np.array([n[1] for n in nodes], np.float64))
        return Forest(
            np.array(ends, np.int64),
            np.array([n[0] for n in nodes], np.int64),
            thresholds,
            np.array([n[2] for n in nodes], np.uint32).view(np.int32),
            np.array(leaves, np.float64).reshape(-1, MAX_LEAVES),
        )

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Sums the leaves of all trees: (features, n) → (n,), fastest if n is innermost in memory."""
        count = rows.shape[1]
        out = np.zeros(-(-count // ROWS) * ROWS)
        vectorized = count // ROWS * ROWS if rows.strides[1] == 4 and rows.dtype == np.float32 else 0
        if vectorized:
            self._run(rows, vectorized, out)
        if count > vectorized:
            rest = np.zeros((rows.shape[0], len(out) - vectorized), np.float32)
            rest[:, : count - vectorized] = rows[:, vectorized:]
            self._run(rest, rest.shape[1], out[vectorized:])
        return out[:count]

    def _run(self, rows: NDArray[np.float32], count: int, out: NDArray[np.float64]) -> None:
        arrays = (self.ends, self.features, self.thresholds, self.masks, self.leaves)
        pointers = (a.ctypes.data for a in arrays)
        _function()(*pointers, len(self.ends), rows.ctypes.data, rows.strides[0] // 4, count, out.ctypes.data)


def _round_down(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rounds thresholds to float32 downward, after which they compare with float32 features as before."""
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    return np.where(near.astype(np.float64) > values, np.nextafter(near, np.float32(-np.inf)), near)


def _children(fields: dict[str, str]) -> list[tuple[int, int]]:
    left, right = ([int(v) for v in fields[f"{side}_child"].split()] for side in ("left", "right"))
    return list(zip(left, right, strict=True))


def _visit(children: list[tuple[int, int]], node: int) -> Iterator[int]:
    """Yields the leaves below a node, from left to right; LightGBM writes leaf i as ~i."""
    if node < 0:
        yield ~node
    else:
        for child in children[node]:
            yield from _visit(children, child)


def _left_to_right(fields: dict[str, str], values: list[float]) -> list[float]:
    if len(values) == 1:
        return values
    return [values[leaf] for leaf in _visit(_children(fields), 0)]


def _nodes(fields: dict[str, str]) -> list[tuple[int, float, int]]:
    """Lists (feature, threshold, mask) of every node; the leftmost leaf is the highest bit."""
    children = _children(fields)
    position = {leaf: i for i, leaf in enumerate(_visit(children, 0))}
    features = [int(v) for v in fields["split_feature"].split()]
    thresholds = [float(v) for v in fields["threshold"].split()]
    masks = []
    for left, _ in children:
        cleared = sum(1 << (MAX_LEAVES - 1 - position[leaf]) for leaf in _visit(children, left))
        masks.append(~cleared & 0xFFFFFFFF)
    return list(zip(features, thresholds, masks, strict=True))


@cache
def _function() -> Any:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return compile_function(_TEXT, "forest", *[pointer] * 5, integer, pointer, integer, integer, pointer)


_TEXT = f"""
declare {_I} @llvm.ctlz.v{ROWS}i32({_I}, i1)
declare {_D} @llvm.masked.gather.v{ROWS}f64.v{ROWS}p0(<{ROWS} x ptr>, i32, <{ROWS} x i1>, {_D})
define void @forest(ptr noalias %ends, ptr noalias %features, ptr noalias %thresholds, ptr noalias %masks,
                    ptr noalias %leaves, i64 %trees, ptr noalias %rows, i64 %stride, i64 %n, ptr noalias %out) #0 {{
entry:
  %any = icmp sgt i64 %trees, 0
  br i1 %any, label %block, label %exit
block:
  %i = phi i64 [ 0, %entry ], [ %i.next, %block.end ]
  br label %tree
tree:
  %t = phi i64 [ 0, %block ], [ %t.next, %tree.end ]
  %begin = phi i64 [ 0, %block ], [ %end, %tree.end ]
  %sum = phi {_D} [ zeroinitializer, %block ], [ %sum.next, %tree.end ]
  %end.at = getelementptr i64, ptr %ends, i64 %t
  %end = load i64, ptr %end.at
  %splits = icmp slt i64 %begin, %end
  br i1 %splits, label %node, label %tree.end
node:
  %k = phi i64 [ %begin, %tree ], [ %k.next, %node ]
  %left = phi {_I} [ splat (i32 -1), %tree ], [ %left.next, %node ]
  %f.at = getelementptr i64, ptr %features, i64 %k
  %f = load i64, ptr %f.at
  %row = mul i64 %f, %stride
  %cell = add i64 %row, %i
  %x.at = getelementptr float, ptr %rows, i64 %cell
  %x = load {_F}, ptr %x.at, align 4
  %h.at = getelementptr float, ptr %thresholds, i64 %k
  %h = load float, ptr %h.at
  %h.0 = insertelement {_F} poison, float %h, i64 0
  %h.all = shufflevector {_F} %h.0, {_F} poison, {_I} zeroinitializer
  %m.at = getelementptr i32, ptr %masks, i64 %k
  %m = load i32, ptr %m.at
  %m.0 = insertelement {_I} poison, i32 %m, i64 0
  %m.all = shufflevector {_I} %m.0, {_I} poison, {_I} zeroinitializer
  %fails = fcmp ogt {_F} %x, %h.all
  %kept = and {_I} %left, %m.all
  %left.next = select <{ROWS} x i1> %fails, {_I} %kept, {_I} %left
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %end
  br i1 %more, label %node, label %tree.end
tree.end:
  %found = phi {_I} [ splat (i32 -1), %tree ], [ %left.next, %node ]
  %first = call {_I} @llvm.ctlz.v{ROWS}i32({_I} %found, i1 false)
  %place = sub {_I} splat (i32 {MAX_LEAVES - 1}), %first
  %place.wide = zext {_I} %place to <{ROWS} x i64>
  %base = mul i64 %t, {MAX_LEAVES}
  %tree.leaves = getelementptr double, ptr %leaves, i64 %base
  %leaf.at = getelementptr double, ptr %tree.leaves, <{ROWS} x i64> %place.wide
  %leaf = call {_D} @llvm.masked.gather.v{ROWS}f64.v{ROWS}p0(<{ROWS} x ptr> %leaf.at, i32 8,
          <{ROWS} x i1> splat (i1 true), {_D} poison)
  %sum.next = fadd {_D} %sum, %leaf
  %t.next = add i64 %t, 1
  %t.more = icmp slt i64 %t.next, %trees
  br i1 %t.more, label %tree, label %block.end
block.end:
  %o.at = getelementptr double, ptr %out, i64 %i
  store {_D} %sum.next, ptr %o.at, align 8
  %i.next = add i64 %i, {ROWS}
  %i.more = icmp slt i64 %i.next, %n
  br i1 %i.more, label %block, label %exit
exit:
  ret void
}}
attributes #0 = {{ {ATTRIBUTES} }}
"""
