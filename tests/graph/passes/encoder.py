"""An encoder of the kind of BERT, in small operations, as exporters write it."""

from __future__ import annotations

import math

import numpy as np

from autotune.graph.ir import Builder, Graph, TensorType


class Encoder:
    """Layers on hidden states (batch, sequence, hidden), with several heads of attention."""

    def __init__(self, batch: int, sequence: int, hidden: int, heads: int, rng: np.random.Generator) -> None:
        self.shape = (batch, sequence, hidden)
        self.heads, self.rng = heads, rng
        self.b = Builder("encoder", {"hidden": TensorType(self.shape)})

    def graph(self, layers: int) -> Graph:
        """So many layers after each other."""
        x = "hidden"
        for _ in range(layers):
            x = self.layer(x)
        return self.b.finish([x])

    def layer(self, x: str) -> str:
        """Attention and two dense layers, each with a sum and a layer normalisation."""
        hidden = self.shape[2]
        x = self.normalised(self.b.add("add", [x, self.attention(x)]))
        inner = self.gelu(self.dense(x, 4 * hidden))
        return self.normalised(self.b.add("add", [x, self.dense(inner, hidden)]))

    def attention(self, x: str) -> str:
        """Softmax of the scaled products of queries and keys, times the values."""
        batch, sequence, hidden = self.shape
        size = hidden // self.heads

        def split(y: str, axes: tuple[int, ...]) -> str:
            y = self.b.add("reshape", [y], shape=(batch, sequence, self.heads, size))
            y = self.b.add("transpose", [y], axes=axes)
            shape = self.b.type(y).shape
            return self.b.add("reshape", [y], shape=(batch * self.heads, *shape[2:]))

        query, value = (split(self.dense(x, hidden), (0, 2, 1, 3)) for _ in range(2))
        scores = self.b.add("batch_matmul", [query, split(self.dense(x, hidden), (0, 2, 3, 1))])
        weights = self.softmax(self.b.add("divide", [scores, self.number(math.sqrt(size))]))
        mixed = self.b.add("batch_matmul", [weights, value])
        mixed = self.b.add("reshape", [mixed], shape=(batch, self.heads, sequence, size))
        mixed = self.b.add("transpose", [mixed], axes=(0, 2, 1, 3))
        return self.dense(self.b.add("reshape", [mixed], shape=self.shape), hidden)

    def dense(self, x: str, columns: int) -> str:
        """A product of the rows and a bias."""
        *lead, depth = self.b.type(x).shape
        rows = self.b.add("reshape", [x], shape=(math.prod(lead), depth))
        out = self.b.add("matmul", [rows, self.weight(depth, columns)])
        out = self.b.add("reshape", [out], shape=(*lead, columns))
        return self.b.add("add", [self.weight(columns), out])

    def normalised(self, x: str) -> str:
        """Layer normalisation."""
        d = self.b.add("subtract", [x, self.kept(x, "mean")])
        variance = self.b.add("add", [self.kept(self.b.add("multiply", [d, d]), "mean"), self.number(1e-5)])
        y = self.b.add("divide", [d, self.b.add("sqrt", [variance])])
        return self.b.add("add", [self.b.add("multiply", [y, self.weight(self.shape[2])]), self.weight(self.shape[2])])

    def softmax(self, x: str) -> str:
        """Of the last axis."""
        e = self.b.add("exp", [self.b.add("subtract", [x, self.kept(x, "max")])])
        return self.b.add("divide", [e, self.kept(e, "sum")])

    def gelu(self, x: str) -> str:
        """By the error function."""
        gate = self.b.add("erf", [self.b.add("divide", [x, self.number(math.sqrt(2))])])
        gate = self.b.add("add", [gate, self.number(1)])
        return self.b.add("multiply", [self.b.add("multiply", [x, gate]), self.number(0.5)])

    def kept(self, x: str, reducer: str) -> str:
        """A reduction of the last axis, which stays with extent 1."""
        lead = self.b.type(x).shape[:-1]
        return self.b.add("reshape", [self.b.add("reduce", [x], axes=(len(lead),), reducer=reducer)], shape=(*lead, 1))

    def weight(self, *shape: int) -> str:
        """Random numbers."""
        return self.b.constant((self.rng.normal(size=shape) / math.sqrt(shape[0])).astype(np.float32))

    def number(self, value: float) -> str:
        """One number."""
        return self.b.constant(np.full((1,), value, np.float32))
