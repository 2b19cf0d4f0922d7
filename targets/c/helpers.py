"""Small functions of C that kernels call: arithmetic that wraps around, divisions that round down, 16-bit floats.

One macro is beside them, the alignment of automatic arrays.
"""

from __future__ import annotations

from collections.abc import Iterable

from targets.arrays import C_TYPE

PREFIX = {"float32": "f32", "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64", "bool": "u8"}
"""Prefix of the functions for each dtype."""
_SYMBOL = {"add": "+", "sub": "-", "mul": "*"}


def _function(head: str, *lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"static inline {head} {{\n{body}}}\n"


def _integers() -> dict[str, str]:
    functions = {}
    for dtype in ("int8", "uint8", "int32", "int64"):
        kind, short = C_TYPE[dtype], PREFIX[dtype]
        wide = "uint64_t" if dtype == "int64" else "uint32_t"  # unsigned, so that an overflow wraps around
        for name, symbol in _SYMBOL.items():
            functions[f"{short}_{name}"] = _function(
                f"{kind} {short}_{name}({kind} a, {kind} b)", f"return ({kind})(({wide})a {symbol} ({wide})b);"
            )
        # By 0 the quotient is 0; that of the least number by -1 wraps around: processors trap on both.
        one = "b == 0" if dtype == "uint8" else "(b == 0) || (b == -1)"
        down = "((rest != 0) && ((rest < 0) != (by < 0)))"
        rounded = f"{down} ? ({kind})(quotient - 1) : quotient"
        if dtype != "uint8":
            rounded = f"(b == -1) ? ({kind})(0U - ({wide})a) : ({rounded})"
        functions[f"{short}_floordiv"] = _function(
            f"{kind} {short}_floordiv({kind} a, {kind} b)",
            f"const {kind} by = ({one}) ? ({kind})1 : b;",
            f"const {kind} quotient = ({kind})(a / by);",
            f"const {kind} rest = ({kind})(a % by);",
            f"return (b == 0) ? ({kind})0 : ({rounded});",
        )
        functions[f"{short}_mod"] = _function(
            f"{kind} {short}_mod({kind} a, {kind} b)",
            f"const {kind} by = ({one}) ? ({kind})1 : b;",
            f"const {kind} rest = ({kind})(a % by);",
            f"return {down} ? ({kind})(rest + b) : rest;",
        )
    return functions


def _limits() -> dict[str, str]:
    functions = {}
    for dtype in ("float32", "int8", "uint8", "int32", "int64"):
        kind, short = C_TYPE[dtype], PREFIX[dtype]
        for name, symbol in (("min", "<"), ("max", ">")):
            lines = [f"return (a {symbol} b) ? a : b;"]
            if dtype == "float32":  # NaN where either is; the choice is one instruction of x86, which gives b for NaN
                lines = [f"const float chosen = (a {symbol} b) ? a : b;", "return (a != a) ? a : chosen;"]
            functions[f"{short}_{name}"] = _function(f"{kind} {short}_{name}({kind} a, {kind} b)", *lines)
    functions["f32_within"] = "/* NaN becomes the lower limit. */\n" + _function(
        "float f32_within(float value, float low, float high)",
        "const float least = (value > low) ? value : low;",
        "return (least < high) ? least : high;",
    )
    return functions


LOCAL = "AUTOTUNE_LOCAL"
"""Macro in front of each automatic array.

GCC 12 (-O2, x86-64) places such an array in the red zone of a leaf function, at 8 modulo 16. It copies the array by
instructions that require 16. The fault needs AVX with copies of 32 bytes, as tuning for any processor with AVX-512
implies. An array of a larger alignment than the stack's has GCC realign the stack, which places every other array
right, too. The macro is in the text, not among the options, because exported text is compiled by others.
"""

HELPERS: dict[str, str] = {
    LOCAL: "/* GCC may misalign arrays in the red zone, unless the stack is realigned for them. */\n"
    "#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)\n"
    f"#define {LOCAL} __attribute__((aligned(32)))\n"
    "#else\n"
    f"#define {LOCAL}\n"
    "#endif\n",
    **_integers(),
    **_limits(),
    "i32_bitand": _function("int32_t i32_bitand(int32_t a, int32_t b)", "return a & b;"),
    "i32_bytedot": _function(
        "int32_t i32_bytedot(int32_t a, int32_t b)",
        "int32_t sum = 0;",
        "for (unsigned at = 0; at < 32U; at += 8U) {",
        "    const int32_t left = (int32_t)((uint32_t)a >> at & 255U);",
        "    sum += left * ((int32_t)(((uint32_t)b >> at & 255U) ^ 128U) - 128);",
        "}",
        "return sum;",
    ),
    "i32_shl": _function(
        "int32_t i32_shl(int32_t a, int32_t b)", "return (int32_t)((uint32_t)a << ((uint32_t)b & 31U));"
    ),
    "i32_shr": _function(
        "int32_t i32_shr(int32_t a, int32_t b)",
        "const uint32_t by = (uint32_t)b & 31U;",
        "const uint32_t sign = (a < 0) ? UINT32_MAX : 0U; /* C leaves open what a negative number shifts to */",
        "return (int32_t)((((uint32_t)a ^ sign) >> by) ^ sign);",
    ),
    "f32_of_bits": _function(
        "float f32_of_bits(uint32_t bits)",
        "float value;",
        "(void)memcpy(&value, &bits, sizeof(value));",
        "return value;",
    ),
    "bits_of_f32": _function(
        "uint32_t bits_of_f32(float value)",
        "uint32_t bits;",
        "(void)memcpy(&bits, &value, sizeof(bits));",
        "return bits;",
    ),
    "f32_of_bf16": _function("float f32_of_bf16(uint16_t half)", "return f32_of_bits((uint32_t)half << 16U);"),
    "bf16_of_f32": "/* To nearest, ties to even; NaN stays NaN. */\n"
    + _function(
        "uint16_t bf16_of_f32(float value)",
        "const uint32_t bits = bits_of_f32(value);",
        "const uint32_t nan = (bits >> 16U) | 0x40U;",
        "const uint32_t near = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;",
        "return (uint16_t)(((bits & 0x7FFFFFFFU) > 0x7F800000U) ? nan : near);",
    ),
    "f32_of_f16": "/* A product with a power of two gives the exponent, exactly, of subnormal numbers, too. */\n"
    + _function(
        "float f32_of_f16(uint16_t half)",
        "const uint32_t sign = ((uint32_t)half & 0x8000U) << 16U;",
        "const uint32_t rest = ((uint32_t)half & 0x7FFFU) << 13U;",
        "const uint32_t special = (rest >= 0x0F800000U) ? 0x7F800000U : 0U;",
        "const float scaled = f32_of_bits(rest) * 5.1922968585348276e+33F; /* 2^112 */",
        "return f32_of_bits(sign | special | bits_of_f32(scaled));",
    ),
    "f16_of_f32": "/* To nearest, ties to even; NaN stays NaN. Subnormal numbers are rounded by a sum with 1/2. */\n"
    + _function(
        "uint16_t f16_of_f32(float value)",
        "const uint32_t bits = bits_of_f32(value);",
        "const uint32_t sign = (bits >> 16U) & 0x8000U;",
        "const uint32_t size = bits & 0x7FFFFFFFU;",
        "const uint32_t small = bits_of_f32(f32_of_bits(size) + 0.5F) - 0x3F000000U;",
        "const uint32_t near = (size - 0x38000000U + 0x0FFFU + ((size >> 13U) & 1U)) >> 13U;",
        "const uint32_t finite = (size < 0x38800000U) ? small : near;",
        "const uint32_t bounded = (size >= 0x477FF000U) ? 0x7C00U : finite;",
        "return (uint16_t)(sign | ((size > 0x7F800000U) ? 0x7E00U : bounded));",
    ),
    "round_bf16": _function("float round_bf16(float value)", "return f32_of_bf16(bf16_of_f32(value));"),
    "round_f16": _function("float round_f16(float value)", "return f32_of_f16(f16_of_f32(value));"),
    "tfloat32": "/* 10 bits of mantissa, ties away from zero; NaN stays NaN. */\n"
    + _function(
        "float tfloat32(float value)",
        "const uint32_t bits = (bits_of_f32(value) + 0x1000U) & 0xFFFFE000U;",
        "return (value != value) ? value : f32_of_bits(bits);",
    ),
    "f32_sigmoid": _function("float f32_sigmoid(float value)", "return 1.0F / (1.0F + expf(-value));"),
    "f32_rsqrt": _function("float f32_rsqrt(float value)", "return 1.0F / sqrtf(value);"),
}
"""Text by name."""
_BITS = ("bits_of_f32", "f32_of_bits")
_NEEDS = {
    "f32_of_bf16": ("f32_of_bits",),
    "bf16_of_f32": ("bits_of_f32",),
    "f32_of_f16": _BITS,
    "f16_of_f32": _BITS,
    "round_bf16": (*_BITS, "f32_of_bf16", "bf16_of_f32"),
    "round_f16": (*_BITS, "f32_of_f16", "f16_of_f32"),
    "tfloat32": _BITS,
}


def helper_text(names: Iterable[str]) -> str:
    """Writes the functions that are used and those that they call, always in the same order."""
    wanted = {other for name in names for other in (name, *_NEEDS.get(name, ()))}
    return "\n".join(text for name, text in HELPERS.items() if name in wanted)
