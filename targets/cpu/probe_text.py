"""LLVM text of the small functions that `targets.cpu.probe` runs.

Each is one unrolled loop, so that counting it costs nothing. Memory is read and written by volatile accesses, which
LLVM never removes.
"""

from __future__ import annotations

from dataclasses import dataclass

from targets.cpu.runtime import runtime_text

UNROLL = 48
"""Steps of the chain, products, loads, stores or other instructions in a pass of a loop."""


@dataclass(frozen=True)
class Dots:
    """An instruction that adds several products to each sum, on vectors of 512 bits.

    Attributes:
        name: LLVM's.
        sums, factors: LLVM's types of a register of each.
    """

    name: str
    sums: str
    factors: str


PAIRS = Dots("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>")
BYTES = Dots("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>")

ROW = 256
"""Bytes that are read from one place."""


def probe_text(triple: str, lanes: int, chains: int, pairs: bool = False, in_bytes: bool = False) -> str:
    """Writes the module of the probe as LLVM text.

    Functions: `chain`, `latency`, `products`, `dot_latency`, `dots`, `byte_dot_latency`, `byte_dots`, `loads`,
    `elements`, `stores`, `mixed`, `stream`, and those that run on all threads of our pool.

    Args:
        triple: LLVM's, of this host.
        lanes: float32 elements of a vector register.
        chains: sums that `products` adds up side by side; a divisor of `UNROLL`.
        pairs: whether the processor adds up pairs of products of bfloat16; without, `dots` and `dot_latency` are those
            of multiply-adds.
        in_bytes: the same of four products of bytes, `byte_dots` and `byte_dot_latency`.
    """
    kinds = {"dot": PAIRS if pairs else None, "byte_dot": BYTES if in_bytes else None}
    kind, bits = f"<{lanes} x float>", lanes * 32
    wide = f'"min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"' if bits > 128 else ""
    functions = [
        f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})",
        "declare float @llvm.fma.f32(float, float, float)",
        *(f"declare {d.sums} @{d.name}({d.sums}, {d.factors}, {d.factors})" for d in kinds.values() if d),
        _chain(),
        _products("latency", kind, lanes, 1),
        _products("products", kind, lanes, chains),
        *(_products(f"{name}_latency", kind, lanes, 1, dots) for name, dots in kinds.items()),
        *(_products(f"{name}s", kind, lanes, chains, dots) for name, dots in kinds.items()),
        _accesses("loads", f"%v = load volatile {kind}, ptr %p, align 64", lanes * 4),
        _accesses("elements", "%v = load volatile float, ptr %p, align 4", 4),
        _accesses("stores", f"store volatile {kind} zeroinitializer, ptr %p, align 64", lanes * 4),
        _write_mix(),
        _stream(kind, lanes * 4),
        _TOGETHER,
        f"attributes #0 = {{ nounwind {wide} }}",
    ]
    return "\n".join((f'target triple = "{triple}"', runtime_text(triple), *functions))


def _loop(head: str, phis: str, body: str, tail: str, last: str = "l") -> str:
    """Writes a function's blocks: `body`, whose `last` block ends a pass, runs %n times."""
    return f"""{head} {{
e:
  br label %l
l:
  %i = phi i64 [ 0, %e ], [ %j, %{last} ]
{phis}
{body}
  %j = add i64 %i, 1
  %c = icmp ult i64 %j, %n
  br i1 %c, label %l, label %d
d:
{tail}
}}
"""


def _chain() -> str:
    """Writes integer instructions of one cycle each, every one of which waits for the one before."""
    steps, last = [], "%x"
    for step in range(UNROLL):
        operation, operand = ("xor", "%z") if step % 2 else ("add", "%y")
        steps.append(f"  %x{step} = {operation} i64 {last}, {operand}")
        last = f"%x{step}"
    phi = f"  %x = phi i64 [ %y, %e ], [ {last}, %l ]"
    return _loop("define i64 @chain(i64 %n, i64 %y, i64 %z) #0", phi, "\n".join(steps), f"  ret i64 {last}")


def _products(name: str, kind: str, lanes: int, chains: int, dots: Dots | None = None) -> str:
    """Writes `UNROLL` vector multiply-adds into `chains` sums, or instructions that add several products to each."""
    sums, function, operands = kind, f"llvm.fma.v{lanes}f32", f"{kind} %m, {kind} %m, "
    body = [
        f"  %m0 = insertelement {kind} poison, float %z, i32 0",
        f"  %m = shufflevector {kind} %m0, {kind} poison, <{lanes} x i32> zeroinitializer",
    ]
    if dots is not None:
        sums, function = dots.sums, dots.name
        body.append(f"  %w = bitcast {kind} %m to {dots.factors}")
    integral = "i32" in sums
    last = [f"%a{chain}" for chain in range(chains)]
    for step in range(UNROLL):
        chain = step % chains
        sum_ = f"{sums} {last[chain]}"
        given = f"{operands}{sum_}" if dots is None else f"{sum_}, {dots.factors} %w, {dots.factors} %w"
        body.append(f"  %s{step} = call {sums} @{function}({given})")
        last[chain] = f"%s{step}"
    first = [f"i32 {c}" if integral else f"float {c}.0" for c in range(chains)]
    phis = "\n".join(f"  %a{c} = phi {sums} [ splat ({first[c]}), %e ], [ {last[c]}, %l ]" for c in range(chains))
    added, total = [], last[0]
    for chain in range(1, chains):
        added.append(f"  %t{chain} = {'add' if integral else 'fadd'} {sums} {total}, {last[chain]}")
        total = f"%t{chain}"
    element = "i32" if integral else "float"
    found = [f"  %r0 = extractelement {sums} {total}, i32 0", f"  %r = bitcast {element} %r0 to float"]
    tail = "\n".join([*added, *found, "  ret float %r"])
    return _loop(f"define float @{name}(i64 %n, float %z) #0", phis, "\n".join(body), tail)


def _accesses(name: str, access: str, step: int) -> str:
    """Writes `UNROLL` accesses to neighbouring vectors."""
    body = []
    for number in range(UNROLL):
        body.append(f"  %p{number} = getelementptr i8, ptr %b, i64 {number * step}")
        body.append("  " + access.replace("%v", f"%v{number}").replace("%p", f"%p{number}"))
    return _loop(f"define void @{name}(i64 %n, ptr %b) #0", "", "\n".join(body), "  ret void")


def _write_mix() -> str:
    """Writes groups of two products, two loads and four integer instructions, more than any processor starts at a time.

    Each group is a block of its own, so that they stay side by side.
    """
    products, integers = [f"%f{chain}" for chain in range(12)], [f"%i{chain}" for chain in range(4)]
    body = []
    for step in range(0, UNROLL, 8):
        body += [f"  br label %g{step}", f"g{step}:"]
        for number in range(2):
            chain = (step // 4 + number) % len(products)
            call = f"call float @llvm.fma.f32(float %z, float %z, float {products[chain]})"
            body.append(f"  %p{step + number} = {call}")
            products[chain] = f"%p{step + number}"
            body.append(f"  %v{step + number} = load volatile i64, ptr %b, align 8")
        for chain in range(4):
            operation, operand = ("xor", "%x") if step // 8 % 2 else ("add", "%y")
            body.append(f"  %q{step + chain} = {operation} i64 {integers[chain]}, {operand}")
            integers[chain] = f"%q{step + chain}"
    end = f"g{UNROLL - 8}"
    phis = [f"  %f{c} = phi float [ {c}.0, %e ], [ {last}, %{end} ]" for c, last in enumerate(products)]
    phis += [f"  %i{c} = phi i64 [ {c}, %e ], [ {last}, %{end} ]" for c, last in enumerate(integers)]
    kept = [f"  store volatile float {value}, ptr %b" for value in products]
    kept += [f"  store volatile i64 {value}, ptr %b" for value in integers]
    head = "define void @mixed(i64 %n, ptr %b, float %z, i64 %x, i64 %y) #0"
    return _loop(head, "\n".join(phis), "\n".join(body), "\n".join([*kept, "  ret void"]), end)


def _stream(kind: str, step: int) -> str:
    """Reads `%n` rows of `ROW` bytes from `%b` on: row `%i * %odd & %mask`, so in order where `%odd` is 1."""
    body = ["  %r = mul i64 %i, %odd", "  %s = and i64 %r, %mask", f"  %at = mul i64 %s, {ROW}"]
    body.append("  %q = getelementptr i8, ptr %b, i64 %at")
    for number in range(ROW // step):
        body.append(f"  %p{number} = getelementptr i8, ptr %q, i64 {number * step}")
        body.append(f"  %v{number} = load volatile {kind}, ptr %p{number}, align 64")
    return _loop("define void @stream(i64 %n, ptr %b, i64 %odd, i64 %mask) #0", "", "\n".join(body), "  ret void")


_TOGETHER = """
define internal void @each_products(ptr %given, i32 %thread, i64 %low, i64 %high) #0 {
  %n = load i64, ptr %given
  %r = call float @products(i64 %n, float 0.0)
  ret void
}
define void @all_products(ptr %given, i64 %threads) #0 {
  %wanted = trunc i64 %threads to i32
  call void @autotune_parallel_for(ptr @each_products, ptr %given, i64 %threads, i32 %wanted)
  ret void
}

; %given: rows, from one part to the next, times, where the first part begins, and how rows follow; a part a thread.
define internal void @each_stream(ptr %given, i32 %thread, i64 %low, i64 %high) #0 {
e:
  %n = load i64, ptr %given
  %apart.at = getelementptr i64, ptr %given, i64 1
  %apart = load i64, ptr %apart.at
  %times.at = getelementptr i64, ptr %given, i64 2
  %times = load i64, ptr %times.at
  %base.at = getelementptr i64, ptr %given, i64 3
  %base = load ptr, ptr %base.at
  %odd.at = getelementptr i64, ptr %given, i64 4
  %odd = load i64, ptr %odd.at
  %mask.at = getelementptr i64, ptr %given, i64 5
  %mask = load i64, ptr %mask.at
  %offset = mul i64 %low, %apart
  %part = getelementptr i8, ptr %base, i64 %offset
  br label %l
l:
  %i = phi i64 [ 0, %e ], [ %j, %l ]
  call void @stream(i64 %n, ptr %part, i64 %odd, i64 %mask)
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %times
  br i1 %more, label %l, label %d
d:
  ret void
}
define void @all_stream(ptr %given, i64 %threads) #0 {
  %wanted = trunc i64 %threads to i32
  call void @autotune_parallel_for(ptr @each_stream, ptr %given, i64 %threads, i32 %wanted)
  ret void
}

; Every thread keeps its part for %given nanoseconds, so that the others have the time to come to theirs.
define internal void @hold(ptr %given, i32 %thread, i64 %low, i64 %high) #0 {
e:
  %nanoseconds = load i64, ptr %given
  %came = call i64 @now()
  br label %l
l:
  %t = call i64 @now()
  %since = sub i64 %t, %came
  %early = icmp slt i64 %since, %nanoseconds
  br i1 %early, label %l, label %d
d:
  ret void
}
define i64 @together(ptr %given, i64 %extent, i64 %threads) #0 {
  %wanted = trunc i64 %threads to i32
  %began = call i64 @now()
  call void @autotune_parallel_for(ptr @hold, ptr %given, i64 %extent, i32 %wanted)
  %ended = call i64 @now()
  %took = sub i64 %ended, %began
  ret i64 %took
}
"""
