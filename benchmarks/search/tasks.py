"""The fixed set of tasks, and how the space of each is restricted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks import vta
from benchmarks.search.restrict import Restriction, thin
from search_space import workloads
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets import registry


@dataclass(frozen=True)
class SearchTask:
    """A task of the benchmark.

    Attributes:
        name: of its table.
        kind: class.
        title: as tables and pictures show it.
        make: its workload.
        target: where it runs.
        threads: that a kernel runs on.
        sketches: kept sketches, by name or the end of it; empty: all.
        most: decision group -> rows kept of its table at most; others stay whole.
        pruned: see `Restriction`.
    """

    name: str
    kind: str
    title: str
    make: Callable[[], Workload]
    target: str = "cpu"
    threads: int = 1
    sketches: Sequence[str] = ()
    most: Mapping[str, int] = field(default_factory=dict)
    pruned: bool = True

    def restriction(self, space: SearchSpace) -> Restriction:
        """Of the workload's whole space.

        Raises:
            ValueError: an end of a name that no sketch has.
        """
        for end in self.sketches:
            if not any(sketch.name.endswith(end) for sketch in space.sketches):
                names = ", ".join(sketch.name for sketch in space.sketches)
                raise ValueError(f"`sketches` must be ends of {names}, but got {end!r}")
        kept = [s.name for s in space.sketches if not self.sketches or s.name.endswith(tuple(self.sketches))]
        return thin(space, kept, self.most, self.pruned)

    def whole(self) -> SearchSpace:
        """The workload's whole space on this machine."""
        return generate(self.make(), registry.get(self.target).hardware)


def _layer(name: str, **most: int) -> SearchTask:
    """A layer of ResNet-18 on the simulated VTA."""
    conv = vta.ROWS[name].conv
    title = f"{name}: {conv.kernel}x{conv.kernel} {conv.height}² {conv.in_channels}→{conv.out_channels}"
    return SearchTask(
        f"vta_{name.lower()}",
        "VTA convolution",
        f"VTA {title}" + (f" s{conv.stride}" if conv.stride > 1 else ""),
        lambda: vta.workload_of(vta.ROWS[name]),
        target=vta.TARGET,
        most={f"out.{axis}": count for axis, count in most.items()},
    )


def _small(name: str, title: str, make: Callable[[], Workload], **most: int) -> SearchTask:
    """A small layer on the simulated VTA: milliseconds a candidate."""
    kept = {f"out.{axis}": count for axis, count in most.items()}
    return SearchTask(f"vta_{name}", "VTA, small", f"VTA {title}", make, target=vta.TARGET, most=kept)


def _blocked(height: int, width: int, inputs: int, outputs: int, kernel: int) -> Callable[[], Workload]:
    return lambda: workloads.conv2d_blocked(
        height, width, inputs, outputs, kernel=kernel, padding=kernel // 2, relu=True
    )


TASKS = (
    _small("odd", "3x3 13x17 48→80", _blocked(13, 17, 48, 80, 3), h=9, w=7),
    _small("3x3_14", "3x3 14² 64→64", _blocked(14, 14, 64, 64, 3), h=9, w=6),
    _small("3x3_7", "3x3 7² 128→256", _blocked(7, 7, 128, 256, 3), k=12),
    _small("1x1_14", "1x1 14² 96→160", _blocked(14, 14, 96, 160, 1), k=7, h=6, w=5),
    _small("1x1_28", "1x1 28² 32→64", _blocked(28, 28, 32, 64, 1), h=12, w=7),
    _small("dense_16", "dense 16x512→512", lambda: workloads.dense_blocked(16, 512, 512), n=10, k=12),
    _small("dense_64", "dense 64x128→512", lambda: workloads.dense_blocked(64, 128, 512), n=14, k=12),
    _layer("C2", k=5, h=14, w=10),
    _layer("C3", k=9, h=10, w=7),
    _layer("C4", k=9, h=10, w=7),
    _layer("C5", k=9, h=8, w=7),
    _layer("C6", k=10, h=7, w=6),
    _layer("C7", k=10, h=7, w=6),
    _layer("C8", k=10, h=7, w=6),
    _layer("C9"),
    _layer("C10", k=15),
    _layer("C11"),
)


def select(names: str | None, among: Sequence[SearchTask] = TASKS) -> list[SearchTask]:
    """Tasks of a comma-separated list; all of them for None.

    Raises:
        ValueError: a name that is not in the list.
    """
    known = {task.name: task for task in among}
    chosen = list(known) if names is None else names.split(",")
    for name in chosen:
        if name not in known:
            raise ValueError(f"`tasks` must be of {', '.join(known)}, but got {name!r}")
    return [known[name] for name in chosen]
