"""Bodies of loops: a graph of its own for what each step does. See `autotune.graph.ops.loops` for the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.graph.errors import GraphError
from autotune.graph.evaluate import evaluate
from autotune.graph.ir import Array, Builder, Graph, Node, TensorType, rewrite
from autotune.graph.ops.loops import written


@dataclass(frozen=True, eq=False)
class Body:
    """What a loop does in each step.

    Attributes:
        graph: inputs are the states, elements of sequences, and what all steps see; outputs are those of a step.
            Weights are its constants.
        carried: of each state the number of the output that it is in the next step.
        sequences: how many inputs are elements of sequences.
        stacked: of each output whether all steps are kept, or the last one alone.

    Raises:
        GraphError: states that are not of their outputs' types, or a loop within the body.
    """

    graph: Graph
    carried: tuple[int, ...]
    sequences: int
    stacked: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.stacked) != len(self.outputs) or not self.outputs:
            raise GraphError(f"`stacked` must be of each of {len(self.outputs)} outputs, but got {len(self.stacked)}")
        if not 0 <= self.sequences <= len(self.inputs) - len(self.carried):
            raise GraphError(
                f"a body must have {len(self.carried)} states and {self.sequences} sequences among its inputs, "
                f"but got {len(self.inputs)}"
            )
        for state, number in zip(self.inputs, self.carried, strict=False):
            if not 0 <= number < len(self.outputs) or self.outputs[number] != state:
                raise GraphError(f"a state must be of the type of its output, but got {state} from output {number}")
        if loops_of(self.graph):
            raise GraphError("the body of a loop must have no loop in it, but it has one")

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """States, elements of sequences, then what all steps see."""
        return tuple(self.graph.inputs.values())

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Of a step."""
        return tuple(self.graph.type(name) for name in self.graph.outputs)

    def step(self, arrays: Sequence[Array]) -> list[Array]:
        """Outputs of a step of these inputs."""
        values = evaluate(self.graph, dict(zip(self.graph.inputs, arrays, strict=True)))
        return [values[name] for name in self.graph.outputs]

    def __repr__(self) -> str:
        return f"Body({'; '.join(map(str, self.graph.nodes))})"


def add_loop(
    builder: Builder,
    body: Body,
    inputs: Sequence[str],
    trips: int,
    reads_back: Sequence[bool],
    writes_back: Sequence[bool],
    name: str = "loop",
) -> list[str]:
    """Adds a loop and views of its results; the names of these, in the order of the body's outputs.

    Args:
        builder: of the graph.
        body: of the loop.
        inputs: first states, sequences, and what all steps see.
        trips: steps.
        reads_back: of each sequence whether its last element comes first.
        writes_back: of each output whether the first step is the last of the stacked.
        name: of the loop.

    Raises:
        GraphError: inputs that do not go together with the body.
    """
    loop = builder.add(
        "loop", inputs, name, body=body, trips=trips, reads_back=tuple(reads_back), writes_back=tuple(writes_back)
    )
    node = builder.node(loop)
    assert node is not None
    return [
        builder.add("loop_result", [loop], name, place=n, start=at.result, shape=at.type.shape, dtype=at.type.dtype)
        for n, at in enumerate(written(node.attrs)[0])
    ]


def over_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The graph in which the bodies of loops are changed; where `change` gives the same object, they stay.

    Args:
        graph: to go over.
        change: gives a graph of the same inputs, and as many outputs of the same types.
    """
    changed: dict[str, Body] = {}
    for node in loops_of(graph):
        body: Body = node.attrs["body"]
        after = change(body.graph)
        if after is not body.graph:
            changed[node.name] = replace(body, graph=after)
    if not changed:
        return graph

    def visit(builder: Builder, node: Node, inputs: list[str]) -> str | None:
        if node.name not in changed:
            return None
        return builder.add(node.op, inputs, node.name, **{**node.attrs, "body": changed[node.name]})

    return rewrite(graph, visit)


def loops_of(graph: Graph) -> list[Node]:
    """The loops of a graph."""
    return [node for node in graph.nodes if node.op == "loop"]
