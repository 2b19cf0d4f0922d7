"""Loading of a network: imports a model, applies the passes, and splits it into tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import onnx

from autotune.compiler.block_choice import Seconds, never_measured
from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.compiler.options import CompileOptions
from autotune.compiler.pipeline import make_pipeline
from autotune.compiler.sources import ModelSource, OnnxSource
from autotune.compiler.tasks import list_tasks
from autotune.graph.ir import Graph
from autotune.graph.mixed import Mixture
from autotune.graph.passes.pipeline import GraphPass, Listener
from autotune.graph.precision import FULL
from autotune.graph.quantise import Accuracy, ByteGraph
from autotune.tuner.task import Task


class SubstitutionResult(Protocol):
    """Result of a search for substitutions; its text is a sentence."""

    def to_json(self) -> Mapping[str, Any]:
        """Returns rules, how often each was applied, and modelled seconds."""


@dataclass(frozen=True)
class Network:
    """Model between import and executable.

    Attributes:
        name: name of the network.
        source: model with its weights, as the reference runs it.
        graph: graph after the passes.
        tasks: distinct workloads, in order of occurrence.
        accuracy: error due to quantisation; None if the network is not quantised.
        substitution_result: result of a search for substitutions; None without a search.
        device: target of the tasks that an accelerator computes; None without an accelerator.
        precision: type that layers multiply and values between kernels are stored in; for a model that has 16-bit
            floats this type, even if parts of it are in float32.
        mixture: type of each part, for mixed precision.
        imported_layers: layers on bytes of a model that another quantiser made; None for other models.
        substitutions: passes that have replaced parts of the graph.
        alternatives: tasks of the same layers with sparse weights in blocks of other sizes, which a search measures.
    """

    name: str
    source: ModelSource
    graph: Graph
    tasks: tuple[Task, ...]
    accuracy: Accuracy | None = None
    substitution_result: SubstitutionResult | None = None
    device: str | None = None
    precision: str = FULL
    mixture: Mixture | None = None
    imported_layers: ByteGraph | None = None
    substitutions: Sequence[GraphPass] = ()
    alternatives: Sequence[Task] = ()

    shapes: ClassVar[ShapeSet] = FIXED

    @property
    def in_one_file(self) -> bool:
        """Tells whether the model is one file, which refers to no other one."""
        return self.source.is_of_one_file


def load_network(
    model: onnx.ModelProto | ModelSource,
    name: str,
    options: CompileOptions | None = None,
    choose: Callable[[Graph, ModelSource], Mixture] | None = None,
    report: bool = True,
    listener: Listener | None = None,
    block_seconds: Seconds = never_measured,
) -> Network:
    """Imports a model, applies the passes and finds the tasks.

    Args:
        model: model of known shapes.
        name: name of the network.
        options: options of the compilation; None: for the CPU, in float32.
        choose: function that maps a graph in float32, after the passes, and the model to types; for mixed precision.
        report: whether to measure the error due to weights of a few bits.
        listener: called after each pass.
        block_seconds: measured seconds of kernels with sparse weights.

    Raises:
        UnsupportedModelError: an operator is not supported, or shapes are not known.
        GraphError: a network to quantise has no layers with weights, or none that the device supports.
        ValueError: the model excludes options, or layers or data that `quantisation` names do not exist.
    """
    options = options or CompileOptions()
    source = model if isinstance(model, ModelSource) else OnnxSource.of(model, options.seed)
    choice = None if choose is None else lambda graph: choose(graph, source)
    pipeline = make_pipeline(options, choice, report, listener=listener, block_seconds=block_seconds)
    lowered = pipeline.run(source.graph(loops=True))
    facts, device = lowered.facts, None if options.device is None else options.device.name
    narrow, precision = facts["check_types"], options.precision.name
    if narrow and precision == FULL:
        precision = " and ".join(narrow)
    return Network(
        name,
        source,
        lowered.graph,
        tuple(list_tasks(lowered.graph, device, options.target.alignment)),
        facts.get("quantise"),
        facts.get("substitute"),
        device,
        precision,
        facts.get("choose_types"),
        facts.get("keep_bytes"),
        options.replacements,
        facts.get("sparse_products", ()),
    )
