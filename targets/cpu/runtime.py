"""The native side every kernel shares: parallel loops on an OpenMP runtime that is already there, and timing."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.metadata
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

SGEMM_SYMBOL = "scipy_cblas_sgemm64_"
BLAS_THREADS_SYMBOL = "scipy_openblas_set_num_threads64_"
ZEROS_BYTES = 512  # where loads that must not happen read instead
ZEROS = f"@zeros = internal constant [{ZEROS_BYTES} x i8] zeroinitializer, align 64\n"

# A parallel loop over GOMP_parallel, and the timing loop: seconds are taken around every single execution.
SHIM = """
%pair = type { ptr, ptr }
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @clock_gettime(i32, ptr)

define internal void @team(ptr %p) {
  %f = load ptr, ptr %p
  %c.at = getelementptr %pair, ptr %p, i32 0, i32 1
  %c = load ptr, ptr %c.at
  %t = call i32 @omp_get_thread_num()
  %n = call i32 @omp_get_num_threads()
  call void %f(ptr %c, i32 %t, i32 %n)
  ret void
}
"""

PARALLEL = """
define void @autotune_parallel_for(ptr %f, ptr %c, i32 %threads) {
entry:
  %one = icmp sle i32 %threads, 1
  br i1 %one, label %serial, label %team
serial:
  call void %f(ptr %c, i32 0, i32 1)
  ret void
team:
  %p = alloca %pair
  store ptr %f, ptr %p
  %c.at = getelementptr %pair, ptr %p, i32 0, i32 1
  store ptr %c, ptr %c.at
  call void @GOMP_parallel(ptr @team, ptr %p, i32 %threads, i32 0)
  ret void
}
"""

SERIAL = """
declare i32 @clock_gettime(i32, ptr)
define void @autotune_parallel_for(ptr %f, ptr %c, i32 %threads) {
  call void %f(ptr %c, i32 0, i32 1)
  ret void
}
"""

TIMER = """
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

# Timing with constants that no cache holds: before every execution all threads flush them, a share each.
TIMER_COLD = """
declare void @FLUSH(ptr)
declare void @llvm.x86.sse2.mfence()
define internal void @flush(ptr %c, i32 %t, i32 %n) #flush {
entry:
  %count = load i64, ptr %c
  %first = sext i32 %t to i64
  %start = mul i64 %first, 64
  %team = sext i32 %n to i64
  %step = mul i64 %team, 64
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
  %some = icmp slt i64 %start, %size
  br i1 %some, label %line, label %after
line:
  %at = phi i64 [ %start, %pair ], [ %at.next, %line ]
  %p = getelementptr i8, ptr %base, i64 %at
  call void @FLUSH(ptr %p)
  %at.next = add i64 %at, %step
  %more = icmp slt i64 %at.next, %size
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
  call void @autotune_parallel_for(ptr @flush, ptr %cold, i32 %threads)
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
    """LLVM text of the timing loop with cold constants, which goes with `shim_text`; None where this host has none."""
    if not llvm.get_process_triple().startswith("x86_64"):
        return None
    features = llvm.get_host_cpu_features()
    fast = bool(features.get("clflushopt", False))
    name = "llvm.x86.clflushopt" if fast else "llvm.x86.sse2.clflush"
    attributes = '"target-features"="+sse2,+clflushopt"' if fast else '"target-features"="+sse2"'
    return TIMER_COLD.replace("@FLUSH", f"@{name}").replace("#flush", attributes)


def openmp_library() -> str | None:
    """Path or soname of an OpenMP runtime with GOMP's entry points: the system's, or one inside a wheel."""
    found = ctypes.util.find_library("gomp")
    if found:
        return found
    for package in ("scikit-learn", "lightgbm"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if Path(str(file)).name.startswith("libgomp"):
                return str(file.locate())
    return None


@cache
def blas_library() -> str | None:
    """Path of the BLAS that NumPy's wheel brings, if it has the entry points that kernels call; or None."""
    for file in importlib.metadata.files("numpy") or []:
        if Path(str(file)).name.startswith("libscipy_openblas64_"):
            path = str(file.locate())
            found = ctypes.CDLL(path)
            return path if hasattr(found, SGEMM_SYMBOL) and hasattr(found, BLAS_THREADS_SYMBOL) else None
    return None


@cache
def initialise() -> bool:
    """Makes the native target and the OpenMP runtime available; whether loops can run in parallel.

    LLVM's loop strength reduction is off from here on, for all code of this process: our loops carry their pointers
    themselves, and what it makes of them is a third slower for memory-bound kernels and takes a quarter of the time of
    code generation.
    """
    llvm.set_option("autotune", "-disable-lsr")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    blas = blas_library()
    if blas is not None:
        llvm.load_library_permanently(blas)
    library = openmp_library()
    if library is None:
        return False
    llvm.load_library_permanently(library)
    return llvm.address_of_symbol("GOMP_parallel") is not None


def shim_text(parallel: bool) -> str:
    """LLVM text of the shared native side."""
    return (SHIM + PARALLEL if parallel else SERIAL) + TIMER
