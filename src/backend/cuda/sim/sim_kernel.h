/* CUDA's C++ for kernels, on the host: a kernel is a plain function that is called once per thread.
 *
 * A block's __shared__ variables are the OS thread's, since an OS thread runs one block at a time
 * and the block's threads are its fibers. What a thread asks about itself it finds through one
 * pointer that the block's scheduler sets. */
#ifndef LS_BACKEND_CUDA_SIM_KERNEL_H
#define LS_BACKEND_CUDA_SIM_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#include "backend/cuda/sim/sim_bf16.h"
#include "backend/cuda/sim/sim_thread.h"
#include "backend/cuda/sim/sim_vector.h"

#define __global__
#define __device__
#define __host__
#define __shared__      static thread_local
#define __constant__    static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define threadIdx    (ls__sim_here->thread)
#define blockIdx     (ls__sim_here->block)
#define blockDim     (ls__sim_here->block_size)
#define gridDim      (ls__sim_here->grid)
#define warpSize     32

#define LS_DYNAMIC_SHARED(type, name)                                                              \
    type *const name = static_cast<type *>(ls__sim_here->dynamic_shared)

/* --- meeting other threads --- */
static inline void __syncthreads()
{
    ls__sim_barrier();
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    ls__sim_warp(SIM_WARP_SYNC, mask, 0, 0);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)ls__sim_warp(SIM_WARP_BALLOT, mask, predicate != 0, 0);
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == mask;
}

namespace sim
{

template <typename T> inline T shuffle(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = ls__sim_warp(SIM_WARP_SHUFFLE, mask, bits, source);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

/* The lane itself where the other one is in another group of width lanes. */
inline int within(int lane, int other, int width)
{
    return lane / width == other / width && other >= 0 ? other : lane;
}

} // namespace sim

template <typename T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    int lane = ls__sim_lane();
    return sim::shuffle(mask, value, lane - lane % width + (source & (width - 1)));
}

template <typename T> inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32)
{
    int lane = ls__sim_lane(), other = lane ^ bits;
    /* A lane of a later group keeps its own value, one of an earlier group is read. */
    return sim::shuffle(mask, value, other / width > lane / width ? lane : other);
}

template <typename T> inline T __shfl_down_sync(unsigned mask, T value, int by, int width = 32)
{
    int lane = ls__sim_lane();
    return sim::shuffle(mask, value, sim::within(lane, lane + by, width));
}

template <typename T> inline T __shfl_up_sync(unsigned mask, T value, int by, int width = 32)
{
    int lane = ls__sim_lane();
    return sim::shuffle(mask, value, sim::within(lane, lane - by, width));
}

/* --- memory --- */
template <typename T> inline T __ldg(const T *p)
{
    return *p;
}

static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Atomics order nothing but themselves, as on the GPU. Integers only: sums of floats would depend on
 * the order in which threads come. */
template <typename T> inline T atomicAdd(T *p, std::common_type_t<T> x)
{
    static_assert(std::is_integral_v<T>, "floats are never added atomically");
    return __atomic_fetch_add(p, x, __ATOMIC_RELAXED);
}

template <typename T> inline T atomicOr(T *p, std::common_type_t<T> x)
{
    static_assert(std::is_integral_v<T>);
    return __atomic_fetch_or(p, x, __ATOMIC_RELAXED);
}

template <typename T> inline T atomicExch(T *p, std::common_type_t<T> x)
{
    return __atomic_exchange_n(p, x, __ATOMIC_RELAXED);
}

template <typename T>
inline T atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> x)
{
    __atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <typename T> inline T atomicMin(T *p, std::common_type_t<T> x)
{
    static_assert(std::is_integral_v<T>);
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (x < old &&
           !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}

template <typename T> inline T atomicMax(T *p, std::common_type_t<T> x)
{
    static_assert(std::is_integral_v<T>);
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (x > old &&
           !__atomic_compare_exchange_n(p, &old, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}

/* --- launches --- */
namespace sim
{

/* The values of a kernel's parameters: plain bytes, so that they can be kept by copying them. */
template <typename... P> struct values {
};
template <typename First, typename... Rest> struct values<First, Rest...> {
    First first;
    values<Rest...> rest;
};

template <typename... P> struct bound {
    void (*kernel)(P...);
    values<P...> parameters;
};

inline values<> keep()
{
    return {};
}
template <typename First, typename... Rest>
inline values<First, Rest...> keep(First first, Rest... rest)
{
    return { first, keep(rest...) };
}

template <typename Kernel, typename... Done>
inline void apply(Kernel kernel, const values<> &, Done... done)
{
    kernel(done...);
}
template <typename Kernel, typename First, typename... Rest, typename... Done>
inline void apply(Kernel kernel, const values<First, Rest...> &v, Done... done)
{
    apply(kernel, v.rest, done..., v.first);
}

template <typename... P> inline void invoke(const void *p)
{
    const bound<P...> *b = static_cast<const bound<P...> *>(p);
    apply(b->kernel, b->parameters);
}

/* Pointers are looked for in structs, and what lies between their members may look like one: it is
 * cleared where the compiler can, and the struct is not looked at where it cannot. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define LS_SIM_CLEARS_PADDING
#endif
#endif

template <typename T> inline size_t clear_padding(T &x)
{
#ifdef LS_SIM_CLEARS_PADDING
    if constexpr (std::is_class_v<T>) __builtin_clear_padding(&x);
    return sizeof(T);
#else
    (void)x;
    return std::is_class_v<T> ? 0 : sizeof(T);
#endif
}

inline void describe(values<> &, sim_argument *) {}
template <typename First, typename... Rest>
inline void describe(values<First, Rest...> &v, sim_argument *out)
{
    static_assert(std::is_trivially_copyable_v<First>, "a kernel's parameters are copied as bytes");
    *out = { &v.first, clear_padding(v.first), std::is_pointer_v<First> };
    describe(v.rest, out + 1);
}

/* As P, but the parameter decides the type, not the argument. */
template <typename T> struct same {
    using type = T;
};

template <typename... P>
inline void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream, typename same<P>::type... arguments)
{
    bound<P...> b = { kernel, keep(arguments...) };
    sim_argument described[sizeof...(P) + 1];
    describe(b.parameters, described);
    sim_launch l = { name,
                     reinterpret_cast<const void *>(kernel),
                     invoke<P...>,
                     { grid.x, grid.y, grid.z },
                     { block.x, block.y, block.z },
                     shared_bytes };
    ls__sim_launch(&l, &b, sizeof(b), described, sizeof...(P), stream);
}

} // namespace sim

#define LS_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    sim::launch(#kernel, (kernel), (grid), (block), (shared_bytes), (stream), __VA_ARGS__)

template <typename... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute, int value)
{
    return ls__sim_allow_shared(reinterpret_cast<const void *>(kernel), (size_t)value);
}

#endif
