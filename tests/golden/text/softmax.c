#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  float exponent[64]; /* exponent[1][64]: float32 */
} kernel_workspace;

/* GCC may misalign arrays in the red zone, unless the stack is realigned for them. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define AUTOTUNE_LOCAL __attribute__((aligned(32)))
#else
#define AUTOTUNE_LOCAL
#endif

static inline float f32_max(float a, float b) {
  const float chosen = (a > b) ? a : b;
  return (a != a) ? a : chosen;
}

/* kernel: writes softmax.
 *   data[3][40]: float32
 *   softmax[3][40]: float32, written
 */
void kernel(const float *restrict data, float *restrict softmax, kernel_workspace *restrict workspace) {
  for (int32_t softmax_i = 0; softmax_i < 3; ++softmax_i) { /* parallel */
    {
      AUTOTUNE_LOCAL float maximum_rf[32]; /* maximum_rf[1][32]: float32, maximum.rf */
      for (int32_t maximum_rf_r_1_1 = 0; maximum_rf_r_1_1 < 16; ++maximum_rf_r_1_1) { /* vectorize */
        maximum_rf[maximum_rf_r_1_1] = -INFINITY;
      }
      for (int32_t maximum_rf_r_1_1 = 0; maximum_rf_r_1_1 < 16; ++maximum_rf_r_1_1) { /* vectorize */
        maximum_rf[maximum_rf_r_1_1 + 16] = -INFINITY;
      }
      for (int32_t maximum_rf_r_0 = 0; maximum_rf_r_0 < 2; ++maximum_rf_r_0) {
        for (int32_t maximum_rf_r_1_1 = 0; maximum_rf_r_1_1 < 16; ++maximum_rf_r_1_1) { /* vectorize */
          maximum_rf[maximum_rf_r_1_1] = f32_max((((maximum_rf_r_0 * 32) + maximum_rf_r_1_1) < 40) ? data[(softmax_i *
              40) + (maximum_rf_r_0 * 32) + maximum_rf_r_1_1] : (-INFINITY), maximum_rf[maximum_rf_r_1_1]);
        }
        if (maximum_rf_r_0 < 1) {
          for (int32_t maximum_rf_r_1_1 = 0; maximum_rf_r_1_1 < 16; ++maximum_rf_r_1_1) { /* vectorize */
            maximum_rf[maximum_rf_r_1_1 + 16] = f32_max(data[(softmax_i * 40) + (maximum_rf_r_0 * 32) + maximum_rf_r_1_1
                + 16], maximum_rf[maximum_rf_r_1_1 + 16]);
          }
        } else {
          for (int32_t maximum_rf_r_1_1 = 0; maximum_rf_r_1_1 < 16; ++maximum_rf_r_1_1) { /* vectorize */
            maximum_rf[maximum_rf_r_1_1 + 16] = f32_max(-INFINITY, maximum_rf[maximum_rf_r_1_1 + 16]);
          }
        }
      }
      {
        AUTOTUNE_LOCAL float maximum_rf1[16]; /* maximum_rf1[1][16]: float32, maximum.rf1 */
        for (int32_t maximum_rf1_r_1_1 = 0; maximum_rf1_r_1_1 < 16; ++maximum_rf1_r_1_1) { /* vectorize */
          maximum_rf1[maximum_rf1_r_1_1] = -INFINITY;
        }
        for (int32_t maximum_rf1_r_1_1 = 0; maximum_rf1_r_1_1 < 16; ++maximum_rf1_r_1_1) { /* vectorize */
          maximum_rf1[maximum_rf1_r_1_1] = f32_max(maximum_rf[maximum_rf1_r_1_1], maximum_rf1[maximum_rf1_r_1_1]);
        }
        for (int32_t maximum_rf1_r_1_1 = 0; maximum_rf1_r_1_1 < 16; ++maximum_rf1_r_1_1) { /* vectorize */
          maximum_rf1[maximum_rf1_r_1_1] = f32_max(maximum_rf[maximum_rf1_r_1_1 + 16], maximum_rf1[maximum_rf1_r_1_1]);
        }
        {
          AUTOTUNE_LOCAL float maximum[1]; /* maximum[1]: float32 */
          maximum[0] = -INFINITY;
          for (int32_t maximum_r_1_1 = 0; maximum_r_1_1 < 16; ++maximum_r_1_1) { /* vectorize */
            maximum[0] = f32_max(maximum_rf1[maximum_r_1_1], maximum[0]);
          }
          for (int32_t exponent_j_0 = 0; exponent_j_0 < 2; ++exponent_j_0) {
            for (int32_t exponent_j_2 = 0; exponent_j_2 < 16; ++exponent_j_2) { /* vectorize */
              workspace->exponent[(exponent_j_0 * 32) + exponent_j_2] = expf(((((exponent_j_0 * 32) + exponent_j_2) <
                  40) ? data[(softmax_i * 40) + (exponent_j_0 * 32) + exponent_j_2] : 0.0F) - maximum[0]);
            }
            for (int32_t exponent_j_2 = 0; exponent_j_2 < 16; ++exponent_j_2) { /* vectorize */
              workspace->exponent[(exponent_j_0 * 32) + exponent_j_2 + 16] = expf(((exponent_j_0 < 1) ? data[(softmax_i
                  * 40) + (exponent_j_0 * 32) + exponent_j_2 + 16] : 0.0F) - maximum[0]);
            }
          }
          {
            AUTOTUNE_LOCAL float total_rf[32]; /* total_rf[1][32]: float32, total.rf */
            for (int32_t total_rf_r_1_1 = 0; total_rf_r_1_1 < 16; ++total_rf_r_1_1) { /* vectorize */
              total_rf[total_rf_r_1_1] = 0.0F;
            }
            for (int32_t total_rf_r_1_1 = 0; total_rf_r_1_1 < 16; ++total_rf_r_1_1) { /* vectorize */
              total_rf[total_rf_r_1_1 + 16] = 0.0F;
            }
            for (int32_t total_rf_r_0 = 0; total_rf_r_0 < 2; ++total_rf_r_0) {
              for (int32_t total_rf_r_1_1 = 0; total_rf_r_1_1 < 16; ++total_rf_r_1_1) { /* vectorize */
                total_rf[total_rf_r_1_1] += (((total_rf_r_0 * 32) + total_rf_r_1_1) < 40) ?
                    workspace->exponent[(total_rf_r_0 * 32) + total_rf_r_1_1] : 0.0F;
              }
              if (total_rf_r_0 < 1) {
                for (int32_t total_rf_r_1_1 = 0; total_rf_r_1_1 < 16; ++total_rf_r_1_1) { /* vectorize */
                  total_rf[total_rf_r_1_1 + 16] += workspace->exponent[(total_rf_r_0 * 32) + total_rf_r_1_1 + 16];
                }
              } else {
                for (int32_t total_rf_r_1_1 = 0; total_rf_r_1_1 < 16; ++total_rf_r_1_1) { /* vectorize */
                  total_rf[total_rf_r_1_1 + 16] += 0.0F;
                }
              }
            }
            {
              AUTOTUNE_LOCAL float total_rf1[16]; /* total_rf1[1][16]: float32, total.rf1 */
              for (int32_t total_rf1_r_1_1 = 0; total_rf1_r_1_1 < 16; ++total_rf1_r_1_1) { /* vectorize */
                total_rf1[total_rf1_r_1_1] = 0.0F;
              }
              for (int32_t total_rf1_r_1_1 = 0; total_rf1_r_1_1 < 16; ++total_rf1_r_1_1) { /* vectorize */
                total_rf1[total_rf1_r_1_1] += total_rf[total_rf1_r_1_1];
              }
              for (int32_t total_rf1_r_1_1 = 0; total_rf1_r_1_1 < 16; ++total_rf1_r_1_1) { /* vectorize */
                total_rf1[total_rf1_r_1_1] += total_rf[total_rf1_r_1_1 + 16];
              }
              {
                AUTOTUNE_LOCAL float total[1]; /* total[1]: float32 */
                total[0] = 0.0F;
                for (int32_t total_r_1_1 = 0; total_r_1_1 < 16; ++total_r_1_1) { /* vectorize */
                  total[0] += total_rf1[total_r_1_1];
                }
                {
                  AUTOTUNE_LOCAL float inverse[1]; /* inverse[1]: float32 */
                  inverse[0] = 1.0F / total[0];
                  for (int32_t softmax_j_0 = 0; softmax_j_0 < 2; ++softmax_j_0) {
                    for (int32_t softmax_j_2 = 0; softmax_j_2 < 16; ++softmax_j_2) { /* vectorize */
                      if (((softmax_j_0 * 32) + softmax_j_2) < 40) {
                        softmax[(softmax_i * 40) + (softmax_j_0 * 32) + softmax_j_2] = workspace->exponent[(softmax_j_0
                            * 32) + softmax_j_2] * inverse[0];
                      }
                    }
                    if (softmax_j_0 < 1) {
                      for (int32_t softmax_j_2 = 0; softmax_j_2 < 16; ++softmax_j_2) { /* vectorize */
                        softmax[(softmax_i * 40) + (softmax_j_0 * 32) + softmax_j_2 + 16] =
                            workspace->exponent[(softmax_j_0 * 32) + softmax_j_2 + 16] * inverse[0];
                      }
                    }
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}
