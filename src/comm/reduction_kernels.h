/* The loops themselves, included once per instruction set by reduction.c, which defines
 *     LS__ISA           suffix and name of the set
 *     LS__TARGET        function attribute that allows its instructions
 * No include guard: being included several times is its purpose. */

#define LS__JOIN2(a, b) a##_##b
#define LS__JOIN(a, b)  LS__JOIN2(a, b)
#define LS__NAME(name)  LS__JOIN(name, LS__ISA)

/* To one array, and to two at once. */
#define LS__COMBINE(name, T, expression)                                                           \
    LS__TARGET static void LS__NAME(name)(void *dst, const void *a, const void *b, size_t count)   \
    {                                                                                              \
        T *out = dst;                                                                              \
        const T *left = a, *right = b;                                                             \
        LS__IVDEP for (size_t i = 0; i < count; i++)                                               \
        {                                                                                          \
            T x = left[i], y = right[i];                                                           \
            out[i] = (T)(expression);                                                              \
        }                                                                                          \
    }                                                                                              \
    LS__TARGET static void LS__NAME(name##_twice)(void *dst, void *other, const void *a,           \
                                                  const void *b, size_t count)                     \
    {                                                                                              \
        T *out = dst, *out2 = other;                                                               \
        const T *left = a, *right = b;                                                             \
        LS__IVDEP for (size_t i = 0; i < count; i++)                                               \
        {                                                                                          \
            T x = left[i], y = right[i];                                                           \
            out[i] = out2[i] = (T)(expression);                                                    \
        }                                                                                          \
    }

/* Unsigned arithmetic for sums, so that integers wrap; NaN wins in minima and maxima of floats. */
#define LS__COMBINE_FLOAT(name, T)                                                                 \
    LS__COMBINE(name##_sum, T, x + y)                                                              \
    LS__COMBINE(name##_min, T, x < y || x != x ? x : y)                                            \
    LS__COMBINE(name##_max, T, x > y || x != x ? x : y)
#define LS__COMBINE_INT(name, T, U)                                                                \
    LS__COMBINE(name##_sum, T, (U)x + (U)y)                                                        \
    LS__COMBINE(name##_min, T, x < y ? x : y)                                                      \
    LS__COMBINE(name##_max, T, x > y ? x : y)

LS__COMBINE_FLOAT(f32, float)
LS__COMBINE_FLOAT(f64, double)
LS__COMBINE_INT(u8, uint8_t, unsigned)
LS__COMBINE_INT(i32, int32_t, uint32_t)
LS__COMBINE_INT(i64, int64_t, uint64_t)
LS__COMBINE_INT(u64, uint64_t, uint64_t)

LS__TARGET static void LS__NAME(widen)(float *dst, const uint16_t *src, size_t count)
{
    union {
        uint32_t bits;
        float value;
    } x;
    for (size_t i = 0; i < count; i++) {
        x.bits = (uint32_t)src[i] << 16;
        dst[i] = x.value;
    }
}

LS__TARGET static void LS__NAME(narrow)(uint16_t *dst, const float *src, size_t count)
{
    union {
        float value;
        uint32_t bits;
    } x;
    for (size_t i = 0; i < count; i++) {
        x.value = src[i];
        uint32_t rounded = x.bits + 0x7fff + (x.bits >> 16 & 1);
        uint32_t quiet = x.bits | 0x400000; /* rounding could turn a NaN into an infinity */
        dst[i] = (uint16_t)((src[i] != src[i] ? quiet : rounded) >> 16);
    }
}

LS__TARGET static void LS__NAME(add_scaled)(float *dst, const float *a, float fa, const float *b,
                                            float fb, size_t count)
{
    LS__NO_CONTRACT
    LS__IVDEP for (size_t i = 0; i < count; i++)
    {
        float x = fa * a[i];
        float y = fb * b[i];
        dst[i] = x + y;
    }
}

LS__TARGET static void LS__NAME(scale)(float *dst, const float *src, float factor, size_t count)
{
    LS__IVDEP for (size_t i = 0; i < count; i++) dst[i] = factor * src[i];
}

/* Thirty-two partial sums, so that additions need not wait for each other; squares of floats are
 * exact in double, so contraction changes nothing here. */
LS__TARGET static double LS__NAME(norm2)(const float *x, size_t count)
{
    enum { LANES = 32 };
    double lanes[LANES] = { 0 };
    size_t whole = count / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++) lanes[j] += (double)x[i + j] * (double)x[i + j];
    for (size_t i = whole; i < count; i++) lanes[i - whole] += (double)x[i] * (double)x[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

/* Four vectors at a time and never memcpy, whose string instructions are slow to lines that another
 * core has just read or written. The empty statement keeps compilers from seeing a memcpy in it. */
LS__TARGET static void LS__NAME(copy)(void *dst, const void *src, size_t nbytes)
{
    typedef uint64_t vector __attribute__((vector_size(64), aligned(1), may_alias));
    size_t whole = nbytes / 256 * 256;
    for (size_t at = 0; at < whole; at += 256) {
        const vector *from = (const vector *)(const void *)((const char *)src + at);
        vector *to = (vector *)(void *)((char *)dst + at);
        vector a = from[0], b = from[1], c = from[2], d = from[3];
        __asm__ volatile("");
        to[0] = a;
        to[1] = b;
        to[2] = c;
        to[3] = d;
    }
    memcpy((char *)dst + whole, (const char *)src + whole, nbytes - whole);
}

#define LS__ROW(name)                                                                              \
    {                                                                                              \
        LS__NAME(name##_sum), LS__NAME(name##_min), LS__NAME(name##_max)                           \
    }
#define LS__ROW_TWICE(name)                                                                        \
    {                                                                                              \
        LS__NAME(name##_sum_twice), LS__NAME(name##_min_twice), LS__NAME(name##_max_twice)         \
    }
#define LS__TEXT2(x) #x
#define LS__TEXT(x)  LS__TEXT2(x)

static const ls__kernels LS__NAME(kernels) = {
    .isa = LS__TEXT(LS__ISA),
    .combine = {
        [LS_DTYPE_F32] = LS__ROW(f32),
        [LS_DTYPE_F64] = LS__ROW(f64),
        [LS_DTYPE_U8] = LS__ROW(u8),
        [LS_DTYPE_I32] = LS__ROW(i32),
        [LS_DTYPE_I64] = LS__ROW(i64),
        [LS_DTYPE_U64] = LS__ROW(u64),
    },
    .combine_twice = {
        [LS_DTYPE_F32] = LS__ROW_TWICE(f32),
        [LS_DTYPE_F64] = LS__ROW_TWICE(f64),
        [LS_DTYPE_U8] = LS__ROW_TWICE(u8),
        [LS_DTYPE_I32] = LS__ROW_TWICE(i32),
        [LS_DTYPE_I64] = LS__ROW_TWICE(i64),
        [LS_DTYPE_U64] = LS__ROW_TWICE(u64),
    },
    .copy = LS__NAME(copy),
    .widen = LS__NAME(widen),
    .narrow = LS__NAME(narrow),
    .add_scaled = LS__NAME(add_scaled),
    .scale = LS__NAME(scale),
    .norm2 = LS__NAME(norm2),
};

#undef LS__JOIN2
#undef LS__JOIN
#undef LS__NAME
#undef LS__COMBINE
#undef LS__COMBINE_FLOAT
#undef LS__COMBINE_INT
#undef LS__ROW
#undef LS__ROW_TWICE
#undef LS__TEXT2
#undef LS__TEXT
#undef LS__ISA
#undef LS__TARGET
