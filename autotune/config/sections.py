"""Configuration of a run: a closed set of keys, validated once and passed down frozen.

`autotune.tune` takes the sections, too. There a field that names a class or an object may be that itself. The text
below a field is its description in the JSON schema and in `--help`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from autotune.config.errors import ConfigError
from autotune.config.mistakes import in_python
from autotune.modes import PRECISIONS, QUANTISATIONS
from autotune.naming import LONGEST, NAME
from measure.pool import MeasurePool
from search_space.extras import missing
from targets.threads import MOST_THREADS

if TYPE_CHECKING:
    PrecisionName: TypeAlias = str
    QuantisationName: TypeAlias = str
else:  # of the registries, so that a new mode is a line there
    PrecisionName, QuantisationName = Literal[tuple(PRECISIONS)], Literal[tuple(QUANTISATIONS)]

Option = bool | int | float | str
ModelOption = Option | list[Option] | None


class Section(BaseModel):
    """Part of a configuration: frozen, no unknown keys, no conversions."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    if not TYPE_CHECKING:  # where the arguments are the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(in_python(error, type(self))) from None

        __init__.__pydantic_base_init__ = True  # part of a whole it is validated with that, which tells the path


def _refuse_plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | list | dict | None):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    return value


Value = TypeVar("Value")
NameOrObject = Annotated[Value, PlainValidator(_refuse_plain), WithJsonSchema({"type": "string"})]
"""A name, all that a file can have, or in Python what it stands for; who uses it refuses other things."""


class WorkloadConfig(BaseModel):
    """An operator and its sizes, by the names of `search_space.workloads`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, use_attribute_docstrings=True)

    operator: str
    """A function of search_space.workloads, or an operator of one's own: FILE.py:NAME or module:NAME; its arguments
    are keys beside it."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Sizes by name."""
        return dict(self.model_extra or {})


class Search(Section):
    """Proposal of candidates."""

    strategy: NameOrObject[str | type[Any]] = "evolution"
    """A name of autotune.tuner.search.STRATEGIES, or a strategy of one's own: FILE.py:Class or module:Class."""
    batch: int = Field(default=32, ge=1, le=4096)
    """Trials of a round."""
    algorithms: list[str] | None = Field(default=None, min_length=1)
    """Algorithms to choose from, such as direct and im2col; null: all."""
    scheduler: str = "gradient"
    """gradient or round_robin: how tasks of a model share the trials."""
    finalists: int = Field(default=3, ge=0, le=64)
    """Fastest candidates of a task that are timed again at the end; 0: none."""
    patience: int | None = Field(default=None, ge=1)
    """Rounds without a gain after which a task is left alone; null: never."""
    template: str | None = None
    """A name of search_space.template.TEMPLATES that schedules the workload; null: sketch rules do."""
    database: str = "own"
    """Schedules to begin with: own (yours and what comes along), shipped, none, or a file."""
    starts: int = Field(default=8, ge=0, le=256)
    """Most schedules of the database that are measured first."""
    options: dict[str, Option] = Field(default_factory=dict)
    """Options of the strategy."""


class Transfer(Section):
    """Learning from other tasks, see docs/cost_model_lab.md."""

    source: NameOrObject[Any]
    """A dataset's folder, a records file, or what `autotune costmodel train` wrote."""
    method: str = "auto"
    """kriging, residual, continued, fine_tune, joint; auto: kriging on trees, or residual."""
    options: dict[str, Option] = Field(default_factory=dict)
    """Options of the method."""
    model: str = "lightgbm_lambdarank"
    """Model of the source's programs: a name of costmodel.models.registry."""
    model_options: dict[str, Option] = Field(default_factory=dict)
    """Options of that model."""
    align: str = "none"
    """Alignment of the features of unlike tasks: none, machine, centred or quantile."""
    similarity: str = "all"
    """operator, sizes, programs or all: by what tasks are alike."""
    tasks: int | None = Field(default=None, ge=1)
    """Number of nearest tasks to learn from; null: all, alike."""
    guard: bool = True
    """Drop a source that misleads."""


LEARNED_MODEL = "lightgbm"
"""Cost model by default, where its packages are installed."""


def _default_model() -> str:
    return "roofline" if missing(f"the cost model {LEARNED_MODEL}", "lightgbm") else LEARNED_MODEL


class Model(Section):
    """Model that scores candidates before they are measured."""

    name: NameOrObject[Any] = Field(default_factory=_default_model, json_schema_extra={"default": LEARNED_MODEL})
    """A name of costmodel.models.registry, or a model of one's own: module:Class or FILE.py:Class; the default is
    roofline where LightGBM is not installed."""
    features: Literal["loops", "knobs", "both"] = "loops"
    """Input of the model: the program's loops, the values of decisions, or both."""
    options: dict[str, ModelOption] = Field(default_factory=dict)
    """Options of the model."""
    pretrained: str = "shipped"
    """Model that orders candidates before anything of a task is measured, beside the roofline: shipped, none, or a file
    of `autotune costmodel pretrain`."""
    transfer: Transfer | None = None
    """Knowledge from other tasks, workloads or machines; null: nothing."""
    exploration: float = Field(default=0.0, ge=0)
    """Standard deviations that are added to a score (upper confidence bound); for random_forest, gaussian_process,
    matern and ensemble."""

    @model_validator(mode="after")
    def _transfers_loops(self) -> Self:
        if self.transfer is not None and self.features != "loops":
            raise ValueError(
                f"`features` must be loops where `transfer` is given, as knobs are those of one space, but got "
                f"features={self.features!r}"
            )
        return self


class Measure(Section):
    """Measurement of candidates."""

    pool: NameOrObject[str | MeasurePool] = "local"
    """Measurement pool: local, ray, rpc://HOST:PORT?key=NAME, or replay:FILE to answer from a records file."""
    token_file: str | None = None
    """File with the token of RPC workers and trackers; null: none."""
    tls_ca: str | None = None
    """PEM file of certificates that sign those of RPC servers; null: no encryption."""
    cache: Literal["warm", "network"] = "warm"
    """State of the caches: all warm, or weights cold as within a network."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Seconds for check and timing of a trial."""
    build_timeout_s: float = Field(default=15.0, gt=0)
    """Seconds for the build of a trial."""
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """Threads of a kernel, with `pool: local` at most one a core; null: one a core."""


class Quantisation(Section):
    """Quantisation of a network."""

    method: Literal["mse", "max", "percentile"] = "mse"
    """Choice of the scales of activations from the calibration's values."""
    per_channel: bool = True
    """Give weights a scale for each output channel."""
    first: bool = True
    """Quantise the first layer, too."""
    last: bool = True
    """Quantise the last layer, too."""
    floats: list[str] = Field(default_factory=list)
    """Names of further layers that stay in floats."""
    least_decibels: float = Field(default=25.0, ge=0, le=200)
    """Signal to noise that a layer's output must keep in int8; layers below it stay in floats."""
    inputs: int = Field(default=4, ge=1, le=4096)
    """Random sets of inputs to calibrate on."""
    group: int | None = Field(default=32, ge=8)
    """Neighbours along the sum that share a scale, for weights alone; null: all of an output."""
    symmetric: bool = True
    """Zero in the middle, in place of one for each group, for weights alone."""
    activations: Literal["floats", "bytes"] = "floats"
    """Type of the other factor, for weights alone; bytes: it is rounded in blocks of 32 as it is computed."""
    data: str | None = None
    """An .npz file of sets of inputs to calibrate on in place of random ones."""


class Network(Section):
    """Network that is made of a model."""

    shapes: dict[str, list[int | str]] = Field(default_factory=dict)
    """Shapes of inputs whose dimensions the model leaves open; names of `sizes` stay open."""
    sizes: dict[str, list[int]] = Field(default_factory=dict)
    """Least and greatest value of sizes in `shapes` that an executable takes."""

    @model_validator(mode="after")
    def _named_sizes(self) -> Network:
        for name, span in self.sizes.items():
            if len(span) != 2 or not 1 <= span[0] < span[1] < 1 << 31:
                raise ValueError(f"`sizes` must be [least, greatest] of 1 or more, but got {name}={span}")
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"names of `sizes` must be letters, digits and _, but got {name!r}")
        for name, shape in self.shapes.items():
            if unknown := [extent for extent in shape if isinstance(extent, str) and extent not in self.sizes]:
                raise ValueError(f"names in `shapes` must be among `sizes`, but got {unknown[0]!r} for {name}")
        return self

    passes: list[str] | None = None
    """Names of autotune.graph.passes.PASSES, in order; null: all."""
    substitutions: Literal["means", "search"] | None = None
    """means: means of windows come before 1x1 convolutions; search: rules are searched after the passes, see
    docs/substitutions.md; null: passes alone."""
    sparsity: float | None = Field(default=None, gt=0, le=1)
    """Least share of a weight in blocks of zeros, from which its products and convolutions leave them out, see
    docs/sparsity.md; null: none does."""
    algorithms: list[Literal["strassen", "winograd4_dot"]] = Field(default_factory=list)
    """Algorithms that kernels may use besides the default ones: strassen, whose rounding errors mix rows of a batch,
    and winograd4_dot."""
    max_algorithm_error: float | None = Field(default=None, ge=0)
    """Largest relative error of an algorithm, such as Winograd's; null: 0.01."""
    max_extra_mb: float | None = Field(default=None, ge=0)
    """Megabytes by which transformed weights may exceed the weights; null: any."""
    quantise: QuantisationName | None = None
    """int8: layers work on bytes, see docs/quantisation.md; weights8 or weights4: products read weights of 8 or 4 bits,
    and compute in floats; shift8: as accelerators that only shift compute them; null: in floats, or shift8 where the
    target is an accelerator. Beside `precision: mixed` int8 is a third type that layers may be in."""
    quantisation: Quantisation = Quantisation()
    precision: PrecisionName = "float32"
    """Type that layers multiply and that values between kernels are stored in, see docs/precision.md; inputs and
    outputs keep the model's types. mixed: each kernel in float32 or bfloat16, and int8 beside `quantise: int8`, the
    fastest choice that keeps `accuracy`."""
    accuracy: Annotated[float, Field(ge=0, le=200)] | Literal["as openvino"] | None = None
    """Least decibels of signal to noise beside float32 of every output, for mixed precision, on the inputs of the
    choice; as openvino: those of OpenVINO as installed; null: 40."""
    tolerance: float = Field(default=1e-4, gt=0)
    """Largest error of an output, relative to its largest element."""
    check_layers: bool = False
    """Compare values in between with the reference, too, by an executable that is compiled for it."""

    @model_validator(mode="after")
    def _accuracy_of_mixtures(self) -> Self:
        if self.accuracy is not None and self.precision != "mixed":
            raise ValueError(
                f"`accuracy` must stand beside `precision: mixed`, but got precision={self.precision!r}, "
                f"accuracy={self.accuracy!r}"
            )
        return self


class SourceConfig(Section):
    """Source of a dataset's tasks: a network, random tensor programs, or one operator."""

    network: str | None = None
    """A network, as `model` of a run; its tasks by our own passes."""
    random_programs: int | None = Field(default=None, ge=1, le=1000)
    """Number of tensor programs to draw from the seed."""
    workload: WorkloadConfig | None = None
    """An operator, as `workload` of a run."""
    programs: int | None = Field(default=None, ge=1)
    """Programs to measure of each of these tasks; null: `collect.programs`."""
    tasks: int | None = Field(default=None, ge=1)
    """Most tasks of a network, spread evenly over it; null: all."""
    only: list[str] | None = Field(default=None, min_length=1)
    """Names of tasks of a network, as `autotune tasks` has them; null: all."""
    most_mflop: float | None = Field(default=None, gt=0)
    """Tasks of a network with more operations are left out; null: none."""
    rounds: int | None = Field(default=None, ge=0)
    """Bursts of each program, timed again in turns; null: those of the collection."""
    least_mflop: float | None = Field(default=None, gt=0)
    """Tasks of a network with fewer operations are left out; null: none."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = ("network", "random_programs", "workload")
        if (found := sum(getattr(self, kind) is not None for kind in kinds)) != 1:
            raise ValueError(f"a source of tasks must have one of {', '.join(kinds)}, but got {found} of them")
        return self


class Collect(Section):
    """Collection of a dataset."""

    sources: list[SourceConfig] = Field(default_factory=list)
    """Sources of tasks, in order."""
    pools: str | None = None
    """File of registered pools in place of sources, see docs/evaluation.md."""
    pools_at_most: int | None = Field(default=None, ge=1)
    """Only the registered tasks to learn from and to validate with, so many programs of each at most; null: all as
    registered."""
    pools_by: Literal["random", "model"] = "random"
    """Draw of programs of pools; model: only those of the tasks to learn from, as a search proposes them that
    knows the pretrained model and no measurement."""
    programs: int = Field(default=128, ge=1)
    """Programs to measure of each task."""
    random_share: float = Field(default=0.5, ge=0, le=1)
    """Share of the programs of a task that are drawn at random; a search proposes the rest."""
    rounds: int = Field(default=0, ge=0)
    """Bursts of each program in which those of a task are timed again in turns, once all are measured."""

    @model_validator(mode="after")
    def _sources_or_pools(self) -> Self:
        if bool(self.sources) == (self.pools is not None):
            raise ValueError(
                f"`collect` must have either sources or pools, but got {len(self.sources)} sources, "
                f"pools={self.pools!r}"
            )
        if self.pools is None and self.pools_at_most is not None:
            raise ValueError(f"`pools_at_most` must go with pools, but got pools_at_most={self.pools_at_most} alone")
        if self.pools is None and self.pools_by != "random":
            raise ValueError(f"`pools_by` must go with pools, but got pools_by={self.pools_by} alone")
        return self


class Sizes(Section):
    """Sizes of one argument for which a workload is tuned together, see docs/symbolic_sizes.md."""

    argument: str
    """Argument of the operator, in place of a number; such as batch of dense."""
    at: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Sizes that count; the smallest and the largest are the ends of the range."""
    weights: list[Annotated[float, Field(gt=0)]] | None = None
    """Frequency of each of these sizes; null: equal."""
    objective: Literal["geomean", "mean"] = "geomean"
    """geomean of each size's time over the fastest known for it, or mean of seconds."""
    schedules: int = Field(default=8, ge=1)
    """Schedules that are kept, at most."""
    finals: int = Field(default=3, ge=1)
    """Fastest candidates of each size that are timed at all sizes."""
    search_at: list[int] | None = Field(default=None, min_length=1)
    """Sizes that have `trials` each; null: up to five."""
    carried: int = Field(default=16, ge=0)
    """Trials at each of the other sizes."""

    @model_validator(mode="after")
    def _a_weight_each(self) -> Self:
        if len(set(self.at)) != len(self.at):
            raise ValueError(f"`at` must be distinct sizes, but got {self.at}")
        if self.weights is not None and len(self.weights) != len(self.at):
            raise ValueError(f"`weights` must be one for each of {len(self.at)} sizes, but got {len(self.weights)}")
        return self


class Tracking(Section):
    """Tracking of runs besides the run folder."""

    backend: str | None = None
    """Tracking: mlflow or none; null: AUTOTUNE_TRACKING of the environment, else mlflow if it is installed."""
    uri: str | None = None
    """Tracking store: sqlite:///FILE, or http[s]://HOST of a server; null: MLFLOW_TRACKING_URI of the environment, else
    mlflow.db beside the run folder."""
    experiment: str | None = Field(default=None, min_length=1)
    """Experiment that the run belongs to; null: its name."""
    live_after_s: float | None = Field(default=None, ge=0)
    """Seconds of a run after which uploading begins; null: 0 for a model, 60 for an operator."""
    wait_s: float = Field(default=1.0, ge=0)
    """Seconds that the end of a run waits at most until everything is uploaded; the upload goes on."""


class CompileConfig(Section):
    """A model and how its executable is made: the keys that a run and `autotune.compile` have in common."""

    name: str = Field(pattern=NAME, max_length=LONGEST)
    """Name of the run; by default that of the file."""
    model: str | None = None
    """A network: a name of the onnx model zoo, or a file."""
    target: str = "cpu"
    """Name of a target, such as cpu or cuda:sm_90; the CPU runs the layers that an accelerator lacks."""
    trials: int = Field(default=64, ge=0)
    """Candidates to measure, shared by the tasks of a model; 0, for a model alone: the roofline chooses."""
    seed: int = Field(default=0, ge=0)
    """Random seed of the search and of the inputs."""
    measure: Measure = Measure()
    network: Network = Network()
    output: str | None = None
    """Run folder; null: runs/<name>."""
    lock: str | None = Field(default=None, min_length=1)
    """Lock file of an earlier run, whose schedules the kernels of a model take, without trials; null: none."""
    cache: str | None = Field(default=None, min_length=1)
    """Folder of what compiling has found out before, or none; null: what the environment variable AUTOTUNE_CACHE says,
    else the user's cache folder."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.output or f"runs/{self.name}")


class RunConfig(CompileConfig):
    """A tuning run."""

    workload: WorkloadConfig | None = None
    """An operator, in place of a model."""
    sizes: Sizes | None = None
    """Sizes of one argument of a workload, for which it is tuned together."""
    collect: Collect | None = None
    """Collection of a dataset, in place of both; for `autotune collect`."""
    search: Search = Search()
    cost_model: Model = Model()
    records: str | None = None
    """Records file to append to; null: records.jsonl in the run folder."""
    tracking: Tracking = Tracking()

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = ("model", "workload", "collect")
        if len(stated := [kind for kind in kinds if getattr(self, kind) is not None]) != 1:
            raise ValueError(f"a run must have one of {', '.join(kinds)}, but got {' and '.join(stated) or 'none'}")
        if self.trials < 1 and self.model is None:
            raise ValueError(f"`trials` must be at least 1 beside a `{stated[0]}`, but got trials={self.trials}")
        if self.lock is not None and self.model is None:
            raise ValueError(f"`lock` must stand beside a `model`, but got a {stated[0]}")
        if self.search.template is not None and self.workload is None:
            raise ValueError(f"`search.template` must stand beside a `workload`, but got a {stated[0]}")
        if self.sizes is not None and (self.workload is None or self.search.template is not None):
            what = "a `search.template`" if self.workload is not None else f"a {stated[0]}"
            raise ValueError(f"`sizes` must stand beside a `workload` without a template, but got {what}")
        return self

    @property
    def records_path(self) -> Path:
        """The records file."""
        return Path(self.records) if self.records else self.folder / "records.jsonl"
