"""Native assembler of tapes to instructions of the machine, for thousands of operations in hundreds of sketches.

It drops nodes that no output depends on. It stores an output as soon as it is computed, and frees a slot after its
column's last use. So slots are few and stay in the second-level cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.columns.machine import STORE
from costmodel.native import compile_function
from search_space.ir.tape import CONST, VARIABLE, Tape

_FIELDS = 5  # numbers of an instruction


def assemble(tape: Tape, outputs: Sequence[int], variables: int) -> tuple[NDArray[np.int32], NDArray[np.float64], int]:
    """Assembles the instructions (operation, slot, a, b, c), the constants of the first slots, and the number of slots.

    Variables have the slots behind the constants.

    Args:
        outputs: indices of the nodes to output.
        variables: number of columns.
    """
    count = max(outputs, default=-1) + 1  # nodes behind the last output cannot contribute to any
    wanted = np.array(outputs, np.int32)
    code = np.empty((count + len(outputs), _FIELDS), np.int32)
    constants = np.empty(count, np.int32)
    scratch = np.empty(4 * count + len(outputs), np.int32)
    sizes = np.zeros(3, np.int64)
    _function()(
        tape.flat().buffer_info()[0],
        count,
        wanted.ctypes.data,
        len(outputs),
        variables,
        scratch.ctypes.data,
        constants.ctypes.data,
        code.ctypes.data,
        sizes.ctypes.data,
    )
    length, used, known = sizes.tolist()
    return code[:length].copy(), np.array(tape.numbers, np.float64)[constants[:known]], used


@cache
def _function() -> Any:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return compile_function(
        _TEXT, "assemble", pointer, integer, pointer, integer, integer, pointer, pointer, pointer, pointer
    )


_TEXT = f"""
define void @put(ptr %code, ptr %length, i32 %op, i32 %to, i32 %a, i32 %b, i32 %c) alwaysinline {{
  %n = load i64, ptr %length
  %at = mul i64 %n, {_FIELDS}
  %p0 = getelementptr i32, ptr %code, i64 %at
  %p1 = getelementptr i32, ptr %p0, i64 1
  %p2 = getelementptr i32, ptr %p0, i64 2
  %p3 = getelementptr i32, ptr %p0, i64 3
  %p4 = getelementptr i32, ptr %p0, i64 4
  store i32 %op, ptr %p0
  store i32 %to, ptr %p1
  store i32 %a, ptr %p2
  store i32 %b, ptr %p3
  store i32 %c, ptr %p4
  %more = add i64 %n, 1
  store i64 %more, ptr %length
  ret void
}}

; Stores the outputs that a node is.
define void @give(ptr %code, ptr %length, ptr %head, ptr %next, i64 %i, i32 %slot) {{
entry:
  %first.at = getelementptr i32, ptr %head, i64 %i
  %first = load i32, ptr %first.at
  br label %check
check:
  %output = phi i32 [ %first, %entry ], [ %following, %store ]
  %some = icmp sge i32 %output, 0
  br i1 %some, label %store, label %done
store:
  call void @put(ptr %code, ptr %length, i32 {STORE}, i32 %output, i32 %slot, i32 0, i32 0)
  %wide = sext i32 %output to i64
  %next.at = getelementptr i32, ptr %next, i64 %wide
  %following = load i32, ptr %next.at
  br label %check
done:
  ret void
}}

; Notes that node %i uses an operand. Nodes come from the last one on: the first to say so is the last to use it.
define void @use(ptr %last, i32 %operand, i64 %i, i32 %end) alwaysinline {{
entry:
  %wide = sext i32 %operand to i64
  %at = getelementptr i32, ptr %last, i64 %wide
  %before = load i32, ptr %at
  %never = icmp eq i32 %before, -1
  %stored = icmp eq i32 %before, %end
  %first = or i1 %never, %stored
  br i1 %first, label %note, label %done
note:
  %user = trunc i64 %i to i32
  store i32 %user, ptr %at
  br label %done
done:
  ret void
}}

; Frees the slot of an operand that is computed and that node %i is the last to use, once.
define void @release(ptr %nodes, ptr %last, ptr %slots, ptr %free, ptr %count, i32 %operand, i64 %i) alwaysinline {{
entry:
  %wide = sext i32 %operand to i64
  %at = getelementptr i32, ptr %last, i64 %wide
  %user = load i32, ptr %at
  %here = trunc i64 %i to i32
  %ends = icmp eq i32 %user, %here
  %place = mul i64 %wide, 4
  %node = getelementptr i32, ptr %nodes, i64 %place
  %op = load i32, ptr %node
  %computed = icmp sgt i32 %op, {VARIABLE}
  %frees = and i1 %ends, %computed
  br i1 %frees, label %push, label %done
push:
  store i32 -2, ptr %at
  %slot.at = getelementptr i32, ptr %slots, i64 %wide
  %slot = load i32, ptr %slot.at
  %n = load i64, ptr %count
  %top = getelementptr i32, ptr %free, i64 %n
  store i32 %slot, ptr %top
  %more = add i64 %n, 1
  store i64 %more, ptr %count
  br label %done
done:
  ret void
}}

define i32 @slot_of(ptr %slots, i32 %node) alwaysinline {{
  %wide = sext i32 %node to i64
  %at = getelementptr i32, ptr %slots, i64 %wide
  %slot = load i32, ptr %at
  ret i32 %slot
}}

define void @assemble(ptr %nodes, i64 %n, ptr %outputs, i64 %count, i64 %variables, ptr %scratch, ptr %constants,
                      ptr %code, ptr %sizes) {{
entry:
  %slots = getelementptr i32, ptr %scratch, i64 %n
  %head = getelementptr i32, ptr %slots, i64 %n
  %free = getelementptr i32, ptr %head, i64 %n
  %next = getelementptr i32, ptr %free, i64 %n
  %length = getelementptr i64, ptr %sizes, i64 0
  %used = getelementptr i64, ptr %sizes, i64 1
  %known = getelementptr i64, ptr %sizes, i64 2
  %waiting = alloca i64
  store i64 0, ptr %waiting
  %end = trunc i64 %n to i32
  %bytes = mul i64 %n, 4
  call void @llvm.memset.p0.i64(ptr %scratch, i8 -1, i64 %bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr %head, i8 -1, i64 %bytes, i1 false)
  br label %ask.check
ask.check:
  %o = phi i64 [ %count, %entry ], [ %o.next, %ask ]
  %o.some = icmp sgt i64 %o, 0
  br i1 %o.some, label %ask, label %back.check
ask:
  %o.next = add i64 %o, -1
  %out.at = getelementptr i32, ptr %outputs, i64 %o.next
  %out = load i32, ptr %out.at
  %out.wide = sext i32 %out to i64
  %out.last = getelementptr i32, ptr %scratch, i64 %out.wide
  store i32 %end, ptr %out.last
  %out.head = getelementptr i32, ptr %head, i64 %out.wide
  %behind = load i32, ptr %out.head
  %next.at = getelementptr i32, ptr %next, i64 %o.next
  store i32 %behind, ptr %next.at
  %o.narrow = trunc i64 %o.next to i32
  store i32 %o.narrow, ptr %out.head
  br label %ask.check

back.check:
  %b = phi i64 [ %n, %ask.check ], [ %i, %back ], [ %i, %mark.const ], [ %i, %mark ]
  %b.some = icmp sgt i64 %b, 0
  br i1 %b.some, label %back, label %sized
back:
  %i = add i64 %b, -1
  %last.at = getelementptr i32, ptr %scratch, i64 %i
  %last = load i32, ptr %last.at
  %idle = icmp eq i32 %last, -1
  br i1 %idle, label %back.check, label %asked
asked:
  %row = mul i64 %i, 4
  %node = getelementptr i32, ptr %nodes, i64 %row
  %op = load i32, ptr %node
  %a.at = getelementptr i32, ptr %node, i64 1
  %a = load i32, ptr %a.at
  %leaf = icmp sle i32 %op, {VARIABLE}
  br i1 %leaf, label %mark.const, label %mark
mark.const:
  %is.const = icmp eq i32 %op, {CONST}
  %one = zext i1 %is.const to i64
  %seen = load i64, ptr %known
  %seen.next = add i64 %seen, %one
  store i64 %seen.next, ptr %known
  br label %back.check
mark:
  %b.at = getelementptr i32, ptr %node, i64 2
  %c.at = getelementptr i32, ptr %node, i64 3
  %second = load i32, ptr %b.at
  %third = load i32, ptr %c.at
  call void @use(ptr %scratch, i32 %a, i64 %i, i32 %end)
  call void @use(ptr %scratch, i32 %second, i64 %i, i32 %end)
  call void @use(ptr %scratch, i32 %third, i64 %i, i32 %end)
  br label %back.check

sized:
  %all.known = load i64, ptr %known
  %first.slot = add i64 %all.known, %variables
  store i64 %first.slot, ptr %used
  %known.narrow = trunc i64 %all.known to i32
  br label %given.check

given.check: ; constants and variables, whose slots are full from the start
  %g = phi i64 [ 0, %sized ], [ %g.next, %given.next ]
  %g.const = phi i64 [ 0, %sized ], [ %g.const.next, %given.next ]
  %g.more = icmp slt i64 %g, %n
  br i1 %g.more, label %given, label %forth.check
given:
  %g.next = add i64 %g, 1
  %g.last.at = getelementptr i32, ptr %scratch, i64 %g
  %g.last = load i32, ptr %g.last.at
  %g.idle = icmp eq i32 %g.last, -1
  %g.row = mul i64 %g, 4
  %g.node = getelementptr i32, ptr %nodes, i64 %g.row
  %g.op = load i32, ptr %g.node
  %g.a.at = getelementptr i32, ptr %g.node, i64 1
  %g.a = load i32, ptr %g.a.at
  %g.computed = icmp sgt i32 %g.op, {VARIABLE}
  %g.skip = or i1 %g.idle, %g.computed
  br i1 %g.skip, label %given.next, label %given.one
given.one:
  %g.is.const = icmp eq i32 %g.op, {CONST}
  %g.place = trunc i64 %g.const to i32
  %g.column = add i32 %known.narrow, %g.a
  %g.slot = select i1 %g.is.const, i32 %g.place, i32 %g.column
  %g.slot.at = getelementptr i32, ptr %slots, i64 %g
  store i32 %g.slot, ptr %g.slot.at
  call void @give(ptr %code, ptr %length, ptr %head, ptr %next, i64 %g, i32 %g.slot)
  br i1 %g.is.const, label %given.const, label %given.next
given.const:
  %g.const.at = getelementptr i32, ptr %constants, i64 %g.const
  store i32 %g.a, ptr %g.const.at
  %g.const.more = add i64 %g.const, 1
  br label %given.next
given.next:
  %g.const.next = phi i64 [ %g.const, %given ], [ %g.const, %given.one ], [ %g.const.more, %given.const ]
  br label %given.check

forth.check:
  %f = phi i64 [ 0, %given.check ], [ %f.next, %forth ], [ %f.next, %kept ], [ %f.next, %unread ]
  %f.more = icmp slt i64 %f, %n
  br i1 %f.more, label %forth, label %exit
forth:
  %f.next = add i64 %f, 1
  %f.last.at = getelementptr i32, ptr %scratch, i64 %f
  %f.last = load i32, ptr %f.last.at
  %f.idle = icmp eq i32 %f.last, -1
  %f.row = mul i64 %f, 4
  %f.node = getelementptr i32, ptr %nodes, i64 %f.row
  %f.op = load i32, ptr %f.node
  %f.leaf = icmp sle i32 %f.op, {VARIABLE}
  %f.skip = or i1 %f.idle, %f.leaf
  br i1 %f.skip, label %forth.check, label %compute
compute:
  %x.at = getelementptr i32, ptr %f.node, i64 1
  %y.at = getelementptr i32, ptr %f.node, i64 2
  %z.at = getelementptr i32, ptr %f.node, i64 3
  %x = load i32, ptr %x.at
  %y = load i32, ptr %y.at
  %z = load i32, ptr %z.at
  %x.slot = call i32 @slot_of(ptr %slots, i32 %x)
  %y.slot = call i32 @slot_of(ptr %slots, i32 %y)
  %z.slot = call i32 @slot_of(ptr %slots, i32 %z)
  call void @release(ptr %nodes, ptr %scratch, ptr %slots, ptr %free, ptr %waiting, i32 %x, i64 %f)
  call void @release(ptr %nodes, ptr %scratch, ptr %slots, ptr %free, ptr %waiting, i32 %y, i64 %f)
  call void @release(ptr %nodes, ptr %scratch, ptr %slots, ptr %free, ptr %waiting, i32 %z, i64 %f)
  %left = load i64, ptr %waiting
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %again, label %fresh
again:
  %left.less = add i64 %left, -1
  store i64 %left.less, ptr %waiting
  %top = getelementptr i32, ptr %free, i64 %left.less
  %old = load i32, ptr %top
  br label %put
fresh:
  %new.wide = load i64, ptr %used
  %new = trunc i64 %new.wide to i32
  %new.more = add i64 %new.wide, 1
  store i64 %new.more, ptr %used
  br label %put
put:
  %to = phi i32 [ %old, %again ], [ %new, %fresh ]
  %to.at = getelementptr i32, ptr %slots, i64 %f
  store i32 %to, ptr %to.at
  call void @put(ptr %code, ptr %length, i32 %f.op, i32 %to, i32 %x.slot, i32 %y.slot, i32 %z.slot)
  call void @give(ptr %code, ptr %length, ptr %head, ptr %next, i64 %f, i32 %to)
  %f.unread = icmp eq i32 %f.last, %end
  br i1 %f.unread, label %unread, label %kept
kept:
  br label %forth.check
unread:
  %n.free = load i64, ptr %waiting
  %free.top = getelementptr i32, ptr %free, i64 %n.free
  store i32 %to, ptr %free.top
  %n.free.more = add i64 %n.free, 1
  store i64 %n.free.more, ptr %waiting
  br label %forth.check
exit:
  ret void
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
