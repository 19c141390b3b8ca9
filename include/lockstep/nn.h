/* Layers and losses, composed from operations. B is the micro-batch; a layer creates its parameters
 * as <name>.weight and <name>.bias. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* (B, ...) -> (B, features): all dimensions behind the first are one. weight (features, in), bias
 * (features); uniform in +-1/sqrt(in), as PyTorch begins. */
ls_tensor *ls_linear(ls_tensor *x, const char *name, int64_t features);

typedef struct ls_conv2d_options {
    int64_t channels; /* of the output */
    int kernel;       /* kernel x kernel */
    int stride;       /* 0 = 1 */
    int padding;      /* zeros on each side */
    bool no_bias;
} ls_conv2d_options;
/* (B,C,H,W) -> (B,channels,H',W'). weight (channels,C,kernel,kernel), bias (channels); uniform in
 * +-1/sqrt(C kernel^2). */
ls_tensor *ls_conv2d(ls_tensor *x, const char *name, const ls_conv2d_options *options);

ls_tensor *
ls_max_pool2d(ls_tensor *x,
              int size); /* windows of size x size side by side; a rest at the edge is dropped */
ls_tensor *ls_avg_pool2d(ls_tensor *x, int size);
ls_tensor *ls_global_avg_pool2d(ls_tensor *x); /* (B,C,H,W) -> (B,C) */

/* (B,C,...) normalized per channel, then scaled and shifted. Training: statistics over groups of
 * consecutive samples of the global batch, so that neither the number of devices nor of
 * micro-batches changes the result (group = 0: 16). Otherwise: running statistics, momentum 0.1,
 * eps 1e-5. Parameters weight (C) = 1, bias (C) = 0; running_mean, running_var are saved with the
 * model. */
typedef struct ls_batch_norm_options {
    int group; /* 0 = 16 */
} ls_batch_norm_options;
ls_tensor *ls_batch_norm(ls_tensor *x, const char *name);
ls_tensor *ls_batch_norm_with(ls_tensor *x, const char *name, const ls_batch_norm_options *options);

ls_tensor *ls_relu(ls_tensor *x);
/* Zeroes elements with probability p and scales the others by 1/(1-p), in training; the mask is a
 * function of (seed, step, name, sample, element). */
ls_tensor *ls_dropout(ls_tensor *x, const char *name, double p);
ls_tensor *ls_add(ls_tensor *a, ls_tensor *b); /* of one shape */
ls_tensor *ls_mul(ls_tensor *a, ls_tensor *b); /* of one shape */
ls_tensor *ls_scale(ls_tensor *x, float factor,
                    float offset); /* factor x + offset; integer input becomes float */
ls_tensor *ls_reshape(ls_tensor *x, int rank, const int64_t *shape); /* one dimension may be -1 */
ls_tensor *ls_flatten(ls_tensor *x);                                 /* (B, ...) -> (B, n) */

/* scores (..., K), labels (...) of i32, i64 or u8 -> losses (...), one per target, not reduced. A
 * label of -100 is ignored (loss 0, weight 0); any other outside [0, K) ends the run with the
 * sample's index. */
ls_tensor *ls_cross_entropy(ls_tensor *scores, ls_tensor *labels);
/* 1 where the largest score is the label's (the first of equals counts), else 0; (...). Labels as
 * for ls_cross_entropy; ignored ones do not count in ls_report's mean. */
ls_tensor *ls_accuracy(ls_tensor *scores, ls_tensor *labels);

#ifdef __cplusplus
}
#endif
#endif
