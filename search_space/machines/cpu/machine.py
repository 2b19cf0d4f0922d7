"""The rules for CPUs, in the order in which they are tried. A new one is a file in this folder and a line here."""

from __future__ import annotations

from search_space.machines.base import Machine
from search_space.machines.cpu.chained import ChainedProducts
from search_space.machines.cpu.combined import CombinedProducts
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.cpu.library import LibraryCall
from search_space.machines.cpu.packed import PackedOperands
from search_space.machines.cpu.paired import PairedSums
from search_space.machines.cpu.panels import PanelsOfColumns
from search_space.machines.cpu.parts import ReductionInParts
from search_space.machines.cpu.rowwise import RowWise
from search_space.machines.cpu.scattered import ScatteredSums
from search_space.machines.cpu.slices import SlicesInFront
from search_space.machines.cpu.sparse import SparseProducts
from search_space.machines.cpu.sparse_windows import SparseWindows
from search_space.machines.cpu.spread import spread, with_copies
from search_space.machines.cpu.tiling import MultiLevelTiling
from search_space.machines.cpu.transformed import TransformedProducts
from search_space.machines.cpu.transposed import TransposedOperands
from search_space.machines.cpu.words import WordsOfRows
from search_space.machines.shared.inline import AlwaysInline
from search_space.machines.shared.pad import PadHandling

CPU = Machine(
    rules=[
        AlwaysInline(),
        PadHandling(spread),
        WordsOfRows(),
        SlicesInFront(),
        PanelsOfColumns(),
        LibraryCall(),
        PairedSums(),
        SparseProducts(),
        SparseWindows(),
        ScatteredSums(),
        ReductionInParts(),
        TransposedOperands(),
        RowWise(),
        TransformedProducts(),
        CombinedProducts(),
        ChainedProducts(),
        PackedOperands(),
        MultiLevelTiling(),
        Elementwise(),
    ],
    starts=with_copies,
)
