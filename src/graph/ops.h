/* The built-in operations: what each computes, exactly. The contract between their rules (op_*.c in
 * this folder: shape rule, gradient rule, flops) and a backend's kernels; compute is NULL in all of
 * them, so a backend must have a kernel for every one in LS__OP_MAP, found by its address.
 *
 * Written as: name: inputs -> outputs; attributes; formula. All f32 unless a type is named. Inputs
 * in [] may be absent (nin says). B is any number of rows, the micro-batch or a multiple; S stands
 * for zero or more trailing dimensions. Attributes are plain structs, zeroed before being filled.
 *
 * NaN goes through everything (relu, pools): divergence must show.
 *
 * bf16-mixed: ls_tensor.half and ls__node.half (graph_internal.h) say what is stored and multiplied
 * in bf16; the formulas stay, sums are f32.
 *
 * Fusion (linear + relu, batch norm + relu, add + relu) is the backend's: relu's gradient reads
 * relu's output, so the value before it has no second reader unless the model has one. A backward
 * node's output that is a parameter's gradient (ls__graph_param.grad) belongs to no other parameter
 * and is no view, so a kernel may write it straight into the gradient space. */
#ifndef LS_GRAPH_OPS_H
#define LS_GRAPH_OPS_H

#include <lockstep/op.h>

/* X(name): ls__op_<name> */
#define LS__OP_MAP(X)                                                                              \
    X(linear)                                                                                      \
    X(linear_grad_x)                                                                               \
    X(linear_grad_weight)                                                                          \
    X(conv2d)                                                                                      \
    X(conv2d_grad_x)                                                                               \
    X(conv2d_grad_weight)                                                                          \
    X(max_pool2d)                                                                                  \
    X(max_pool2d_grad)                                                                             \
    X(avg_pool2d)                                                                                  \
    X(avg_pool2d_grad)                                                                             \
    X(global_avg_pool2d)                                                                           \
    X(global_avg_pool2d_grad)                                                                      \
    X(batch_norm)                                                                                  \
    X(batch_norm_grad)                                                                             \
    X(batch_norm_inference)                                                                        \
    X(relu)                                                                                        \
    X(relu_grad)                                                                                   \
    X(dropout)                                                                                     \
    X(add)                                                                                         \
    X(mul)                                                                                         \
    X(scale)                                                                                       \
    X(copy)                                                                                        \
    X(reshape)                                                                                     \
    X(embedding)                                                                                   \
    X(embedding_grad)                                                                              \
    X(position_embedding)                                                                          \
    X(position_embedding_grad)                                                                     \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad)                                                                             \
    X(rms_norm)                                                                                    \
    X(rms_norm_grad)                                                                               \
    X(activation)                                                                                  \
    X(activation_grad)                                                                             \
    X(rotary)                                                                                      \
    X(attention)                                                                                   \
    X(attention_grad)                                                                              \
    X(attention_cached)                                                                            \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(sub)                                                                                         \
    X(div)                                                                                         \
    X(sum_to)                                                                                      \
    X(reduce)                                                                                      \
    X(reduce_grad)                                                                                 \
    X(transpose)                                                                                   \
    X(slice)                                                                                       \
    X(slice_grad)                                                                                  \
    X(concat)                                                                                      \
    X(elementwise_loss)                                                                            \
    X(elementwise_loss_grad)                                                                       \
    X(cross_entropy)                                                                               \
    X(cross_entropy_grad)                                                                          \
    X(accuracy)                                                                                    \
    X(loss_grad)

#define LS__OP_DECLARE(name) extern const ls_op ls__op_##name;
LS__OP_MAP(LS__OP_DECLARE)
#undef LS__OP_DECLARE

/* --- linear (op_linear.c); no attributes ---
 * linear:             x (B,K), weight (N,K), [bias (N)] -> y (B,N);  y = x weight^T + bias
 * linear_grad_x:      g (B,N), weight (N,K) -> dx (B,K);             dx = g weight
 * linear_grad_weight: g (B,N), x (B,K) -> dw (N,K), [db (N)];        dw = g^T x, db = column sums
 *                     of g (nout says whether db is wanted) */

/* --- convolution (op_conv2d.c): cross-correlation, as everybody in the field means it ---
 * conv2d:             x (B,C,H,W), weight (O,C,k,k), [bias (O)] -> y (B,O,H',W')
 *                     H' = (H + 2 padding - k) / stride + 1, rounded down; W' alike
 *                     y[b,o,i,j] = bias[o] + sum over c,u,v of weight[o,c,u,v]
 *                                  x[b, c, i stride + u - padding, j stride + v - padding]
 *                     with x = 0 outside
 * conv2d_grad_x:      g (B,O,H',W'), weight (O,C,k,k) -> dx (B,C,height,width)
 * conv2d_grad_weight: g (B,O,H',W'), x (B,C,H,W) -> dw (O,C,k,k), [db (O)] */
typedef struct ls__conv2d_attributes {
    int64_t kernel, stride, padding;
    int64_t height, width; /* of x */
} ls__conv2d_attributes;

/* --- pools (op_pool.c): windows of size x size side by side, a rest at the edge is dropped ---
 * max_pool2d:      x (B,C,H,W) -> y (B,C,H/size,W/size), [index (as y)]
 *                  index = u size + v of the largest in its window, the first of equals, row by
 *                  row; u8 where size <= 16, else i32. Only when training. A NaN is larger than
 *                  all.
 * max_pool2d_grad: g (B,C,H',W'), index -> dx (B,C,height,width); g at index, else 0
 * avg_pool2d:      x (B,C,H,W) -> y (B,C,H/size,W/size)
 * avg_pool2d_grad: g (B,C,H',W') -> dx (B,C,height,width); g / size^2 in the window, 0 in the rest
 * global_avg_pool2d:      x (B,C,H,W) -> y (B,C)
 * global_avg_pool2d_grad: g (B,C) -> dx (B,C,height,width); g / (height width) */
typedef struct ls__pool2d_attributes {
    int64_t size;          /* 0 for the global pool */
    int64_t height, width; /* of x */
} ls__pool2d_attributes;

/* --- batch norm (op_batch_norm.c): channels are dimension 1 ---
 * Groups are `group` consecutive samples counted from the micro-batch's first; the last may be
 * short. G = ceil(B / group); n = elements per channel of a group = its samples * |S|.
 * batch_norm:      x (B,C,S), weight (C), bias (C)
 *                  -> y (B,C,S), mean (G,C), inverse (G,C), sum_mean (C), sum_variance (C)
 *                  variance = mean of (x - mean)^2; inverse = 1 / sqrt(variance + epsilon)
 *                  y = (x - mean) inverse weight + bias
 *                  sum_mean = sum over groups, in order, of samples of the group * mean
 *                  sum_variance = alike with variance n / max(n - 1, 1)
 * batch_norm_grad: g (B,C,S), x (B,C,S), weight (C), mean (G,C), inverse (G,C)
 *                  -> dx (B,C,S), dweight (C), dbias (C)
 *                  h = (x - mean) inverse; per group s = sum of g, t = sum of g h;
 *                  dx = weight inverse (g - s / n - h t / n); dbias, dweight = sums over groups, in
 *                  order, of s, t
 * batch_norm_inference:      x (B,C,S), weight, bias, mean, variance (C) -> y
 *                            y = (x - mean) / sqrt(variance + epsilon) weight + bias */
typedef struct ls__batch_norm_attributes {
    int64_t group; /* 0 in inference */
    double epsilon;
} ls__batch_norm_attributes;

/* --- element by element (op_elementwise.c) ---
 * relu:      x -> y;     y = x < 0 ? 0 : x
 * relu_grad: g, y -> dx; dx = y <= 0 ? 0 : g
 * add, sub, mul, div: a, b -> y (op_binary.c); shapes as NumPy broadcasts them: aligned at the last
 *            dimension, of which one may be 1 or missing. (A tensor with several readers has its
 *            gradients summed by add.)
 * sum_to:    x -> y of the shape in the attributes, which broadcasts to x's: sums over what was
 *            broadcast, in row-major order of x
 * scale:     x (f32, u8, i32, i64) -> y; y = factor (float)x + offset
 * copy:      x -> y = x, any type
 * reshape:   x -> y, the same elements in the same row-major order: a view, no kernel where x is
 *            plain */
typedef struct ls__scale_attributes {
    float factor, offset;
} ls__scale_attributes;

typedef struct ls__shape_attributes { /* of sum_to and reshape */
    int64_t rank;
    int64_t shape[LS_MAX_RANK];
} ls__shape_attributes;
typedef ls__shape_attributes ls__reshape_attributes;

/* --- embeddings (op_embedding.c): L stands for the dimensions of tokens, i32, i64 or u8 ---
 * embedding:      tokens (L), weight (V,C) -> y (L,C); row tokens of weight. A token outside [0,V):
 *                 the run fails.
 * embedding_grad: g (L,C), tokens (L) -> dweight (V,C); rows of g added up in order, others 0
 * position_embedding:      x (B,T,C), weight (S,C), [position (B) i32] -> y (B,T,C)
 *                          y[b,t] = x[b,t] + weight[position[b] + t]; position 0 where absent
 * position_embedding_grad: g (B,T,C) -> dweight (S,C); row t is the sum over b of g[b,t], in order,
 *                          rows from T on are 0 */
typedef struct ls__embedding_attributes {
    int64_t rows; /* V or S, for the gradients; else 0 */
} ls__embedding_attributes;

/* --- norms over the last dimension (op_norm.c): R stands for all dimensions before it ---
 * layer_norm:      x (R,C), weight (C), [bias (C)] -> y (R,C), mean (R), inverse (R)
 *                  variance = mean of (x - mean)^2; inverse = 1 / sqrt(variance + epsilon)
 *                  y = (x - mean) inverse weight + bias
 * layer_norm_grad: g (R,C), x (R,C), weight (C), mean (R), inverse (R)
 *                  -> dx (R,C), dweight (C), [dbias (C)] (nout says whether dbias is wanted)
 *                  h = (x - mean) inverse; u = g weight;
 *                  dx = inverse (u - mean of u - h mean of (u h)); dweight = sum of g h, dbias = sum
 *                  of g
 * rms_norm:        x (R,C), weight (C) -> y (R,C), inverse (R)
 *                  inverse = 1 / sqrt(mean of x^2 + epsilon); y = x inverse weight
 * rms_norm_grad:   g, x, weight, inverse -> dx (R,C), dweight (C)
 *                  h = x inverse; u = g weight; dx = inverse (u - h mean of (u h)); dweight = sum of
 *                  g h */
typedef struct ls__norm_attributes {
    double epsilon;
} ls__norm_attributes;

/* --- activations with a curve (op_activation.c) ---
 * activation:      x -> y
 * activation_grad: g, x -> dx = g * derivative at x
 * gelu:      x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2
 * gelu_tanh: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
 * silu:      x sigmoid(x) */
typedef enum ls__activation_kind {
    LS__ACTIVATION_GELU,
    LS__ACTIVATION_GELU_TANH,
    LS__ACTIVATION_SILU,
    LS__ACTIVATION_TANH,
    LS__ACTIVATION_SIGMOID,
} ls__activation_kind;
typedef struct ls__activation_attributes {
    int64_t kind; /* ls__activation_kind */
} ls__activation_attributes;

/* --- attention (op_attention.c): H heads of queries, K <= H heads of keys and values (K divides H;
 * head h reads keys and values of head h / (H / K)), D numbers each. W = (H + 2 K) D: a row of qkv
 * holds all queries, then all keys, then all values, each head by head. ---
 * rotary:           x (B,T,W), [position (B) i32] -> y (B,T,W)
 *                   Turns queries and keys, copies values. Pairs (i, i + D/2) of each head, as
 *                   LLaMA's weights expect: angle = (position[b] + t) theta^(-2i/D), negative with
 *                   inverse; (u, v) -> (u cos - v sin, u sin + v cos). D is even. The gradient is the
 *                   same operation with the other inverse.
 * attention:        qkv (B,T,W) -> y (B,T,H D), [logsum (B,H,T)], logsum only when training
 *                   s[t,u] = scale q[t].k[u] for u <= t (all u when not causal);
 *                   logsum[t] = log of the sum over u of exp(s[t,u]), computed from the maximum;
 *                   y[t] = sum over u of exp(s[t,u] - logsum[t]) v[u]
 *                   In tiles: no T x T matrix exists. Dao et al., "FlashAttention" (2022).
 * attention_grad:   g (B,T,H D), qkv, y, logsum -> dqkv (B,T,W)
 *                   p[t,u] = exp(s[t,u] - logsum[t]); r[t] = g[t].y[t]; dp[t,u] = g[t].v[u];
 *                   ds = scale p (dp - r); dq[t] = sum over u of ds[t,u] k[u];
 *                   dk[u] = sum over t of ds[t,u] q[t]; dv[u] = sum over t of p[t,u] g[t]
 *                   (keys and values shared by heads: summed over those heads, in order)
 * attention_cached: qkv (B,T,W), cache (B,S,2 K D), position (B) i32 -> y (B,T,H D)
 *                   Puts keys and values of the T new tokens into rows position[b]... of the cache
 *                   (a state, written in place), then attends causally to rows [0, position[b]+t].
 *                   Not differentiable. */
typedef struct ls__attention_attributes {
    int64_t heads, kv_heads, width; /* H, K, D */
    int64_t causal;
    double scale;
} ls__attention_attributes;
typedef struct ls__rotary_attributes {
    int64_t heads, kv_heads, width;
    double theta;
    int64_t inverse;
} ls__rotary_attributes;

/* --- softmax over the last dimension (op_softmax.c) ---
 * softmax:      x (R,C) -> y = exp(x - max) / sum
 * softmax_grad: g, y -> dx = y (g - sum of g y) */

/* --- reductions (op_reduce.c): one dimension goes away; never the micro-batch's ---
 * reduce:      x -> y; sum, mean or the largest (a NaN is larger than all) along `dim`
 * reduce_grad: g, [x, y (max only)] -> dx; `size` is x's extent along dim. sum: g; mean: g / size;
 *              max: g at the first largest, else 0 */
typedef enum ls__reduce_kind { LS__REDUCE_SUM, LS__REDUCE_MEAN, LS__REDUCE_MAX } ls__reduce_kind;
typedef struct ls__reduce_attributes {
    int64_t kind, dim, size;
} ls__reduce_attributes;

/* --- moving elements (op_move.c); any type ---
 * transpose:  x -> y with dimensions a and b exchanged; its gradient is itself
 * slice:      x -> y = elements [begin, begin + size) along dim
 * slice_grad: g -> dx; 0 outside the slice; `whole` is x's extent along dim
 * concat:     x_0, x_1, ... -> y, side by side along dim; the gradients are slices */
typedef struct ls__transpose_attributes {
    int64_t a, b;
} ls__transpose_attributes;
typedef struct ls__slice_attributes {
    int64_t dim, begin, size, whole;
} ls__slice_attributes;
typedef struct ls__concat_attributes {
    int64_t dim;
} ls__concat_attributes;

/* --- dropout (op_dropout.c): x (B,S) -> y ---
 * The gradient is the same operation with the same attributes on g.
 * Element e (row-major within its sample) of sample b: key = ls__dropout_key(attributes, seed);
 * block = ls__philox(key, {e / 4, first + b, step mod 2^32, step / 2^32}); kept when
 * block[e % 4] >= threshold; y = kept ? x * factor : 0. */
typedef struct ls__dropout_attributes {
    uint64_t name_hash; /* XXH3 of the name */
    uint64_t threshold; /* floor(p 2^32), up to 2^32 */
    float factor;       /* 1 / (1 - p); 0 where p = 1 */
} ls__dropout_attributes;
void ls__dropout_key(const ls__dropout_attributes *attributes, uint64_t seed, uint32_t key[2]);

/* --- losses and scores (op_loss.c): L stands for the dimensions of labels, i32, i64 or u8 ---
 * cross_entropy:      scores (L,K), labels (L) -> losses (L), weights (L), logsum (L)
 *                     logsum = log of the sum over k of exp(scores), computed from the maximum;
 *                     losses = logsum - scores[label]; weights = 1. Where the label is
 *                     LS__LABEL_IGNORED: losses = weights = 0, logsum is not looked at. Any other
 *                     label outside [0,K): the run fails.
 * cross_entropy_grad: g (L), scores (L,K), labels (L), logsum (L) -> dscores (L,K)
 *                     (exp(scores - logsum) - [k = label]) g; 0 where the label is ignored
 * accuracy:           scores (L,K), labels (L) -> correct (L), weights (L)
 *                     1 where the label is the first of the largest scores (a NaN is larger than
 *                     all), else 0; weights and labels as in cross_entropy
 * loss_grad:          losses (L) (its shape only), [weights (L)] -> seed (L)
 *                     context's grad_seed * (weights or 1): where the backward pass begins */
#define LS__LABEL_IGNORED (-100)

/* --- losses element by element (op_elementwise_loss.c) ---
 * elementwise_loss:      x, target (f32, of one shape) -> losses (as x), d = x - target
 *                        mse: d^2; bce (x before the sigmoid): max(x,0) - x target + log(1 +
 *                        exp(-|x|)); smooth_l1: |d| < beta ? d^2 / (2 beta) : |d| - beta / 2
 * elementwise_loss_grad: g, x, target -> dx. A target that depends on parameters is refused (its
 *                        gradient, for inputs, is -dx, of bce -g x). */
typedef enum ls__loss_kind { LS__LOSS_MSE, LS__LOSS_BCE, LS__LOSS_SMOOTH_L1 } ls__loss_kind;
typedef struct ls__elementwise_loss_attributes {
    int64_t kind;
    double beta;
} ls__elementwise_loss_attributes;

#endif
