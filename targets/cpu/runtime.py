"""The native side every kernel shares: parallel loops, and timing."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import llvmlite.binding as llvm

from targets.cpu.pool import ENDS, pool_text

ZEROS_BYTES = 512  # where loads that must not happen read instead
ZEROS = f"@zeros = internal constant [{ZEROS_BYTES} x i8] zeroinitializer, align 64\n"


class Compiles(Protocol):
    """The part of a CPU's target that makes its files: an LLVM machine, and the head of every module for it."""

    cpu: str
    machine: Any

    def header(self) -> str:
        """Returns the data layout and the triple as LLVM text."""


# The timing loop: seconds are taken around every single execution.
TIMER = """
declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() {
  %t = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t
  %n.at = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %n.at
  %a = mul i64 %s, 1000000000
  %b = add i64 %a, %n
  ret i64 %b
}
define void @autotune_time(ptr %f, ptr %tables, i64 %count, i64 %iterations, i32 %threads, ptr %workspace, ptr %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %k = urem i64 %i, %count
  %t.at = getelementptr ptr, ptr %tables, i64 %k
  %t = load ptr, ptr %t.at
  %start = call i64 @now()
  call void %f(ptr %t, i32 %threads, ptr %workspace)
  %end = call i64 @now()
  %d = sub i64 %end, %start
  %o = getelementptr i64, ptr %out, i64 %i
  store i64 %d, ptr %o
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %iterations
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# Timing with constants that no cache holds: before every execution all threads flush them, in 64 shares.
TIMER_COLD = """
declare void @FLUSH(ptr)
declare void @llvm.x86.sse2.mfence()
define internal void @flush(ptr %c, i32 %thread, i64 %low, i64 %high) #flush {
entry:
  %count = load i64, ptr %c
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %pair, label %done
pair:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %place = mul i64 %i, 2
  %base.place = add i64 %place, 1
  %size.place = add i64 %place, 2
  %base.at = getelementptr i64, ptr %c, i64 %base.place
  %base = load ptr, ptr %base.at
  %size.at = getelementptr i64, ptr %c, i64 %size.place
  %size = load i64, ptr %size.at
  %share.long = add i64 %size, 4095
  %share.lines = udiv i64 %share.long, 4096
  %share = mul i64 %share.lines, 64
  %start = mul i64 %share, %low
  %stop.share = mul i64 %share, %high
  %stop = call i64 @llvm.smin.i64(i64 %stop.share, i64 %size)
  %some = icmp slt i64 %start, %stop
  br i1 %some, label %line, label %after
line:
  %at = phi i64 [ %start, %pair ], [ %at.next, %line ]
  %p = getelementptr i8, ptr %base, i64 %at
  call void @FLUSH(ptr %p)
  %at.next = add i64 %at, 64
  %more = icmp slt i64 %at.next, %stop
  br i1 %more, label %line, label %after
after:
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %count
  br i1 %again, label %pair, label %done
done:
  call void @llvm.x86.sse2.mfence()
  ret void
}
define void @autotune_time_cold(
    ptr %f, ptr %table, ptr %cold, i64 %iterations, i32 %threads, ptr %workspace, ptr %out) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  call void @autotune_parallel_for(ptr @flush, ptr %cold, i64 64, i32 %threads)
  %start = call i64 @now()
  call void %f(ptr %table, i32 %threads, ptr %workspace)
  %end = call i64 @now()
  %d = sub i64 %end, %start
  %o = getelementptr i64, ptr %out, i64 %i
  store i64 %d, ptr %o
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %iterations
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


def cold_timer_text() -> str | None:
    """Writes the timing loop with cold constants, to go with `runtime_text`; None if this host has no such loop."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return None
    features = llvm.get_host_cpu_features()
    fast = bool(features.get("clflushopt", False))
    name = "llvm.x86.clflushopt" if fast else "llvm.x86.sse2.clflush"
    attributes = '"target-features"="+sse2,+clflushopt"' if fast else '"target-features"="+sse2"'
    return TIMER_COLD.replace("@FLUSH", f"@{name}").replace("#flush", attributes)


@cache
def initialise() -> None:
    """Makes the native target available.

    LLVM's loop strength reduction is off from here on, for all code of this process, because our loops carry their
    pointers themselves. Its results are a third slower for memory-bound kernels, and it takes a quarter of the time of
    code generation.
    """
    llvm.set_option("autotune", "-disable-lsr")
    llvm.set_option("autotune", "-enable-misched=false")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def runtime_text(triple: str) -> str:
    """Writes the shared native side for processors of a target triple as LLVM text."""
    return pool_text(triple.partition("-")[0]) + TIMER


def library_text(triple: str) -> str:
    """Writes the native side for code in a shared object, which may be unloaded."""
    return runtime_text(triple) + ENDS
