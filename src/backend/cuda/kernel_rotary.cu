/* rotary: queries and keys turned by their token's position, values copied.
 *
 * Cosines and sines are computed in double precision, once per position and pair and not once per
 * head: angles grow with the position, and f32 would lose their fraction in long contexts. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_rows.h"

struct alignas(2 * sizeof(float)) turn {
    float cosine, sine;
};

/* turns: (positions,half) of pairs, a thread for each number; a row is that of a token of a sample
 * where positions are given, else of any sample. */
static __global__ void rotary_turns(const int32_t *position, float *turns, int64_t count,
                                    int64_t length, int half, double theta, bool inverse)
{
    const int64_t i = (int64_t)blockIdx.x * LS_BLOCK + threadIdx.x;
    if (i >= count) return;
    const int64_t pair = i / 2 % half, token = i / 2 / half;
    const int64_t at = (position ? position[token / length] : 0) + token % length;
    const double angle = (double)at * pow(theta, -(double)pair / (double)half);
    if (i % 2 == 0)
        turns[i] = (float)cos(angle);
    else
        turns[i] = (float)sin(inverse ? -angle : angle);
}

/* A block per token. half: pairs of a head; turned, all: pairs of a token. */
template <typename X, typename Y>
static __global__ void rotary(const X *x, Y *y, const turn *turns, int64_t positions, int half,
                              int turned, int all)
{
    const int64_t token = blockIdx.x;
    x += token * 2 * all;
    y += token * 2 * all;
    turns += token % positions * half;
    for (int i = (int)threadIdx.x; i < all; i += LS_BLOCK) {
        const int pair = i % half, at = 2 * i - pair; /* head * 2 half + pair */
        float u = to_float(x[at]), v = to_float(x[at + half]);
        if (i < turned) {
            const turn t = turns[pair];
            const float first = u * t.cosine - v * t.sine;
            v = u * t.sine + v * t.cosine;
            u = first;
        }
        store(y + at, u);
        store(y + at + half, v);
    }
}

int64_t ls__rotary_floats(int64_t batch, int64_t length, int width, bool positioned)
{
    return (positioned ? batch : 1) * length * width;
}

void ls__launch_rotary(const rotary_args *a, cudaStream_t stream)
{
    const int half = a->width / 2;
    const int64_t positions = (a->position ? a->batch : 1) * a->length;
    const turn *turns = reinterpret_cast<const turn *>(a->turns);
    LS_LAUNCH(rotary_turns, blocks_for(2 * positions * half, LS_BLOCK), LS_BLOCK, 0, stream,
              a->position, a->turns, 2 * positions * half, a->length, half, a->theta, a->inverse);
    by_type(a->x.half, [&](auto x_type) {
        by_type(a->y.half, [&](auto y_type) {
            typedef decltype(x_type) X;
            typedef decltype(y_type) Y;
            LS_LAUNCH((rotary<X, Y>), (unsigned)(a->batch * a->length), LS_BLOCK, 0, stream,
                      static_cast<const X *>(a->x.data), static_cast<Y *>(a->y.data), turns,
                      positions, half, a->turned * half, (a->turned + a->copied) * half);
        });
    });
}
