/* One elementwise body, compiled for several widths of vector registers.
 *
 * The best version is chosen by a call-time check instead of an ifunc, whose resolver would run
 * before the sanitizers are up. Every element goes through the same operations in the same order
 * whatever the width, and nothing is contracted into fused multiply-adds, so an element's bits
 * depend neither on the width nor on where a slice is cut. */
#ifndef LS_OPTIM_VECTORIZED_H
#define LS_OPTIM_VECTORIZED_H

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define LS__BODY static inline __attribute__((always_inline)) void

#if defined(__x86_64__)
#ifdef __clang__
#define LS__AVX512 "avx512f,avx512vl,avx512dq"
#else
#define LS__AVX512 "avx512f,avx512vl,avx512dq,prefer-vector-width=512"
#endif
/* static void name(argument) from an LS__BODY name_body(argument). */
#define LS__VECTORIZED(name, type)                                                                 \
    __attribute__((target(LS__AVX512))) static void name##_avx512(type argument)                   \
    {                                                                                              \
        name##_body(argument);                                                                     \
    }                                                                                              \
    __attribute__((target("avx2"))) static void name##_avx2(type argument)                         \
    {                                                                                              \
        name##_body(argument);                                                                     \
    }                                                                                              \
    static void name(type argument)                                                                \
    {                                                                                              \
        if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))              \
            name##_avx512(argument);                                                               \
        else if (__builtin_cpu_supports("avx2"))                                                   \
            name##_avx2(argument);                                                                 \
        else                                                                                       \
            name##_body(argument);                                                                 \
    }
#else
#define LS__VECTORIZED(name, type)                                                                 \
    static void name(type argument)                                                                \
    {                                                                                              \
        name##_body(argument);                                                                     \
    }
#endif

#endif
