/* Attention by cuDNN, where the machine has it: opened when the first attention in bf16 is
 * compiled, as for convolutions. A shape's plan is made once, since that takes cuDNN up to seconds;
 * a run hands it pointers, by the numbers of its tensors. */
#include <math.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/vendor_attention.h"
#include "backend/cuda/vendor_cuda_cudnn.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

enum { ALIGNMENT = 256, WORKSPACE_MOST = 256 << 20, BINDINGS = 16 };

struct attention_plan {
    attention_shape shape;
    cudnn_graph graph;
    size_t along_bytes, own_bytes; /* of the workspace, before the plan's part */
};

static struct { /* the process's, as its device; under the device's lock */
    bool tried;
    void *handle; /* NULL = no cuDNN */
} lib;

bool ls__vendor_attention_is_here(void)
{
    const char *why;
    if (lib.tried) return lib.handle;
    lib.tried = true;
    if (ls__cudnn_open(&why) && ls__cudnn_create(&lib.handle) != 0) {
        lib.handle = NULL;
        why = "cuDNN does not start";
    }
    if (!lib.handle)
        ls__log(LS__LOG_INFO, "%s: attention runs by Lockstep's own kernels, which are slower",
                why);
    return lib.handle;
}

/* --- plans --- */

static size_t align(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

ls_status ls__vendor_attention_plan(attention_pass pass, const attention_shape *s,
                                    attention_plan **out, size_t *nbytes)
{
    attention_plan *p = *out = ls__alloc(1, sizeof *p);
    if (!p) return LS_ERR_MEMORY;
    cudnn_graph *g = &p->graph;
    p->shape = *s;
    (pass == ATTENTION_FORWARD ? ls__flash_forward : ls__flash_backward)(g, s);
    ls__cudnn_finish(g, lib.handle);
    ls__cudnn_plan(g, lib.handle, NULL, WORKSPACE_MOST);
    if (g->status) {
        ls_status status =
            ls_fail(LS_ERR_UNSUPPORTED, "cuDNN refuses it (status %d at %s)", g->status, g->failed);
        ls__cudnn_free(g);
        ls__free(p);
        *out = NULL;
        return status;
    }
    size_t rows = (size_t)s->batch * (size_t)s->heads * (size_t)s->tokens;
    p->along_bytes = align(rows * sizeof(float));
    p->own_bytes = p->along_bytes;
    if (pass == ATTENTION_BACKWARD) p->own_bytes += align(rows * (size_t)s->width * sizeof(float));
    *nbytes = p->own_bytes + (size_t)g->workspace;
    return LS_OK;
}

/* --- runs --- */

typedef struct bindings { /* what the plan's tensors are */
    int n;
    int64_t ids[BINDINGS];
    void *data[BINDINGS]; /* on the device; of one number: on the host */
} bindings;

static void bind(bindings *b, int id, const void *data)
{
    LS_ASSERT(b->n < BINDINGS);
    b->ids[b->n] = id;
    b->data[b->n++] = (void *)(uintptr_t)data;
}

/* Queries, keys and values of the first token. */
static void bind_heads(bindings *b, const attention_shape *s, int id, const void *qkv)
{
    const uint16_t *queries = qkv;
    const uint16_t *keys = queries + (int64_t)s->heads * s->width;
    bind(b, id, queries);
    bind(b, id + 1, keys);
    bind(b, id + 2, keys + (int64_t)s->kv_heads * s->width);
}

static ls_status run(const attention_plan *p, bindings *b, void *workspace, cudaStream_t stream)
{
    static const float hidden = -INFINITY;
    bind(b, FLASH_SCALE, &p->shape.scale);
    if (p->shape.causal) bind(b, FLASH_HIDDEN, &hidden);
    char *rest = (char *)workspace + p->own_bytes;
    int status = ls__cudnn_run(&p->graph, lib.handle, stream, b->n, b->ids, b->data, rest);
    if (status == 0) return LS_OK;
    return ls_fail(LS_ERR_INTERNAL, "cuDNN fails (status %d)", status);
}

ls_status ls__vendor_attention(const attention_plan *p, const void *qkv, void *y, float *logsum,
                               void *workspace, cudaStream_t stream)
{
    bindings b = { 0 };
    bind_heads(&b, &p->shape, FLASH_Q, qkv);
    bind(&b, FLASH_Y, y);
    bind(&b, FLASH_STATS, logsum ? logsum : workspace);
    return run(p, &b, workspace, stream);
}

ls_status ls__vendor_attention_grad(const attention_plan *p, const attention_backward *a,
                                    void *workspace, cudaStream_t stream)
{
    static const float one = 1;
    bindings b = { 0 };
    /* dq is added to what lies there. */
    LS_CUDA_TRY(cudaMemsetAsync(workspace, 0, p->own_bytes, stream), "clearing sums of dq");
    bind_heads(&b, &p->shape, FLASH_Q, a->qkv.data);
    bind_heads(&b, &p->shape, FLASH_DQ, a->dqkv.data);
    bind(&b, FLASH_Y, a->y.data);
    bind(&b, FLASH_STATS, a->logsum);
    bind(&b, FLASH_G, a->g.data);
    bind(&b, FLASH_ALONG, workspace);
    bind(&b, FLASH_DQ_SUM, (char *)workspace + p->along_bytes);
    bind(&b, FLASH_ONE, &one);
    return run(p, &b, workspace, stream);
}
