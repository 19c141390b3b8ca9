/* oneDNN primitives as steps use them.
 *
 * A primitive belongs to one thread at a time: memory objects are mutable, so every thread has its
 * own set. Their handles are set only when they change, since oneDNN fills padding with zeros at
 * that. */
#include "backend/cpu/primitive.h"

#include <string.h>

ls_status ls__cpu_dnnl_fail(dnnl_status_t status, const char *what)
{
    if (status == dnnl_out_of_memory) return ls_fail(LS_ERR_MEMORY, "oneDNN: out of memory");
    if (status == dnnl_unimplemented)
        return ls_fail(LS_ERR_UNSUPPORTED, "oneDNN has no implementation here: %s", what);
    return ls_fail(LS_ERR_INTERNAL, "oneDNN: status %d from %s", (int)status, what);
}

ls_status ls__cpu_attributes(bool sum, bool relu, dnnl_primitive_attr_t *out)
{
    LS_DNNL_TRY(dnnl_primitive_attr_create(out));
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success && sum) status = dnnl_post_ops_append_sum(ops, 1);
    if (status == dnnl_success && relu)
        status = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    if (status == dnnl_success) return LS_OK;
    dnnl_primitive_attr_destroy(*out);
    *out = NULL;
    return ls__cpu_dnnl_fail(status, "attributes");
}

ls_status ls__cpu_describe_any(const void *desc, dnnl_primitive_attr_t attr,
                               dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out)
{
    *out = NULL;
    LS_DNNL_TRY(dnnl_primitive_desc_create(out, desc, attr, ls__cpu_pool()->engine, hint));
    return LS_OK;
}

ls_status ls__cpu_describe_named(const void *desc, dnnl_primitive_attr_t attr, const char *name,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t it;
    LS_DNNL_TRY(dnnl_primitive_desc_iterator_create(&it, desc, attr, ls__cpu_pool()->engine, NULL));
    dnnl_status_t status = dnnl_success;
    bool found = false;
    while (status == dnnl_success && !found) {
        const char *this = "";
        *out = dnnl_primitive_desc_iterator_fetch(it);
        if (!*out) break;
        dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &this);
        found = strncmp(this, name, strlen(name)) == 0;
        if (!found) {
            dnnl_primitive_desc_destroy(*out);
            status = dnnl_primitive_desc_iterator_next(it);
        }
    }
    dnnl_primitive_desc_iterator_destroy(it);
    return found ? LS_OK : ls__cpu_describe_any(desc, attr, NULL, out);
}

bool ls__cpu_describe(const void *desc, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                      dnnl_primitive_desc_t *out)
{
    *out = NULL;
    if (dnnl_primitive_desc_create(out, desc, attr, ls__cpu_pool()->engine, hint) != dnnl_success)
        return false;
    const char *name = "ref";
    dnnl_primitive_desc_query(*out, dnnl_query_impl_info_str, 0, &name);
    if (!strstr(name, "ref")) return true;
    dnnl_primitive_desc_destroy(*out);
    *out = NULL;
    return false;
}

static ls_status make_memories(cpu_primitive *p, const int *ids,
                               const dnnl_memory_desc_t *const *mds)
{
    int threads = ls__cpu_pool()->threads;
    for (int t = 0; t < threads; t++) {
        for (int i = 0; i < p->nargs; i++) {
            dnnl_exec_arg_t *arg = &p->args[t * p->nargs + i];
            arg->arg = ids[i];
            LS_DNNL_TRY(
                dnnl_memory_create(&arg->memory, mds[i], ls__cpu_pool()->engine, DNNL_MEMORY_NONE));
        }
    }
    return LS_OK;
}

ls_status ls__cpu_primitive_create(dnnl_primitive_desc_t desc, const int *ids,
                                   const dnnl_memory_desc_t *const *mds, int nargs,
                                   cpu_primitive *out)
{
    int all_ids[CPU_PRIMITIVE_ARGS + 1];
    const dnnl_memory_desc_t *all_mds[CPU_PRIMITIVE_ARGS + 1];
    LS_ASSERT(nargs <= CPU_PRIMITIVE_ARGS);
    memcpy(all_ids, ids, (size_t)nargs * sizeof *ids);
    memcpy(all_mds, mds, (size_t)nargs * sizeof *mds);
    const dnnl_memory_desc_t *pad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    out->scratchpad = pad ? dnnl_memory_desc_get_size(pad) : 0;
    out->nargs = nargs;
    if (out->scratchpad) {
        all_ids[nargs] = DNNL_ARG_SCRATCHPAD;
        all_mds[nargs] = pad;
        out->nargs++;
    }
    size_t count = (size_t)ls__cpu_pool()->threads * (size_t)out->nargs;
    out->args = ls__alloc(count, sizeof *out->args);
    out->current = ls__alloc(count, sizeof *out->current);
    if (!out->args || !out->current) return LS_ERR_MEMORY;
    LS_TRY(make_memories(out, all_ids, all_mds));
    LS_DNNL_TRY(dnnl_primitive_create(&out->handle, desc));
    return LS_OK;
}

void ls__cpu_primitive_free(cpu_primitive *p)
{
    for (int i = 0; p->args && i < ls__cpu_pool()->threads * p->nargs; i++)
        if (p->args[i].memory) dnnl_memory_destroy(p->args[i].memory);
    if (p->handle) dnnl_primitive_destroy(p->handle);
    ls__free(p->args);
    ls__free(p->current);
    memset(p, 0, sizeof *p);
}

static void note(cpu_failure *failure, dnnl_status_t status)
{
    if (failure->dnnl == dnnl_success) failure->dnnl = status;
}

void ls__cpu_primitive_run(const cpu_primitive *p, const cpu_call *call, void *const *pointers)
{
    dnnl_exec_arg_t *args = p->args + call->thread * p->nargs;
    void **current = p->current + call->thread * p->nargs;
    for (int i = 0; i < p->nargs; i++) {
        if (current[i] == pointers[i]) continue;
        note(call->failure, dnnl_memory_set_data_handle(args[i].memory, pointers[i]));
        current[i] = pointers[i];
    }
    note(call->failure,
         dnnl_primitive_execute(p->handle, ls__cpu_pool()->streams[call->thread], p->nargs, args));
}

ls_status ls__cpu_md4(cpu_layout layout, const int64_t *shape, dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims = { shape[0], shape[1], shape[2], shape[3] };
    dnnl_format_tag_t tag = layout == CPU_PLAIN           ? dnnl_abcd
                            : ls__cpu_pool()->block == 16 ? dnnl_aBcd16b
                                                          : dnnl_aBcd8b;
    LS_DNNL_TRY(dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, tag));
    return LS_OK;
}
