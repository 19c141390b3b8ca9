/* oneDNN primitives as steps use them: made once, for one thread, scratchpad handed in. */
#ifndef LS_BACKEND_CPU_PRIMITIVE_H
#define LS_BACKEND_CPU_PRIMITIVE_H

#include "backend/cpu/cpu.h"

#define LS_DNNL_TRY(expr)                                                                          \
    do {                                                                                           \
        dnnl_status_t dnnl_status_ = (expr);                                                       \
        if (dnnl_status_ != dnnl_success) return ls__cpu_dnnl_fail(dnnl_status_, #expr);           \
    } while (0)
ls_status ls__cpu_dnnl_fail(dnnl_status_t status, const char *what);

enum { CPU_PRIMITIVE_ARGS = 6 };

typedef struct cpu_primitive {
    dnnl_primitive_t handle;
    dnnl_exec_arg_t *args; /* (threads, nargs): every thread has memory objects of its own */
    void **current;        /* (threads, nargs) what they point to */
    int nargs;
    size_t scratchpad; /* bytes; its argument is the last one when not 0 */
} cpu_primitive;

/* Attributes with the scratchpad handed in; relu and sum: appended in this order. */
ls_status ls__cpu_attributes(bool sum, bool relu, dnnl_primitive_attr_t *out);
/* True when desc has an implementation that is not oneDNN's reference; *out then holds it. */
bool ls__cpu_describe(const void *desc, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                      dnnl_primitive_desc_t *out);
/* As describe, with whatever implementation there is. */
ls_status ls__cpu_describe_any(const void *desc, dnnl_primitive_attr_t attr,
                               dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out);

/* As describe_any; the first whose name begins so, where there is one. */
ls_status ls__cpu_describe_named(const void *desc, dnnl_primitive_attr_t attr, const char *name,
                                 dnnl_primitive_desc_t *out);

/* ids and mds: nargs arguments; the scratchpad is added. */
ls_status ls__cpu_primitive_create(dnnl_primitive_desc_t desc, const int *ids,
                                   const dnnl_memory_desc_t *const *mds, int nargs,
                                   cpu_primitive *out);
void ls__cpu_primitive_free(cpu_primitive *p);
/* pointers: nargs, then the scratchpad's. */
void ls__cpu_primitive_run(const cpu_primitive *p, const cpu_call *call, void *const *pointers);

/* (n,c,h,w) f32 in a layout. */
ls_status ls__cpu_md4(cpu_layout layout, const int64_t *shape, dnnl_memory_desc_t *out);

#endif
