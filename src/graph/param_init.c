/* First values of parameters: a function of (seed, name), so that neither the order of layers nor
 * the rank matters. Runs once per run, on one rank. */
#include "graph/construct.h"

#include <math.h>
#include <string.h>

#include <xxhash.h>

#include "base/random.h"

static float draw_uniform(ls_rng *rng, double scale)
{
    float value = (float)((2 * ls_rng_uniform(rng) - 1) * scale);
    return value < (float)scale ? value : nextafterf((float)scale, -INFINITY);
}

void ls__graph_init_param(const ls__graph_param *param, uint64_t seed, float *out)
{
    int64_t count = ls__tensor_count(param->tensor);
    double scale = param->init.scale;
    ls_rng rng;
    ls__rng_init(&rng, seed, "init", XXH3_64bits(param->name, strlen(param->name)), 0);
    switch (param->init.kind) {
    case LS_INIT_ZEROS:
        for (int64_t i = 0; i < count; i++) out[i] = 0;
        break;
    case LS_INIT_CONSTANT:
        for (int64_t i = 0; i < count; i++) out[i] = (float)scale;
        break;
    case LS_INIT_UNIFORM:
        for (int64_t i = 0; i < count; i++) out[i] = scale > 0 ? draw_uniform(&rng, scale) : 0;
        break;
    case LS_INIT_NORMAL:
        for (int64_t i = 0; i < count; i++) out[i] = (float)(scale * ls_rng_normal(&rng));
        break;
    }
}
