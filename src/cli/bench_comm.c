/* lockstep bench comm: latency and bandwidth of the exchange between ranks, by size. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/bench_measure.h"
#include "cli/cli.h"
#include "world/world_internal.h"

typedef struct bench {
    int64_t min_bytes, max_bytes, factor;
    bool all_reduce_only;
} bench;

typedef struct row {
    int64_t nbytes;
    ls_cli_timing private_, shared, exchange, limit; /* rounds 0 = not measured */
} row;

enum { ROWS_MAX = 64 };

static ls_status check_flags(const bench *b)
{
    if (b->min_bytes < 4 || b->min_bytes % 4 != 0)
        return ls_fail(LS_ERR_CONFIG, "--min-bytes %" PRId64 ": a multiple of 4 is needed",
                       b->min_bytes);
    if (b->max_bytes < b->min_bytes || b->max_bytes > INT64_C(1) << 36)
        return ls_fail(LS_ERR_CONFIG, "--max-bytes %" PRId64 " is not in [%" PRId64 ", 64 GiB]",
                       b->max_bytes, b->min_bytes);
    if (b->factor < 2)
        return ls_fail(LS_ERR_CONFIG, "--factor %" PRId64 ": at least 2 is needed", b->factor);
    return LS_OK;
}

/* As nccl-tests define it: bytes over time, times 2(N-1)/N. */
static double bus_bandwidth(const ls_cli_timing *t, int64_t nbytes, int size)
{
    return 2.0 * (size - 1) / size * (double)nbytes / t->median * 1e-9;
}

/* ---- text ---- */

static void print_head(const bench *b, int size, const ls_cli_timing *barrier)
{
    printf("%d ranks, f32 sums, median of rounds; barrier %.2f us\n\n", size,
           1e6 * barrier->median);
    printf("%10s  %-26s  %-26s", "", "all-reduce, private", "all-reduce, communicator's");
    puts(!b->all_reduce_only ? "  exchange with AdamW, its limit" : "");
    printf("%10s  %10s %6s %8s  %10s %6s %8s", "bytes", "us", "alg", "bus GB/s", "us", "alg",
           "bus GB/s");
    if (!b->all_reduce_only) printf("  %10s %10s %6s", "us", "us", "ratio");
    puts("");
}

static void print_timing(const ls_cli_timing *t, int64_t nbytes, int size)
{
    printf("  %10.2f %6.2f %8.2f", 1e6 * t->median, (double)nbytes / t->median * 1e-9,
           bus_bandwidth(t, nbytes, size));
}

static void print_row(const row *r, int size)
{
    printf("%10" PRId64, r->nbytes);
    print_timing(&r->private_, r->nbytes, size);
    print_timing(&r->shared, r->nbytes, size);
    if (r->exchange.rounds)
        printf("  %10.2f %10.2f %6.2f", 1e6 * r->exchange.median, 1e6 * r->limit.median,
               r->exchange.median / r->limit.median);
    puts("");
    fflush(stdout);
}

/* ---- JSON ---- */

static json_t *timing_json(const char *operation, const char *memory, const ls_cli_timing *t,
                           int64_t nbytes)
{
    return json_pack("{s:s,s:s,s:I,s:i,s:o,s:o,s:o}", "operation", operation, "memory", memory,
                     "bytes", (json_int_t)nbytes, "rounds", t->rounds, "median_us",
                     ls__json_double(1e6 * t->median), "best_us", ls__json_double(1e6 * t->best),
                     "p95_us", ls__json_double(1e6 * t->p95));
}

static void add_all_reduce(json_t *rows, const char *memory, const ls_cli_timing *t, int64_t nbytes,
                           int size)
{
    json_t *json = timing_json("all_reduce", memory, t, nbytes);
    json_object_set_new(json, "algorithm_gb_per_s",
                        ls__json_double((double)nbytes / t->median * 1e-9));
    json_object_set_new(json, "bus_gb_per_s", ls__json_double(bus_bandwidth(t, nbytes, size)));
    json_array_append_new(rows, json);
}

static json_t *document(const row *rows, int nrows, int size, const ls_cli_timing *barrier)
{
    json_t *list = json_array();
    json_array_append_new(list, timing_json("barrier", "none", barrier, 0));
    for (int i = 0; i < nrows; i++) {
        const row *r = &rows[i];
        add_all_reduce(list, "private", &r->private_, r->nbytes, size);
        add_all_reduce(list, "communicator", &r->shared, r->nbytes, size);
        if (!r->exchange.rounds) continue;
        json_t *json = timing_json("exchange_adamw", "communicator", &r->exchange, r->nbytes);
        json_object_set_new(json, "limit_us", ls__json_double(1e6 * r->limit.median));
        json_array_append_new(list, json);
    }
    return json_pack("{s:s,s:s,s:i,s:s,s:b,s:o}", "schema", "lockstep.bench/1", "bench", "comm",
                     "world_size", size, "type", "f32", "verified", 1, "results", list);
}

/* ---- the command ---- */

static ls_status measure_row(ls_comm *comm, const bench *b, row *r)
{
    LS_TRY(ls_cli_measure_all_reduce(comm, r->nbytes, false, &r->private_));
    LS_TRY(ls_cli_measure_all_reduce(comm, r->nbytes, true, &r->shared));
    if (b->all_reduce_only) return LS_OK;
    LS_TRY(ls_cli_measure_limit(comm, r->nbytes, &r->limit));
    return ls_cli_measure_exchange(comm, r->nbytes, &r->exchange);
}

static ls_status measure_all(ls_world *world, const bench *b, bool json)
{
    ls_comm *comm = ls_world_comm(world);
    int size = ls_comm_size(comm), nrows = 0;
    bool speaks = ls_comm_rank(comm) == 0;
    static row rows[ROWS_MAX];
    ls_cli_timing barrier;
    LS_TRY(ls_cli_measure_barrier(comm, &barrier));
    if (speaks && !json) print_head(b, size, &barrier);
    for (int64_t n = b->min_bytes; n <= b->max_bytes && nrows < ROWS_MAX;
         n = n * b->factor / 4 * 4) {
        row *r = &rows[nrows++];
        *r = (row) { .nbytes = n };
        LS_TRY(measure_row(comm, b, r));
        if (speaks && !json) print_row(r, size);
    }
    if (speaks && json) LS_TRY(ls_cli_print_json(document(rows, nrows, size, &barrier)));
    return ls_cli_flush();
}

int ls_cli_bench_comm(int argc, char **argv)
{
    bench b = { .min_bytes = 8, .max_bytes = 64 << 20, .factor = 2 };
    const ls_flag flags[] = {
        { "min-bytes", 'i', &b.min_bytes, "smallest message" },
        { "max-bytes", 'i', &b.max_bytes, "largest message" },
        { "factor", 'i', &b.factor, "from one size to the next" },
        { "all-reduce-only", 'b', &b.all_reduce_only, "not the training exchange" },
        { 0 },
    };
    const ls_world_options options = {
        .summary =
            "Latency and bandwidth of all-reduce and of the training exchange between ranks.",
        .flags = flags,
        .no_run = true,
    };
    ls_world *world;
    ls_check(ls_world_init(&argc, &argv, &options, &world));
    ls_check(check_flags(&b));
    ls_check(measure_all(world, &b, ls__options_wants(ls__world_options(world), "json")));
    return ls_world_finish(world);
}
