/* Words that every room uses: status, element types, arrays, periods, random numbers.
 *
 * Rules for all of Lockstep's headers. Options: NULL means all defaults; in a numeric option 0 is
 * the default that its comment names and LS_NONE (-1) means off or unlimited. Handles are opaque
 * and destroyed by whoever created them; destroying NULL is fine. Names passed in are copied. Every
 * function that can fail returns an ls_status that must be looked at. A function is collective
 * (every rank must call it, in the same order) only where its comment says [all]; no getter
 * communicates. */
#ifndef LOCKSTEP_BASE_H
#define LOCKSTEP_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_NODISCARD           __attribute__((warn_unused_result))
#define LS_PRINTF(text, first) __attribute__((format(printf, text, first)))

/* X(name, text, exit code of ls_check) */
#define LS_STATUS_MAP(X)                                                                           \
    X(OK, "success", 0)                                                                            \
    X(ERR_ARG, "invalid argument", 2)                                                              \
    X(ERR_SHAPE, "shapes do not fit", 2)                                                           \
    X(ERR_CONFIG, "invalid configuration", 2)                                                      \
    X(ERR_DATA, "invalid data", 2)                                                                 \
    X(ERR_IO, "input or output failed", 74)                                                        \
    X(ERR_MEMORY, "out of memory", 1)                                                              \
    X(ERR_TIMEOUT, "timed out", 69)                                                                \
    X(ERR_PEER, "a peer was lost", 69)                                                             \
    X(ERR_MISMATCH, "ranks disagree", 76)                                                          \
    X(ERR_DIVERGED, "training diverged", 3)                                                        \
    X(ERR_UNSUPPORTED, "not supported", 2)                                                         \
    X(ERR_INTERNAL, "internal error", 70)                                                          \
    X(ERR_DEVICE, "a device was lost", 69)

typedef enum ls_status {
#define LS_STATUS_ENUM(name, text, code) LS_##name,
    LS_STATUS_MAP(LS_STATUS_ENUM)
#undef LS_STATUS_ENUM
} ls_status;

/* The text of this thread's last failure: what was wrong, where, what to do. Valid until this
 * thread's next failure. */
const char *ls_error_text(void);

/* Records a failure with its text and returns status, so that a function can end with: return
 * ls_fail(LS_ERR_DATA, "%s: ...", path); */
ls_status ls_fail(ls_status status, const char *format, ...) LS_PRINTF(2, 3);

/* For main() only: on failure prints the text to stderr and exits with the status's code
 * (docs/exit-codes.md). */
void ls_check(ls_status status);

/* The library's version, "MAJOR.MINOR.PATCH". */
const char *ls_version(void);

#define LS_NONE     (-1) /* in numeric options: off, unlimited */
#define LS_MAX_RANK 6    /* dimensions of a tensor */
#define LS_PATH_MAX 4096 /* bytes of a path with its final NUL */

/* A period: one of the three is set; all zero is the default. Flags write it 500, 0.5epoch, 10min,
 * none. */
typedef struct ls_every {
    int64_t steps; /* LS_NONE = never */
    double epochs;
    double seconds;
} ls_every;

#define LS_STEPS(n)   ((ls_every) { .steps = (n) })
#define LS_EPOCHS(x)  ((ls_every) { .epochs = (x) })
#define LS_MINUTES(x) ((ls_every) { .seconds = 60.0 * (x) })

typedef enum ls_dtype {
    LS_DTYPE_F32,
    LS_DTYPE_F64,
    LS_DTYPE_BF16,
    LS_DTYPE_U8,
    LS_DTYPE_I32,
    LS_DTYPE_I64,
    LS_DTYPE_U64,
} ls_dtype;

/* What a model computes in. bf16-mixed: parameters, their gradients, sums and norms in f32; matrix
 * products, and activations between them, in bf16. tf32: as 32, but a GPU's matrix products and
 * convolutions may read their factors rounded to 10 bits behind the first one; CPUs compute as 32. */
typedef enum ls_precision {
    LS_PRECISION_32,
    LS_PRECISION_BF16_MIXED,
    LS_PRECISION_TF32,
} ls_precision;

size_t ls_dtype_size(ls_dtype type);      /* bytes of one element */
const char *ls_dtype_name(ls_dtype type); /* "f32" */

/* A dense row-major array; borrowed memory. */
typedef struct ls_array {
    ls_dtype type;
    int rank; /* 0 = a scalar */
    int64_t shape[LS_MAX_RANK];
    void *data;
} ls_array;

int64_t ls_array_count(const ls_array *array); /* elements */

/* A stream of random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC 2011). Its values are a function of the key it was made with and the draws so far.
 * Lockstep hands one out per (seed, purpose, step or epoch, sample). */
typedef struct ls_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    int used; /* words of block already drawn; 4 = draw a new block */
} ls_rng;

uint32_t ls_rng_u32(ls_rng *rng);
double ls_rng_uniform(ls_rng *rng);               /* in [0, 1), 53 bits */
double ls_rng_normal(ls_rng *rng);                /* mean 0, variance 1 */
int64_t ls_rng_below(ls_rng *rng, int64_t limit); /* in [0, limit), without bias; limit > 0 */

#ifdef __cplusplus
}
#endif
#endif
