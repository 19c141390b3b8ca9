/* Three classifiers of small images to choose from: a perceptron, a convolutional and a residual
 * network. */
#include "recipe/image.h"

#include <string.h>

/* (B,C,H,W) -> (B,128) */
static ls_tensor *mlp(ls_tensor *x)
{
    ls_tensor *h = ls_relu(ls_linear(x, "fc1", 256));
    return ls_relu(ls_linear(h, "fc2", 128));
}

/* (B,C,H,W) -> (B,128) */
static ls_tensor *cnn(ls_tensor *x)
{
    x = ls_conv2d(x, "conv1", &(ls_conv2d_options) { .channels = 32, .kernel = 3, .padding = 1 });
    x = ls_max_pool2d(ls_relu(x), 2); /* (B,32,H/2,W/2) */
    x = ls_conv2d(x, "conv2", &(ls_conv2d_options) { .channels = 64, .kernel = 3, .padding = 1 });
    x = ls_max_pool2d(ls_relu(x), 2); /* (B,64,H/4,W/4) */
    x = ls_relu(ls_linear(x, "fc1", 128));
    return ls_dropout(x, "drop1", 0.3);
}

static ls_tensor *conv_norm(ls_graph *g, ls_tensor *x, const char *name, int64_t channels,
                            int kernel, int stride)
{
    ls_conv2d_options options = {
        .channels = channels, .kernel = kernel, .stride = stride, .no_bias = true
    };
    options.padding = kernel / 2;
    return ls_batch_norm(ls_conv2d(x, name, &options), ls_name(g, "%s.norm", name));
}

/* He et al., "Deep residual learning for image recognition" (CVPR 2016), with one block a stage.
 * (B,C,H,W) -> (B,64) */
static ls_tensor *resnet(ls_graph *g, ls_tensor *x)
{
    x = ls_relu(conv_norm(g, x, "stem", 16, 3, 1));
    for (int stage = 0; stage < 3; stage++) {
        int64_t channels = 16 << stage;
        int stride = stage ? 2 : 1;
        const char *name = ls_name(g, "stage%d", stage + 1);
        ls_tensor *h = ls_relu(conv_norm(g, x, ls_name(g, "%s.conv1", name), channels, 3, stride));
        h = conv_norm(g, h, ls_name(g, "%s.conv2", name), channels, 3, 1);
        if (stage) x = conv_norm(g, x, ls_name(g, "%s.shortcut", name), channels, 1, stride);
        x = ls_relu(ls_add(x, h));
    }
    return ls_global_avg_pool2d(x);
}

void recipe_image_step(ls_graph *g, void *user)
{
    const recipe_image *recipe = user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 127.5f, -1); /* (B,C,H,W) in [-1, 1] */
    ls_tensor *y = ls_input(g, "label");                           /* (B) */
    ls_tensor *h = strcmp(recipe->model, "mlp") == 0   ? mlp(x)
                   : strcmp(recipe->model, "cnn") == 0 ? cnn(x)
                                                       : resnet(g, x);
    ls_tensor *scores = ls_linear(h, "head", recipe->classes); /* (B,classes) */
    ls_output(g, "scores", scores);
    ls_minimize(g, ls_cross_entropy(scores, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(scores, y));
}
