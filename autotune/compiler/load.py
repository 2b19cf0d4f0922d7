"""Loading a network: a model imported, taken through the passes, and split into tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import onnx

from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import pipeline_of
from autotune.compiler.sources import ModelSource, OnnxSource
from autotune.compiler.tasks import tasks_of
from autotune.graph.ir import Graph
from autotune.graph.mixed import Mixture
from autotune.graph.passes.pipeline import GraphPass, Listener
from autotune.graph.precision import FULL
from autotune.graph.quantise import Accuracy, Imported
from autotune.tuner.task import Task


class Substituted(Protocol):
    """The outcome of a search for substitutions; its text is a sentence."""

    def to_json(self) -> Mapping[str, Any]:
        """Gives rules, how often each was applied, and modelled seconds."""


@dataclass(frozen=True)
class Network:
    """A model on its way to an executable.

    Attributes:
        name: of the network.
        source: model with its weights, as the reference runs it.
        graph: after the passes.
        tasks: distinct workloads, in order of occurrence.
        accuracy: what quantisation cost; None where the network is not quantised.
        found: what a search for substitutions came to; None where there was none.
        device: target of the tasks that an accelerator computes; None where there is none.
        precision: what layers multiply and values between kernels are stored in; of a model that has 16-bit floats
            these, though parts of it may be in float32.
        mixture: what of it is in which type, where that is mixed.
        imported: of a model that another quantiser made, which layers work on bytes; None of another one.
        substitutions: passes that have replaced parts of the graph.
    """

    name: str
    source: ModelSource
    graph: Graph
    tasks: tuple[Task, ...]
    accuracy: Accuracy | None = None
    found: Substituted | None = None
    device: str | None = None
    precision: str = FULL
    mixture: Mixture | None = None
    imported: Imported | None = None
    substitutions: Sequence[GraphPass] = ()

    shapes: ClassVar[ShapeSet] = FIXED

    @property
    def in_one_file(self) -> bool:
        """Says whether the model is a file, and no other one has a part of it."""
        return self.source.is_of_one_file


def load_network(
    model: onnx.ModelProto | ModelSource,
    name: str,
    options: CompileOptions | None = None,
    choose: Callable[[Graph, ModelSource], Mixture] | None = None,
    report: bool = True,
    listener: Listener | None = None,
) -> Network:
    """Imports a model, applies the passes and finds the tasks.

    Args:
        model: shapes known.
        name: of the network.
        options: how to compile; None: for the CPU, in float32.
        choose: a graph in float32, after the passes, and the model → what is in which type; for mixed precision.
        report: whether it is measured what weights of a few bits cost.
        listener: called after each pass.

    Raises:
        ModelError: an operator that is not supported, or shapes that are not known.
        GraphError: a network to quantise that has no layers with weights, or none that the device covers.
        ValueError: the model excludes options, or what `quantisation` says of layers or data is not there.
    """
    options = options or CompileOptions()
    source = model if isinstance(model, ModelSource) else OnnxSource.of(model, options.seed)
    choice = None if choose is None else lambda graph: choose(graph, source)
    pipeline = pipeline_of(options, choice, report, listener=listener)
    lowered = pipeline.run(source.graph(loops=True))
    facts, device = lowered.facts, None if options.device is None else options.device.name
    narrow, precision = facts["check_types"], options.precision.name
    if narrow and precision == FULL:
        precision = " and ".join(narrow)
    return Network(
        name,
        source,
        lowered.graph,
        tuple(tasks_of(lowered.graph, device, options.target.alignment)),
        facts.get("quantise"),
        facts.get("substitute"),
        device,
        precision,
        facts.get("choose_types"),
        facts.get("keep_bytes"),
        options.substitutions,
    )
