"""GPUs whose warpgroups multiply tiles of shared memory (`wgmma`): blocks, warpgroups, tiles of one instruction.

A warpgroup accumulates a tile of the output in registers that its threads hold together (scope `warpgroup`). A step of
the reduction copies tiles of both factors to shared memory, from where the instructions read them. The epilogue is
computed by the threads, each on the elements that it holds.
"""

from __future__ import annotations

from search_space.hardware import Hardware
from search_space.ir.expr import Expr, const, dtype_bytes, lift, product, substitute, total
from search_space.ir.regroup import Regrouping, recombine
from search_space.lower.blocks import BULK, PIPELINE
from search_space.machines.gpu.blocks import (
    Threads,
    add_divisor_limit,
    add_limit,
    copy_to_shared,
    require_gpu,
    with_threads,
)
from search_space.machines.gpu.products import (
    Product,
    any_whole,
    find_factor,
    find_product,
    get_factor_dtype,
    longest_extent,
    row_dimension,
)
from search_space.machines.gpu.tensor_cores import (
    GROUPS,
    LANES,
    GpuTensorCores,
    Side,
    by_instructions,
    decided_sides,
    on_threads,
)
from search_space.schedule.builder import Loop
from search_space.schedule.state import Input, Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.reads import variable
from search_space.sketch.tables import MAX_WASTE, ceildiv
from search_space.warpgroup_intrinsics import DEPTH, ROWS, SCOPE, THREADS, Wgmma, wgmmas_for

WARPGROUPS = (1, 2)
"""Numbers of warpgroups of a block along each side of the output."""
TILES = (1, 2)
"""Numbers of an instruction's tiles that a warpgroup accumulates, along each side."""
LINE = 64
"""Elements of a row of 128 bytes, in which tiles of both factors are laid out."""
LINES = (1, 2)
"""Numbers of lines that a step of the reduction advances by."""
STAGES = (2, 3, 4)
"""Steps whose tiles are in shared memory at once."""
UNIT_BYTES = 16
"""Divisor of the bytes of an array's rows that the copy unit requires."""
LEAST = 32
"""Rows and columns of the output, below which most of an instruction would multiply zeros."""
WARPS, HALVES, PAIR = 4, 2, 2
"""Warps along the rows of a tile, halves of a warp's 16 rows, and columns next to each other that a thread holds."""


class GpuWarpgroups(SketchRule):
    """A rule that tiles a product of 16-bit factors that warpgroups multiply, together with its epilogue.

    It adds the sketches for single warps to those for warpgroups.
    """

    name = "gpu_warpgroups"

    def __init__(self) -> None:
        self.warps = GpuTensorCores()

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        if not self.warps.matches(draft, stage, hardware):
            return False
        found = find_product(draft, stage)
        return found is not None and bool(self.instructions(draft, found, hardware))

    def instructions(self, draft: Draft, product: Product, hardware: Hardware) -> tuple[Wgmma, ...]:
        """Returns the instructions that fit the output's width; () if the factors' layouts are not those they read."""
        left, right = (get_factor_dtype(product, t) for t in (product.left, product.right))
        fitting = wgmmas_for(hardware, left, right, product.sums.dtype)
        if not fitting or not product.rows:
            return ()
        columns = int(product.columns.extent.value)
        if min(columns, int(product.rows[0].extent.value)) < LEAST:
            return ()
        depth = product.sums.reduce_axes[-1]
        if longest_extent(draft, depth) < DEPTH or (depth.name == product.part and not any_whole(draft, depth, LINE)):
            return ()
        if product.columns.name not in find_factor(product, product.right)[1][-1]:
            return ()
        narrow, *wider = fitting
        return (narrow, *(w for w in wider if ceildiv(columns, w.columns) * w.columns <= columns * MAX_WASTE))

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        product = find_product(draft, stage)
        assert product is not None
        out = []
        for wgmma in self.instructions(draft, product, hardware):
            out += self.variants(draft, stage, product, wgmma, hardware)
        return out + self.warps.apply(draft, stage, hardware)

    def variants(self, draft: Draft, stage: Stage, product: Product, wgmma: Wgmma, hardware: Hardware) -> list[Draft]:
        """Lists the sketches of one instruction: one for each number of tiles in shared memory and way to fill them."""
        draft, sums = draft.sums_in(SCOPE, product.sums.name, stage.name)
        rows, columns = (ROWS, TILES), (wgmma.columns, TILES)
        draft, row, column = decided_sides(draft, product, rows, columns, "warpgroups", WARPGROUPS)
        draft, place = self.output(draft, product, row, column, wgmma)
        draft, outer, depth = self.reduction(draft, product, sums, wgmma, place)
        threads = Threads(column.groups, THREADS, row.groups)
        held = lift(row.tiles) * column.tiles * (ROWS * wgmma.columns // THREADS)
        draft = with_threads(draft, threads.count, held, require_gpu(hardware), THREADS)
        whole = (depth, column.extent(wgmma.columns))
        filled = {"": self.factors(draft, product, (sums, outer), threads, whole, False)}
        if self.boxes(draft, product):
            by_unit = self.factors(draft, product, (sums, outer), threads, whole, True)
            by_unit = add_limit(by_unit, "steps of a pipeline", depth + 1, product.sums.reduce_axes[-1].extent)
            filled[BULK] = by_unit.pragma(sums, outer, BULK, 1)
        return [
            each.pragma(sums, outer, PIPELINE, stages)
            .variant(f"wgmma{wgmma.columns}/{how}{stages}")
            .finish(stage.name, sums)
            for how, each in filled.items()
            for stages in STAGES
        ]

    def boxes(self, draft: Draft, product: Product) -> bool:
        """Tells whether the tiles of both factors are boxes of arrays whose rows the copy unit can address.

        A reduction of one step has no loop whose tiles could be filled ahead.
        """
        if longest_extent(draft, product.sums.reduce_axes[-1]) <= LINE:
            return False
        for tensor in (product.left, product.right):
            array = draft.state.input(tensor) or self.find_rows(draft, draft.stage(tensor))
            if array is None or array.layout is not None or array.shape[-1] * dtype_bytes(array.dtype) % UNIT_BYTES:
                return False
        return True

    def find_rows(self, draft: Draft, stage: Stage) -> Input | None:
        """Finds the array whose rows a stage has in order, such as pixels that are the columns of a 1x1 convolution."""
        body = stage.body
        array = draft.state.input(body.args[0]) if body.op == "load" else None
        if array is None or not all(lift(e).is_const for e in stage.shape):
            return None
        simplify = Regrouping({a.name: a.extent for a in stage.axes})
        numbers = {a.name: const(0) for a in stage.axes if a.extent is const(1)}
        indices = [tuple(substitute(i, numbers) for i in each) for each in (body.args[1:], map(variable, stage.axes))]
        source, own = (
            recombine(simplify(total(i * product(shape[d + 1 :]) for d, i in enumerate(each))), simplify)
            for each, shape in zip(indices, (array.shape, stage.shape), strict=True)
        )
        return array if source is own else None

    # ------------------------------------------------------------------ the output
    def output(self, draft: Draft, product: Product, row: Side, column: Side, wgmma: Wgmma) -> tuple[Draft, Loop]:
        """Makes the output's loops, with threads on their elements; returns the loop around a warpgroup's tile."""
        name = product.output.name
        draft, around, rows, columns = product.fused_rows(draft)
        assert rows is not None
        heights = (row.blocks, row.groups, row.tiles, WARPS, HALVES, GROUPS)
        draft, (i0, i1, i2, i3, i4, i5, i6) = draft.split(name, rows, heights, "guard")
        widths = (column.groups, column.tiles, wgmma.columns // (LANES * PAIR), LANES, PAIR)
        draft, (j0, j1, j2, j3, j4, j5) = draft.split(name, columns, widths, "guard")
        outer, groups, lanes, inner = (*around, i0, j0, i1), (i2, j1), (i4, i6, j4), (i3, j2, j3, i5, j5)
        return on_threads(draft, name, outer, groups, lanes, inner), j1

    # ------------------------------------------------------------------ the sum
    def reduction(
        self, draft: Draft, product: Product, sums: str, wgmma: Wgmma, loop: Loop
    ) -> tuple[Draft, Loop, Expr]:
        """Makes the loops of the sum; returns the loop over steps, and the depth of a step."""
        name, axis = product.output.name, draft.stage(sums).reduce_axes[-1]
        draft = draft.compute_at(sums, name, loop)
        extent = longest_extent(draft, axis)
        table = product.list_steps(axis, extent, LINES, LINE)
        draft, (lines,) = draft.choose_row(f"{name}.{axis.name}", ("lines",), table)
        exact = not axis.extent.is_const or all(extent % (s * LINE) == 0 for (s,) in table)
        draft, outer, _ = by_instructions(draft, sums, lift(lines) * (LINE // DEPTH), wgmma.product, exact)
        return draft, outer, lift(lines) * LINE

    def factors(
        self,
        draft: Draft,
        product: Product,
        anchor: tuple[str, Loop],
        threads: Threads,
        row_lengths: tuple[Expr, Expr],
        bulk: bool,
    ) -> Draft:
        """Copies both factors to shared memory, the left one's rows along the reduction, the right one's across.

        Args:
            anchor: the sums, and their loop over steps.
            row_lengths: length of a row of each.
            bulk: whether the copy unit fills the tiles, so that the width of vectors is no choice.
        """
        name = product.output.name
        for label, tensor, length in (("left", product.left, row_lengths[0]), ("right", product.right, row_lengths[1])):
            source = draft.state.input(tensor) or draft.stage(tensor)
            along = find_factor(product, tensor)[1]
            last = len(along) - 1
            k = next(d for d, names in enumerate(along) if product.sums.reduce_axes[-1].name in names)
            line = row_dimension(product) if label == "left" else k
            order = (*(d for d in range(last) if d != line), line, last)
            row, most = int(lift(source.shape[last]).value), 16 // dtype_bytes(source.dtype)
            vectors = [v for v in (1, 2, 4, 8) if v <= most and row % v == 0][-2:]
            draft, vector = draft.choose(f"{name}.{label}.vector", vectors[-1:] if bulk else vectors)
            draft = add_divisor_limit(draft, f"vectors of {tensor}", length, vector)
            draft, _ = copy_to_shared(draft, tensor, anchor, threads, vector, order)
        return draft
