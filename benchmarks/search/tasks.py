"""Tasks of the benchmark, a fixed set, and the restriction of each space."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks import vta
from benchmarks.search.restrict import Restriction, thin
from search_space import te, te_json, workloads
from search_space.space import SearchSpace, generate
from search_space.workloads import Workload
from targets import registry


@dataclass(frozen=True)
class SearchTask:
    """A task of the benchmark.

    Attributes:
        name: name of its table.
        kind: class.
        title: title in tables and pictures.
        make: its workload.
        target: target that it runs on.
        threads: threads that a kernel runs on; 0: one a core of the machine that makes the table.
        sketches: kept sketches, by name or the end of it; empty: all.
        most: decision group -> rows kept of its table at most; others stay whole.
        pruned: see `Restriction`.
    """

    name: str
    kind: str
    title: str
    make: Callable[[], Workload]
    target: str = "cpu"
    threads: int = 0
    sketches: Sequence[str] = ()
    most: Mapping[str, int] = field(default_factory=dict)
    pruned: bool = True

    def restriction(self, space: SearchSpace) -> Restriction:
        """Makes the restriction of the workload's complete space.

        Raises:
            ValueError: an end of a name that no sketch has.
        """
        for end in self.sketches:
            if not any(sketch.name.endswith(end) for sketch in space.sketches):
                names = ", ".join(sketch.name for sketch in space.sketches)
                raise ValueError(f"`sketches` must be ends of {names}, but got {end!r}")
        kept = [s.name for s in space.sketches if not self.sketches or s.name.endswith(tuple(self.sketches))]
        return thin(space, kept, self.most, self.pruned)

    def make_space(self) -> SearchSpace:
        """Generates the workload's complete space on this machine."""
        return generate(self.make(), registry.get(self.target).hardware)


def _layer(name: str, **most: int) -> SearchTask:
    """Makes the task of a ResNet-18 layer on the simulated VTA."""
    conv = vta.ROWS[name].conv
    title = f"{name}: {conv.kernel}x{conv.kernel} {conv.height}² {conv.in_channels}→{conv.out_channels}"
    return SearchTask(
        f"vta_{name.lower()}",
        "VTA convolution",
        f"VTA {title}" + (f" s{conv.stride}" if conv.stride > 1 else ""),
        lambda: vta.make_workload(vta.ROWS[name]),
        target=vta.TARGET,
        most={f"out.{axis}": count for axis, count in most.items()},
    )


def _small(name: str, title: str, make: Callable[[], Workload], **most: int) -> SearchTask:
    """Makes the task of a small layer on the simulated VTA: milliseconds a candidate."""
    kept = {f"out.{axis}": count for axis, count in most.items()}
    return SearchTask(f"vta_{name}", "VTA, small", f"VTA {title}", make, target=vta.TARGET, most=kept)


def _make_blocked_conv(height: int, width: int, inputs: int, outputs: int, kernel: int) -> Callable[[], Workload]:
    return lambda: workloads.conv2d_blocked(
        height, width, inputs, outputs, kernel=kernel, padding=kernel // 2, relu=True
    )


def _with_residual(anchor: Workload) -> Workload:
    """Fuses a residual and a relu into an operator's kernel."""
    shape, dtype = anchor.output.shape, anchor.output.dtype
    layer, other = (te.placeholder(shape, dtype, name) for name in ("layer", "other"))
    summed = te.compute(shape, lambda *i: layer[i] + other[i], name="add")
    ended = te.compute(shape, lambda *i: te.maximum(summed[i], 0), name="relu")
    return workloads.fused(anchor.to_json(), te_json.to_json([layer, other, ended]))


_DEPTHWISE = ("direct:h.1>w.0>c.1/rw>rh/pad_inline", "direct:c.1>h.1>w.0/rw>rh/pad_at_n_h.0_c.0")
CPU = (
    SearchTask(
        "cpu_depthwise_odd",
        "depthwise",
        "depthwise 3x3 13x17 96",
        lambda: workloads.depthwise_conv2d(height=13, width=17, channels=96, kernel=3, padding=1),
        sketches=_DEPTHWISE,
        most={"conv.h": 10, "conv.w": 7, "conv.c": 6},
    ),
    SearchTask(
        "cpu_depthwise_s2",
        "depthwise, no pruning",
        "depthwise 5x5 s2 28² 144",
        lambda: workloads.depthwise_conv2d(height=28, width=28, channels=144, kernel=5, stride=2, padding=2),
        sketches=_DEPTHWISE,
        most={"conv.h": 9, "conv.w": 6, "conv.c": 5},
        pruned=False,
    ),
    SearchTask(
        "cpu_matmul_odd",
        "odd shape",
        "matmul 127x255x65",
        lambda: workloads.matmul(127, 255, 65),
        sketches=("direct:i.1>j.1/r", "direct:j.1>i.1/r"),
        most={"matmul.i": 36, "matmul.j": 14},
    ),
    SearchTask(
        "cpu_matmul_free",
        "odd shape, no pruning",
        "matmul 90x150x77",
        lambda: workloads.matmul(90, 150, 77),
        sketches=("direct:i.1>j.1/r", "direct:j.1>i.1/r"),
        most={"matmul.i": 28, "matmul.j": 12},
        pruned=False,
    ),
    SearchTask(
        "cpu_batch_matmul",
        "odd shape",
        "batched matmul 12x49x64x49",
        lambda: workloads.batch_matmul(12, 49, 64, 49),
        most={"batch_matmul.g": 11, "batch_matmul.i": 16},
    ),
    SearchTask(
        "cpu_fused_dense",
        "fused",
        "dense 49x96→200, bias, gelu, residual, relu",
        lambda: _with_residual(workloads.dense(49, 96, 200, bias=True, activation="gelu")),
        sketches=("direct:i0.1>i1.1/r", "direct:i1.1>i0.1/r"),
        most={"relu.i0": 22, "relu.i1": 10, "relu.r": 5},
    ),
    SearchTask(
        "cpu_avg_pool",
        "pooling",
        "average pool 3x3 28² 192",
        lambda: workloads.avg_pool2d(height=28, width=28, channels=192, kernel=3, stride=1, padding=1),
        sketches=("direct:h.1>w.0>c.1/rw>rh/pad_inline", "direct:c.1>h.1>w.0/rw>rh/pad_inline"),
        most={"avg_pool.h": 14, "avg_pool.w": 8, "avg_pool.c": 8},
    ),
)
"""Seven tasks that are measured: about 12,000 candidates, half an hour of a quiet machine."""

ELSEWHERE = tuple(
    replace(task, name=f"{task.name}_{name}", title=f"{task.title}, {title}", **on)
    for name, title, on in (("avx2", "AVX2", {"target": "cpu:haswell"}), ("one", "one thread", {"threads": 1}))
    for task in CPU
)
"""Tasks of `CPU` for another processor, whose code this one can run, by one thread, for `benchmarks.transfer`."""

TASKS = (
    *CPU,
    _small("odd", "3x3 13x17 48→80", _make_blocked_conv(13, 17, 48, 80, 3), h=9, w=7),
    _small("3x3_14", "3x3 14² 64→64", _make_blocked_conv(14, 14, 64, 64, 3), h=9, w=6),
    _small("3x3_7", "3x3 7² 128→256", _make_blocked_conv(7, 7, 128, 256, 3), k=12),
    _small("1x1_14", "1x1 14² 96→160", _make_blocked_conv(14, 14, 96, 160, 1), k=7, h=6, w=5),
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
    """Selects tasks of a comma-separated list; all of them for None.

    Raises:
        ValueError: a name that is not in the list.
    """
    by_name = {task.name: task for task in among}
    chosen = list(by_name) if names is None else names.split(",")
    for name in chosen:
        if name not in by_name:
            raise ValueError(f"`tasks` must be of {', '.join(by_name)}, but got {name!r}")
    return [by_name[name] for name in chosen]
