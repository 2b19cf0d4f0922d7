"""Faster tensor programs: compile a network, tune it or a workload, lower and build hand-written schedules.

    compile          a model of ONNX or a module of PyTorch to an executable of this machine
    load             an executable from the folder that `save` wrote
    tune             the fastest schedule of a workload, of tensors or of a template
    tune_for_sizes   schedules of a workload for all sizes of a range
    TuneResult       what `tune` returns
    lower, build     a hand-written schedule to a loop program, or to a kernel
    build_for_sizes  the same, to one kernel for all sizes of a range
    compile_training, load_training   a training step as an executable, and one that was saved
    explain          which parts of a module `torch.compile(backend="autotune")` compiles

The names are resolved on first use, so that `import autotune` and `autotune --help` are quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from search_space.former_names import serve_former_names

if TYPE_CHECKING:
    from autotune.api import compile as compile
    from autotune.compiler.executable.loading import load as load
    from autotune.handwritten import build as build
    from autotune.handwritten import build_for_sizes as build_for_sizes
    from autotune.handwritten import lower as lower
    from autotune.pytorch.explain import explain as explain
    from autotune.training.api import compile_training as compile_training
    from autotune.training.executable import load_training as load_training
    from autotune.tuner.result import TuneResult as TuneResult
    from autotune.tuner.sizes import tune_for_sizes as tune_for_sizes
    from autotune.tuner.tuner import tune as tune

__version__ = "0.2.0"

serve_former_names(
    {
        "autotune.cache": "autotune.compiler.cache",
        "autotune.collect": "autotune.lab.collect",
        "autotune.compiler.cache.place": "autotune.compiler.cache.locations",
        "autotune.compiler.crew": "autotune.compiler.compile_workers",
        "autotune.compiler.deploy": "autotune.compiler.finalize",
        "autotune.compiler.load": "autotune.compiler.prepare",
        "autotune.compiler.mixed.settling": "autotune.compiler.mixed.type_resolution",
        "autotune.compiler.whole": "autotune.compiler.bundle_cache",
        "autotune.database": "autotune.tuner.database",
        "autotune.executable": "autotune.compiler.executable",
        "autotune.graph.aten": "autotune.graph.frontends.aten",
        "autotune.graph.importer": "autotune.graph.frontends.onnx.importer",
        "autotune.graph.mixed.places": "autotune.graph.mixed.rounding_sites",
        "autotune.graph.onnx_model": "autotune.graph.frontends.onnx.model",
        "autotune.graph.substitutions": "autotune.lab.substitutions",
        "autotune.language.compiled": "autotune.language.api",
        "autotune.network": "autotune.compiler",
        "autotune.network.compiled": "autotune.api",
        "autotune.schedulers": "autotune.tuner.schedulers",
        "autotune.search": "autotune.tuner.search",
        "autotune.tuner.database.likeness": "autotune.tuner.database.similarity",
        "autotune.tuner.database.place": "autotune.tuner.database.locations",
        "autotune.tuning": "autotune.tuner",
    }
)

_HOMES = {
    "TuneResult": "autotune.tuner.result",
    "build": "autotune.handwritten",
    "build_for_sizes": "autotune.handwritten",
    "compile": "autotune.api",
    "compile_training": "autotune.training.api",
    "explain": "autotune.pytorch.explain",
    "load": "autotune.compiler.executable.loading",
    "load_training": "autotune.training.executable",
    "lower": "autotune.handwritten",
    "tune": "autotune.tuner.tuner",
    "tune_for_sizes": "autotune.tuner.sizes",
}

__all__ = [
    "TuneResult",
    "__version__",
    "build",
    "build_for_sizes",
    "compile",
    "compile_training",
    "explain",
    "load",
    "load_training",
    "lower",
    "tune",
    "tune_for_sizes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
