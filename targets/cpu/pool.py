"""Parallel loops of generated code: a pool of native threads that takes work from each other, as LLVM text.

`autotune_parallel_for(body, context, extent, threads)` runs `body(context, thread, low, high)` until every iteration of
[0, extent) has run once. The iterations are cut into chunks, up to eight a thread, and every thread is given a
contiguous range of them. The ranges have the same rows in every loop, so that a thread reads data that its own core
wrote in the loop before. It takes chunks from the front of its range. When that is empty, it takes them from the back
of other ranges: work stealing (Blumofe and Leiserson, JACM 1999), with ranges for deques.

The pool is made for a machine that does other things as well. A loop that is cut in equal parts once, OpenMP's way,
waits in every loop for a thread that the operating system has suspended. Such a wait takes some milliseconds. Here the
rest of a range is taken over, and the caller waits only for chunks that a thread is working on.

All state is in words that are read and written atomically. A range is one word: the number of the loop (32 bits), the
first chunk left and the end (16 bits each). So taking a chunk is one compare-and-exchange, which fails for a thread
that is late by a loop or more. A thread reads the loop's description only after it holds a chunk of it, and the loop
cannot end before that chunk is done. One loop runs at a time: a caller that finds the pool at work, or runs inside it,
works alone. Idle threads spin for about a tenth of a millisecond, then sleep. A child made by `fork` has no pool
threads and loses nothing but speed.

`autotune_close()` waits for a loop that runs and ends the threads; loops after it run in their callers alone. A shared
object calls it as it is unloaded: threads that ran in code that is gone would take the process along.
"""

from __future__ import annotations

import re

MAX_THREADS = 128  # each has 128 bytes of @pool

# Words of @pool, each group in cache lines of its own: who writes one does not disturb who reads another.
_ANNOUNCED_OFFSET, _SLEEPERS, _BUSY, _CREATED_OFFSET, _OWNER = 0, 16, 32, 33, 34
_BODY, _CONTEXT, _EXTENT, _CHUNKS = 48, 49, 50, 51
_DONE_OFFSET, _CLOSED_OFFSET, _MUTEX, _CONDITION, _RANGES = 64, 72, 80, 96, 112
_WORDS = _RANGES + 16 * MAX_THREADS

_SPINS = 2000  # of a pool thread before it sleeps, of a caller before it offers its core to whoever is behind
_YIELDS = 1 << 21  # of whoever closes the pool while a loop runs
_PAUSES = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARATIONS = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.hint(i32)",
}

_TEXT = """
@pool = internal global [WORDS x i64] zeroinitializer, align 128
@made = internal global [MAX_THREADS x i64] zeroinitializer

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()
declare i32 @getpid()
DECLARE_PAUSE

define internal ptr @word(i64 %at) alwaysinline {
  %p = getelementptr i64, ptr @pool, i64 %at
  ret ptr %p
}

; Takes chunks of loop %number, of the thread's own range first, then of the others', until none is left; how many.
define internal i64 @work(i64 %thread, i64 %threads, i64 %number) {
entry:
  %thread32 = trunc i64 %thread to i32
  %body.at = call ptr @word(i64 BODY)
  %context.at = call ptr @word(i64 CONTEXT)
  %extent.at = call ptr @word(i64 EXTENT)
  %chunks.at = call ptr @word(i64 CHUNKS)
  br label %range
range:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %next ]
  %sofar = phi i64 [ 0, %entry ], [ %count, %next ]
  %mine = icmp eq i64 %turn, 0
  %shifted = add i64 %thread, %turn
  %owner = urem i64 %shifted, %threads
  %owner.word = mul i64 %owner, 16
  %range.word = add i64 %owner.word, RANGES
  %range.at = call ptr @word(i64 %range.word)
  br label %look
look:
  %count = phi i64 [ %sofar, %range ], [ %count, %take ], [ %count.next, %run ]
  %word = load atomic i64, ptr %range.at acquire, align 8
  %loop = lshr i64 %word, 32
  %current = icmp eq i64 %loop, %number
  br i1 %current, label %any, label %late
any:
  %first.high = lshr i64 %word, 16
  %first = and i64 %first.high, 65535
  %end = and i64 %word, 65535
  %left = icmp ult i64 %first, %end
  br i1 %left, label %take, label %next
take:
  %last = sub i64 %end, 1
  %chunk = select i1 %mine, i64 %first, i64 %last
  %front = add i64 %word, 65536
  %back = sub i64 %word, 1
  %taken = select i1 %mine, i64 %front, i64 %back
  %exchange = cmpxchg ptr %range.at, i64 %word, i64 %taken acq_rel acquire
  %held = extractvalue { i64, i1 } %exchange, 1
  br i1 %held, label %run, label %look
run:
  %body = load ptr, ptr %body.at
  %context = load ptr, ptr %context.at
  %extent = load i64, ptr %extent.at
  %chunks = load i64, ptr %chunks.at
  %low.scaled = mul i64 %chunk, %extent
  %low = udiv i64 %low.scaled, %chunks
  %chunk.next = add i64 %chunk, 1
  %high.scaled = mul i64 %chunk.next, %extent
  %high = udiv i64 %high.scaled, %chunks
  call void %body(ptr %context, i32 %thread32, i64 %low, i64 %high)
  %count.next = add i64 %count, 1
  br label %look
next:
  %turn.next = add i64 %turn, 1
  %more = icmp ult i64 %turn.next, %threads
  br i1 %more, label %range, label %finished
finished:
  ret i64 %count
late:
  ret i64 %count
}

; A pool thread: waits for a loop that is not the last one seen, works on it where it is one of its threads.
define internal ptr @pool_thread(ptr %argument) {
entry:
  %thread = ptrtoint ptr %argument to i64
  %announced.at = call ptr @word(i64 ANNOUNCED)
  %sleepers.at = call ptr @word(i64 SLEEPERS)
  %done.at = call ptr @word(i64 DONE)
  %mutex = call ptr @word(i64 MUTEX)
  %condition = call ptr @word(i64 CONDITION)
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %now, %look ], [ %now, %did ]
  br label %spin
spin:
  %spins = phi i64 [ SPINS, %idle ], [ %spins.next, %pause ]
  %announced = load atomic i64, ptr %announced.at acquire, align 8
  %new = icmp ne i64 %announced, %seen
  br i1 %new, label %go, label %pause
pause:
  PAUSE
  %spins.next = sub i64 %spins, 1
  %tired = icmp eq i64 %spins.next, 0
  br i1 %tired, label %sleep, label %spin
sleep:
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %was = atomicrmw add ptr %sleepers.at, i64 1 seq_cst
  br label %asleep
asleep:
  %woken = load atomic i64, ptr %announced.at seq_cst, align 8
  %wake = icmp ne i64 %woken, %seen
  br i1 %wake, label %up, label %wait
wait:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %asleep
up:
  %were = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %go
go:
  %now = phi i64 [ %announced, %spin ], [ %woken, %up ]
  %closed.at = call ptr @word(i64 CLOSED)
  %closed = load atomic i64, ptr %closed.at acquire, align 8
  %ends = icmp ne i64 %closed, 0
  br i1 %ends, label %end, label %look
end:
  ret ptr null
look:
  %threads = and i64 %now, 4294967295
  %number = lshr i64 %now, 32
  %one = icmp ult i64 %thread, %threads
  br i1 %one, label %join, label %idle
join:
  %count = call i64 @work(i64 %thread, i64 %threads, i64 %number)
  br label %did
did:
  %total = atomicrmw add ptr %done.at, i64 %count release
  br label %idle
}

; Makes pool threads until there are %wanted; fewer where the system gives no more, and none in a child of the process
; that has made some: the others take their share.
define internal void @grow(i64 %wanted) {
entry:
  %made.at = call ptr @word(i64 MADE)
  %owner.at = call ptr @word(i64 OWNER)
  br label %check
check:
  %made = load i64, ptr %made.at
  %enough = icmp uge i64 %made, %wanted
  br i1 %enough, label %finished, label %own
own:
  %process = call i32 @getpid()
  %owner = load i32, ptr %owner.at
  %nobody = icmp eq i32 %owner, 0
  %ours = icmp eq i32 %owner, %process
  %may = or i1 %nobody, %ours
  br i1 %may, label %make, label %finished
make:
  store i32 %process, ptr %owner.at
  %number = add i64 %made, 1
  %argument = inttoptr i64 %number to ptr
  %id = getelementptr i64, ptr @made, i64 %made
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr @pool_thread, ptr %argument)
  %created = icmp eq i32 %failed, 0
  br i1 %created, label %keep, label %finished
keep:
  store i64 %number, ptr %made.at
  br label %check
finished:
  ret void
}

define void @autotune_parallel_for(ptr %body, ptr %context, i64 %extent, i32 %wanted) {
entry:
  %wanted64 = sext i32 %wanted to i64
  %some = call i64 @llvm.smin.i64(i64 %wanted64, i64 %extent)
  %threads = call i64 @llvm.smin.i64(i64 %some, i64 MAX_THREADS)
  %team = icmp sgt i64 %threads, 1
  br i1 %team, label %claim, label %serial
claim:
  %busy.at = call ptr @word(i64 BUSY)
  %exchange = cmpxchg ptr %busy.at, i64 0, i64 1 acquire monotonic
  %free = extractvalue { i64, i1 } %exchange, 1
  br i1 %free, label %prepare, label %serial
serial:
  call void %body(ptr %context, i32 0, i64 0, i64 %extent)
  ret void
prepare:
  %helpers = sub i64 %threads, 1
  call void @grow(i64 %helpers)
  %most = mul i64 %threads, 8
  %chunks = call i64 @llvm.smin.i64(i64 %most, i64 %extent)
  %body.at = call ptr @word(i64 BODY)
  store ptr %body, ptr %body.at
  %context.at = call ptr @word(i64 CONTEXT)
  store ptr %context, ptr %context.at
  %extent.at = call ptr @word(i64 EXTENT)
  store i64 %extent, ptr %extent.at
  %chunks.at = call ptr @word(i64 CHUNKS)
  store i64 %chunks, ptr %chunks.at
  %done.at = call ptr @word(i64 DONE)
  store atomic i64 0, ptr %done.at monotonic, align 8
  %announced.at = call ptr @word(i64 ANNOUNCED)
  %before = load atomic i64, ptr %announced.at monotonic, align 8
  %number.before = lshr i64 %before, 32
  %number.wide = add i64 %number.before, 1
  %number = and i64 %number.wide, 4294967295
  %tag = shl i64 %number, 32
  br label %give
give:
  %t = phi i64 [ 0, %prepare ], [ %t.next, %give ]
  %first.scaled = mul i64 %t, %chunks
  %first = udiv i64 %first.scaled, %threads
  %t.next = add i64 %t, 1
  %end.scaled = mul i64 %t.next, %chunks
  %end = udiv i64 %end.scaled, %threads
  %first.high = shl i64 %first, 16
  %bounds = or i64 %first.high, %end
  %range = or i64 %tag, %bounds
  %range.word.scaled = mul i64 %t, 16
  %range.word = add i64 %range.word.scaled, RANGES
  %range.at = call ptr @word(i64 %range.word)
  store atomic i64 %range, ptr %range.at release, align 8
  %given = icmp eq i64 %t.next, %threads
  br i1 %given, label %announce, label %give
announce:
  %news = or i64 %tag, %threads
  store atomic i64 %news, ptr %announced.at seq_cst, align 8
  %sleepers.at = call ptr @word(i64 SLEEPERS)
  %sleepers = load atomic i64, ptr %sleepers.at seq_cst, align 8
  %asleep = icmp ne i64 %sleepers, 0
  br i1 %asleep, label %whose, label %mine
whose:
  ; In a child the condition still counts waiters that the parent has: whoever tells them waits for them for ever.
  %owner.at = call ptr @word(i64 OWNER)
  %owner = load i32, ptr %owner.at
  %process = call i32 @getpid()
  %ours = icmp eq i32 %owner, %process
  br i1 %ours, label %wake, label %mine
wake:
  %mutex = call ptr @word(i64 MUTEX)
  %condition = call ptr @word(i64 CONDITION)
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %told = call i32 @pthread_cond_broadcast(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %mine
mine:
  %count = call i64 @work(i64 0, i64 %threads, i64 %number)
  %others = sub i64 %chunks, %count
  br label %check
check:
  %spins = phi i64 [ SPINS, %mine ], [ %spins.next, %pause ], [ 1, %yield ]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %done, %others
  br i1 %all, label %finished, label %pause
pause:
  PAUSE
  %spins.next = sub i64 %spins, 1
  %tired = icmp eq i64 %spins.next, 0
  br i1 %tired, label %yield, label %check
yield:
  %yielded = call i32 @sched_yield()
  br label %check
finished:
  store atomic i64 0, ptr %busy.at release, align 8
  ret void
}

; Keeps the pool for itself for good, so that no loop runs in it any more, and ends its threads. A loop that does not
; end, as where a process exits in the midst of one, is not waited for much longer than a second.
define void @autotune_close() {
entry:
  %owner.at = call ptr @word(i64 OWNER)
  %owner = load i32, ptr %owner.at
  %process = call i32 @getpid()
  %ours = icmp eq i32 %owner, %process
  br i1 %ours, label %claim, label %finished
claim:
  %yields = phi i64 [ YIELDS, %entry ], [ %yields.next, %yield ]
  %busy.at = call ptr @word(i64 BUSY)
  %exchange = cmpxchg ptr %busy.at, i64 0, i64 1 acquire monotonic
  %free = extractvalue { i64, i1 } %exchange, 1
  br i1 %free, label %close, label %wait
wait:
  %yields.next = sub i64 %yields, 1
  %tired = icmp eq i64 %yields.next, 0
  br i1 %tired, label %finished, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %claim
close:
  %closed.at = call ptr @word(i64 CLOSED)
  store atomic i64 1, ptr %closed.at release, align 8
  %announced.at = call ptr @word(i64 ANNOUNCED)
  %before = load atomic i64, ptr %announced.at monotonic, align 8
  %number = lshr i64 %before, 32
  %number.next = add i64 %number, 1
  %news = shl i64 %number.next, 32
  store atomic i64 %news, ptr %announced.at seq_cst, align 8
  %mutex = call ptr @word(i64 MUTEX)
  %condition = call ptr @word(i64 CONDITION)
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %told = call i32 @pthread_cond_broadcast(ptr %condition)
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  %made.at = call ptr @word(i64 MADE)
  %made = load i64, ptr %made.at
  br label %each
each:
  %t = phi i64 [ 0, %close ], [ %t.next, %join ]
  %more = icmp ult i64 %t, %made
  br i1 %more, label %join, label %gone
join:
  %id.at = getelementptr i64, ptr @made, i64 %t
  %id = load i64, ptr %id.at
  %joined = call i32 @pthread_join(i64 %id, ptr null)
  %t.next = add i64 %t, 1
  br label %each
gone:
  store i64 0, ptr %made.at
  store i32 0, ptr %owner.at
  ret void
finished:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
"""

ENDS = """
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @unload, ptr null }]
define internal void @unload() {
  call void @autotune_close()
  ret void
}
"""
"""Destructor of a shared object, which ends its pool as it is unloaded, or as the process ends."""


def pool_text(architecture: str) -> str:
    """Returns the LLVM text of the pool for a processor family (the first part of a target triple)."""
    words = {
        "MAX_THREADS": MAX_THREADS,
        "ANNOUNCED": _ANNOUNCED_OFFSET,
        "SLEEPERS": _SLEEPERS,
        "BUSY": _BUSY,
        "MADE": _CREATED_OFFSET,
        "OWNER": _OWNER,
        "BODY": _BODY,
        "CONTEXT": _CONTEXT,
        "EXTENT": _EXTENT,
        "CHUNKS": _CHUNKS,
        "DONE": _DONE_OFFSET,
        "CLOSED": _CLOSED_OFFSET,
        "MUTEX": _MUTEX,
        "CONDITION": _CONDITION,
        "RANGES": _RANGES,
        "SPINS": _SPINS,
        "YIELDS": _YIELDS,
        "WORDS": _WORDS,
    }
    text = _TEXT.replace("DECLARE_PAUSE", _PAUSE_DECLARATIONS.get(architecture, ""))
    text = text.replace("  PAUSE\n", f"  {_PAUSES[architecture]}\n" if architecture in _PAUSES else "")
    for name, value in words.items():
        text = re.sub(rf"\b{name}\b", str(value), text)
    return text
