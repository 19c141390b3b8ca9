/* Schedules against PyTorch's numbers, names, and the rules for a tensor. */
#include <math.h>

#include "testing.h"

#include "optim/optim.h"

#include "golden_optim.h"

static void against(const double *golden, ls_run_options options)
{
    assert_ok(ls__schedule_check(&options, GOLDEN_RATES));
    for (int step = 0; step < GOLDEN_RATES; step++) {
        double lr = ls__schedule_lr(&options, 0.5, step, GOLDEN_RATES);
        if (!(fabs(lr - golden[step]) < 1e-12))
            fail_msg("step %d: %.17g, PyTorch %.17g", step, lr, golden[step]);
    }
}

static void schedules_agree_with_pytorch(void **state)
{
    (void)state;
    against(golden_linear, (ls_run_options) { .schedule.kind = LS_SCHEDULE_LINEAR });
    against(golden_cosine, (ls_run_options) { .schedule.kind = LS_SCHEDULE_COSINE });
    against(golden_step,
            (ls_run_options) {
                .schedule = { .kind = LS_SCHEDULE_STEP, .step_size = 6, .gamma = 0.3 } });
    against(golden_warm_cosine,
            (ls_run_options) { .schedule = { .kind = LS_SCHEDULE_COSINE, .warmup_steps = 5 } });
    against(golden_warm_linear,
            (ls_run_options) { .schedule = { .kind = LS_SCHEDULE_LINEAR, .warmup_steps = 4 } });
}

static double halve(int64_t step, int64_t steps, void *user)
{
    assert_int_equal(steps, 100);
    return *(double *)user / (double)(step + 1);
}

static void schedules_at_their_edges(void **state)
{
    (void)state;
    ls_run_options o = { .schedule.warmup_steps = 4 };
    assert_true(ls__schedule_lr(&o, 8, 0, 0) == 2);
    assert_true(ls__schedule_lr(&o, 8, 3, 0) == 8);
    assert_true(ls__schedule_lr(&o, 8, 1000000, 0) == 8);
    o = (ls_run_options) { .schedule.kind = LS_SCHEDULE_COSINE };
    assert_true(ls__schedule_lr(&o, 8, 100, 100) == 0); /* behind the end, as after a resume */
    assert_true(ls__schedule_lr(&o, 8, 200, 100) == 0);
    o.schedule.warmup_steps = 500; /* longer than the run */
    assert_true(ls__schedule_lr(&o, 8, 99, 100) == 8 * (100 / 500.0));
    o = (ls_run_options) { .schedule.kind = LS_SCHEDULE_STEP }; /* a third of the run, by 0.1 */
    assert_true(ls__schedule_lr(&o, 8, 33, 100) == 8);
    assert_true(fabs(ls__schedule_lr(&o, 8, 34, 100) - 0.8) < 1e-15);
    assert_true(fabs(ls__schedule_lr(&o, 8, 99, 100) - 0.08) < 1e-15);
    double factor = 0.5;
    o = (ls_run_options) { .schedule = {
                               .kind = LS_SCHEDULE_COSINE, .custom = halve, .user = &factor } };
    assert_ok(ls__schedule_check(&o, 0));
    assert_true(ls__schedule_lr(&o, 8, 0, 100) == 4);
    assert_true(ls__schedule_lr(&o, 8, 3, 100) == 1);
}

static void schedules_without_an_end_are_refused(void **state)
{
    (void)state;
    ls_run_options o = { .schedule.kind = LS_SCHEDULE_COSINE };
    assert_fails(ls__schedule_check(&o, 0), LS_ERR_CONFIG, "cosine schedule needs");
    o.schedule.kind = LS_SCHEDULE_STEP;
    assert_fails(ls__schedule_check(&o, 0), LS_ERR_CONFIG, "max-steps");
    o.schedule.step_size = 10;
    assert_ok(ls__schedule_check(&o, 0));
    o.schedule.step_size = -3;
    assert_fails(ls__schedule_check(&o, 10), LS_ERR_CONFIG, "-3");
    o = (ls_run_options) { .schedule.warmup_steps = -5 };
    assert_fails(ls__schedule_check(&o, 10), LS_ERR_CONFIG, "-5");
    o = (ls_run_options) { .schedule.kind = (ls_schedule)17 };
    assert_fails(ls__schedule_check(&o, 10), LS_ERR_CONFIG, "17");
}

static void names(void **state)
{
    (void)state;
    assert_ptr_equal(ls__optimizer_by_name("sgd"), &ls_sgd);
    assert_ptr_equal(ls__optimizer_by_name("nesterov"), &ls_nesterov);
    assert_ptr_equal(ls__optimizer_by_name("adamw"), &ls_adamw);
    assert_null(ls__optimizer_by_name("adam"));
    assert_int_equal(ls__optimizer_states(&ls_sgd), 1);
    assert_int_equal(ls__optimizer_states(&ls_adamw), 2);
    assert_int_equal(ls__optimizer_states(&(ls_optimizer) { .name = "none" }), 0);
    for (ls_schedule s = LS_SCHEDULE_CONSTANT; s <= LS_SCHEDULE_STEP; s++) {
        ls_schedule back;
        assert_true(ls__schedule_parse(ls__schedule_name(s), &back));
        assert_int_equal(back, s);
    }
    ls_schedule any;
    assert_false(ls__schedule_parse("cos", &any));
}

static ls__param_settings settings(const ls_param_rule *rules, double decay, const char *name,
                                   bool decays)
{
    ls__param_settings out;
    ls__param_rules(rules, decay, name, decays, &out);
    return out;
}

static void rules_for_tensors(void **state)
{
    (void)state;
    const ls_param_rule rules[] = {
        { .match = "head.*", .lr_scale = 10 },
        { .match = "*.bias", .weight_decay = 0.3 },
        { .match = "block[01].*", .freeze = true },
        { .match = "block*", .weight_decay = LS_NONE },
        { 0 },
    };
    ls__param_settings s = settings(NULL, 0.1, "fc1.weight", true);
    assert_true(s.lr_scale == 1 && s.weight_decay == 0.1 && !s.frozen);
    s = settings(NULL, 0.1, "fc1.bias", false);
    assert_true(s.weight_decay == 0);
    s = settings(NULL, LS_NONE, "fc1.weight", true);
    assert_true(s.weight_decay == 0);
    s = settings(rules, 0.1, "head.bias", false); /* the first match counts */
    assert_true(s.lr_scale == 10 && s.weight_decay == 0 && !s.frozen);
    s = settings(rules, 0.1, "fc1.bias", false); /* a rule outranks "no decay for biases" */
    assert_true(s.lr_scale == 1 && s.weight_decay == 0.3);
    s = settings(rules, 0.1, "block1.weight", true);
    assert_true(s.frozen && s.weight_decay == 0.1);
    s = settings(rules, 0.1, "block2.weight", true);
    assert_true(!s.frozen && s.weight_decay == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_agree_with_pytorch),
        cmocka_unit_test(schedules_at_their_edges),
        cmocka_unit_test(schedules_without_an_end_are_refused),
        cmocka_unit_test(names),
        cmocka_unit_test(rules_for_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
