/* The optimizers against PyTorch's numbers, and bits that do not depend on where a slice is cut. */
#include <math.h>

#include "testing.h"

#include <lockstep/optimizer.h>

#include "golden_optim.h"

static float value_at(int numerator, int denominator)
{
    return (float)numerator / (float)denominator;
}

static void start(float *param)
{
    for (int i = 0; i < GOLDEN_COUNT; i++) param[i] = value_at((37 * i + 11) % 64 - 32, 64);
}

/* Divided by scale, which is exact for powers of two. */
static void gradient(float *grad, int step, float scale)
{
    for (int i = 0; i < GOLDEN_COUNT; i++)
        grad[i] = value_at((29 * i + 17 * step * step + 5) % 128 - 64, 64) / scale;
}

static void against(const float (*golden)[GOLDEN_COUNT], const ls_optimizer *optimizer,
                    ls_slice slice)
{
    float param[GOLDEN_COUNT], grad[GOLDEN_COUNT], a[GOLDEN_COUNT] = { 0 }, b[GOLDEN_COUNT] = { 0 };
    start(param);
    slice.param = param;
    slice.grad = grad;
    slice.state = (float *const[]) { a, b };
    slice.count = GOLDEN_COUNT;
    slice.grad_scale = 0.25F;
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        gradient(grad, step, slice.grad_scale);
        slice.step = step + 1;
        optimizer->update(&slice);
        for (int i = 0; i < GOLDEN_COUNT; i++)
            if (!(fabsf(param[i] - golden[step][i]) <= 1e-6F))
                fail_msg("%s: step %d, element %d: %.9g, PyTorch %.9g", optimizer->name, step, i,
                         param[i], golden[step][i]);
    }
}

static void agrees_with_pytorch(void **state)
{
    (void)state;
    against(golden_sgd_plain, &ls_sgd, (ls_slice) { .lr = 0.1 });
    against(golden_sgd_plain, &ls_nesterov, (ls_slice) { .lr = 0.1 });
    against(golden_sgd_decay, &ls_sgd, (ls_slice) { .lr = 0.1, .weight_decay = 0.05 });
    ls_slice fast = { .lr = 0.05, .momentum = 0.9, .weight_decay = 0.01 };
    against(golden_sgd_momentum, &ls_sgd, fast);
    against(golden_nesterov, &ls_nesterov, fast);
    against(golden_adamw, &ls_adamw, (ls_slice) { .lr = 0.01, .beta1 = 0.9, .beta2 = 0.999 });
    against(golden_adamw_decay, &ls_adamw,
            (ls_slice) { .lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1 });
}

enum { LONG = 1003 };
typedef struct arrays {
    float param[LONG], grad[LONG], a[LONG], b[LONG];
} arrays;

static void fill(arrays *x)
{
    uint32_t r = 12345;
    float *all = (float *)x;
    for (size_t i = 0; i < sizeof *x / sizeof(float); i++) {
        r = r * 1664525U + 1013904223U;
        all[i] = ((float)(r >> 8) / 8388608.0F - 1) * 3.1F;
    }
    for (int i = 0; i < LONG; i++) x->b[i] = fabsf(x->b[i]);
}

static void update_range(const ls_optimizer *optimizer, const ls_slice *like, arrays *x, int begin,
                         int end)
{
    ls_slice slice = *like;
    slice.param = x->param + begin;
    slice.grad = x->grad + begin;
    slice.grad_scale = 0.3F;
    slice.state = (float *const[]) { x->a + begin, x->b + begin };
    slice.count = end - begin;
    optimizer->update(&slice);
}

/* One long slice, single elements, and cuts at odd places give each element the same bits. */
static void cuts_change_no_bit(void **state)
{
    (void)state;
    static arrays whole, cut;
    const ls_optimizer *const all[] = { &ls_sgd, &ls_nesterov, &ls_adamw };
    for (int momentum = 0; momentum < 2; momentum++) {
        ls_slice like = { .step = 3,
                          .lr = 0.013,
                          .weight_decay = 0.07,
                          .momentum = 0.9 * momentum,
                          .beta1 = 0.9,
                          .beta2 = 0.999 };
        for (int k = 0; k < 3; k++) {
            for (int width = 1; width < 70; width += 4) {
                fill(&whole);
                fill(&cut);
                update_range(all[k], &like, &whole, 0, LONG);
                for (int begin = 0; begin < LONG; begin += width)
                    update_range(all[k], &like, &cut, begin,
                                 begin + width < LONG ? begin + width : LONG);
                assert_memory_equal(&whole, &cut, sizeof whole);
            }
        }
    }
}

static void an_empty_slice_is_fine(void **state)
{
    (void)state;
    static arrays x;
    ls_slice like = { .step = 1, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .momentum = 0.9 };
    update_range(&ls_sgd, &like, &x, 0, 0);
    update_range(&ls_nesterov, &like, &x, 0, 0);
    update_range(&ls_adamw, &like, &x, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_pytorch),
        cmocka_unit_test(cuts_change_no_bit),
        cmocka_unit_test(an_empty_slice_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
