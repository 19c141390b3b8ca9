/* Gradients and parameters on the device: sums over leaves, squares of blocks, updates.
 *
 * All of it runs at the memory's speed. A block of 256 threads takes one block of LS__BLOCK elements
 * of the flat space, four neighbours a thread at a time. Every element goes through the host's
 * operations in the host's order (src/comm/reduction_kernels.h, src/optim), so results agree to
 * rounding, and how the space is divided among ranks changes no bit. */
#include "backend/cuda/kernel_device.h"
#include "backend/cuda/kernel_resident.h"

namespace
{

enum { EACH = 4, TURN = EACH * LS_BLOCK };

typedef pack<float, EACH> floats;

__device__ inline floats read(const float *from)
{
    return *reinterpret_cast<const floats *>(from);
}

__device__ inline void write(float *to, const floats &x)
{
    *reinterpret_cast<floats *>(to) = x;
}

__device__ inline floats sum(const floats &a, const floats &b)
{
    floats c;
    for (int k = 0; k < EACH; k++) c.at[k] = a.at[k] + b.at[k];
    return c;
}

__global__ void accumulate(int64_t count, float *a, const float *b)
{
    int64_t i = EACH * ((int64_t)blockIdx.x * LS_BLOCK + threadIdx.x);
    if (i + EACH <= count) {
        write(a + i, sum(read(a + i), read(b + i)));
        return;
    }
    for (; i < count; i++) a[i] += b[i];
}

/* --- trees --- */

__device__ inline const float *place(const cuda_tree_source &s, const cuda_owned &o)
{
    return s.data + (s.packed ? o.packed : o.at);
}

__device__ inline floats operand(const cuda_tree_program &p, const cuda_owned &o,
                                 const floats *temps, int index, int i, int n)
{
    if (index < 0) return temps[~index];
    const float *from = place(p.sources[index], o) + i;
    if (n == EACH) return read(from);
    floats x = {};
    for (int k = 0; k < n; k++) x.at[k] = from[k];
    return x;
}

/* n elements from the i-th of a block on. */
__device__ inline floats tree_at(const cuda_tree_program &p, const cuda_owned &o, int i, int n)
{
    floats temps[CUDA_TREE_TEMPS], x = {};
    if (p.nsources == 1) return operand(p, o, temps, 0, i, n);
    for (int k = 0; k < p.nops; k++) {
        cuda_tree_op op = p.ops[k];
        x = sum(operand(p, o, temps, op.a, i, n), operand(p, o, temps, op.b, i, n));
        if (op.dst < 0) continue;
        temps[op.dst] = x;
    }
    return x;
}

__global__ void tree(const cuda_owned *blocks, cuda_tree_program program, float *out)
{
    cuda_owned o = blocks[blockIdx.x];
    for (int i = EACH * (int)threadIdx.x; i < o.count; i += TURN) {
        int n = o.count - i < EACH ? o.count - i : EACH;
        floats x = tree_at(program, o, i, n);
        if (n == EACH)
            write(out + o.at + i, x);
        else
            for (int k = 0; k < n; k++) out[o.at + i + k] = x.at[k];
    }
}

/* --- norms --- */

/* A warp a block: lane j adds up the elements j, j + 32, ... as the host's 32 partial sums do. */
__global__ void squares(const cuda_owned *blocks, int64_t nblocks, const float *sums, bool packed,
                        double *out)
{
    int64_t index = row_of<LS_WARP>::index();
    int lane = row_of<LS_WARP>::lane();
    bool there = index < nblocks;
    cuda_owned o = there ? blocks[index] : cuda_owned {};
    const float *sum = sums + (packed ? o.packed : o.at);
    double total = 0;
    for (int i = lane; i < o.count; i += LS_WARP) {
        double x = sum[i];
        total += x * x;
    }
    for (int half = LS_WARP / 2; half > 0; half /= 2)
        total += __shfl_down_sync(0xffffffffu, total, half);
    if (there && lane == 0) out[index] = total;
}

/* --- updates --- */

struct element {
    float p, s0, s1;
};

__device__ inline element average(const ls__rule_step &r, element e, float g)
{
    e.p += r.momentum * (g * r.scale - e.p);
    return e;
}

__device__ inline element sgd(const ls__rule_step &r, element e, float g)
{
    e.p -= r.lr * (r.scale * g + r.decay * e.p);
    return e;
}

__device__ inline element momentum(const ls__rule_step &r, element e, float g)
{
    e.s0 = r.momentum * e.s0 + (r.scale * g + r.decay * e.p);
    e.p -= r.lr * e.s0;
    return e;
}

__device__ inline element nesterov(const ls__rule_step &r, element e, float g)
{
    g = r.scale * g + r.decay * e.p;
    e.s0 = r.momentum * e.s0 + g;
    e.p -= r.lr * (g + r.momentum * e.s0);
    return e;
}

__device__ inline element adamw(const ls__rule_step &r, element e, float g)
{
    const float epsilon = (float)1e-8;
    g *= r.scale;
    e.s0 = r.beta1 * e.s0 + r.rest1 * g;
    e.s1 = r.beta2 * e.s1 + r.rest2 * g * g;
    e.p = r.keep * e.p - r.step_size * e.s0 / (sqrtf(e.s1) * r.root + epsilon);
    return e;
}

/* n elements from the i-th of a block on; STATES of them are read and written. */
template <int STATES, typename F>
__device__ inline void update_at(const cuda_update &u, const cuda_owned &o, int i, int n, F f)
{
    int64_t at = o.at + i, packed = o.packed + i;
    const float *sum = u.sum + (u.packed ? packed : at);
    if (n == EACH) {
        floats g = read(sum), p = read(u.params + at), s0 = {}, s1 = {};
        if constexpr (STATES > 0) s0 = read(u.states[0] + packed);
        if constexpr (STATES > 1) s1 = read(u.states[1] + packed);
        for (int k = 0; k < EACH; k++) {
            element e = f({ p.at[k], s0.at[k], s1.at[k] }, g.at[k]);
            p.at[k] = e.p, s0.at[k] = e.s0, s1.at[k] = e.s1;
        }
        write(u.params + at, p);
        if constexpr (STATES > 0) write(u.states[0] + packed, s0);
        if constexpr (STATES > 1) write(u.states[1] + packed, s1);
        if (u.halves) store(reinterpret_cast<bf16 *>(u.halves) + at, p.at);
        return;
    }
    for (int k = 0; k < n; k++) {
        element e = { u.params[at + k], 0, 0 };
        if constexpr (STATES > 0) e.s0 = u.states[0][packed + k];
        if constexpr (STATES > 1) e.s1 = u.states[1][packed + k];
        e = f(e, sum[k]);
        u.params[at + k] = e.p;
        if constexpr (STATES > 0) u.states[0][packed + k] = e.s0;
        if constexpr (STATES > 1) u.states[1][packed + k] = e.s1;
        if (u.halves) storage::store(reinterpret_cast<bf16 *>(u.halves) + at + k, e.p);
    }
}

template <int STATES, typename F>
__device__ inline void update_block(const cuda_update &u, const cuda_owned &o, F f)
{
    for (int i = EACH * (int)threadIdx.x; i < o.count; i += TURN) {
        int n = o.count - i < EACH ? o.count - i : EACH;
        update_at<STATES>(u, o, i, n, f);
    }
}

__global__ void update(const cuda_owned *blocks, cuda_update u)
{
    cuda_owned o = blocks[blockIdx.x];
    ls__rule_step r = u.steps[o.segment];
    switch (r.rule) {
    case LS__RULE_AVERAGE:
        return update_block<0>(u, o, [&](element e, float g) { return average(r, e, g); });
    case LS__RULE_SGD:
        return update_block<0>(u, o, [&](element e, float g) { return sgd(r, e, g); });
    case LS__RULE_MOMENTUM:
        return update_block<1>(u, o, [&](element e, float g) { return momentum(r, e, g); });
    case LS__RULE_NESTEROV:
        return update_block<1>(u, o, [&](element e, float g) { return nesterov(r, e, g); });
    case LS__RULE_ADAMW:
        return update_block<2>(u, o, [&](element e, float g) { return adamw(r, e, g); });
    default:
        return;
    }
}

} // namespace

extern "C" void ls__cuda_launch_accumulate(cudaStream_t stream, int64_t count, float *a,
                                           const float *b)
{
    LS_LAUNCH(accumulate, storage::blocks_for(count, TURN), LS_BLOCK, 0, stream, count, a, b);
}

extern "C" void ls__cuda_launch_tree(cudaStream_t stream, const cuda_owned *blocks, int64_t nblocks,
                                     const cuda_tree_program *program, float *sum)
{
    if (nblocks == 0) return;
    LS_LAUNCH(tree, (unsigned)nblocks, LS_BLOCK, 0, stream, blocks, *program, sum);
}

extern "C" void ls__cuda_launch_norms(cudaStream_t stream, const cuda_owned *blocks,
                                      int64_t nblocks, const float *sum, bool packed, double *norms)
{
    if (nblocks == 0) return;
    LS_LAUNCH(squares, storage::blocks_for(nblocks, LS_WARPS), LS_BLOCK, 0, stream, blocks, nblocks,
              sum, packed, norms);
}

extern "C" void ls__cuda_launch_update(cudaStream_t stream, const cuda_owned *blocks,
                                       int64_t nblocks, const cuda_update *u)
{
    if (nblocks == 0) return;
    LS_LAUNCH(update, (unsigned)nblocks, LS_BLOCK, 0, stream, blocks, *u);
}
