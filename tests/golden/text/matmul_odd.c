#include <math.h>
#include <stdint.h>
#include <string.h>

/* GCC may misalign arrays in the red zone, unless the stack is realigned for them. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define AUTOTUNE_LOCAL __attribute__((aligned(32)))
#else
#define AUTOTUNE_LOCAL
#endif

static inline int32_t i32_min(int32_t a, int32_t b) {
  return (a < b) ? a : b;
}

/* kernel: writes matmul.
 *   a[5][7]: float32
 *   b_packed[3][1][7][16]: float32, b.packed, constant
 *   matmul[5][33]: float32, written
 */
void kernel(const float *restrict a, const float *restrict b_packed, float *restrict matmul) {
  for (int32_t matmul_i_1 = 0; matmul_i_1 < 3; ++matmul_i_1) {
    for (int32_t matmul_j_1 = 0; matmul_j_1 < 3; ++matmul_j_1) {
      {
        AUTOTUNE_LOCAL float matmul_local[32]; /* matmul_local[2][16]: float32, matmul.local */
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] = 0.0F;
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] = 0.0F;
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[i32_min(matmul_i_1 * 2, 3) * 7] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 7] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 1] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 16];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 8] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 16];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 2] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 32];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 9] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 32];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 3] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 48];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 10] * b_packed[(matmul_j_1 * 112)
              + matmul_local_j_1 + 48];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 4] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 64];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 11] * b_packed[(matmul_j_1 * 112)
              + matmul_local_j_1 + 64];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 5] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 80];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 12] * b_packed[(matmul_j_1 * 112)
              + matmul_local_j_1 + 80];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 6] * b_packed[(matmul_j_1 * 112) +
              matmul_local_j_1 + 96];
        }
        for (int32_t matmul_local_j_1 = 0; matmul_local_j_1 < 16; ++matmul_local_j_1) { /* vectorize */
          matmul_local[matmul_local_j_1 + 16] += a[(i32_min(matmul_i_1 * 2, 3) * 7) + 13] * b_packed[(matmul_j_1 * 112)
              + matmul_local_j_1 + 96];
        }
        for (int32_t matmul_j_3 = 0; matmul_j_3 < 16; ++matmul_j_3) { /* vectorize */
          if (((matmul_j_1 * 16) + matmul_j_3) < 33) {
            matmul[(i32_min(matmul_i_1 * 2, 3) * 33) + (matmul_j_1 * 16) + matmul_j_3] = matmul_local[matmul_j_3];
          }
        }
        for (int32_t matmul_j_3 = 0; matmul_j_3 < 16; ++matmul_j_3) { /* vectorize */
          if (((matmul_j_1 * 16) + matmul_j_3) < 33) {
            matmul[(i32_min(matmul_i_1 * 2, 3) * 33) + (matmul_j_1 * 16) + matmul_j_3 + 33] = matmul_local[matmul_j_3 +
                16];
          }
        }
      }
    }
  }
}

/* kernel_pack0: writes b.packed.
 *   b[7][33]: float32, constant
 *   b_packed[3][1][7][16]: float32, b.packed, written
 */
void kernel_pack0(const float *restrict b, float *restrict b_packed) {
  for (int32_t b_p0 = 0; b_p0 < 3; ++b_p0) {
    for (int32_t b_p2 = 0; b_p2 < 7; ++b_p2) {
      for (int32_t b_p3 = 0; b_p3 < 16; ++b_p3) {
        b_packed[(b_p0 * 112) + (b_p2 * 16) + b_p3] = (((b_p0 * 16) + b_p3) < 33) ? b[(b_p2 * 33) + (b_p0 * 16) + b_p3]
            : 0.0F;
      }
    }
  }
}
