"""The head of every kernel's text: types and small functions, written out so that no header is read."""

from __future__ import annotations

from targets.cuda.values import CALLS

_VECTORS = """template <class T, int N> struct alignas(sizeof(T) * N) Vec { T x[N]; };
"""
_DIVISION = """template <class T> __device__ __forceinline__ T floor_div(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return (T)(0ull - (unsigned long long)a);
  T q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}
template <class T> __device__ __forceinline__ T floor_mod(T a, T b) {
  return (b == 0 || b == -1) ? 0 : a - floor_div(a, b) * b;
}
"""
_SIGMOID = """__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
"""
_EXTREME = """__device__ __forceinline__ float OP_nan(float a, float b) {
  float c;
  asm("OP.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
"""
_HALF = """struct half_t { unsigned short bits; };
__device__ __forceinline__ float from_half(half_t h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
  return f;
}
__device__ __forceinline__ half_t to_half(float f) {
  half_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
  return h;
}
"""
_BFLOAT = """struct bfloat_t { unsigned short bits; };
__device__ __forceinline__ float from_bfloat(bfloat_t h) { return __uint_as_float((unsigned)h.bits << 16); }
__device__ __forceinline__ bfloat_t to_bfloat(float f) {
  bfloat_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
  return h;
}
"""
_TFLOAT = """__device__ __forceinline__ float tfloat32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
"""
_COPIES = """template <int N> __device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if (N == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(N), "r"(inside ? N : 0)
                 : "memory");
}
"""
_GROUPS = """__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
"""
_PROXY = """__device__ __forceinline__ void proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
"""
_SWIZZLE = """__device__ __forceinline__ int swizzle(int place) { return place ^ (place >> 3 & 56); }
"""
_MATRICES = """__device__ __forceinline__ void load_matrices4(int& a, int& b, int& c, int& d, const void* from) {
  unsigned place = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(place) : "memory");
}
__device__ __forceinline__ void load_matrices4(float& a, float& b, float& c, float& d, const void* from) {
  int w, x, y, z;
  load_matrices4(w, x, y, z, from);
  a = __int_as_float(w), b = __int_as_float(x), c = __int_as_float(y), d = __int_as_float(z);
}
__device__ __forceinline__ void load_matrices2(int& a, int& b, const void* from) {
  unsigned place = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(a), "=r"(b) : "r"(place) : "memory");
}
__device__ __forceinline__ void load_transposed2(int& a, int& b, const void* from) {
  unsigned place = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(a), "=r"(b) : "r"(place) : "memory");
}
__device__ __forceinline__ void load_transposed4(int& a, int& b, int& c, int& d, const void* from) {
  unsigned place = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(place) : "memory");
}
"""
PARTS = {
    "Vec<": _VECTORS,
    "floor_": _DIVISION,
    "sigmoid(": _SIGMOID,
    **{f"{op}_nan(": _EXTREME.replace("OP", op) for op in ("min", "max")},
    "half_t": _HALF,
    "bfloat_t": _BFLOAT,
    "tfloat32": _TFLOAT,
    "copy_async<": _COPIES,
    "load_matrices4(": _MATRICES,
    "end_of_copies(": _GROUPS,
    "proxy_fence(": _PROXY,
    "swizzle(": _SWIZZLE,
}
"""Parts by the name in a text that needs them."""
_WORDS = (
    "Tile Vec alignas alignof and and_eq asm auto bfloat_t bitand bitor blockDim blockIdx bool break case "
    "catch char class compl const const_cast constexpr continue copies_but copy_async decltype default "
    "delete do double dynamic_cast else end_of_copies enum explicit export extern false "
    "float floor_div floor_mod fmaxf fminf fmodf for friend from_bfloat from_half goto gridDim half_t if "
    "hold load_matrices2 load_matrices4 load_transposed2 load_transposed4 matrix_descriptor proxy_fence swizzle "
    "TensorMap await_bytes begin_arrivals fence_begin fence_proxy copy_box2 copy_box3 copy_box4 copy_box5 expect_bytes "
    "one_thread tile_memory wgmma_commit wgmma_fence wgmma_wait "
    "inline int long max max_nan min min_nan mutable namespace new noexcept not not_eq nullptr operator or or_eq "
    "private protected public register reinterpret_cast return shared_memory short signed "
    "sizeof static static_assert static_cast struct switch template this threadIdx "
    "thread_local throw to_bfloat to_half true try typedef typeid typename union unsigned using virtual "
    "void volatile warpSize wchar_t while xor xor_eq "
)
RESERVED_NAMES = frozenset(_WORDS.split()) | set(CALLS.values())
"""Names that no variable may have: C++ keywords, and functions that the text calls."""


def prelude(text: str) -> str:
    """Writes the parts that `text` uses."""
    return "".join(part for name, part in PARTS.items() if name in text)
