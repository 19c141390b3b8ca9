/* Convolution by cuDNN, where the machine has it: the library is opened when the first convolution
 * is compiled, with prototypes of our own, so that the plugin neither needs it to be built nor to be
 * loaded. Without it, or for a shape without a deterministic algorithm, kernel_conv.cu computes.
 *
 * Which algorithm runs is decided by cuDNN's heuristic, never by measuring, and only deterministic
 * ones with little workspace are taken. The answer is kept with its descriptors, since asking costs
 * more than a small convolution. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/vendor_conv.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

/* --- cuDNN's interface, versions 8 and 9, as far as we use it --- */

typedef struct cudnn_handle *handle;
typedef struct cudnn_tensor *tensor;
typedef struct cudnn_filter *filter;
typedef struct cudnn_convolution *convolution;

enum {
    SUCCESS = 0,
    ALLOCATION_FAILED = 2,
    FLOAT = 0,
    NCHW = 0,
    CROSS_CORRELATION = 1,
    DETERMINISTIC = 1
};
enum { TENSOR_CORES_ALLOWED = 0, FMA_ONLY = 3 };
enum { MOST_ANSWERS = 8 };

typedef struct answer { /* of a heuristic, best first; alike for the three passes */
    int algorithm, status;
    float time;
    size_t memory;
    int deterministic, math;
    int reserved[3];
} answer;

/* X(field, symbol, parameters); each returns 0 on success */
#define CUDNN_MAP(X)                                                                               \
    X(create, cudnnCreate, (handle *))                                                             \
    X(destroy, cudnnDestroy, (handle))                                                             \
    X(set_stream, cudnnSetStream, (handle, cudaStream_t))                                          \
    X(create_tensor, cudnnCreateTensorDescriptor, (tensor *))                                      \
    X(set_tensor, cudnnSetTensor4dDescriptor, (tensor, int, int, int, int, int, int))              \
    X(create_filter, cudnnCreateFilterDescriptor, (filter *))                                      \
    X(set_filter, cudnnSetFilter4dDescriptor, (filter, int, int, int, int, int, int))              \
    X(create_convolution, cudnnCreateConvolutionDescriptor, (convolution *))                       \
    X(set_convolution, cudnnSetConvolution2dDescriptor,                                            \
      (convolution, int, int, int, int, int, int, int, int))                                       \
    X(set_math, cudnnSetConvolutionMathType, (convolution, int))                                   \
    X(ask_forward, cudnnGetConvolutionForwardAlgorithm_v7,                                         \
      (handle, tensor, filter, convolution, tensor, int, int *, answer *))                         \
    X(ask_grad_x, cudnnGetConvolutionBackwardDataAlgorithm_v7,                                     \
      (handle, filter, tensor, convolution, tensor, int, int *, answer *))                         \
    X(ask_grad_w, cudnnGetConvolutionBackwardFilterAlgorithm_v7,                                   \
      (handle, tensor, tensor, convolution, filter, int, int *, answer *))                         \
    X(forward, cudnnConvolutionForward,                                                            \
      (handle, const void *, tensor, const void *, filter, const void *, convolution, int, void *, \
       size_t, const void *, tensor, void *))                                                      \
    X(grad_x, cudnnConvolutionBackwardData,                                                        \
      (handle, const void *, filter, const void *, tensor, const void *, convolution, int, void *, \
       size_t, const void *, tensor, void *))                                                      \
    X(grad_w, cudnnConvolutionBackwardFilter,                                                      \
      (handle, const void *, tensor, const void *, tensor, const void *, convolution, int, void *, \
       size_t, const void *, filter, void *))                                                      \
    X(add, cudnnAddTensor,                                                                         \
      (handle, const void *, tensor, const void *, const void *, tensor, void *))

#define WORKSPACE_MOST ((size_t)256 << 20)

/* A shape that was asked for, and how it is computed; descriptors stay. */
typedef struct known {
    cuda_conv_pass pass;
    cuda_conv conv;
    bool usable; /* else by our own kernels */
    int algorithm;
    size_t nbytes;
    tensor x, y, bias;
    filter weight;
    convolution convolution;
    struct known *next;
} known;

static struct cudnn { /* the process's, as its device; under the device's lock */
    bool tried;
    handle handle; /* NULL = no cuDNN */
#define FIELD(field, symbol, parameters) int(*field) parameters;
    CUDNN_MAP(FIELD)
#undef FIELD
    known *all;
} lib;

/* Whether every function is there. */
static bool find_functions(void *library)
{
    bool complete = true;
    /* Object and function pointers have one form wherever there is a dlsym (POSIX). */
#define FIND(field, symbol, parameters)                                                            \
    *(void **)&lib.field = dlsym(library, #symbol);                                                \
    complete = complete && lib.field;
    CUDNN_MAP(FIND)
#undef FIND
    return complete;
}

static void open_once(void)
{
    static const char *const names[] = { "libcudnn.so.9", "libcudnn.so.8", NULL };
    if (lib.tried) return;
    lib.tried = true;
    void *library = NULL;
    for (int i = 0; names[i] && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library && find_functions(library) && lib.create(&lib.handle) == SUCCESS) return;
    lib.handle = NULL;
    ls__log(
        LS__LOG_INFO,
        "cuDNN (libcudnn.so.9) is not here or does not start: convolutions run by Lockstep's own "
        "kernels, which are slower");
}

/* --- what cuDNN is told of a shape --- */

static bool describe(known *k)
{
    const cuda_conv *c = &k->conv;
    int padding = (int)c->padding, stride = (int)c->stride, side = (int)c->kernel;
    return lib.create_tensor(&k->x) == SUCCESS && lib.create_tensor(&k->y) == SUCCESS &&
           lib.create_tensor(&k->bias) == SUCCESS && lib.create_filter(&k->weight) == SUCCESS &&
           lib.create_convolution(&k->convolution) == SUCCESS &&
           lib.set_tensor(k->x, NCHW, FLOAT, (int)c->batch, (int)c->channels, (int)c->height,
                          (int)c->width) == SUCCESS &&
           lib.set_tensor(k->y, NCHW, FLOAT, (int)c->batch, (int)c->filters, (int)c->rows,
                          (int)c->columns) == SUCCESS &&
           lib.set_tensor(k->bias, NCHW, FLOAT, 1, (int)c->filters, 1, 1) == SUCCESS &&
           lib.set_filter(k->weight, FLOAT, NCHW, (int)c->filters, (int)c->channels, side, side) ==
               SUCCESS &&
           lib.set_convolution(k->convolution, padding, padding, stride, stride, 1, 1,
                               CROSS_CORRELATION, FLOAT) == SUCCESS &&
           lib.set_math(k->convolution, c->tf32 ? TENSOR_CORES_ALLOWED : FMA_ONLY) == SUCCESS;
}

static int ask(const known *k, int *n, answer answers[MOST_ANSWERS])
{
    if (k->pass == CUDA_CONV_FORWARD)
        return lib.ask_forward(lib.handle, k->x, k->weight, k->convolution, k->y, MOST_ANSWERS, n,
                               answers);
    if (k->pass == CUDA_CONV_GRAD_X)
        return lib.ask_grad_x(lib.handle, k->weight, k->y, k->convolution, k->x, MOST_ANSWERS, n,
                              answers);
    return lib.ask_grad_w(lib.handle, k->x, k->y, k->convolution, k->weight, MOST_ANSWERS, n,
                          answers);
}

static void choose(known *k)
{
    answer answers[MOST_ANSWERS];
    int n = 0;
    if (!describe(k) || ask(k, &n, answers) != SUCCESS) return;
    for (int i = 0; i < n; i++) {
        const answer *a = &answers[i];
        if (a->status != SUCCESS || a->deterministic != DETERMINISTIC || a->memory > WORKSPACE_MOST)
            continue;
        if (k->conv.tf32 && lib.set_math(k->convolution, a->math) != SUCCESS) continue;
        k->usable = true;
        k->algorithm = a->algorithm;
        k->nbytes = a->memory;
        return;
    }
}

static bool same(const cuda_conv *a, const cuda_conv *b)
{
    return a->batch == b->batch && a->channels == b->channels && a->height == b->height &&
           a->width == b->width && a->filters == b->filters && a->rows == b->rows &&
           a->columns == b->columns && a->kernel == b->kernel && a->stride == b->stride &&
           a->padding == b->padding && a->tf32 == b->tf32;
}

/* NULL: no cuDNN, or no memory. */
static const known *find(cuda_conv_pass pass, const cuda_conv *c)
{
    open_once();
    if (!lib.handle) return NULL;
    for (known *k = lib.all; k; k = k->next)
        if (k->pass == pass && same(&k->conv, c)) return k;
    known *k = ls__alloc(1, sizeof *k);
    if (!k) return NULL;
    *k = (known) { .pass = pass, .conv = *c, .next = lib.all };
    choose(k);
    lib.all = k;
    return k;
}

bool ls__vendor_conv_workspace(cuda_conv_pass pass, const cuda_conv *c, size_t *nbytes)
{
    const known *k = find(pass, c);
    *nbytes = k ? k->nbytes : 0;
    return k && k->usable;
}

static int run(const known *k, const float *a, const float *b, float *out, void *workspace)
{
    const float one = 1, zero = 0;
    if (k->pass == CUDA_CONV_FORWARD)
        return lib.forward(lib.handle, &one, k->x, b, k->weight, a, k->convolution, k->algorithm,
                           workspace, k->nbytes, &zero, k->y, out);
    if (k->pass == CUDA_CONV_GRAD_X)
        return lib.grad_x(lib.handle, &one, k->weight, a, k->y, b, k->convolution, k->algorithm,
                          workspace, k->nbytes, &zero, k->x, out);
    return lib.grad_w(lib.handle, &one, k->x, b, k->y, a, k->convolution, k->algorithm, workspace,
                      k->nbytes, &zero, k->weight, out);
}

ls_status ls__vendor_conv(cudaStream_t stream, cuda_conv_pass pass, const cuda_conv *c,
                          const float *a, const float *b, const float *bias, float *out,
                          void *workspace)
{
    const float one = 1;
    const known *k = find(pass, c);
    LS_ASSERT(k && k->usable);
    int error = lib.set_stream(lib.handle, stream);
    if (error == SUCCESS) error = run(k, a, b, out, workspace);
    if (error == SUCCESS && bias) error = lib.add(lib.handle, &one, k->bias, bias, &one, k->y, out);
    if (error == SUCCESS) return LS_OK;
    char text[160];
    snprintf(text, sizeof text, "status %d in a convolution of %lld images (%lld,%lld,%lld)", error,
             (long long)c->batch, (long long)c->channels, (long long)c->height,
             (long long)c->width);
    return ls__cuda_fail_library("cuDNN", error == ALLOCATION_FAILED, text);
}
