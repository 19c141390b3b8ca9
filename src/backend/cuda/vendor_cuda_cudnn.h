/* cuDNN's backend interface, version 9, as far as attention needs it: a graph of operations on
 * tensors, described step by step. The first call that fails is kept, and those behind it do
 * nothing, so that a description is a list without checks between its lines. */
#ifndef LS_BACKEND_CUDA_VENDOR_CUDA_CUDNN_H
#define LS_BACKEND_CUDA_VENDOR_CUDA_CUDNN_H

#include "backend/cuda/kernel_attention.h"

typedef struct cudnn_descriptor *cudnn_descriptor;

typedef enum cudnn_type {
    CUDNN_F32 = 0,
    CUDNN_I32 = 4,
    CUDNN_BF16 = 9,
    CUDNN_BOOL = 11
} cudnn_type;

/* Pointwise modes. */
typedef enum cudnn_mode {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_DIV = 6,
    CUDNN_SUB = 9,
    CUDNN_EXP = 13,
    CUDNN_LOG = 15,
    CUDNN_IDENTITY = 21,
    CUDNN_CMP_GE = 303,
    CUDNN_GEN_INDEX = 501,
    CUDNN_SELECT = 601
} cudnn_mode;

typedef enum cudnn_sum { CUDNN_SUM = 0, CUDNN_MOST = 3 } cudnn_sum;

enum { CUDNN_TENSORS = 48, CUDNN_OPERATIONS = 40, CUDNN_DESCRIPTORS = 192 };

typedef struct cudnn_tensor {
    cudnn_descriptor descriptor;
    int64_t shape[4], stride[4];
    cudnn_type type;
} cudnn_tensor;

typedef struct cudnn_graph {
    int status;         /* of the first call that failed; 0 = none */
    const char *failed; /* at what */
    cudnn_tensor tensors[CUDNN_TENSORS];
    int ntensors;
    cudnn_descriptor operations[CUDNN_OPERATIONS], all[CUDNN_DESCRIPTORS];
    int noperations, nall;
    cudnn_descriptor graph, plan;
    int64_t workspace;
} cudnn_graph;

/* Opens the library once. false: it is not here, or too old; *why says so. */
bool ls__cudnn_open(const char **why);
/* Of the thread's device; once the library is open. Returns cuDNN's status, as does ls__cudnn_run. */
int ls__cudnn_create(void **handle);
void ls__cudnn_free(cudnn_graph *g);

/* Tensors of (B,H,rows,columns). id: of memory that is handed in at a run, counted from 1; by_value:
 * one number in the host's memory; 0 = between operations only. */
const cudnn_tensor *ls__cudnn_tensor(cudnn_graph *g, int id, bool by_value, cudnn_type type,
                                     const int64_t shape[4], const int64_t stride[4]);
/* A new tensor as `like`, row by row, between operations. */
const cudnn_tensor *ls__cudnn_like(cudnn_graph *g, const cudnn_tensor *like, cudnn_type type);

void ls__cudnn_matmul(cudnn_graph *g, const cudnn_tensor *a, const cudnn_tensor *b,
                      const cudnn_tensor *c);
/* y = mode(x, b, t); b, t may be NULL. axis: of CUDNN_GEN_INDEX */
void ls__cudnn_pointwise(cudnn_graph *g, cudnn_mode mode, cudnn_type computes, int64_t axis,
                         const cudnn_tensor *x, const cudnn_tensor *b, const cudnn_tensor *t,
                         const cudnn_tensor *y);
void ls__cudnn_reduce(cudnn_graph *g, cudnn_sum sum, const cudnn_tensor *x, const cudnn_tensor *y);
void ls__cudnn_reshape(cudnn_graph *g, const cudnn_tensor *x, const cudnn_tensor *y);
void ls__cudnn_finish(cudnn_graph *g, void *handle);
/* The first plan that the heuristics know. device: described by JSON; NULL = the handle's. */
void ls__cudnn_plan(cudnn_graph *g, void *handle, const char *device, int64_t most);

/* The plan, with tensors of these ids. */
int ls__cudnn_run(const cudnn_graph *g, void *handle, cudaStream_t stream, int n,
                  const int64_t *ids, void *const *data, void *workspace);

/* --- vendor_cuda_flash.c: what is described --- */
enum {
    FLASH_Q = 1,
    FLASH_K,
    FLASH_V,
    FLASH_Y,
    FLASH_STATS,
    FLASH_G,
    FLASH_DQ,
    FLASH_DK,
    FLASH_DV,
    FLASH_ALONG,
    FLASH_DQ_SUM,
    FLASH_SCALE,
    FLASH_HIDDEN,
    FLASH_ONE
};
void ls__flash_forward(cudnn_graph *g, const attention_shape *s);
void ls__flash_backward(cudnn_graph *g, const attention_shape *s);

#endif
