/* Activations and their slopes where exponentials overflow, underflow or are no numbers: on the
 * plain executor and on the CPU backend, against the formulas in double precision. */
#include "golden.h"

#include <math.h>

#include <lockstep/nn.h>

#include "testing.h"

static const float extremes[] = { INFINITY, -INFINITY, NAN,   100,   -100,   1e30f,  -1e30f, 88,
                                  -88,      20,        -20,   13.2f, -13.2f, 87.4f,  -87.4f, 5,
                                  -5,       0,         -0.0f, 1e-8f, -1e-8f, 1e-38f, -1e-40f };
enum { COUNT = sizeof extremes / sizeof *extremes };

static ls_tensor *(*const layers[])(ls_tensor *) = { ls_gelu, ls_gelu_tanh, ls_silu, ls_tanh,
                                                     ls_sigmoid };

/* A parameter's gradient is then the slope itself. */
static void step(ls_graph *g, void *user)
{
    ls_tensor *p = ls_param(g, "p", NULL, 2, (int64_t[]) { 1, COUNT });
    ls_tensor *y = ls_add(layers[*(const int *)user](p), ls_input(g, "zero"));
    ls_report(g, "y", y);
    ls_minimize(g, y, NULL);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double value(int layer, double x)
{
    switch (layer) {
    case 0:
        return x * erfc(-x * M_SQRT1_2) / 2;
    case 1:
        return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    case 2:
        return x * sigmoid(x);
    case 3:
        return tanh(x);
    default:
        return sigmoid(x);
    }
}

static double slope(int layer, double x)
{
    double c = 2 * sqrt(2 / M_PI), s;
    switch (layer) {
    case 0:
        return erfc(-x * M_SQRT1_2) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case 1:
        s = sigmoid(c * (x + 0.044715 * x * x * x));
        return s + x * s * (1 - s) * c * (1 + 3 * 0.044715 * x * x);
    case 2:
        return sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x));
    case 3:
        return 1 / (cosh(x) * cosh(x));
    default:
        return sigmoid(x) * (1 - sigmoid(x));
    }
}

/* At plus infinity a formula may be no number, and then its limit is as good: the value is infinite. */
static void check(const char *backend, int layer, const char *what, float x, float got,
                  double formula(int layer, double x))
{
    double want = formula(layer, (double)x);
    bool same = isnan(want) ? isnan(got) : isinf(want) ? (double)got == want : false;
    if (x == INFINITY && isnan(want)) want = formula(layer, 1e30);
    if (!same && !(fabs((double)got - want) <= 1e-6 * fabs(want) + 1e-30))
        fail_msg("%s, layer %d: %s at %g is %.9g and not %.9g", backend, layer, what, (double)x,
                 (double)got, want);
}

static void check_layer(const ls__backend *backend, int layer)
{
    const ls_field field = { "zero", LS_DTYPE_F32, 1, { COUNT } };
    ls__graph_options options = {
        .stage = LS_STAGE_TRAIN, .batch = 1, .fields = &field, .nfields = 1
    };
    float zeros[COUNT] = { 0 };
    int64_t count;
    execution e;
    execution_open(&e, backend, step, &layer, &options);
    e.fields[0] = zeros;
    memcpy(execution_param(&e, "p", &count), extremes, sizeof extremes);
    assert_ok(execution_run(&e));
    const float *y = execution_result(&e, "y").data, *dx = execution_grad(&e, "p", &count);
    for (int i = 0; i < COUNT; i++) {
        check(backend->name, layer, "value", extremes[i], y[i], value);
        check(backend->name, layer, "slope", extremes[i], dx[i], slope);
    }
    execution_close(&e);
}

static void test_extremes(void **state)
{
    (void)state;
    const ls__backend *backend = execution_backend(1);
    for (int layer = 0; layer < 5; layer++) {
        check_layer(&reference_backend, layer);
        check_layer(backend, layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_extremes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
