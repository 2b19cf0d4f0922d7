"""Graphs of a decoder: of a prompt read at once, and of one token after those whose keys and values are there.

Both return keys and values of the tokens that they read as rows (m, heads, d), and logits of one position. The step has
keys and values of all positions up to its own as states (n, heads, d), whose last row it computes.
"""

from __future__ import annotations

import numpy as np

from autotune.graph.ir import Array, Graph, GraphBuilder
from autotune.graph.types import TensorType
from autotune.language.grouped import GroupedRows, GroupedWeight
from autotune.language.model import Layer, Linear, Model, Norm, list_weights

KEYS, VALUES = "keys", "values"


def state_names(layer: int) -> tuple[str, str]:
    """Returns the names of a layer's states of keys and of values."""
    return f"{KEYS}_{layer}", f"{VALUES}_{layer}"


def row_names(layer: int) -> tuple[str, str]:
    """Returns the names of a layer's new rows of keys and of values."""
    return f"new_{KEYS}_{layer}", f"new_{VALUES}_{layer}"


class Decoder:
    """Maker of the graphs of a model.

    Args:
        model: model; its weights are constants of the graphs, the same arrays in all of them.
        longest: most positions.
        activations: `bytes` rounds the data that weights in groups are multiplied with; or `floats`.
        halves: whether scales of weights in groups may be in float16.
        states: dtype in which keys and values are stored.
    """

    def __init__(
        self,
        model: Model,
        longest: int,
        activations: str = "floats",
        halves: bool = True,
        states: str = "float32",
    ) -> None:
        self.model, self.longest, self.states = model, longest, states
        self.grouped_product = "dynamic_matmul" if activations == "bytes" else "matmul_nbits"
        self._halves, self._scales = halves, dict[int, Array]()
        self.turns = model.turns(longest) if model.positions is None else None
        self.positions = None if model.positions is None else model.positions[:longest]

    @property
    def nbytes(self) -> int:
        """Bytes of the model's weights, floats in float32, each counted once."""
        return sum(
            sum(array.nbytes for array in weight.arrays)
            if isinstance(weight, GroupedWeight | GroupedRows)
            else 4 * weight.size
            for weight in list_weights(self.model)
        )

    def scales(self, array: Array) -> Array:
        """Returns scales as the graphs have them, the same array at each call."""
        if self._halves or array.dtype != np.float16:
            return array
        if id(array) not in self._scales:
            self._scales[id(array)] = array.astype(np.float32)
        return self._scales[id(array)]

    def prefill(self, count: int) -> Graph:
        """Builds the graph of a prompt of `count` tokens.

        Inputs are `tokens` (count,) and `last` (1,), the index of the token whose logits are returned.
        """
        net = GraphBuilder(f"{self.model.name}_prefill", {"tokens": _ids(count), "last": _ids(1)})
        return _Pass(self, net, count, None).graph("tokens", "last")

    def step(self, total: int) -> Graph:
        """Builds the graph of the last of `total` tokens.

        Inputs are `token` and `position`, (1,) each, then the states of each layer.
        """
        sizes = self.model.sizes
        state = TensorType((total, sizes.kv_heads, sizes.head_width), self.states)
        states = {name: state for layer in range(sizes.layers) for name in state_names(layer)}
        net = GraphBuilder(f"{self.model.name}_step", {"token": _ids(1), "position": _ids(1), **states})
        return _Pass(self, net, 1, total).graph("token", None)


def _ids(count: int) -> TensorType:
    return TensorType((count,), "int64")


class _Pass:
    """One graph.

    Args:
        rows: tokens that it reads.
        total: positions up to the last of these where states have the others; None: there are no others.
    """

    def __init__(self, decoder: Decoder, net: GraphBuilder, rows: int, total: int | None) -> None:
        self.decoder, self.model, self.net = decoder, decoder.model, net
        self.rows, self.total = rows, total
        self.outputs: list[str] = []
        self.rotation: tuple[str, str] | None = None

    def graph(self, tokens: str, last: str | None) -> Graph:
        net, model = self.net, self.model
        x = self.embed(tokens)
        if self.decoder.positions is not None:
            x = net.add("add", [x, self.at_positions(self.decoder.positions, "positions")])
        if self.decoder.turns is not None:
            cosines, sines = self.decoder.turns
            self.rotation = self.at_positions(cosines, "cosines"), self.at_positions(sines, "sines")
        for number, layer in enumerate(model.layers):
            x = self.layer(x, number, layer)
        if last is not None:
            x = net.add("gather", [x, last])
        x = self.normal(x, model.last)
        logits = self.product(x, model.logits, "logits_weight", "logits")
        return net.finish([logits, *self.outputs])

    def embed(self, tokens: str) -> str:
        """Looks tokens up in the table of embeddings, (m, hidden)."""
        net, table = self.net, self.model.tokens
        if not isinstance(table, GroupedRows):
            return net.add("gather", [net.constant(table, "embeddings"), tokens])
        rows, features, groups = self.rows, table.shape[1], table.scales.shape[1]

        def look_up(array: Array, name: str, shape: tuple[int, ...]) -> str:
            row = net.add("gather", [net.constant(array, name), tokens])
            row = row if array.dtype == np.float32 else net.add("cast", [row], dtype="float32")
            return net.add("reshape", [row], shape=shape)

        x = look_up(table.numbers, "embeddings", (rows, groups, features // groups))
        x = net.add("multiply", [x, look_up(self.decoder.scales(table.scales), "embedding_scales", (rows, groups, 1))])
        if table.shifts is not None:
            x = net.add("subtract", [x, look_up(table.shifts, "embedding_shifts", (rows, groups, 1))])
        return net.add("reshape", [x], shape=(rows, features))

    def at_positions(self, table: Array, name: str) -> str:
        """Selects a table's rows for the tokens of this pass."""
        if self.total is not None:
            return self.net.add("gather", [self.net.constant(table, name), "position"])
        return self.net.constant(table[: self.rows], name)

    # ------------------------------------------------------------------ a layer
    def layer(self, x: str, number: int, layer: Layer) -> str:
        net, sizes = self.net, self.model.sizes
        read = self.normal(x, layer.first)
        names = row_names(number)
        query = self.in_heads(self.linear(read, layer.query), sizes.heads, "query", layer.query_norm)
        in_floats = self.decoder.states == "float32"
        key_name, value_name = names if in_floats else ("key", "value")
        key = self.in_heads(self.linear(read, layer.key), sizes.kv_heads, key_name, layer.key_norm)
        value = self.linear(read, layer.value)
        value = net.add("reshape", [value], value_name, shape=(self.rows, sizes.kv_heads, sizes.head_width))
        stored = [key, value]
        if not in_floats:
            pairs = zip(stored, names, strict=True)
            stored = [net.add("cast", [row], name, dtype=self.decoder.states) for row, name in pairs]
        self.outputs += stored
        if self.total is not None:
            key, value = stored
        attended = self.attend(query, key, value, number)
        flat = net.add("reshape", [attended], shape=(self.rows, sizes.heads * sizes.head_width))
        x = net.add("add", [self.linear(flat, layer.output), x])
        read = self.normal(x, layer.second)
        return net.add("add", [self.linear(self.inner(read, layer), layer.down), x])

    def in_heads(self, x: str, heads: int, name: str, norm: Norm | None) -> str:
        """Splits features into heads, (m, heads, d); normalises and rotates them if the model does."""
        shape = self.rows, heads, self.model.sizes.head_width
        if norm is not None:
            x = self.normal(self.net.add("reshape", [x], shape=(self.rows * heads, shape[2])), norm)
        if self.rotation is None:
            return self.net.add("reshape", [x], name, shape=shape)
        return self.net.add("rotary", [self.net.add("reshape", [x], shape=shape), *self.rotation], name)

    def attend(self, query: str, key: str, value: str, number: int) -> str:
        """Computes attention, (m, kv_heads * group, d); the queries of a group are rows of one product."""
        net, sizes = self.net, self.model.sizes
        kv, group, width = sizes.kv_heads, sizes.group, sizes.head_width
        grouped = (kv, self.rows * group, width)
        if self.total is not None:  # one token: its queries are in the order of heads already
            states = [
                net.add("extended", [state, rows])
                for state, rows in zip(state_names(number), (key, value), strict=True)
            ]
            scores = net.add("cached_scores", [net.add("reshape", [query], shape=grouped), states[0]])
            flat = net.add("reshape", [scores], shape=(sizes.heads, self.total))
            shares = net.add("reshape", [net.add("softmax", [flat])], shape=(kv, group, self.total))
            return net.add("cached_mix", [shares, states[1]])
        if group > 1:
            split = net.add("reshape", [query], shape=(self.rows, kv, group, width))
            query = net.add("reshape", [net.add("transpose", [split], axes=(1, 0, 2, 3))], shape=grouped)
        else:
            query = net.add("transpose", [query], axes=(1, 0, 2))
        keys, values = net.add("transpose", [key], axes=(1, 2, 0)), net.add("transpose", [value], axes=(1, 0, 2))
        mixed = net.add("attention", [query, keys, values], causal=group)
        if group == 1:
            return net.add("transpose", [mixed], axes=(1, 0, 2))
        mixed = net.add("reshape", [mixed], shape=(kv, self.rows, group, width))
        return net.add("transpose", [mixed], axes=(1, 0, 2, 3))

    def inner(self, x: str, layer: Layer) -> str:
        """Computes the activation between the two products of a layer's second half."""
        up = self.linear(x, layer.up)
        if layer.gate is None:
            return self.net.add("gelu_tanh", [up])
        return self.net.add("multiply", [self.net.add("silu", [self.linear(x, layer.gate)]), up])

    def linear(self, x: str, linear: Linear) -> str:
        out = self.product(x, linear.weight, "weight")
        return out if linear.bias is None else self.net.add("add", [out, self.net.constant(linear.bias, "bias")])

    def product(self, x: str, weight: Array | GroupedWeight, constant: str, name: str = "") -> str:
        """Multiplies rows by a weight."""
        if not isinstance(weight, GroupedWeight):
            return self.net.add("matmul", [x, self.net.constant(weight, constant)], name)
        numbers, scales, *zeros = weight.arrays
        arrays = numbers, self.decoder.scales(scales), *zeros
        constants = [self.net.constant(array, constant) for array in arrays]
        return self.net.add(self.decoder.grouped_product, [x, *constants], name, bits=weight.bits)

    def normal(self, x: str, norm: Norm) -> str:
        epsilon, scale = self.model.sizes.epsilon, self.net.constant(norm.scale, "scale")
        if norm.shift is None:
            return self.net.add("rms_norm", [x, scale], epsilon=epsilon)
        return self.net.add("layer_norm", [x, scale, self.net.constant(norm.shift, "shift")], epsilon=epsilon)
