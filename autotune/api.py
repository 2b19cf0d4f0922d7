"""`compile`: from a model to an executable, in one call and by default without a trial.

The modules that read models are imported only when a model must be read: processes that choose schedules start before.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.compiler.bundle_cache import FOLDER, find_bundle_entry
from autotune.compiler.executable.loading import load
from autotune.compiler.job import NetworkJob, get_target
from autotune.config import CompileConfig, ConfigError, check_section, errors_at
from autotune.naming import file_name
from autotune.run_files import RECORDS, make_folder
from autotune.tuner.settings import Settings
from search_space.scratch import ScratchFolder
from targets import registry
from targets.executable import Executable

if TYPE_CHECKING:
    import onnx
    import torch

    from autotune.compiler.sources import ModelSource


def compile(
    model: str | os.PathLike[str] | onnx.ModelProto | torch.nn.Module,
    example_inputs: Any = None,
    *,
    target: str | registry.Design = "cpu",
    threads: int | None = None,
    precision: str = "float32",
    quantise: str | None = None,
    quantisation: Mapping[str, Any] | None = None,
    algorithms: Sequence[str] = (),
    sparsity: float | None = None,
    trials: int = 0,
    seed: int = 0,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
    output: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Executable:
    """Compiles a network for this machine; without trials its kernels come from the database, the pretrained model and
    the roofline, in this order.

        network = autotune.compile("model.onnx")
        logits = network(image)
        network.save("folder")  # which `autotune.load` reads

    Args:
        model: an ONNX file, a name of the zoo or the import path `package.module:function` of a function that
            returns a module of PyTorch and its inputs; or a model of ONNX; or a module of PyTorch.
        example_inputs: inputs of a module: a tensor, a tuple of arguments, or a mapping of them by name. The network
            has their types, and their shapes except for extents that `shapes` names.
        target: a name of `targets.registry`, or the design of an accelerator.
        threads: number of threads that the kernels are chosen for and run on; None: one per core.
        precision: value of `network.precision`, such as `float32`, `bfloat16` or `mixed`, see docs/precision.md.
        quantise: `weights4` or `weights8`: products read weights of so few bits; `int8`: layers work on bytes; None:
            in floats, see docs/quantisation.md.
        quantisation: the keys of `network.quantisation` in a configuration, such as `group` and `symmetric`.
        algorithms: algorithms that kernels may use besides the default ones, such as `strassen`, see docs/networks.md.
        sparsity: least share of a weight in blocks of zeros, from which its layer leaves them out; None: none does,
            see docs/sparsity.md.
        trials: number of candidates to measure, shared among the tasks; 0: none.
        seed: seed of every random draw, and of weights that the model does not carry.
        shapes: shapes, by name, of inputs whose dimensions the model leaves open; `sizes` by their name in it stay
            open.
        sizes: smallest and largest value, by name: the network takes inputs of all of them. Without trials.
        output: folder of the records, of a lock file and, in `network` there, of the executable; None: a temporary
            folder that lasts as long as the executable. `autotune run` also writes a report.
        lock: file of schedules that an earlier run has written, used for all kernels; without trials.
        cache: folder of earlier results of compiling, or `none`; None: the folder that `AUTOTUNE_CACHE` names, else the
            user's cache folder. It changes how long compiling takes, and nothing else.

    Returns:
        The network, to be called with arrays or tensors in order, or with a mapping of them by name.

    Raises:
        ConfigError: the model cannot be compiled, or a value is illegal.
        TypeError: `example_inputs` are missing, or come with a model that has its own.
    """
    _check_options(model, shapes, sizes, quantisation, algorithms)
    module = _is_instance("torch.nn", "Module", model)
    if module == (example_inputs is None):
        raise TypeError(
            "`example_inputs` must be given for a module of PyTorch alone, but got "
            f"model={type(model).__name__}, example_inputs={type(example_inputs).__name__}"
        )
    scratch = None if output is not None else ScratchFolder("network")
    folder = Path(output or "") if scratch is None else Path(scratch.name) / "run"  # a run locks its folder
    in_memory = module or _is_instance("onnx", "ModelProto", model)
    config = check_section(
        CompileConfig,
        {
            "model": "model" if in_memory else str(model),
            "name": _network_name(model, module, in_memory),
            "target": registry.target_name(target),
            "trials": trials,
            "seed": seed,
            "measure": {"cache": "network", "threads": threads},
            "network": {
                "precision": precision,
                "quantise": quantise,
                "algorithms": list(algorithms),
                "sparsity": sparsity,
                "quantisation": dict(quantisation or {}),
                "shapes": {name: list(shape) for name, shape in (shapes or {}).items()},
                "sizes": {name: list(span) for name, span in (sizes or {}).items()},
            },
            "output": str(folder),
            "lock": None if lock is None else os.fspath(lock),
            "cache": None if cache is None else os.fspath(cache),
        },
        "autotune.compile",
    )
    make_folder(config.folder)
    job = _make_job(config)
    source = _make_source(job, model, example_inputs) if in_memory else None
    if trials and not config.network.sizes:
        from autotune.compiler.tuned import tune_network

        tune_network(job, source)
    elif scratch is None:
        from autotune.compiler.compile_from_records import compile_model

        compile_model(job, source=source)
    else:
        executable = _in_memory(job, source)
        weakref.finalize(executable, scratch.cleanup)
        return executable
    executable = load(folder / FOLDER, threads)
    if scratch is not None:
        weakref.finalize(executable, scratch.cleanup)
    return executable


def _make_job(config: CompileConfig) -> NetworkJob:
    """Translates the checked arguments to a job.

    Raises:
        ConfigError: the target is unknown, or the machine has fewer threads.
    """
    with errors_at("target"):
        target = get_target(config)
    algorithms = tuple(config.network.algorithms)
    settings = Settings(target, config.trials, config.seed, measure=config.measure, algorithms=algorithms)
    return NetworkJob(config, settings, config.folder / RECORDS)


def _in_memory(job: NetworkJob, source: ModelSource | None) -> Executable:
    """Compiles a model without records; loads the executable from the cache if it was compiled before."""
    config = job.config
    bundle = None if source is not None or config.lock is not None else find_bundle_entry(job)
    cached = None if bundle is None else bundle.load(job.folder / FOLDER, config.measure.threads, config.target)
    if cached is not None:
        return cached
    from autotune.compiler.compile_from_records import compile_model_in_memory

    return compile_model_in_memory(job, source, bundle)


def _check_options(model: Any, shapes: Any, sizes: Any, quantisation: Any, algorithms: Any) -> None:
    """Refuses arguments that cannot be part of a configuration; the configuration checks the values.

    Raises:
        ConfigError: the model, or an option, has an illegal type.
    """
    if not (isinstance(model, str | os.PathLike) or _is_instance("onnx", "ModelProto", model)):
        if not _is_instance("torch.nn", "Module", model):
            raise ConfigError(
                f"`model` must be a file, a name, a model of ONNX or a module of PyTorch, but got {model!r:.80}"
            )
    for name, value in (("shapes", shapes), ("sizes", sizes), ("quantisation", quantisation)):
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"`{name}` must be a mapping, but got {name}={value!r:.80}")
    for name, value in (("shapes", shapes), ("sizes", sizes)):
        for key, numbers in (value or {}).items():
            if not isinstance(numbers, Iterable) or isinstance(numbers, str):
                raise ConfigError(f"`{name}` of {key} must be a list of numbers, but got {numbers!r:.80}")
    if not isinstance(algorithms, Iterable) or isinstance(algorithms, str):
        raise ConfigError(f"`algorithms` must be a list of names, but got algorithms={algorithms!r:.80}")


def _is_instance(package: str, kind: str, model: object) -> bool:
    """Tells whether a model is an instance of a class, without importing the package of the class."""
    found = sys.modules.get(package)
    return found is not None and isinstance(model, getattr(found, kind))


def _make_source(job: NetworkJob, model: Any, inputs: Any) -> ModelSource:
    """Reads a model of ONNX, or exports a module.

    Raises:
        ConfigError: the module cannot be exported, or cannot have these inputs.
    """
    keys = job.config.network
    if inputs is None:
        from autotune.compiler.sources import OnnxSource

        return OnnxSource(model, job.config.seed)
    from autotune.compiler.torch_source import TorchSource

    with errors_at("model"):
        return TorchSource.of(model, inputs, keys.shapes, job.options.shapes.sizes)


def _network_name(model: Any, module: bool, in_memory: bool) -> str:
    """Names a network by its file, its function, its graph, or the class of a module."""
    if module:
        return file_name(type(model).__name__)
    return file_name((model.graph.name if in_memory else Path(model).stem.rpartition(":")[2]) or "network")
