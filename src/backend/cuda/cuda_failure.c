/* A label or token that cannot be: which, of which sample.
 *
 * Kernels keep the first sample at fault and read something harmless instead. On the way out the
 * steps are run again one by one, and what the next one reads of that sample is looked at on the
 * host: labels may be computed (a slice of the tokens), and their memory be used again by then. */
#include <string.h>

#include "backend/cuda/cuda_executable.h"

typedef struct suspect {
    int input;      /* of the step's node */
    int64_t limit;  /* values are in [0, limit) */
    int64_t behind; /* a position: so many more follow it */
    bool token;
    const char *what;
} suspect;

static bool find_suspect(const ls__node *node, suspect *out)
{
    const ls_tensor *x = node->in[0];
    if (node->op == &ls__op_embedding) {
        *out = (suspect) { .limit = node->in[1]->shape[0], .token = true, .what = "token" };
        return true;
    }
    if (node->op == &ls__op_position_embedding && node->nin == 3) {
        *out = (suspect) { .input = 2,
                           .limit = node->in[1]->shape[0],
                           .behind = x->shape[1] - 1,
                           .token = true,
                           .what = "position" };
        return true;
    }
    if (node->op == &ls__op_cross_entropy || node->op == &ls__op_accuracy) {
        *out = (suspect) { .input = 1, .limit = x->shape[x->rank - 1], .what = "label" };
        return true;
    }
    return false;
}

static int64_t integer_at(const void *values, ls_dtype type, int64_t i)
{
    if (type == LS_DTYPE_U8) return ((const uint8_t *)values)[i];
    if (type == LS_DTYPE_I32) return ((const int32_t *)values)[i];
    return ((const int64_t *)values)[i];
}

/* Looks at the values of a sample; *found with the first that is impossible. */
static bool look(const suspect *s, const ls_tensor *x, const void *values, int64_t batch,
                 int64_t sample, int64_t *found)
{
    int64_t each = ls__cuda_count(x) / batch;
    if (each < 1) each = 1;
    for (int64_t i = sample * each; i < (sample + 1) * each && i < ls__cuda_count(x); i++) {
        int64_t value = integer_at(values, x->type, i);
        bool ignored = !s->token && value == LS__LABEL_IGNORED;
        if (value >= 0) value += s->behind;
        if (ignored || (value >= 0 && value < s->limit)) continue;
        *found = value;
        return true;
    }
    return false;
}

static ls_status examine(ls__executable *e, const cuda_step *step, const suspect *s, int64_t sample,
                         int64_t *value, bool *found)
{
    const ls_tensor *x = step->node->in[s->input];
    size_t nbytes = ls__cuda_stored_bytes(x);
    void *copy = ls__alloc(1, nbytes);
    if (!copy) return LS_ERR_MEMORY;
    cudaStream_t stream = ls__cuda_device()->stream;
    cudaError_t error =
        cudaMemcpyAsync(copy, step->call.in[s->input], nbytes, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess)
        *found = look(s, x, copy, ls__graph_options_of(e->graph)->batch, sample, value);
    ls__free(copy);
    return error == cudaSuccess ? LS_OK : ls__cuda_fail(error, "looking at labels");
}

/* --- positions --- */

static ls_status check_positions(const ls__run_context *context, const ls__node *node,
                                 const int32_t *positions)
{
    const ls_tensor *x = node->in[0];
    int64_t rows = node->in[1]->shape[0], length = x->shape[1];
    for (int64_t b = 0; b < x->shape[0]; b++) {
        int64_t last = positions[b] < 0 ? positions[b] : positions[b] + length - 1;
        if (last >= 0 && last < rows) continue;
        return ls_fail(LS_ERR_DATA, "position %lld of sample %lld is not in [0, %lld)",
                       (long long)last, (long long)(context->samples ? context->samples[b] : b),
                       (long long)rows);
    }
    return LS_OK;
}

ls_status ls__cuda_check_positions(const ls__executable *e, const ls__run_context *context)
{
    for (int i = 0; i < e->nsteps; i++) {
        const ls__node *node = e->steps[i].node;
        if (node->op != &ls__op_position_embedding || node->nin < 3) continue;
        const ls_tensor *position = e->tensors[e->root[node->in[2]->id]];
        if (position->role == LS__ROLE_INPUT)
            LS_TRY(check_positions(context, node, context->fields[position->slot]));
        if (position->role == LS__ROLE_STATE)
            LS_TRY(check_positions(context, node, context->states[position->slot]));
    }
    return LS_OK;
}

/* --- labels and tokens --- */

ls_status ls__cuda_explain(ls__executable *e, const ls__run_context *context,
                           unsigned long long failure)
{
    int64_t sample = (int64_t)(failure >> 1), value = 0;
    bool token = !(failure & 1), found = false;
    suspect s;
    for (int i = 0; i < e->nin; i++) { /* the first step may have been given their memory */
        memcpy(e->pinned + e->in[i].at, context->fields[e->in[i].tensor->slot], e->in[i].nbytes);
        LS_CUDA_TRY(cudaMemcpyAsync(e->in[i].device, e->pinned + e->in[i].at, e->in[i].nbytes,
                                    cudaMemcpyHostToDevice, ls__cuda_device()->stream),
                    "copying a batch to it");
    }
    for (int i = 0; i < e->nsteps && !found; i++) {
        cuda_step *step = &e->steps[i];
        if (find_suspect(step->node, &s) && s.token == token)
            LS_TRY(examine(e, step, &s, sample, &value, &found));
        if (!found) LS_TRY(ls__cuda_run_step(e, step));
    }
    LS_CUDA_TRY(cudaStreamSynchronize(ls__cuda_device()->stream), "computing");
    int64_t named = context->samples ? context->samples[sample] : sample;
    if (!found)
        return ls_fail(LS_ERR_INTERNAL, "a %s of sample %lld was found at fault, and none is",
                       token ? "token" : "label", (long long)named);
    return ls_fail(LS_ERR_DATA, "%s %lld of sample %lld is not in [0, %lld)", s.what,
                   (long long)value, (long long)named, (long long)s.limit);
}
