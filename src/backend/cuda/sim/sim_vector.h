/* CUDA's small vectors, bit casts and integer functions for kernels on the host. */
#ifndef LS_BACKEND_CUDA_SIM_VECTOR_H
#define LS_BACKEND_CUDA_SIM_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
};

#define LS_SIM_VECTORS(type, name)                                                                 \
    struct alignas(2 * sizeof(type)) name##2                                                       \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct alignas(sizeof(type) == 8 ? 16 : 4 * sizeof(type)) name##4                              \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##2 make_##name##2(type x, type y)                                           \
    {                                                                                              \
        return name##2 { x, y };                                                                   \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                           \
    {                                                                                              \
        return name##4 { x, y, z, w };                                                             \
    }
LS_SIM_VECTORS(float, float)
LS_SIM_VECTORS(int, int)
LS_SIM_VECTORS(unsigned, uint)
LS_SIM_VECTORS(unsigned short, ushort)
LS_SIM_VECTORS(double, double)
#undef LS_SIM_VECTORS

#define LS_SIM_BIT_CAST(from, to, name)                                                            \
    static inline to name(from x)                                                                  \
    {                                                                                              \
        to out;                                                                                    \
        static_assert(sizeof(x) == sizeof(out), "a bit cast keeps the size");                      \
        memcpy(&out, &x, sizeof(out));                                                             \
        return out;                                                                                \
    }
LS_SIM_BIT_CAST(float, unsigned, __float_as_uint)
LS_SIM_BIT_CAST(float, int, __float_as_int)
LS_SIM_BIT_CAST(unsigned, float, __uint_as_float)
LS_SIM_BIT_CAST(int, float, __int_as_float)
#undef LS_SIM_BIT_CAST

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

template <typename T> constexpr T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> constexpr T max(T a, T b)
{
    return a < b ? b : a;
}

#endif
