/* bf16 for kernels on the host: what cuda_bf16.h offers, as far as it is used. */
#ifndef LS_BACKEND_CUDA_SIM_BF16_H
#define LS_BACKEND_CUDA_SIM_BF16_H

#include <stdint.h>
#include <string.h>

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float out;
    memcpy(&out, &bits, sizeof(out));
    return out;
}

/* To the nearest, ties to even. NaN becomes the one NaN that NVIDIA's conversion gives. */
static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    __nv_bfloat16 out;
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        out.bits = 0x7fff;
    else
        out.bits = (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
    return out;
}

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162 { __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}

static inline float __low2float(__nv_bfloat162 v)
{
    return __bfloat162float(v.x);
}

static inline float __high2float(__nv_bfloat162 v)
{
    return __bfloat162float(v.y);
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 out;
    out.bits = bits;
    return out;
}

#endif
