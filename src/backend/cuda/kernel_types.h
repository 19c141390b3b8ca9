/* How the C side names tensors to launchers. */
#ifndef LS_BACKEND_CUDA_KERNEL_TYPES_H
#define LS_BACKEND_CUDA_KERNEL_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers in device memory, stored as f32 or, where half, as bf16. */
typedef struct device_in {
    const void *data;
    bool half;
    bool rounds; /* f32 that is read rounded to bf16 */
} device_in;

typedef struct device_out {
    void *data;
    bool half;
} device_out;

/* Labels or tokens. */
typedef enum device_integer { DEVICE_U8, DEVICE_I32, DEVICE_I64 } device_integer;
typedef struct device_integers {
    const void *data;
    device_integer type;
    int64_t per_sample; /* so many belong to a sample: for messages */
} device_integers;

#endif
