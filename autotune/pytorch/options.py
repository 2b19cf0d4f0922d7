"""Options of `torch.compile(model, backend="autotune", mode=..., options={...})`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from autotune.compiler.modes import precision_of_all
from autotune.graph.precision import FULL
from search_space.operators.algorithms import check_names
from search_space.operators.checks import nearest
from targets.threads import check_threads

MODES = ("default", "max-autotune")
MOST_TRIALS = 1000
"""Trials of `max-autotune`, all kernels of a graph together."""


@dataclass(frozen=True)
class Options:
    """Options of compiling graphs.

    Attributes:
        trials: candidates to measure, all kernels of a graph together; 0: none is measured, see docs/networks.md.
        threads: threads that kernels run on; None: those of `torch.get_num_threads()`.
        precision: float32: the model's precision; bfloat16 or float16: its float32 parts are lowered to that.
        algorithms: algorithms that kernels may use besides the default ones, such as `strassen`.
        seed: seed of every random draw of a search.
        sizes: greatest sizes for which a graph of any shape is compiled at once, raised by calls with larger ones;
            0: one graph for each shape.
        shapes: most shapes for which a graph stays compiled that is compiled for each shape, the last used ones.
        background: whether the trials are measured while the model runs, which uses choices without trials until then.
        training: whether graphs that need gradients are compiled, and parameters are inputs of all graphs.
    """

    trials: int = 0
    threads: int | None = None
    precision: str = FULL
    algorithms: Sequence[str] = ()
    seed: int = 0
    sizes: int = 128
    shapes: int = 16
    background: bool = False
    training: bool = False

    def __post_init__(self) -> None:
        for name, least in (("trials", 0), ("threads", 1), ("seed", 0), ("sizes", 0), ("shapes", 1)):
            value = getattr(self, name)
            if value is None and name == "threads":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"`{name}` must be a whole number of at least {least}, but got {name}={value!r}")
        if self.threads is not None:
            check_threads(self.threads)
        for name in ("background", "training"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}` must be True or False, but got {name}={getattr(self, name)!r}")
        if isinstance(self.algorithms, str) or not all(isinstance(name, str) for name in self.algorithms):
            raise ValueError(f"`algorithms` must be a list of names, but got algorithms={self.algorithms!r}")
        check_names(self.algorithms)
        if self.background and not self.trials:
            raise ValueError("`trials` must be at least 1 where `background` is True, but got trials=0")
        precision_of_all(self.precision)


def read_options(mode: str | None, options: Mapping[str, Any] | None) -> Options:
    """Parses the options of a call of `torch.compile`.

    Raises:
        ValueError: an unknown mode or option, or a value out of range.
    """
    if mode not in (None, *MODES):
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}, but got mode={mode!r}")
    names = [item.name for item in fields(Options)]
    for name in options or {}:
        if name not in names:
            hint = nearest(name, names)
            raise ValueError(f"`options` must be among {', '.join(names)}, but got {name!r}{hint}")
    trials = {"trials": MOST_TRIALS} if mode == "max-autotune" else {}
    return Options(**{**trials, **(options or {})})
