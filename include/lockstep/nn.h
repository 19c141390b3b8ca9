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

typedef struct ls_linear_options {
    int64_t features;
    bool rows; /* (..., in) -> (..., features): each row by itself, as transformers want */
    bool no_bias;
    double deviation;    /* weight normal with this deviation, bias 0; 0 = uniform as above */
    const char *tied_to; /* the weight is <tied_to>.weight, (features, in), an embedding's say */
} ls_linear_options;
ls_tensor *ls_linear_with(ls_tensor *x, const char *name, const ls_linear_options *options);

/* tokens (...) of i32, i64 or u8 -> (..., width): rows of weight (count, width), normal with this
 * deviation (0 = 1, as PyTorch). A token outside [0, count) ends the run with the sample's index. */
ls_tensor *ls_embedding(ls_tensor *tokens, const char *name, int64_t count, int64_t width,
                        double deviation);
/* (B,T,C): adds row t of weight (context, C) to each token; T <= context. */
ls_tensor *ls_position_embedding(ls_tensor *x, const char *name, int64_t context, double deviation);

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

/* Over the last dimension; weight = 1, bias = 0; eps 1e-5. Ba et al., "Layer normalization" (2016);
 * Zhang and Sennrich, "Root mean square layer normalization" (2019; no bias). */
ls_tensor *ls_layer_norm(ls_tensor *x, const char *name);
ls_tensor *ls_rms_norm(ls_tensor *x, const char *name);

/* Attention over the tokens of a sample. qkv (B, T, (heads + 2 kv_heads) D) holds queries, keys and
 * values of each token side by side, head by head -> (B, T, heads D). Each token sees itself and
 * those before it; with full, all. Never holds T x T numbers. While decoding (ls_decoder), keys and
 * values of earlier tokens are kept. name: of that memory. */
typedef struct ls_attention_options {
    int64_t heads;
    int64_t kv_heads; /* 0 = heads; fewer: grouped-query attention (Ainslie et al., 2023) */
    bool full;
    double scale; /* 0 = 1 / sqrt(D) */
} ls_attention_options;
ls_tensor *ls_attention(ls_tensor *qkv, const char *name, const ls_attention_options *options);
/* Turns queries and keys by their token's position. Su et al., "RoFormer" (2021), with the pairs
 * (i, i + D/2) of LLaMA's weights. theta 0 = 10000. */
ls_tensor *ls_rotary(ls_tensor *qkv, const ls_attention_options *options, double theta);

ls_tensor *ls_relu(ls_tensor *x);
ls_tensor *ls_gelu(ls_tensor *x);      /* x Phi(x) */
ls_tensor *ls_gelu_tanh(ls_tensor *x); /* its approximation by tanh: GPT-2's */
ls_tensor *ls_silu(ls_tensor *x);      /* x sigmoid(x) */
ls_tensor *ls_tanh(ls_tensor *x);
ls_tensor *ls_sigmoid(ls_tensor *x);
ls_tensor *ls_softmax(ls_tensor *x); /* over the last dimension */
/* Zeroes elements with probability p and scales the others by 1/(1-p), in training; the mask is a
 * function of (seed, step, name, sample, element). */
ls_tensor *ls_dropout(ls_tensor *x, const char *name, double p);
/* Element by element; shapes broadcast as in NumPy, but the batch meets the batch only. */
ls_tensor *ls_add(ls_tensor *a, ls_tensor *b);
ls_tensor *ls_sub(ls_tensor *a, ls_tensor *b);
ls_tensor *ls_mul(ls_tensor *a, ls_tensor *b);
ls_tensor *ls_div(ls_tensor *a, ls_tensor *b);
/* Along dimension dim (negative counts from the end), which goes away; never along the batch. */
ls_tensor *ls_sum(ls_tensor *x, int dim);
ls_tensor *ls_mean(ls_tensor *x, int dim);
ls_tensor *ls_max(ls_tensor *x, int dim);
ls_tensor *ls_scale(ls_tensor *x, float factor,
                    float offset); /* factor x + offset; integer input becomes float */
ls_tensor *ls_reshape(ls_tensor *x, int rank, const int64_t *shape); /* one dimension may be -1 */
ls_tensor *ls_flatten(ls_tensor *x);                                 /* (B, ...) -> (B, n) */
/* Dimensions count from the end when negative; the batch stays where it is and whole. */
ls_tensor *ls_transpose(ls_tensor *x, int a, int b); /* exchanges two dimensions */
ls_tensor *ls_narrow(ls_tensor *x, int dim, int64_t begin, int64_t size); /* a part along dim */
ls_tensor *ls_concat(ls_tensor *const *xs, int n, int dim);               /* at most 16 */

/* scores (..., K), labels (...) of i32, i64 or u8 -> losses (...), one per target, not reduced. A
 * label of -100 is ignored (loss 0, weight 0); any other outside [0, K) ends the run with the
 * sample's index. */
ls_tensor *ls_cross_entropy(ls_tensor *scores, ls_tensor *labels);
/* x and target (f32) of one shape -> losses of that shape, not reduced. */
ls_tensor *ls_mse(ls_tensor *x, ls_tensor *target);                  /* (x - target)^2 */
ls_tensor *ls_bce_with_logits(ls_tensor *scores, ls_tensor *target); /* target in [0, 1] */
ls_tensor *ls_smooth_l1(ls_tensor *x, ls_tensor *target, double beta);
/* 1 where the largest score is the label's (the first of equals counts), else 0; (...). Labels as
 * for ls_cross_entropy; ignored ones do not count in ls_report's mean. */
ls_tensor *ls_accuracy(ls_tensor *scores, ls_tensor *labels);

#ifdef __cplusplus
}
#endif
#endif
