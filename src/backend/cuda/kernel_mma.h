/* Matrix products of bf16 numbers by a warp, on tensor cores: 16 x 16 by 16 x 8, added up in f32.
 * For .cu files; sm_80 or newer.
 *
 * Lane l holds of every matrix the elements that the PTX manual gives to it ("Warp-level matrix
 * fragment for mma.m16n8k16"), g = l / 4, t = l % 4:
 *     left  16 x 16: pairs (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
 *     right 16 x 8:  pairs (2t, g), (2t + 8, g), one below the other
 *     sum   16 x 8:  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
 * In the simulation lanes show each other their factors through memory. */
#ifndef LS_BACKEND_CUDA_KERNEL_MMA_H
#define LS_BACKEND_CUDA_KERNEL_MMA_H

#include <cstring>

#include "backend/cuda/kernel_device.h"

/* Two numbers, rounded, as they lie in a register: the first one below. */
static __device__ inline uint32_t pair_of(float first, float second)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

/* Which of four 8 x 8 matrices are neighbours in a tile of 16 x 16 in shared memory. */
enum matrix_order {
    DOWN,  /* 0 1 are one below the other, 2 3 to their right: a left factor; a right factor whose
              rows are the sum's index */
    ACROSS /* 0 1 are side by side, 2 3 below them: two right factors whose columns are the sum's
              index */
};

#ifdef LS_SIM

template <bool TRANSPOSED, matrix_order ORDER>
static inline void load_matrices(uint32_t (&to)[4], const bf16 *tile, int stride)
{
    const int lane = (int)threadIdx.x % LS_WARP, g = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const int down = ORDER == DOWN ? i % 2 : i / 2, across = ORDER == DOWN ? i / 2 : i % 2;
        const bf16 *m = tile + down * 8 * stride + across * 8;
        const bf16 *first = TRANSPOSED ? m + t * stride + g : m + g * stride + t;
        to[i] = pair_of(to_float(first[0]), to_float(first[TRANSPOSED ? stride : 1]));
    }
}

static inline void mma(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0, uint32_t right1)
{
    struct shown {
        bf16 left[4][2], right[2][2];
    };
    __shared__ shown warps[LS_WARPS][LS_WARP];
    const int lane = (int)threadIdx.x % LS_WARP, g = lane / 4, t = lane % 4;
    shown *lanes = warps[threadIdx.x / LS_WARP];
    memcpy(lanes[lane].left, left, sizeof left);
    memcpy(lanes[lane].right[0], &right0, sizeof right0);
    memcpy(lanes[lane].right[1], &right1, sizeof right1);
    __syncwarp();
    for (int k = 0; k < 16; k++) {
        const int holder = k % 8 / 2;
        const bf16(*a)[2] = lanes[g * 4 + holder].left + (k < 8 ? 0 : 2);
        const float above = to_float(a[0][k % 2]), below = to_float(a[1][k % 2]);
        for (int j = 0; j < 2; j++) {
            const float b = to_float(lanes[(2 * t + j) * 4 + holder].right[k < 8 ? 0 : 1][k % 2]);
            sum[j] += above * b;
            sum[2 + j] += below * b;
        }
    }
    __syncwarp();
}

#else

/* Four 8 x 8 matrices of a tile in shared memory whose rows begin at multiples of 16 bytes, each
 * transposed or not: of matrix i register i. */
template <bool TRANSPOSED, matrix_order ORDER>
static __device__ inline void load_matrices(uint32_t (&to)[4], const bf16 *tile, int stride)
{
    const int lane = (int)threadIdx.x % LS_WARP, i = lane / 8;
    const int down = ORDER == DOWN ? i % 2 : i / 2, across = ORDER == DOWN ? i / 2 : i % 2;
    const bf16 *row = tile + (down * 8 + lane % 8) * stride + across * 8;
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at));
}

/* sum += left right */
static __device__ inline void mma(float (&sum)[4], const uint32_t (&left)[4], uint32_t right0,
                                  uint32_t right1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0),
                   "r"(right1));
}

#endif
#endif
