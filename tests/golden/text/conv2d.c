#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  float pad[128]; /* pad[1][4][8][4]: float32 */
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

/* kernel: writes epilogue.
 *   data[1][6][6][4]: float32
 *   weight_packed[1][3][3][2][1][1][2][32]: float32, weight.packed, constant
 *   bias[20]: float32, constant
 *   epilogue[1][6][6][20]: float32, written
 */
void kernel(const float *restrict data, const float *restrict weight_packed, const float *restrict bias, float *restrict
    epilogue, kernel_workspace *restrict workspace) {
  for (int32_t epilogue_n_h_0_k_0 = 0; epilogue_n_h_0_k_0 < 3; ++epilogue_n_h_0_k_0) { /* parallel */
    for (int32_t pad_h = 0; pad_h < 4; ++pad_h) {
      for (int32_t pad_w_c_0 = 0; pad_w_c_0 < 2; ++pad_w_c_0) {
        for (int32_t pad_w_c_1 = 0; pad_w_c_1 < 16; ++pad_w_c_1) { /* vectorize */
          workspace->pad[(pad_h * 32) + (pad_w_c_0 * 16) + pad_w_c_1] = ((((1 <= ((epilogue_n_h_0_k_0 * 2) + pad_h)) &&
              (((epilogue_n_h_0_k_0 * 2) + pad_h) < 7)) && (1 <= (((pad_w_c_0 * 16) + pad_w_c_1) / 4))) && ((((pad_w_c_0
              * 16) + pad_w_c_1) / 4) < 7)) ? data[(epilogue_n_h_0_k_0 * 48) + (pad_h * 24) + (pad_w_c_0 * 16) +
              pad_w_c_1 - 28] : 0.0F;
        }
      }
    }
    for (int32_t epilogue_w_0 = 0; epilogue_w_0 < 6; ++epilogue_w_0) {
      {
        AUTOTUNE_LOCAL float conv[64]; /* conv[1][2][1][32]: float32 */
        for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
          conv[conv_k_1] = 0.0F;
        }
        for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
          conv[conv_k_1 + 16] = 0.0F;
        }
        for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
          conv[conv_k_1 + 32] = 0.0F;
        }
        for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
          conv[conv_k_1 + 48] = 0.0F;
        }
        for (int32_t conv_rh_0 = 0; conv_rh_0 < 3; ++conv_rh_0) {
          for (int32_t conv_rw_0 = 0; conv_rw_0 < 3; ++conv_rw_0) {
            for (int32_t conv_rc_0 = 0; conv_rc_0 < 2; ++conv_rc_0) {
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) + (conv_rc_0 *
                    2)] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) + conv_k_1];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1 + 16] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) +
                    (conv_rc_0 * 2)] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) + conv_k_1
                    + 16];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1 + 32] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) +
                    (conv_rc_0 * 2) + 32] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) +
                    conv_k_1];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1 + 48] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) +
                    (conv_rc_0 * 2) + 32] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) +
                    conv_k_1 + 16];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) + (conv_rc_0 *
                    2) + 1] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) + conv_k_1 + 32];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1 + 16] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) +
                    (conv_rc_0 * 2) + 1] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) +
                    conv_k_1 + 48];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1 + 32] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) +
                    (conv_rc_0 * 2) + 33] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) +
                    conv_k_1 + 32];
              }
              for (int32_t conv_k_1 = 0; conv_k_1 < 16; ++conv_k_1) { /* vectorize */
                conv[conv_k_1 + 48] += workspace->pad[(conv_rh_0 * 32) + (conv_rw_0 * 4) + (epilogue_w_0 * 4) +
                    (conv_rc_0 * 2) + 33] * weight_packed[(conv_rh_0 * 384) + (conv_rw_0 * 128) + (conv_rc_0 * 64) +
                    conv_k_1 + 48];
              }
            }
          }
        }
        for (int32_t epilogue_k_3 = 0; epilogue_k_3 < 16; ++epilogue_k_3) { /* vectorize */
          epilogue[(epilogue_n_h_0_k_0 * 240) + (epilogue_w_0 * 20) + epilogue_k_3] = f32_max(0.0F, conv[epilogue_k_3] +
              bias[epilogue_k_3]);
        }
        for (int32_t epilogue_k_3 = 0; epilogue_k_3 < 16; ++epilogue_k_3) { /* vectorize */
          if ((epilogue_k_3 + 16) < 20) {
            epilogue[(epilogue_n_h_0_k_0 * 240) + (epilogue_w_0 * 20) + epilogue_k_3 + 16] = f32_max(0.0F,
                conv[epilogue_k_3 + 16] + bias[epilogue_k_3 + 16]);
          }
        }
        for (int32_t epilogue_k_3 = 0; epilogue_k_3 < 16; ++epilogue_k_3) { /* vectorize */
          epilogue[(epilogue_n_h_0_k_0 * 240) + (epilogue_w_0 * 20) + epilogue_k_3 + 120] = f32_max(0.0F,
              conv[epilogue_k_3 + 32] + bias[epilogue_k_3]);
        }
        for (int32_t epilogue_k_3 = 0; epilogue_k_3 < 16; ++epilogue_k_3) { /* vectorize */
          if ((epilogue_k_3 + 16) < 20) {
            epilogue[(epilogue_n_h_0_k_0 * 240) + (epilogue_w_0 * 20) + epilogue_k_3 + 136] = f32_max(0.0F,
                conv[epilogue_k_3 + 48] + bias[epilogue_k_3 + 16]);
          }
        }
      }
    }
  }
}

/* kernel_pack0: writes weight.packed.
 *   weight[3][3][4][20]: float32, constant
 *   weight_packed[1][3][3][2][1][1][2][32]: float32, weight.packed, written
 */
void kernel_pack0(const float *restrict weight, float *restrict weight_packed) {
  for (int32_t weight_p1 = 0; weight_p1 < 3; ++weight_p1) {
    for (int32_t weight_p2 = 0; weight_p2 < 3; ++weight_p2) {
      for (int32_t weight_p3 = 0; weight_p3 < 2; ++weight_p3) {
        for (int32_t weight_p6 = 0; weight_p6 < 2; ++weight_p6) {
          for (int32_t weight_p7 = 0; weight_p7 < 32; ++weight_p7) {
            weight_packed[(weight_p1 * 384) + (weight_p2 * 128) + (weight_p3 * 64) + (weight_p6 * 32) + weight_p7] =
                (weight_p7 < 20) ? weight[(weight_p1 * 240) + (weight_p2 * 80) + (weight_p3 * 40) + (weight_p6 * 20) +
                weight_p7] : 0.0F;
          }
        }
      }
    }
  }
}
