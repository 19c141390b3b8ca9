/* The model of a table: numbers as they are, categories through embeddings, a perceptron behind
 * them. */
#include "recipe/table.h"

#include <math.h>
#include <stdlib.h>

enum { JOINED_MAX = 16 /* by one ls_concat */, EMBEDDING_MAX = 32 };

/* --- metrics of a regression, in the target's own unit --- */

typedef struct error_sum {
    double sum;
    int64_t count;
} error_sum;

static void add_squares(void *state, const ls_array *errors, int n)
{
    error_sum *s = state;
    const float *e = errors[0].data;
    for (int64_t i = 0; n == 1 && i < ls_array_count(&errors[0]); i++)
        s->sum += (double)e[i] * (double)e[i];
    s->count += ls_array_count(&errors[0]);
}

static void add_magnitudes(void *state, const ls_array *errors, int n)
{
    error_sum *s = state;
    const float *e = errors[0].data;
    for (int64_t i = 0; n == 1 && i < ls_array_count(&errors[0]); i++) s->sum += fabs((double)e[i]);
    s->count += ls_array_count(&errors[0]);
}

static void merge_sums(void *state, const void *next)
{
    error_sum *a = state;
    const error_sum *b = next;
    a->sum += b->sum;
    a->count += b->count;
}

static double mean_of(const void *state)
{
    const error_sum *s = state;
    return s->sum / (double)s->count;
}

static double root_of_mean(const void *state)
{
    return sqrt(mean_of(state));
}

static const ls_metric rmse = { "rmse",      sizeof(error_sum), LS_MODE_MIN,
                                add_squares, merge_sums,        root_of_mean };
static const ls_metric mae = { "mae",          sizeof(error_sum), LS_MODE_MIN,
                               add_magnitudes, merge_sums,        mean_of };

/* --- the model --- */

/* (B,m) -> one (B,width) per category */
static int embed(ls_graph *g, const ls_table_schema *schema, ls_tensor **out)
{
    const int64_t *sizes;
    int n = ls_table_categories(schema, &sizes);
    ls_tensor *categories = n > 0 ? ls_input(g, "categories") : NULL;
    for (int i = 0; i < n; i++) {
        int64_t width = (sizes[i] + 1) / 2 < EMBEDDING_MAX ? (sizes[i] + 1) / 2 : EMBEDDING_MAX;
        ls_tensor *one = ls_narrow(categories, 1, i, 1); /* (B,1) */
        out[i] = ls_flatten(ls_embedding(one, ls_name(g, "category%d", i), sizes[i], width, 0.1));
    }
    return n;
}

/* (B, ...) each, side by side. */
static ls_tensor *join(ls_tensor **parts, int n)
{
    ls_tensor *x = parts[0];
    for (int i = 1; i < n; i += JOINED_MAX - 1) {
        ls_tensor *some[JOINED_MAX] = { x };
        int count = 1;
        while (count < JOINED_MAX && i + count - 1 < n) {
            some[count] = parts[i + count - 1];
            count++;
        }
        x = ls_concat(some, count, 1);
    }
    return x;
}

/* (B, columns) */
static ls_tensor *inputs(ls_graph *g, const ls_table_schema *schema)
{
    int n = 0, ncategories = ls_table_categories(schema, NULL);
    ls_tensor **parts = calloc((size_t)ncategories + 1, sizeof(ls_tensor *));
    if (!parts) return NULL;
    if (ls_table_numbers(schema) > 0) parts[n++] = ls_input(g, "numbers");
    n += embed(g, schema, parts + n);
    ls_tensor *x = join(parts, n);
    free(parts);
    return x;
}

void recipe_table_step(ls_graph *g, void *user)
{
    const recipe_table *recipe = user;
    int64_t classes = ls_table_classes(recipe->schema);
    ls_tensor *x = inputs(g, recipe->schema), *y = ls_input(g, "target"); /* (B) */
    for (int i = 0; i < recipe->layers; i++) {
        x = ls_relu(ls_linear(x, ls_name(g, "fc%d", i + 1), recipe->width));
        if (recipe->dropout > 0) x = ls_dropout(x, ls_name(g, "drop%d", i + 1), recipe->dropout);
    }
    if (classes > 0) {
        ls_tensor *scores = ls_linear(x, "head", classes); /* (B,classes) */
        ls_output(g, "scores", scores);
        ls_minimize(g, ls_cross_entropy(scores, y), NULL);
        ls_report(g, "accuracy", ls_accuracy(scores, y));
        return;
    }
    double mean, deviation;
    ls_table_target_scale(recipe->schema, &mean, &deviation);
    ls_tensor *z = ls_reshape(ls_linear(x, "head", 1), 1, (const int64_t[]) { -1 }); /* (B) */
    ls_tensor *error = ls_scale(ls_sub(z, y), (float)deviation, 0);
    ls_output(g, "prediction", ls_scale(z, (float)deviation, (float)mean));
    ls_minimize(g, ls_mse(z, y), NULL);
    ls_report_metric(g, &rmse, &error, 1);
    ls_report_metric(g, &mae, &error, 1);
}
