/* How the exchange is measured: like nccl-tests, but each result is checked to the last bit, and
 * inputs are written anew before every round, so that lines must cross between cores as they do in
 * training. */
#include "cli/bench_measure.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "comm/exchange.h"
#include "comm/net_internal.h"
#include "optim/optim.h"

enum {
    WARMUP = 3,
    ROUNDS_MIN = 7,
    ROUNDS_MAX = 400,
};
#define BUDGET 0.4 /* seconds of measured time per size */

/* One thing to be measured. */
typedef struct subject {
    ls_comm *comm;
    int64_t count; /* f32 elements */
    void (*prepare)(struct subject *s, int round);
    ls_status (*run)(struct subject *s);
    ls_status (*check)(struct subject *s, int round);
    void *user;
} subject;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarize(double *seconds, int rounds, ls_cli_timing *out)
{
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
    *out = (ls_cli_timing) { .rounds = rounds,
                             .median = seconds[rounds / 2],
                             .best = seconds[0],
                             .p95 = seconds[(rounds * 95 + 99) / 100 - 1] };
}

static ls_status one_round(subject *s, int round, double *seconds)
{
    s->prepare(s, round);
    LS_TRY(ls_comm_barrier(s->comm));
    double begin = ls__now();
    LS_TRY(s->run(s));
    *seconds = ls__now() - begin;
    return s->check(s, round);
}

/* Rank 0 decides from the warm-up how many rounds fit the budget. */
static ls_status measure(subject *s, ls_cli_timing *out)
{
    double seconds[ROUNDS_MAX], warm = 0;
    for (int i = 0; i < WARMUP; i++) LS_TRY(one_round(s, i, &warm));
    int32_t rounds = ROUNDS_MAX;
    if (warm * ROUNDS_MAX > BUDGET) rounds = (int32_t)(BUDGET / warm);
    if (rounds < ROUNDS_MIN) rounds = ROUNDS_MIN;
    LS_TRY(ls_comm_broadcast(s->comm, &rounds, 1, LS_DTYPE_I32, 0));
    for (int i = 0; i < rounds; i++) LS_TRY(one_round(s, WARMUP + i, &seconds[i]));
    summarize(seconds, rounds, out);
    return LS_OK;
}

/* What rank r puts into element i in a round: pseudorandom in the first, so that every element is
 * told from its neighbours; later one number per round, which costs no time to make. */
static float input(int r, int round, int64_t i)
{
    if (round > 0) return 0.1f * (float)(r + 1) + (float)(round % 29);
    uint32_t mixed = ((uint32_t)i + (uint32_t)r * 77777u) * 2654435761u;
    return (float)(mixed >> 8) * 1e-3f;
}

static void fill(float *x, int64_t count, int r, int round)
{
    if (round == 0)
        for (int64_t i = 0; i < count; i++) x[i] = input(r, 0, i);
    else
        for (int64_t i = 0, value = 0; i < count; i++) x[i] = input(r, round, value);
}

/* The tree over ranks [first, first + span). */
static float expected(int first, int span, int size, int round, int64_t i)
{
    if (span == 1) return input(first, round, i);
    float left = expected(first, span / 2, size, round, i);
    if (first + span / 2 >= size) return left;
    return left + expected(first + span / 2, span / 2, size, round, i);
}

static int span_of(int size)
{
    int span = 1;
    while (span < size) span *= 2;
    return span;
}

static ls_status check_sum(const float *x, int64_t count, int size, int round)
{
    int span = span_of(size);
    float same = expected(0, span, size, round, 0);
    for (int64_t i = 0; i < count; i++) {
        float want = round == 0 ? expected(0, span, size, 0, i) : same;
        if (memcmp(&want, &x[i], sizeof want) != 0)
            return ls_fail(LS_ERR_INTERNAL,
                           "wrong result: element %" PRId64 " of %" PRId64 " is %a and not %a", i,
                           count, (double)x[i], (double)want);
    }
    return LS_OK;
}

/* ---- all-reduce ---- */

typedef struct buffers {
    float *in, *out;
} buffers;

static void prepare_buffers(subject *s, int round)
{
    fill(((buffers *)s->user)->in, s->count, ls_comm_rank(s->comm), round);
}

static ls_status run_all_reduce(subject *s)
{
    buffers *b = s->user;
    return ls_comm_all_reduce(s->comm, b->in, b->out, s->count, LS_DTYPE_F32, LS_REDUCE_SUM);
}

static ls_status check_buffers(subject *s, int round)
{
    return check_sum(((buffers *)s->user)->out, s->count, ls_comm_size(s->comm), round);
}

ls_status ls_cli_measure_all_reduce(ls_comm *comm, int64_t nbytes, bool shared, ls_cli_timing *out)
{
    buffers b = { NULL, NULL };
    subject s = { .comm = comm,
                  .count = nbytes / 4,
                  .prepare = prepare_buffers,
                  .run = run_all_reduce,
                  .check = check_buffers,
                  .user = &b };
    if (shared) {
        void *memory;
        LS_TRY(ls_comm_alloc(comm, (size_t)nbytes, &memory));
        b.in = b.out = memory;
        ls_status status = measure(&s, out);
        if (status == LS_OK) ls_comm_free(comm, memory);
        return status;
    }
    b.in = ls__map((size_t)nbytes);
    b.out = ls__map((size_t)nbytes);
    ls_status status = b.in && b.out ? measure(&s, out) : LS_ERR_MEMORY;
    ls__unmap(b.in, (size_t)nbytes);
    ls__unmap(b.out, (size_t)nbytes);
    return status;
}

/* ---- barrier ---- */

static void prepare_nothing(subject *s, int round)
{
    (void)s, (void)round;
}
static ls_status run_barrier(subject *s)
{
    return ls_comm_barrier(s->comm);
}
static ls_status check_nothing(subject *s, int round)
{
    (void)s, (void)round;
    return LS_OK;
}

ls_status ls_cli_measure_barrier(ls_comm *comm, ls_cli_timing *out)
{
    subject s = {
        .comm = comm, .prepare = prepare_nothing, .run = run_barrier, .check = check_nothing
    };
    return measure(&s, out);
}

/* ---- the exchange ---- */

typedef struct training {
    ls__exchange *x;
    float *moments[2];                 /* (count) */
    float *params, *wanted_moments[2]; /* (count) what a plain loop computes */
    ls_slice slice;                    /* constants of the update */
    int64_t step;
} training;

static ls_slice slice_of(const training *t, float *param, const float *grad, float *const *state,
                         int64_t count)
{
    ls_slice slice = t->slice;
    slice.param = param;
    slice.grad = grad;
    slice.grad_scale = 1;
    slice.state = state;
    slice.count = count;
    slice.step = t->step;
    return slice;
}

static void update(void *user, int segment, int64_t offset, int64_t count, float *param,
                   const float *grad, float scale)
{
    training *t = user;
    (void)segment, (void)scale; /* 1 */
    float *const state[] = { t->moments[0] + offset, t->moments[1] + offset };
    ls_slice slice = slice_of(t, param, grad, state, count);
    ls_adamw.update(&slice);
}

static void prepare_leaf(subject *s, int round)
{
    training *t = s->user;
    fill(ls__exchange_leaf(t->x), s->count, ls_comm_rank(s->comm), round);
    ls__exchange_leaf_done(t->x, true, 1.0f);
    t->step++;
}

static ls_status run_step(subject *s)
{
    training *t = s->user;
    ls__agreement agreement;
    LS_TRY(ls__exchange_agree(t->x, 0, 0, &agreement));
    ls__exchange_commit(t->x, 1.0f, false);
    return ls__exchange_wait(t->x);
}

/* The plain loop's step and all parameters compared: in the warm-up, where every rank has one leaf
 * of other values, and once more at the end would find nothing new. */
static ls_status check_params(subject *s, int round)
{
    training *t = s->user;
    int size = ls_comm_size(s->comm), span = span_of(size);
    float grad[LS__BLOCK];
    if (round >= WARMUP) return LS_OK;
    const float *got = ls__exchange_params(t->x);
    for (int64_t at = 0; at < s->count; at += LS__BLOCK) {
        int64_t n = s->count - at < LS__BLOCK ? s->count - at : LS__BLOCK;
        for (int64_t i = 0; i < n; i++) grad[i] = expected(0, span, size, round, at + i);
        float *const state[] = { t->wanted_moments[0] + at, t->wanted_moments[1] + at };
        ls_slice slice = slice_of(t, t->params + at, grad, state, n);
        ls_adamw.update(&slice);
        if (memcmp(t->params + at, got + at, (size_t)n * sizeof *got) != 0)
            return ls_fail(LS_ERR_INTERNAL,
                           "wrong result: parameters [%" PRId64 ", %" PRId64 ") after step %" PRId64
                           " are not those of a plain loop",
                           at, at + n, t->step);
    }
    return ls_comm_barrier(s->comm); /* nobody changes them while others look */
}

static ls_status measure_training(ls_comm *comm, training *t, subject *s, ls_cli_timing *out)
{
    ls__segment whole = { .count = s->count, .in_norm = true };
    ls__exchange_options options = { .segments = &whole,
                                     .nsegments = 1,
                                     .count = s->count,
                                     .micro_batches = ls_comm_size(comm),
                                     .update = update,
                                     .user = t };
    LS_TRY(ls__exchange_create(comm, &options, &t->x));
    ls_status status = measure(s, out);
    ls__exchange_destroy(t->x);
    return status;
}

ls_status ls_cli_measure_exchange(ls_comm *comm, int64_t nbytes, ls_cli_timing *out)
{
    training t = { .slice = { .lr = 1e-3, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999 } };
    subject s = { .comm = comm,
                  .count = nbytes / 4,
                  .prepare = prepare_leaf,
                  .run = run_step,
                  .check = check_params,
                  .user = &t };
    size_t n = (size_t)nbytes;
    float **const arrays[] = { &t.moments[0], &t.moments[1], &t.params, &t.wanted_moments[0],
                               &t.wanted_moments[1] };
    ls_status status = LS_OK;
    for (int i = 0; i < 5; i++)
        if (!(*arrays[i] = ls__map(n))) status = LS_ERR_MEMORY;
    if (status == LS_OK) status = measure_training(comm, &t, &s, out);
    for (int i = 0; i < 5; i++) ls__unmap(*arrays[i], n);
    return status;
}

/* ---- its limit ---- */

typedef struct streams {
    ls__allocation grads, params;
    float *moments[2];
} streams;

static float *own_grads(subject *s)
{
    streams *a = s->user;
    return (float *)(void *)ls__allocation_part(&a->grads, ls_comm_rank(s->comm));
}

static void prepare_streams(subject *s, int round)
{
    fill(own_grads(s), s->count, ls_comm_rank(s->comm), round);
}

/* Blocks as in the exchange; for two ranks the sum is written nowhere. */
static void pass_over(streams *a, int size, int64_t begin, int64_t end)
{
    float *p = (float *)(void *)a->params.base, *m = a->moments[0], *v = a->moments[1];
    float block[LS__REDUCE_BLOCK / 4];
    const int64_t most = LS__REDUCE_BLOCK / 4;
    for (int64_t at = begin; at < end; at += most) {
        size_t n = (size_t)(end - at < most ? end - at : most);
        ls__combine_fn *add = ls__kernels_best()->combine[LS_DTYPE_F32][LS_REDUCE_SUM];
        const float *sum = (float *)(void *)ls__allocation_part(&a->grads, 0) + at;
        for (int r = 1; r < size; r++) {
            add(block, sum, (float *)(void *)ls__allocation_part(&a->grads, r) + at, n);
            sum = block;
        }
        add(p + at, p + at, sum, n);
        add(m + at, m + at, sum, n);
        add(v + at, v + at, sum, n);
    }
}

static ls_status run_pass(subject *s)
{
    int size = ls_comm_size(s->comm), rank = ls_comm_rank(s->comm);
    int64_t per = (s->count + size - 1) / size, begin = rank * per;
    int64_t end = begin + per < s->count ? begin + per : s->count;
    LS_TRY(ls_comm_barrier(s->comm));
    pass_over(s->user, size, begin, end);
    return ls_comm_barrier(s->comm);
}

ls_status ls_cli_measure_limit(ls_comm *comm, int64_t nbytes, ls_cli_timing *out)
{
    streams a = { .moments = { NULL, NULL } };
    comm = ls__comm_local(comm); /* memory's limit is each machine's own */
    subject s = { .comm = comm,
                  .count = nbytes / 4,
                  .prepare = prepare_streams,
                  .run = run_pass,
                  .check = check_nothing,
                  .user = &a };
    size_t n = (size_t)nbytes, size = (size_t)ls_comm_size(comm);
    ls__call alloc = { .op = LS__OP_ALLOC, .count = nbytes };
    ls__call release = { .op = LS__OP_FREE, .count = nbytes };
    LS_TRY(ls__comm_reserve(comm, n, n, &alloc, LS_OK, &a.grads));
    LS_TRY(ls__comm_reserve(comm, (n + size - 1) / size, 0, &alloc, LS_OK, &a.params));
    for (int i = 0; i < 2; i++) a.moments[i] = ls__map(n);
    ls_status status = a.moments[0] && a.moments[1] ? measure(&s, out) : LS_ERR_MEMORY;
    for (int i = 0; i < 2; i++) ls__unmap(a.moments[i], n);
    ls__comm_release(comm, &a.params, &release);
    ls__comm_release(comm, &a.grads, &release);
    return status;
}
