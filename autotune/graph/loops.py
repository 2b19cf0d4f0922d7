"""Bodies of loops: graphs of one step. See `autotune.graph.ops.loops` for the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.graph.errors import GraphError
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Graph, GraphBuilder, Node, TensorType, rewrite
from autotune.graph.ops.loops import lay_out_outputs


@dataclass(frozen=True, eq=False)
class Body:
    """The body of a loop: the computation of each step.

    Attributes:
        graph: graph whose inputs are states, elements of sequences, and shared inputs; its outputs are those of a step.
            Weights are its constants.
        state_outputs: number of the output that becomes each state in the next step.
        sequences: number of inputs that are elements of sequences.
        stacked: whether each output is stacked over all steps; otherwise only the last one counts.

    Raises:
        GraphError: states have other types than their outputs, or the body has a loop.
    """

    graph: Graph
    state_outputs: tuple[int, ...]
    sequences: int
    stacked: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.stacked) != len(self.outputs) or not self.outputs:
            raise GraphError(f"`stacked` must be of each of {len(self.outputs)} outputs, but got {len(self.stacked)}")
        if not 0 <= self.sequences <= len(self.inputs) - len(self.state_outputs):
            raise GraphError(
                f"a body must have {len(self.state_outputs)} states and {self.sequences} sequences among its inputs, "
                f"but got {len(self.inputs)}"
            )
        for state, number in zip(self.inputs, self.state_outputs, strict=False):
            if not 0 <= number < len(self.outputs) or self.outputs[number] != state:
                raise GraphError(f"a state must be of the type of its output, but got {state} from output {number}")
        if list_loops(self.graph):
            raise GraphError("the body of a loop must have no loop in it, but it has one")

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """Types of states, then elements of sequences, then shared inputs."""
        return tuple(self.graph.inputs.values())

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of a step's outputs."""
        return tuple(self.graph.type(name) for name in self.graph.outputs)

    def step(self, arrays: Sequence[Array]) -> list[Array]:
        """Computes the outputs of one step."""
        values = evaluate(self.graph, dict(zip(self.graph.inputs, arrays, strict=True)))
        return [values[name] for name in self.graph.outputs]

    def __repr__(self) -> str:
        return f"Body({'; '.join(map(str, self.graph.nodes))})"


def add_loop(
    builder: GraphBuilder,
    body: Body,
    inputs: Sequence[str],
    trips: int,
    reads_back: Sequence[bool],
    writes_back: Sequence[bool],
    name: str = "loop",
) -> list[str]:
    """Adds a loop and views of its results; returns the names of these, in the order of the body's outputs.

    Args:
        builder: builder of the graph.
        body: body of the loop.
        inputs: initial states, sequences, and shared inputs.
        trips: number of steps.
        reads_back: whether each sequence is read from its last element on.
        writes_back: whether each stacked output begins with the last step.
        name: name of the loop.

    Raises:
        GraphError: inputs do not fit the body.
    """
    loop = builder.add(
        "loop", inputs, name, body=body, trips=trips, reads_back=tuple(reads_back), writes_back=tuple(writes_back)
    )
    node = builder.node(loop)
    assert node is not None
    return [
        builder.add("loop_result", [loop], name, place=n, start=at.result, shape=at.type.shape, dtype=at.type.dtype)
        for n, at in enumerate(lay_out_outputs(node.attrs)[0])
    ]


def over_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Rewrites the bodies of loops; bodies for which `change` returns the same object stay.

    Args:
        graph: graph to rewrite.
        change: function that returns a graph with the same inputs, and as many outputs of the same types.
    """
    changed: dict[str, Body] = {}
    for node in list_loops(graph):
        body: Body = node.attrs["body"]
        after = change(body.graph)
        if after is not body.graph:
            changed[node.name] = replace(body, graph=after)
    if not changed:
        return graph

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        if node.name not in changed:
            return None
        return builder.add(node.op, inputs, node.name, **{**node.attrs, "body": changed[node.name]})

    return rewrite(graph, visit)


def list_loops(graph: Graph) -> list[Node]:
    """Lists the loops of a graph."""
    return [node for node in graph.nodes if node.op == "loop"]
