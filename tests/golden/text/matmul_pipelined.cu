template <class T, int N> struct alignas(sizeof(T) * N) Vec { T x[N]; };
__device__ __forceinline__ float max_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
template <int N> __device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if (N == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(N), "r"(inside ? N : 0)
                 : "memory");
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copies_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
extern "C" __global__ void __launch_bounds__(16) kernel_0(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out) {
  __shared__ __align__(16) float a_shared[192];
  __shared__ __align__(16) float b_shared[768];
  {
    const int out_i_0_j_0 = blockIdx.x;
    {
      const int out_i_2 = threadIdx.y;
      {
        const int out_j_2 = threadIdx.x;
        {
          float product[16];
          #pragma unroll
          for (int out_j_1 = 0; out_j_1 < 2; ++out_j_1) {
            #pragma unroll
            for (int product_i = 0; product_i < 2; ++product_i) {
              #pragma unroll
              for (int product_j = 0; product_j < 4; ++product_j) {
                product[(out_j_1 * 8 + product_i * 4 + product_j)] = 0.0f;
              }
            }
          }
          #pragma unroll
          for (int a_shared_d0_d1_0 = 0; a_shared_d0_d1_0 < 2; ++a_shared_d0_d1_0) {
            {
              const int a_shared_d0_d1_1 = threadIdx.y;
              {
                const int a_shared_d0_d1_2 = threadIdx.x;
                copy_async<8>(a_shared + (a_shared_d0_d1_0 * 32 + a_shared_d0_d1_1 * 8 + a_shared_d0_d1_2 * 2), a + (a_shared_d0_d1_1 * 30 + a_shared_d0_d1_2 * 2 + (int)((unsigned)out_i_0_j_0 / 2u) * 240) + (a_shared_d0_d1_0 * 120), ((a_shared_d0_d1_0 + (int)((unsigned)out_i_0_j_0 / 2u) * 2) < 15));
              }
            }
          }
          #pragma unroll
          for (int b_shared_d0_d1_0 = 0; b_shared_d0_d1_0 < 8; ++b_shared_d0_d1_0) {
            {
              const int b_shared_d0_d1_1 = threadIdx.y;
              {
                const int b_shared_d0_d1_2 = threadIdx.x;
                copy_async<8>(b_shared + (b_shared_d0_d1_0 * 32 + b_shared_d0_d1_1 * 8 + b_shared_d0_d1_2 * 2), b + (b_shared_d0_d1_1 * 8 + b_shared_d0_d1_2 * 2 + (int)((unsigned)out_i_0_j_0 % 2u) * 32) + (b_shared_d0_d1_0 * 64), true);
              }
            }
          }
          end_of_copies();
          #pragma unroll
          for (int a_shared_d0_d1_0 = 0; a_shared_d0_d1_0 < 2; ++a_shared_d0_d1_0) {
            {
              const int a_shared_d0_d1_1 = threadIdx.y;
              {
                const int a_shared_d0_d1_2 = threadIdx.x;
                copy_async<8>(a_shared + (a_shared_d0_d1_0 * 32 + a_shared_d0_d1_1 * 8 + a_shared_d0_d1_2 * 2 + 64), a + (a_shared_d0_d1_1 * 30 + a_shared_d0_d1_2 * 2 + (int)((unsigned)out_i_0_j_0 / 2u) * 240) + (a_shared_d0_d1_0 * 120 + 8), ((a_shared_d0_d1_0 + (int)((unsigned)out_i_0_j_0 / 2u) * 2) < 15));
              }
            }
          }
          #pragma unroll
          for (int b_shared_d0_d1_0 = 0; b_shared_d0_d1_0 < 8; ++b_shared_d0_d1_0) {
            {
              const int b_shared_d0_d1_1 = threadIdx.y;
              {
                const int b_shared_d0_d1_2 = threadIdx.x;
                copy_async<8>(b_shared + (b_shared_d0_d1_0 * 32 + b_shared_d0_d1_1 * 8 + b_shared_d0_d1_2 * 2 + 256), b + (b_shared_d0_d1_1 * 8 + b_shared_d0_d1_2 * 2 + (int)((unsigned)out_i_0_j_0 % 2u) * 32) + (b_shared_d0_d1_0 * 64 + 512), true);
              }
            }
          }
          end_of_copies();
          #pragma unroll 1
          for (int product_r_0 = 0; product_r_0 < 4; ++product_r_0) {
            copies_but<1>();
            __syncthreads();
            #pragma unroll
            for (int a_shared_d0_d1_0 = 0; a_shared_d0_d1_0 < 2; ++a_shared_d0_d1_0) {
              {
                const int a_shared_d0_d1_1 = threadIdx.y;
                {
                  const int a_shared_d0_d1_2 = threadIdx.x;
                  if (((product_r_0 + 2) < 4)) copy_async<8>(a_shared + ((int)((unsigned)(product_r_0 + 2) % 3u) * 64 + a_shared_d0_d1_0 * 32 + a_shared_d0_d1_1 * 8 + a_shared_d0_d1_2 * 2), a + (a_shared_d0_d1_1 * 30 + a_shared_d0_d1_2 * 2 + (int)((unsigned)out_i_0_j_0 / 2u) * 240 + product_r_0 * 8) + (a_shared_d0_d1_0 * 120 + 16), (((a_shared_d0_d1_0 + (int)((unsigned)out_i_0_j_0 / 2u) * 2) < 15) & ((a_shared_d0_d1_2 + product_r_0 * 4 + 8) < 15)));
                }
              }
            }
            #pragma unroll
            for (int b_shared_d0_d1_0 = 0; b_shared_d0_d1_0 < 8; ++b_shared_d0_d1_0) {
              {
                const int b_shared_d0_d1_1 = threadIdx.y;
                {
                  const int b_shared_d0_d1_2 = threadIdx.x;
                  if (((product_r_0 + 2) < 4)) copy_async<8>(b_shared + ((int)((unsigned)(product_r_0 + 2) % 3u) * 256 + b_shared_d0_d1_0 * 32 + b_shared_d0_d1_1 * 8 + b_shared_d0_d1_2 * 2), b + (b_shared_d0_d1_1 * 8 + b_shared_d0_d1_2 * 2 + (int)((unsigned)out_i_0_j_0 % 2u) * 32 + product_r_0 * 512) + (b_shared_d0_d1_0 * 64 + 1024), ((b_shared_d0_d1_0 + product_r_0 * 8 + 16) < 30));
                }
              }
            }
            end_of_copies();
            #pragma unroll 1
            for (int product_r_1 = 0; product_r_1 < 4; ++product_r_1) {
              #pragma unroll
              for (int out_j_1 = 0; out_j_1 < 2; ++out_j_1) {
                #pragma unroll
                for (int product_r_2 = 0; product_r_2 < 2; ++product_r_2) {
                  #pragma unroll
                  for (int product_i = 0; product_i < 2; ++product_i) {
                    #pragma unroll
                    for (int product_j = 0; product_j < 4; ++product_j) {
                      product[(out_j_1 * 8 + product_i * 4 + product_j)] = (product[(out_j_1 * 8 + product_i * 4 + product_j)] + (a_shared[((int)((unsigned)out_i_2 / 2u) * 32 + (int)((unsigned)out_j_2 / 2u) * 16 + product_i * 8 + (int)((unsigned)product_r_0 % 3u) * 64 + product_r_1 * 2 + product_r_2)] * b_shared[((int)((unsigned)out_i_2 % 2u) * 8 + out_j_1 * 16 + (int)((unsigned)out_j_2 % 2u) * 4 + product_j + (int)((unsigned)product_r_0 % 3u) * 256 + product_r_1 * 64 + product_r_2 * 32)]));
                    }
                  }
                }
              }
            }
          }
          #pragma unroll
          for (int out_j_1 = 0; out_j_1 < 2; ++out_j_1) {
            #pragma unroll
            for (int out_i_3 = 0; out_i_3 < 2; ++out_i_3) {
              if ((((int)((unsigned)out_i_0_j_0 / 2u) * 2 + (int)((unsigned)out_i_2 / 2u)) < 15)) {
                Vec<float, 4> v28;
                v28.x[0] = max_nan(product[(out_i_3 * 4 + out_j_1 * 8)], 0.0f);
                v28.x[1] = max_nan(product[(out_i_3 * 4 + out_j_1 * 8 + 1)], 0.0f);
                v28.x[2] = max_nan(product[(out_i_3 * 4 + out_j_1 * 8 + 2)], 0.0f);
                v28.x[3] = max_nan(product[(out_i_3 * 4 + out_j_1 * 8 + 3)], 0.0f);
                *(Vec<float, 4>*)(out + ((int)((unsigned)out_i_0_j_0 % 2u) * 32 + (int)((unsigned)out_i_0_j_0 / 2u) * 512 + (int)((unsigned)out_i_2 % 2u) * 8 + (int)((unsigned)out_i_2 / 2u) * 256 + (int)((unsigned)out_j_2 % 2u) * 4 + (int)((unsigned)out_j_2 / 2u) * 128) + (out_i_3 * 64 + out_j_1 * 16)) = v28;
              }
            }
          }
        }
      }
    }
  }
}
