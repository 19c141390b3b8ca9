/* The loops themselves, included once per instruction set by reduce.c, which defines
 *     LS__ISA           suffix and name of the set
 *     LS__TARGET        function attribute that allows its instructions
 * No include guard: being included several times is its purpose. */

#define LS__JOIN2(a, b) a##_##b
#define LS__JOIN(a, b)  LS__JOIN2(a, b)
#define LS__NAME(name)  LS__JOIN(name, LS__ISA)

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

/* Squares of floats are exact in double, so contraction changes nothing here. */
LS__TARGET static double LS__NAME(norm2)(const float *x, size_t count)
{
    double lanes[8] = { 0 };
    size_t whole = count / 8 * 8;
    for (size_t i = 0; i < whole; i += 8)
        for (size_t j = 0; j < 8; j++) lanes[j] += (double)x[i + j] * (double)x[i + j];
    for (size_t i = whole; i < count; i++) lanes[i - whole] += (double)x[i] * (double)x[i];
    double pairs[4] = { lanes[0] + lanes[1], lanes[2] + lanes[3], lanes[4] + lanes[5],
                        lanes[6] + lanes[7] };
    return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
}

#define LS__ROW(name)                                                                              \
    {                                                                                              \
        LS__NAME(name##_sum), LS__NAME(name##_min), LS__NAME(name##_max)                           \
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
#undef LS__TEXT2
#undef LS__TEXT
#undef LS__ISA
#undef LS__TARGET
