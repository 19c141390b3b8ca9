/* dropout: the mask is drawn where it is used, one Philox block for four neighbours, and drawn again
 * for the gradient: nothing is stored. The key is made here too, since the seed is in device memory;
 * it is ls__dropout_key's, and a test compares the two. */
#include "backend/cuda/kernel_image.h"
#include "backend/cuda/kernel_storage.h"

using storage::four;

namespace
{

enum { THREADS = 256, PER_BLOCK = 4 };

struct mask {
    uint64_t name_hash, threshold;
    float factor;
};

__device__ inline uint64_t rotated(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* XXH3 of the seven letters "dropout": its rule for four to eight bytes (xxHash's specification). */
__device__ inline uint64_t key_of(uint64_t seed)
{
    const uint64_t first = 0x706f7264, last = 0x74756f70; /* "drop", "pout" */
    const uint64_t secret = 0xc73ab174c5ecd5a2, prime = 0x9fb21c651e98df25, length = 7;
    uint32_t low = (uint32_t)seed;
    uint32_t swapped = low >> 24 | (low >> 8 & 0xff00) | (low << 8 & 0xff0000) | low << 24;
    seed ^= (uint64_t)swapped << 32;
    uint64_t h = (last + (first << 32)) ^ (secret - seed);
    h ^= rotated(h, 49) ^ rotated(h, 24);
    h *= prime;
    h ^= (h >> 35) + length;
    h *= prime;
    return h ^ h >> 28;
}

/* Philox4x32-10 (Salmon et al., SC 2011), as base/random.c. */
__device__ inline void philox(uint64_t key, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k0;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)b;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* A thread for four neighbours of a sample; the last of a sample may be fewer. No __restrict__: y
 * may be x. */
template <typename X, typename Y>
__global__ void dropout(mask m, int64_t samples, int64_t each, bool aligned,
                        const cuda_values *values, const X *x, Y *y)
{
    int64_t blocks = (each + PER_BLOCK - 1) / PER_BLOCK;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= samples * blocks) return;
    int64_t sample = i / blocks, block = i - sample * blocks;
    uint64_t step = (uint64_t)values->step;
    uint32_t words[PER_BLOCK] = { (uint32_t)block, (uint32_t)(values->first + sample),
                                  (uint32_t)step, (uint32_t)(step >> 32) };
    philox(key_of(values->seed ^ m.name_hash), words);
    int64_t begin = sample * each + block * PER_BLOCK;
    int64_t left = each - block * PER_BLOCK;
    if (aligned) { /* each is a multiple of four */
        four<X> in = *(const four<X> *)(x + begin);
        four<Y> out;
        for (int k = 0; k < PER_BLOCK; k++)
            storage::store(&out.at[k],
                           words[k] >= m.threshold ? storage::to_float(in.at[k]) * m.factor : 0);
        *(four<Y> *)(y + begin) = out;
        return;
    }
    for (int k = 0; k < PER_BLOCK && k < left; k++)
        storage::store(&y[begin + k],
                       words[k] >= m.threshold ? storage::to_float(x[begin + k]) * m.factor : 0);
}

} // namespace

extern "C" void ls__cuda_launch_dropout(cudaStream_t stream, int64_t samples, int64_t each,
                                        uint64_t name_hash, uint64_t threshold, float factor,
                                        const cuda_values *values, const void *x, bool x_half,
                                        void *y, bool y_half)
{
    mask m = { name_hash, threshold, factor };
    unsigned blocks = storage::blocks_for(samples * ((each + PER_BLOCK - 1) / PER_BLOCK), THREADS);
    storage::by_type(x_half, [&](auto xt) {
        storage::by_type(y_half, [&](auto yt) {
            using X = decltype(xt);
            using Y = decltype(yt);
            bool aligned = each % PER_BLOCK == 0 && storage::is_aligned((const X *)x) &&
                           storage::is_aligned((Y *)y);
            LS_LAUNCH((dropout<X, Y>), blocks, THREADS, 0, stream, m, samples, each, aligned,
                      values, (const X *)x, (Y *)y);
        });
    });
}
