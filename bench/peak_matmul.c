/* The machine's own matrix-product rate: the best of several square and GPT-shaped products by oneDNN.
 * Usage: peak_matmul THREADS   prints {"f32": GFLOP/s, "bf16": GFLOP/s}; bf16 is 0 where oneDNN has no
 * implementation of it. Built by bench_gpt.py: cc -O2 -fopenmp peak_matmul.c -ldnnl */
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != dnnl_success) return 0;                                                      \
    } while (0)

static void *filled(size_t count, dnnl_data_type_t type)
{
    float *x = aligned_alloc(64, (count * 4 + 63) / 64 * 64);
    for (size_t i = 0; i < count; i++) x[i] = (float)(i % 17) / 17 - 0.4f;
    /* bf16: any bit pattern of small numbers will do */
    if (type == dnnl_bf16)
        for (size_t i = 0; i < 2 * count; i++)
            ((unsigned short *)x)[i] = (unsigned short)(0x3e00 + i % 97);
    return x;
}

static dnnl_memory_t memory(const dnnl_memory_desc_t *md, dnnl_engine_t engine, void *data)
{
    dnnl_memory_t out = NULL;
    dnnl_memory_create(&out, md, engine, data);
    return out;
}

/* GFLOP/s of c (m,n) = a (m,k) b (k,n), the best of many runs; b in the layout that oneDNN likes. */
static double rate(dnnl_engine_t engine, dnnl_stream_t stream, int64_t m, int64_t n, int64_t k,
                   dnnl_data_type_t type)
{
    dnnl_memory_desc_t a, b, c;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t matmul;
    TRY(dnnl_memory_desc_init_by_tag(&a, 2, (dnnl_dims_t) { m, k }, type, dnnl_ab));
    TRY(dnnl_memory_desc_init_by_tag(&b, 2, (dnnl_dims_t) { k, n }, type, dnnl_format_tag_any));
    TRY(dnnl_memory_desc_init_by_tag(&c, 2, (dnnl_dims_t) { m, n }, dnnl_f32, dnnl_ab));
    TRY(dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c));
    TRY(dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL));
    TRY(dnnl_primitive_create(&matmul, pd));
    const dnnl_memory_desc_t *packed = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    void *data[] = { filled((size_t)(m * k), type),
                     filled(dnnl_memory_desc_get_size(packed) / 2, type),
                     filled((size_t)(m * n), dnnl_f32) };
    dnnl_exec_arg_t args[] = { { DNNL_ARG_SRC, memory(&a, engine, data[0]) },
                               { DNNL_ARG_WEIGHTS, memory(packed, engine, data[1]) },
                               { DNNL_ARG_DST, memory(&c, engine, data[2]) } };
    double best = 1e30;
    for (int i = 0; i < 30; i++) {
        double begin = omp_get_wtime();
        dnnl_primitive_execute(matmul, stream, 3, args);
        dnnl_stream_wait(stream);
        double seconds = omp_get_wtime() - begin;
        if (i > 2 && seconds < best) best = seconds;
    }
    for (int i = 0; i < 3; i++) {
        dnnl_memory_destroy(args[i].memory);
        free(data[i]);
    }
    dnnl_primitive_destroy(matmul);
    dnnl_primitive_desc_destroy(pd);
    return 2e-9 * (double)m * (double)n * (double)k / best;
}

static double best_rate(dnnl_engine_t engine, dnnl_stream_t stream, dnnl_data_type_t type)
{
    static const int64_t shapes[][3] = {
        { 256, 3072, 768 }, { 256, 768, 3072 }, { 512, 512, 512 }, { 1024, 1024, 1024 }
    };
    double best = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double r = rate(engine, stream, shapes[i][0], shapes[i][1], shapes[i][2], type);
        if (r > best) best = r;
    }
    return best;
}

int main(int argc, char **argv)
{
    omp_set_num_threads(argc > 1 ? atoi(argv[1]) : 1);
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return 1;
    if (dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success) return 1;
    double f32 = best_rate(engine, stream, dnnl_f32), bf16 = best_rate(engine, stream, dnnl_bf16);
    printf("{\"f32\": %.1f, \"bf16\": %.1f}\n", f32, bf16);
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
