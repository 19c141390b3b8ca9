/* cuDNN's graphs: descriptors with attributes, by number. The library is opened at run time; its
 * numbers are those of cudnn_graph.h, which never change within version 9. */
#include "backend/cuda/vendor_cuda_cudnn.h"

#include <dlfcn.h>
#include <string.h>

/* Attributes (cudnnBackendAttributeName_t), types of attributes, kinds of descriptors. */
enum {
    POINTWISE_MODE = 0,
    POINTWISE_MATH = 1,
    POINTWISE_AXIS = 9,
    HEUR_MODE = 200,
    HEUR_GRAPH = 201,
    HEUR_RESULTS = 202,
    HEUR_DEVICE = 204,
    PLAN_HANDLE = 400,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    PLAN_DEVICE = 407,
    OP_POINTWISE = 750,
    OP_POINTWISE_X = 751,
    OP_POINTWISE_B = 752,
    OP_POINTWISE_Y = 753,
    OP_POINTWISE_T = 758,
    GRAPH_HANDLE = 800,
    GRAPH_OPS = 801,
    TENSOR_ALIGNMENT = 900,
    TENSOR_TYPE = 901,
    TENSOR_SHAPE = 902,
    TENSOR_STRIDE = 903,
    TENSOR_ID = 906,
    TENSOR_VIRTUAL = 907,
    TENSOR_BY_VALUE = 908,
    PACK_IDS = 1000,
    PACK_POINTERS = 1001,
    PACK_WORKSPACE = 1003,
    MATMUL_TYPE = 1500,
    OP_MATMUL_A = 1520,
    OP_MATMUL_B = 1521,
    OP_MATMUL_C = 1522,
    OP_MATMUL = 1523,
    REDUCTION_SUM = 1600,
    REDUCTION_TYPE = 1601,
    OP_REDUCTION_X = 1610,
    OP_REDUCTION_Y = 1611,
    OP_REDUCTION = 1612,
    OP_RESHAPE_X = 2200,
    OP_RESHAPE_Y = 2201,
    DEVICE_JSON = 2702
};
enum {
    IS_HANDLE = 0,
    IS_TYPE = 1,
    IS_BOOL = 2,
    IS_I64 = 3,
    IS_POINTER = 6,
    IS_HEUR_MODE = 8,
    IS_POINTWISE_MODE = 14,
    IS_DESCRIPTOR = 15,
    IS_REDUCTION = 18,
    IS_CHAR = 24
};
enum {
    KIND_POINTWISE = 0,
    KIND_CONFIG = 3,
    KIND_HEUR = 4,
    KIND_PLAN = 5,
    KIND_OP_POINTWISE = 13,
    KIND_GRAPH = 15,
    KIND_PACK = 16,
    KIND_TENSOR = 17,
    KIND_MATMUL = 18,
    KIND_OP_MATMUL = 19,
    KIND_REDUCTION = 21,
    KIND_OP_REDUCTION = 22,
    KIND_OP_RESHAPE = 31,
    KIND_DEVICE = 38
};
enum { HEUR_FALLBACK = 2, HEUR_A = 3, ANSWERS = 8, OLDEST = 91600 };

#define CUDNN_MAP(X)                                                                               \
    X(start, cudnnCreate, (void **))                                                               \
    X(set_stream, cudnnSetStream, (void *, cudaStream_t))                                          \
    X(execute, cudnnBackendExecute, (void *, cudnn_descriptor, cudnn_descriptor))                  \
    X(create, cudnnBackendCreateDescriptor, (int, cudnn_descriptor *))                             \
    X(destroy, cudnnBackendDestroyDescriptor, (cudnn_descriptor))                                  \
    X(finalize, cudnnBackendFinalize, (cudnn_descriptor))                                          \
    X(set, cudnnBackendSetAttribute, (cudnn_descriptor, int, int, int64_t, const void *))          \
    X(get, cudnnBackendGetAttribute, (cudnn_descriptor, int, int, int64_t, int64_t *, void *))

static struct cudnn {
    bool tried, there;
    const char *why;
#define FIELD(field, symbol, parameters) int(*field) parameters;
    CUDNN_MAP(FIELD)
#undef FIELD
    size_t (*version)(void);
} lib;

bool ls__cudnn_open(const char **why)
{
    if (!lib.tried) {
        lib.tried = lib.there = true;
        lib.why = "libcudnn.so.9 is not here";
        void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
#define FIND(field, symbol, parameters)                                                            \
    *(void **)&lib.field = library ? dlsym(library, #symbol) : NULL;                               \
    lib.there = lib.there && lib.field;
        CUDNN_MAP(FIND)
        *(void **)&lib.version = library ? dlsym(library, "cudnnGetVersion") : NULL;
        lib.there = lib.there && lib.version;
        if (lib.there && lib.version() < OLDEST) {
            lib.there = false;
            lib.why = "cuDNN is older than 9.16";
        }
    }
    *why = lib.there ? NULL : lib.why;
    return lib.there;
}

int ls__cudnn_create(void **handle)
{
    return lib.start(handle);
}

/* --- descriptors --- */

static void note(cudnn_graph *g, int status, const char *what)
{
    if (status == 0 || g->status) return;
    g->status = status;
    g->failed = what;
}

static cudnn_descriptor make(cudnn_graph *g, int kind, const char *what)
{
    cudnn_descriptor d = NULL;
    if (g->status) return NULL;
    if (g->nall == CUDNN_DESCRIPTORS)
        note(g, -1, "room for descriptors");
    else
        note(g, lib.create(kind, &d), what);
    if (d) g->all[g->nall++] = d;
    return d;
}

static void set(cudnn_graph *g, cudnn_descriptor d, int name, int type, int64_t n, const void *x,
                const char *what)
{
    if (!g->status) note(g, lib.set(d, name, type, n, x), what);
}

static void set_i64(cudnn_graph *g, cudnn_descriptor d, int name, int64_t x, const char *what)
{
    set(g, d, name, IS_I64, 1, &x, what);
}

static void set_enum(cudnn_graph *g, cudnn_descriptor d, int name, int type, int x,
                     const char *what)
{
    set(g, d, name, type, 1, &x, what);
}

static void set_part(cudnn_graph *g, cudnn_descriptor d, int name, cudnn_descriptor x,
                     const char *what)
{
    set(g, d, name, IS_DESCRIPTOR, 1, &x, what);
}

static void finish(cudnn_graph *g, cudnn_descriptor d, const char *what)
{
    if (!g->status) note(g, lib.finalize(d), what);
}

static void finish_operation(cudnn_graph *g, cudnn_descriptor d, const char *what)
{
    finish(g, d, what);
    if (!g->status && g->noperations == CUDNN_OPERATIONS) note(g, -1, "room for operations");
    if (!g->status) g->operations[g->noperations++] = d;
}

void ls__cudnn_free(cudnn_graph *g)
{
    while (g->nall > 0) lib.destroy(g->all[--g->nall]);
    memset(g, 0, sizeof *g);
}

/* --- tensors and operations --- */

const cudnn_tensor *ls__cudnn_tensor(cudnn_graph *g, int id, bool by_value, cudnn_type type,
                                     const int64_t shape[4], const int64_t stride[4])
{
    static const char what[] = "a tensor";
    if (g->ntensors == CUDNN_TENSORS) note(g, -1, "room for tensors");
    if (g->status) return &g->tensors[0]; /* nobody looks at it any more */
    cudnn_tensor *t = &g->tensors[g->ntensors++];
    bool within = id == 0;
    memcpy(t->shape, shape, sizeof t->shape);
    if (stride)
        memcpy(t->stride, stride, sizeof t->stride);
    else
        for (int64_t i = 3, n = 1; i >= 0; n *= shape[i--]) t->stride[i] = n;
    t->type = type;
    t->descriptor = make(g, KIND_TENSOR, what);
    set_enum(g, t->descriptor, TENSOR_TYPE, IS_TYPE, (int)type, what);
    set(g, t->descriptor, TENSOR_SHAPE, IS_I64, 4, t->shape, what);
    set(g, t->descriptor, TENSOR_STRIDE, IS_I64, 4, t->stride, what);
    set_i64(g, t->descriptor, TENSOR_ID, id ? id : 100 + g->ntensors, what);
    set_i64(g, t->descriptor, TENSOR_ALIGNMENT, 16, what);
    set(g, t->descriptor, TENSOR_VIRTUAL, IS_BOOL, 1, &within, what);
    set(g, t->descriptor, TENSOR_BY_VALUE, IS_BOOL, 1, &by_value, what);
    finish(g, t->descriptor, what);
    return t;
}

const cudnn_tensor *ls__cudnn_like(cudnn_graph *g, const cudnn_tensor *like, cudnn_type type)
{
    return ls__cudnn_tensor(g, 0, false, type, like->shape, NULL);
}

void ls__cudnn_matmul(cudnn_graph *g, const cudnn_tensor *a, const cudnn_tensor *b,
                      const cudnn_tensor *c)
{
    static const char what[] = "a product";
    cudnn_descriptor how = make(g, KIND_MATMUL, what);
    set_enum(g, how, MATMUL_TYPE, IS_TYPE, CUDNN_F32, what);
    finish(g, how, what);
    cudnn_descriptor d = make(g, KIND_OP_MATMUL, what);
    set_part(g, d, OP_MATMUL_A, a->descriptor, what);
    set_part(g, d, OP_MATMUL_B, b->descriptor, what);
    set_part(g, d, OP_MATMUL_C, c->descriptor, what);
    set_part(g, d, OP_MATMUL, how, what);
    finish_operation(g, d, what);
}

void ls__cudnn_pointwise(cudnn_graph *g, cudnn_mode mode, cudnn_type computes, int64_t axis,
                         const cudnn_tensor *x, const cudnn_tensor *b, const cudnn_tensor *t,
                         const cudnn_tensor *y)
{
    static const char what[] = "a pointwise operation";
    cudnn_descriptor how = make(g, KIND_POINTWISE, what);
    set_enum(g, how, POINTWISE_MODE, IS_POINTWISE_MODE, (int)mode, what);
    set_enum(g, how, POINTWISE_MATH, IS_TYPE, (int)computes, what);
    if (mode == CUDNN_GEN_INDEX) set_i64(g, how, POINTWISE_AXIS, axis, what);
    finish(g, how, what);
    cudnn_descriptor d = make(g, KIND_OP_POINTWISE, what);
    set_part(g, d, OP_POINTWISE, how, what);
    set_part(g, d, OP_POINTWISE_X, x->descriptor, what);
    if (b) set_part(g, d, OP_POINTWISE_B, b->descriptor, what);
    if (t) set_part(g, d, OP_POINTWISE_T, t->descriptor, what);
    set_part(g, d, OP_POINTWISE_Y, y->descriptor, what);
    finish_operation(g, d, what);
}

void ls__cudnn_reduce(cudnn_graph *g, cudnn_sum sum, const cudnn_tensor *x, const cudnn_tensor *y)
{
    static const char what[] = "a reduction";
    cudnn_descriptor how = make(g, KIND_REDUCTION, what);
    set_enum(g, how, REDUCTION_SUM, IS_REDUCTION, (int)sum, what);
    set_enum(g, how, REDUCTION_TYPE, IS_TYPE, CUDNN_F32, what);
    finish(g, how, what);
    cudnn_descriptor d = make(g, KIND_OP_REDUCTION, what);
    set_part(g, d, OP_REDUCTION_X, x->descriptor, what);
    set_part(g, d, OP_REDUCTION_Y, y->descriptor, what);
    set_part(g, d, OP_REDUCTION, how, what);
    finish_operation(g, d, what);
}

void ls__cudnn_reshape(cudnn_graph *g, const cudnn_tensor *x, const cudnn_tensor *y)
{
    static const char what[] = "a reshape";
    cudnn_descriptor d = make(g, KIND_OP_RESHAPE, what);
    set_part(g, d, OP_RESHAPE_X, x->descriptor, what);
    set_part(g, d, OP_RESHAPE_Y, y->descriptor, what);
    finish_operation(g, d, what);
}

void ls__cudnn_finish(cudnn_graph *g, void *handle)
{
    static const char what[] = "the operations' graph";
    g->graph = make(g, KIND_GRAPH, what);
    if (handle) set(g, g->graph, GRAPH_HANDLE, IS_HANDLE, 1, &handle, what);
    set(g, g->graph, GRAPH_OPS, IS_DESCRIPTOR, g->noperations, g->operations, what);
    finish(g, g->graph, what);
}

/* --- plans --- */

static bool try_plan(cudnn_graph *g, cudnn_descriptor config, void *handle, cudnn_descriptor device,
                     int64_t most)
{
    int64_t n = 0;
    cudnn_descriptor plan = make(g, KIND_PLAN, "a plan");
    if (!plan || (handle && lib.set(plan, PLAN_HANDLE, IS_HANDLE, 1, &handle) != 0) ||
        (device && lib.set(plan, PLAN_DEVICE, IS_DESCRIPTOR, 1, &device) != 0) ||
        lib.set(plan, PLAN_CONFIG, IS_DESCRIPTOR, 1, &config) != 0 || lib.finalize(plan) != 0 ||
        lib.get(plan, PLAN_WORKSPACE, IS_I64, 1, &n, &g->workspace) != 0 || g->workspace > most)
        return false;
    g->plan = plan;
    return true;
}

void ls__cudnn_plan(cudnn_graph *g, void *handle, const char *json, int64_t most)
{
    static const int modes[] = { HEUR_A, HEUR_FALLBACK };
    cudnn_descriptor device = json ? make(g, KIND_DEVICE, "a device") : NULL;
    if (device) set(g, device, DEVICE_JSON, IS_CHAR, (int64_t)strlen(json) + 1, json, "a device");
    if (device) finish(g, device, "a device");
    for (int m = 0; m < 2 && !g->status && !g->plan; m++) {
        cudnn_descriptor answers[ANSWERS], heur = make(g, KIND_HEUR, "heuristics");
        int64_t n = 0;
        set_part(g, heur, HEUR_GRAPH, g->graph, "heuristics");
        set_enum(g, heur, HEUR_MODE, IS_HEUR_MODE, modes[m], "heuristics");
        if (device) set_part(g, heur, HEUR_DEVICE, device, "heuristics");
        if (g->status || lib.finalize(heur) != 0) continue;
        for (int i = 0; i < ANSWERS; i++) answers[i] = make(g, KIND_CONFIG, "an engine");
        if (g->status || lib.get(heur, HEUR_RESULTS, IS_DESCRIPTOR, ANSWERS, &n, answers) != 0)
            continue;
        for (int64_t i = 0; i < n && i < ANSWERS && !g->plan; i++)
            (void)try_plan(g, answers[i], handle, device, most);
    }
    if (!g->plan) note(g, -1, "no plan for this shape");
}

/* --- runs --- */

int ls__cudnn_run(const cudnn_graph *g, void *handle, cudaStream_t stream, int n,
                  const int64_t *ids, void *const *data, void *workspace)
{
    cudnn_descriptor pack;
    int status = lib.create(KIND_PACK, &pack);
    if (status) return status;
    status = lib.set(pack, PACK_IDS, IS_I64, n, ids);
    if (!status) status = lib.set(pack, PACK_POINTERS, IS_POINTER, n, data);
    if (!status) status = lib.set(pack, PACK_WORKSPACE, IS_POINTER, 1, &workspace);
    if (!status) status = lib.finalize(pack);
    if (!status) status = lib.set_stream(handle, stream);
    if (!status) status = lib.execute(handle, g->plan, pack);
    lib.destroy(pack);
    return status;
}
