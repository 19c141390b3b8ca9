/* The promise of the exchange: parameters after several steps have the bits of a plain reference of
 * the tree, for every number of ranks, with absent leaves, factors, clipping, whole tensors. */
#include <inttypes.h>
#include <math.h>

#include "helper_ranks.h"
#include "testing.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/exchange.h"

enum { STEPS = 4, COUNT = 47000, NSEGMENTS = 6 };

/* Three blocks and a bit; tiny ones; a gap; exactly one block; a statistic. */
static const ls__segment segments[NSEGMENTS] = {
    { 0, 12300, 0, true },  { 12300, 5, 0, true },        { 12400, 4096, 0, true },
    { 16500, 1, 1, false }, { 17001, 2 * 4096, 1, true }, { 25200, 21777, 1, true },
};

typedef struct variant {
    int micro_batches;
    bool absent, factors, norms, whole;
} variant;

/* Everything a step's leaf has is a function of (step, leaf). */
static bool present(const variant *v, int step, int leaf)
{
    if (!v->absent) return true;
    if (step == 2) return false; /* nobody has anything */
    return (leaf * 7 + step * 5) % 3 != 0;
}
static float factor(const variant *v, int step, int leaf)
{
    return v->factors ? 0.1f + 0.3f * (float)((leaf + step) % 5) : 1.0f;
}
static float gradient(int step, int leaf, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)(leaf * 97 + step * 31 + 1) * 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    return (float)((int32_t)(x >> 8) - (1 << 23)) * 1e-6f;
}
static double leaf_weight(int step, int leaf)
{
    return 1.0 / (3.0 + step + leaf);
}

static void update(void *user, int segment, int64_t offset, int64_t count, float *param,
                   const float *grad, float scale)
{
    const variant *v = user;
    const ls__segment *s = &segments[segment];
    if (v->whole && (offset != s->offset || count != s->count)) scale = 1e9f;
    if (!v->whole && ((offset - s->offset) % LS__BLOCK != 0 || count < 1)) scale = 1e9f;
    for (int64_t i = 0; i < count; i++) {
        float g = scale * grad[i];
        float decayed = 0.75f * param[i];
        param[i] = decayed - g;
    }
}

static float clip_scale(double norm2)
{
    return norm2 > 0 ? (float)(1.0 / (1.0 + sqrt(norm2))) : 0.5f;
}

/* ---- the reference ---- */

typedef struct result {
    float params[COUNT];
    double norm2[STEPS], weight[STEPS], loss[STEPS];
} result;

/* Element i of the node over [first, first + span); false = absent. */
static bool tree_value(const variant *v, int step, int first, int span, int64_t i, float *out)
{
    float left = 0, right = 0;
    if (first >= v->micro_batches) return false;
    if (span == 1) {
        if (!present(v, step, first)) return false;
        *out = factor(v, step, first) * gradient(step, first, i);
        return true;
    }
    bool l = tree_value(v, step, first, span / 2, i, &left);
    bool r = tree_value(v, step, first + span / 2, span / 2, i, &right);
    *out = l && r ? left + right : l ? left : right;
    return l || r;
}

/* Lane by lane, as reduction.h says. */
static double block_norm2(const float *x, int64_t count)
{
    double lanes[32] = { 0 };
    for (int64_t i = 0; i < count; i++) lanes[i % 32] += (double)x[i] * (double)x[i];
    for (int half = 16; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

static void reference_step(const variant *v, int step, result *out)
{
    static float sum[COUNT];
    int span = 1;
    while (span < v->micro_batches) span *= 2;
    double norm2 = 0;
    for (int s = 0; s < NSEGMENTS; s++) {
        int64_t begin = segments[s].offset, end = begin + segments[s].count;
        for (int64_t i = begin; i < end; i++)
            if (!tree_value(v, step, 0, span, i, &sum[i])) sum[i] = 0;
        for (int64_t at = begin; at < end && segments[s].in_norm; at += LS__BLOCK)
            norm2 += block_norm2(sum + at, end - at < LS__BLOCK ? end - at : LS__BLOCK);
    }
    out->norm2[step] = v->norms ? norm2 : 0;
    float scale = v->norms ? clip_scale(norm2) : 0.01f;
    for (int s = 0; s < NSEGMENTS && step != 1; s++) /* step 1 is skipped */
        for (int64_t i = segments[s].offset; i < segments[s].offset + segments[s].count; i++) {
            float g = scale * sum[i];
            float decayed = 0.75f * out->params[i];
            out->params[i] = decayed - g;
        }
    for (int leaf = 0; leaf < v->micro_batches; leaf++) {
        out->weight[step] += leaf_weight(step, leaf);
        out->loss[step] += 1.0 / (1 + leaf);
    }
}

/* ---- the exchange ---- */

typedef struct job {
    variant v;
    result want;
    ls__parallel_fn *parallel;
} job;

static void compute_leaf(ls__exchange *x, const variant *v, int step, int leaf)
{
    if (present(v, step, leaf)) {
        float *grads = ls__exchange_leaf(x);
        for (int s = 0; s < NSEGMENTS; s++)
            for (int64_t i = segments[s].offset; i < segments[s].offset + segments[s].count; i++)
                grads[i] = gradient(step, leaf, i);
    }
    ls__exchange_weight(x, leaf_weight(step, leaf));
    ls__exchange_record(x, "loss", 1.0 / (1 + leaf), 2);
    if (leaf == 0) ls__exchange_record(x, "first", 7, 1);
    ls__exchange_leaf_done(x, present(v, step, leaf), factor(v, step, leaf));
}

static void check_agreement(test_rank *t, const job *j, int step, const ls__agreement *a)
{
    double by_rank = 0;
    for (int r = 0; r < t->size; r++) by_rank += 0.1 * r;
    RANK_CHECK(t, a->word == (1u << t->size) - 1);
    RANK_CHECK(t, a->word_max == (uint64_t)(t->size - 1) * 10);
    RANK_CHECK(t, a->weight == j->want.weight[step]);
    RANK_CHECK(t, a->norm2 == j->want.norm2[step]);
    RANK_CHECK(t, a->nrecords == 3);
    RANK_CHECK(t, strcmp(a->records[0].name, "loss") == 0);
    RANK_CHECK(t, a->records[0].sum == j->want.loss[step]);
    RANK_CHECK(t, a->records[0].weight == 2 * j->v.micro_batches);
    RANK_CHECK(t, strcmp(a->records[1].name, "first") == 0 && a->records[1].sum == 7);
    RANK_CHECK(t, strcmp(a->records[2].name, "rank") == 0 && a->records[2].sum == by_rank);
}

static void take_step(test_rank *t, const job *j, ls__exchange *x, int step)
{
    int begin, end;
    ls__agreement agreement;
    ls__exchange_leaves(x, &begin, &end);
    RANK_OK(t, ls__exchange_wait(x));
    for (int leaf = begin; leaf < end; leaf++) compute_leaf(x, &j->v, step, leaf);
    ls__exchange_record(x, "rank", 0.1 * t->rank, 1);
    RANK_OK(t, ls__exchange_agree(x, 1u << t->rank, (uint64_t)t->rank * 10, &agreement));
    check_agreement(t, j, step, &agreement);
    float scale = j->v.norms ? clip_scale(agreement.norm2) : 0.01f;
    ls__exchange_commit(x, scale, step == 1);
}

static void check_owned(test_rank *t, const ls__exchange *x)
{
    const ls__range *ranges;
    int n = ls__exchange_owned(x, &ranges);
    int64_t end = 0, mine = 0, all = 0;
    for (int i = 0; i < n; i++) {
        const ls__segment *s = &segments[ranges[i].segment];
        RANK_CHECK(t, ranges[i].offset >= end && ranges[i].offset >= s->offset);
        end = ranges[i].offset + ranges[i].count;
        RANK_CHECK(t, end <= s->offset + s->count);
        mine += ranges[i].count;
    }
    RANK_OK(t, ls_comm_all_reduce(t->comm, &mine, &all, 1, LS_DTYPE_I64, LS_REDUCE_SUM));
    int64_t want = 0;
    for (int s = 0; s < NSEGMENTS; s++) want += segments[s].count;
    RANK_CHECK(t, all == want);
}

static void check_halves(test_rank *t, const job *j, ls__exchange *x)
{
    const uint16_t *halves = ls__exchange_halves(x);
    const float *params = ls__exchange_params(x);
    RANK_CHECK(t, (halves != NULL) == j->v.factors);
    for (int s = 0; halves && s < NSEGMENTS; s++) {
        for (int64_t i = segments[s].offset; i < segments[s].offset + segments[s].count; i++) {
            uint32_t bits = (uint32_t)halves[i] << 16;
            float half;
            memcpy(&half, &bits, sizeof half);
            RANK_CHECK(t, fabsf(half - params[i]) <= fabsf(params[i]) / 256);
        }
    }
}

static void train(test_rank *t)
{
    job *j = t->user;
    ls__exchange_options options = { .segments = segments,
                                     .nsegments = NSEGMENTS,
                                     .count = COUNT,
                                     .micro_batches = j->v.micro_batches,
                                     .norms = j->v.norms,
                                     .halves = j->v.factors,
                                     .whole_segments = j->v.whole,
                                     .update = update,
                                     .user = &j->v,
                                     .parallel = j->parallel };
    ls__exchange *x;
    RANK_OK(t, ls__exchange_create(t->comm, &options, &x));
    check_owned(t, x);
    ls__exchange_round(x);
    RANK_OK(t, ls_comm_barrier(t->comm));
    check_halves(t, j, x);
    for (int step = 0; step < STEPS; step++) take_step(t, j, x, step);
    RANK_OK(t, ls__exchange_wait(x));
    RANK_CHECK(t, memcmp(ls__exchange_params(x), j->want.params, sizeof j->want.params) == 0);
    check_halves(t, j, x);
    ls__exchange_destroy(x);
    RANK_OK(t, ls_comm_barrier(t->comm));
}

/* Backwards, so that nothing may rely on the order of chunks. */
static void parallel_backwards(int64_t nchunks, ls__chunk_fn *fn, void *context)
{
    for (int64_t i = nchunks - 1; i >= 0; i--) fn(context, i);
}

static const int leaves[] = { 1, 2, 3, 4, 5, 6, 7, 8, 16 };
static const int sizes[] = { 1, 2, 3, 4, 6 };
#define LENGTH(a) ((int)(sizeof(a) / sizeof(a)[0]))

static void run_variant(const variant *v)
{
    static job j;
    memset(&j, 0, sizeof j);
    j.v = *v;
    for (int step = 0; step < STEPS; step++) reference_step(&j.v, step, &j.want);
    for (int n = 0; n < LENGTH(sizes); n++) {
        j.parallel = n % 2 ? parallel_backwards : NULL;
        run_ranks(sizes[n], &(ranks_options) { .arena = 512 }, train, &j);
    }
    if (v->micro_batches % 3 == 1) run_ranks_on_nodes(&(ranks_options) { .arena = 512 }, train, &j);
}

static void run_leaves(bool absent, bool factors, bool norms, bool whole)
{
    for (int l = 0; l < LENGTH(leaves); l++)
        run_variant(&(variant) { leaves[l], absent, factors, norms, whole });
}

/* Ranges long enough to be merged many times. */
static void test_many_leaves(void **state)
{
    (void)state;
    run_variant(&(variant) { 61, true, true, false, false });
}
static void test_plain(void **state)
{
    (void)state;
    run_leaves(false, false, false, false);
}
static void test_absent_leaves(void **state)
{
    (void)state;
    run_leaves(true, false, false, false);
}
static void test_factors(void **state)
{
    (void)state;
    run_leaves(true, true, false, false);
}
static void test_norms(void **state)
{
    (void)state;
    run_leaves(false, false, true, false);
    run_leaves(true, true, true, false);
}
static void test_whole_segments(void **state)
{
    (void)state;
    run_leaves(true, true, false, true);
    run_leaves(false, false, true, true);
}

/* ---- what else it says about itself ---- */

static void no_update(void *user, int segment, int64_t offset, int64_t count, float *param,
                      const float *grad, float scale)
{
    (void)user, (void)segment, (void)offset, (void)count, (void)param, (void)grad, (void)scale;
}

static void gradient_bytes(test_rank *t)
{
    const ls__segment one = { 0, 4096, 0, true };
    ls__exchange_options options = { .segments = &one,
                                     .nsegments = 1,
                                     .count = 4096,
                                     .micro_batches = 8 * t->size,
                                     .update = no_update };
    ls__exchange *x;
    RANK_OK(t, ls__exchange_create(t->comm, &options, &x));
    RANK_CHECK(t, ls__exchange_gradient_bytes(x) == t->size * 4 * 4 * 4096); /* log2(8) + 1 */
    ls__exchange_destroy(x);
}

static void test_gradient_bytes(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n *= 2) run_ranks(n, NULL, gradient_bytes, NULL);
}

static void other_model(test_rank *t)
{
    const ls__segment one = { 0, 4096 + (t->rank == 1), 0, true };
    ls__exchange_options options = {
        .segments = &one, .nsegments = 1, .count = 5000, .micro_batches = 2, .update = no_update
    };
    ls__exchange *x;
    RANK_FAILS(t, ls__exchange_create(t->comm, &options, &x), LS_ERR_MISMATCH, "another model");
    RANK_CHECK(t, x == NULL);
}

static void test_other_model(void **state)
{
    (void)state;
    run_ranks(3, NULL, other_model, NULL);
    run_ranks_on_nodes(NULL, other_model, NULL);
}

static void wrong_options(test_rank *t)
{
    ls__segment two[2] = { { 0, 100, 0, true }, { 50, 100, 0, true } };
    ls__exchange_options o = {
        .segments = two, .nsegments = 2, .count = 200, .micro_batches = 2, .update = no_update
    };
    ls__exchange *x;
    RANK_FAILS(t, ls__exchange_create(t->comm, &o, &x), LS_ERR_ARG, "segment 1 at 50");
    two[1].offset = 150;
    RANK_FAILS(t, ls__exchange_create(t->comm, &o, &x), LS_ERR_ARG, "leaves the space of 200");
    two[1].count = 50;
    two[0].bucket = 1;
    RANK_FAILS(t, ls__exchange_create(t->comm, &o, &x), LS_ERR_ARG, "behind bucket 1");
    two[0].bucket = 0;
    o.micro_batches = 0;
    RANK_FAILS(t, ls__exchange_create(t->comm, &o, &x), LS_ERR_ARG, "0 micro-batches");
}

static void test_wrong_options(void **state)
{
    (void)state;
    run_ranks(2, NULL, wrong_options, NULL);
}

/* 32 names fit, no more; too long a name does not. */
static void many_records(test_rank *t)
{
    const ls__segment one = { 0, 10, 0, true };
    ls__exchange_options o = {
        .segments = &one, .nsegments = 1, .count = 10, .micro_batches = 2, .update = no_update
    };
    char name[100];
    ls__agreement a;
    ls__exchange *x;
    RANK_OK(t, ls__exchange_create(t->comm, &o, &x));
    int begin, end;
    ls__exchange_leaves(x, &begin, &end);
    for (int leaf = begin; leaf < end; leaf++) {
        for (int i = 0; i < LS__RECORDS_MAX; i++) {
            snprintf(name, sizeof name, "name%d", i);
            RANK_CHECK(t, ls__exchange_record(x, name, 1, 1));
            RANK_CHECK(t, ls__exchange_record(x, name, 2, 0));
        }
        RANK_CHECK(t, !ls__exchange_record(x, "one more", 1, 1));
        memset(name, 'x', LS__RECORD_NAME_MAX);
        name[LS__RECORD_NAME_MAX] = '\0';
        RANK_CHECK(t, !ls__exchange_record(x, name, 1, 1));
        ls__exchange_leaf_done(x, false, 1);
    }
    RANK_OK(t, ls__exchange_agree(x, 0, 0, &a));
    RANK_CHECK(t, a.nrecords == LS__RECORDS_MAX);
    for (int i = 0; i < LS__RECORDS_MAX; i++)
        RANK_CHECK(t, a.records[i].sum == 6 && a.records[i].weight == 2);
    ls__exchange_commit(x, 1, true);
    RANK_OK(t, ls__exchange_wait(x));
    ls__exchange_destroy(x);
}

static void test_many_records(void **state)
{
    (void)state;
    run_ranks(2, NULL, many_records, NULL);
}

/* Of which only the meetings matter. */
static const ls__segment ten = { 0, 10, 0, true };
static const ls__exchange_options tiny = {
    .segments = &ten, .nsegments = 1, .count = 10, .micro_batches = 1, .update = no_update
};

/* Rank 1 comes late: the others wait for it, and all know. On a busy machine perhaps not at once. */
static void who_waits(test_rank *t)
{
    ls__agreement a;
    ls__exchange *x;
    bool seen = false;
    RANK_OK(t, ls__exchange_create(t->comm, &tiny, &x));
    for (int step = 0; step < 50 && !seen; step++) {
        RANK_OK(t, ls__exchange_wait(x));
        int begin, end;
        ls__exchange_leaves(x, &begin, &end);
        if (begin < end) ls__exchange_leaf_done(x, false, 1);
        if (t->rank == 1) ls__sleep_ms(20);
        RANK_OK(t, ls__exchange_agree(x, 0, 0, &a));
        for (int r = 0; r < t->size; r++) RANK_CHECK(t, step > 0 || a.waits_ms[r] == 0);
        seen = step > 0 && a.waits_ms[1] < 5;
        for (int r = 0; r < t->size; r++) seen = seen && (r == 1 || a.waits_ms[r] > 10);
        ls__exchange_commit(x, 1, true);
    }
    RANK_CHECK(t, seen);
    RANK_OK(t, ls__exchange_wait(x));
    ls__exchange_destroy(x);
}

static void test_who_waits(void **state)
{
    (void)state;
    run_ranks(3, NULL, who_waits, NULL);
    run_ranks(4, &(ranks_options) { .nodes = (const int[]) { 2, 2, 0 } }, who_waits, NULL);
}

/* Rank 1 agrees and never commits. */
static void no_commit(test_rank *t)
{
    ls__agreement a;
    ls__exchange *x;
    RANK_OK(t, ls__exchange_create(t->comm, &tiny, &x));
    if (t->rank == 1) ls__exchange_leaf_done(x, false, 1); /* the one leaf is its */
    RANK_OK(t, ls__exchange_agree(x, 0, 0, &a));
    if (t->rank == 1) {
        RANK_FAILS(t, ls_comm_recv(t->comm, &a, 1, LS_DTYPE_U8, 0), LS_ERR_TIMEOUT, "rank 1");
        ls__exchange_destroy(x);
        return;
    }
    ls__exchange_commit(x, 1, false);
    RANK_FAILS(t, ls__exchange_wait(x), LS_ERR_TIMEOUT,
               "rank 0 is in wait (for the step's commit)");
    RANK_CHECK(t, strstr(ls_error_text(), "rank 1 is in recv of 1 u8 from rank 0"));
    ls__exchange_destroy(x);
}

static void test_no_commit(void **state)
{
    (void)state;
    run_ranks(2, &(ranks_options) { .timeout_ms = 300 }, no_commit, NULL);
}

/* The n-th allocation fails, on whichever rank makes it: all ranks are told, none waits. */
static void no_memory(test_rank *t)
{
    const ls__segment one = { 0, 10, 0, true };
    ls__exchange_options o = { .segments = &one,
                               .nsegments = 1,
                               .count = 10,
                               .micro_batches = 4,
                               .norms = true,
                               .update = no_update };
    bool done = false;
    for (long n = 1; !done; n++) {
        ls__exchange *x;
        RANK_OK(t, ls_comm_barrier(t->comm));
        if (t->rank == 0) ls__alloc_fail_at(n);
        RANK_OK(t, ls_comm_barrier(t->comm));
        ls_status status = ls__exchange_create(t->comm, &o, &x);
        RANK_OK(t, ls_comm_barrier(t->comm));
        ls__alloc_fail_at(0);
        RANK_CHECK(t, status == LS_OK || status == LS_ERR_MEMORY);
        int32_t worst = (int32_t)status, best = worst;
        RANK_OK(t, ls_comm_all_reduce(t->comm, &worst, &worst, 1, LS_DTYPE_I32, LS_REDUCE_MAX));
        RANK_OK(t, ls_comm_all_reduce(t->comm, &best, &best, 1, LS_DTYPE_I32, LS_REDUCE_MIN));
        RANK_CHECK(t, worst == best);
        if (status == LS_OK) ls__exchange_destroy(x);
        done = status == LS_OK;
        RANK_CHECK(t, n < 100 && (n > 5 || !done));
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    run_ranks(1, NULL, no_memory, NULL);
    run_ranks(2, NULL, no_memory, NULL);
    run_ranks(2, &(ranks_options) { .nodes = (int[]) { 1, 1, 0 } }, no_memory, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),          cmocka_unit_test(test_absent_leaves),
        cmocka_unit_test(test_factors),        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_whole_segments), cmocka_unit_test(test_gradient_bytes),
        cmocka_unit_test(test_other_model),    cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_many_records),   cmocka_unit_test(test_no_commit),
        cmocka_unit_test(test_many_leaves),    cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
