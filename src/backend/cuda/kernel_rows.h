/* Launchers of what happens to rows: norms, softmax, activations, embeddings, rotary positions.
 * Formulas: graph/ops.h. All launch on the stream and return. */
#ifndef LS_BACKEND_CUDA_KERNEL_ROWS_H
#define LS_BACKEND_CUDA_KERNEL_ROWS_H

#include "backend/cuda/kernel_types.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/values.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- norms --- */

typedef struct norm_forward {
    device_in x;            /* (rows,width) */
    device_in weight, bias; /* (width); bias.data NULL = none */
    device_out y;           /* (rows,width) */
    float *mean, *inverse;  /* (rows); mean NULL = rms norm; inverse NULL = not wanted */
    int64_t rows, width;
    double epsilon;
    bool centred;
} norm_forward;
void ls__launch_norm(const norm_forward *a, cudaStream_t stream);

typedef struct norm_backward {
    device_in g, x;         /* (rows,width) */
    device_in weight;       /* (width) */
    const float *mean;      /* (rows) NULL = rms norm */
    const float *inverse;   /* (rows) */
    device_out dx;          /* (rows,width); may be g or x */
    float *dweight, *dbias; /* (width); NULL = not wanted */
    float *partial;         /* ls__norm_partial_floats */
    int64_t rows, width;
} norm_backward;
void ls__launch_norm_grad(const norm_backward *a, cudaStream_t stream);
int64_t ls__norm_partial_floats(int64_t rows, int64_t width);

/* --- softmax; dx may be g or y, y may be x --- */

void ls__launch_softmax(const float *x, device_out y, int64_t rows, int64_t width,
                        cudaStream_t stream);
void ls__launch_softmax_grad(const float *g, const float *y, device_out dx, int64_t rows,
                             int64_t width, cudaStream_t stream);

/* --- activations; kind: ls__activation_kind; y may be x, dx may be g or x --- */

void ls__launch_activation(int kind, device_in x, device_out y, int64_t count, cudaStream_t stream);
void ls__launch_activation_grad(int kind, device_in g, device_in x, device_out dx, int64_t count,
                                cudaStream_t stream);

/* --- embeddings --- */

void ls__launch_embedding(device_integers tokens, int64_t ntokens, const float *table, int64_t rows,
                          int64_t width, device_out y, cuda_values *values, cudaStream_t stream);
/* adds: table holds a sum already and gets what is missing; else it is written whole. */
void ls__launch_embedding_grad(const float *g, device_integers tokens, int64_t ntokens,
                               float *table, int64_t rows, int64_t width, bool adds,
                               cudaStream_t stream);

typedef struct position_forward {
    const float *x, *table;  /* (batch,length,width), (rows,width) */
    const int32_t *position; /* (batch); NULL = 0 */
    device_out y;            /* may be x */
    int64_t batch, length, width, rows;
    cuda_values *values;
} position_forward;
void ls__launch_position_embedding(const position_forward *a, cudaStream_t stream);
void ls__launch_position_embedding_grad(const float *g, float *table, int64_t batch, int64_t length,
                                        int64_t width, int64_t rows, cudaStream_t stream);

/* --- rotary --- */

typedef struct rotary_args {
    device_in x;             /* (batch,length,(turned + copied) * width) */
    device_out y;            /* may be x */
    const int32_t *position; /* (batch); NULL = 0 */
    float *turns;            /* ls__rotary_floats */
    int64_t batch, length;
    int turned, copied, width; /* heads that are turned, heads that are copied, numbers of a head */
    double theta;
    bool inverse;
} rotary_args;
void ls__launch_rotary(const rotary_args *a, cudaStream_t stream);
int64_t ls__rotary_floats(int64_t batch, int64_t length, int width, bool positioned);

#ifdef __cplusplus
}
#endif

#endif
