/* The process's threads and oneDNN engine, and the table by which the library finds this plugin.
 *
 * OpenMP keeps the threads. With one thread no parallel region is ever entered, so that a rank with
 * one thread (the default) has one. Everything handed to oneDNN runs inside a region or in a
 * process of one thread: it then uses the calling thread alone. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/compile.h"

static cpu_pool pool; /* the process has one set of threads, as OpenMP does */
static char description[64];

const cpu_pool *ls__cpu_pool(void)
{
    return &pool;
}

/* LOCKSTEP_CPU_LAYOUT=plain: for tests, and to find out whether a layout is at fault. */
static int block_of(dnnl_cpu_isa_t isa)
{
    const char *layout = getenv("LOCKSTEP_CPU_LAYOUT");
    if (layout && strcmp(layout, "plain") == 0) return 1;
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return 16;
    return (isa & dnnl_cpu_isa_sse41) == dnnl_cpu_isa_sse41 ? 8 : 1;
}

static const char *isa_text(dnnl_cpu_isa_t isa)
{
    if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx)
        return "avx512_core_amx";
    if ((isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16)
        return "avx512_core_bf16";
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) return "avx512_core";
    if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2) return "avx2";
    return (isa & dnnl_cpu_isa_sse41) == dnnl_cpu_isa_sse41 ? "sse41" : "generic";
}

static void free_engine(void)
{
    for (int t = 0; t < pool.threads; t++) dnnl_stream_destroy(pool.streams[t]);
    if (pool.engine) dnnl_engine_destroy(pool.engine);
    ls__free(pool.streams);
    pool = (cpu_pool) { .threads = 0 };
}

static ls_status make_engine(int threads)
{
    pool.streams = ls__alloc((size_t)threads, sizeof *pool.streams);
    if (!pool.streams) return LS_ERR_MEMORY;
    if (dnnl_engine_create(&pool.engine, dnnl_cpu, 0) != dnnl_success)
        return ls_fail(LS_ERR_UNSUPPORTED, "oneDNN has no CPU engine here");
    for (int t = 0; t < threads; t++)
        if (dnnl_stream_create(&pool.streams[t], pool.engine, dnnl_stream_default_flags) !=
            dnnl_success)
            return ls_fail(LS_ERR_MEMORY, "oneDNN could not make a stream");
    return LS_OK;
}

#if defined(__SANITIZE_ADDRESS__)
/* LeakSanitizer crashes on threads that OpenMP keeps after main. */
static void end_threads(void)
{
    omp_pause_resource_all(omp_pause_hard);
}
#endif

ls_status ls__cpu_pool_open(int threads, int device)
{
    (void)device; /* a machine's CPUs are one */
#if defined(__SANITIZE_ADDRESS__)
    atexit(end_threads);
#endif
    if (threads < 1) return ls_fail(LS_ERR_ARG, "%d threads", threads);
    free_engine(); /* of another number of threads: nothing is compiled for it any more */
    omp_set_num_threads(threads);
    LS_TRY(make_engine(threads));
    pool.threads = threads;
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    pool.block = block_of(isa);
    pool.bf16 = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    const dnnl_version_t *v = dnnl_version();
    snprintf(description, sizeof description, "oneDNN %d.%d.%d, %s", v->major, v->minor, v->patch,
             isa_text(isa));
    return LS_OK;
}

void ls__cpu_parallel_threads(void (*fn)(void *context, int thread), void *context)
{
    if (pool.threads == 1) {
        fn(context, 0);
        return;
    }
#pragma omp parallel num_threads(pool.threads)
    fn(context, omp_get_thread_num());
}

typedef struct chunks {
    int64_t n;
    ls__chunk_fn *fn;
    void *context;
} chunks;

static void run_chunks(void *context, int thread)
{
    const chunks *c = context;
    int64_t begin = c->n * thread / pool.threads, end = c->n * (thread + 1) / pool.threads;
    for (int64_t i = begin; i < end; i++) c->fn(c->context, i);
}

void ls__cpu_parallel(int64_t nchunks, ls__chunk_fn *fn, void *context)
{
    chunks c = { nchunks, fn, context };
    if (nchunks == 1)
        fn(context, 0);
    else
        ls__cpu_parallel_threads(run_chunks, &c);
}

static bool multiplies_bf16(void)
{
    return pool.bf16;
}

const ls__backend ls__backend_table = {
    .name = "cpu",
    .open = ls__cpu_pool_open,
    .compile = ls__cpu_compile,
    .destroy = ls__cpu_destroy,
    .arena_bytes = ls__cpu_arena_bytes,
    .run = ls__cpu_run,
    .read = ls__cpu_read_result,
    .profile_begin = ls__cpu_profile_begin,
    .profile_read = ls__cpu_profile_read,
    .multiplies_bf16 = multiplies_bf16,
    .parallel = ls__cpu_parallel,
    .description = description,
};
