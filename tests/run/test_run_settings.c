/* How options are resolved: which source wins, what the defaults are, what is refused and how. */
#include "testing.h"

#include <math.h>

#include "base/memory.h"
#include "optim/optim.h"
#include "run/settings.h"

/* Options as a command line sets them. */
static ls__options *parse(const char *const *words)
{
    char *argv[16] = { (char *)(uintptr_t) "prog" };
    int argc = 1;
    for (; words[argc - 1]; argc++) argv[argc] = (char *)(uintptr_t)words[argc - 1];
    argv[argc] = NULL;
    char **args = argv;
    ls__options *o;
    assert_ok(ls__options_parse(&argc, &args, NULL, &o));
    return o;
}
#define LINE(...) ((const char *const[]) { __VA_ARGS__, NULL })

/* Settings borrow from the options: they are kept until a test ends. */
static ls__options *kept[8];
static int nkept;

static ls__settings resolve(const char *const *words, const ls_run_options *options)
{
    ls__settings s;
    kept[nkept] = parse(words);
    assert_ok(ls__settings_resolve(kept[nkept++], options, &s));
    return s;
}

static int free_kept(void **state)
{
    (void)state;
    while (nkept > 0) ls__options_free(kept[--nkept]);
    return 0;
}

static void defaults_are_what_the_header_says(void **state)
{
    (void)state;
    ls__settings s;
    assert_ok(ls__settings_resolve(NULL, NULL, &s));
    const ls_run_options *o = &s.options;
    assert_int_equal(o->batch_size, 32);
    assert_int_equal(o->micro_batches, 0);
    assert_int_equal(o->max_epochs, 1);
    assert_int_equal(o->max_steps, LS_NONE);
    assert_string_equal(o->runs_dir, "runs");
    assert_string_equal(o->resume, "auto");
    assert_int_equal(o->log_every.steps, 50);
    assert_true(o->save_every.epochs == 1 && o->validate_every.epochs == 1);
    assert_ptr_equal(o->optimizer.kind, &ls_adamw);
    assert_true(o->optimizer.lr == ls_adamw.default_lr || o->optimizer.lr == 1e-3);
    assert_true(o->optimizer.weight_decay == 0.01);
    assert_true(o->optimizer.beta1 == 0.9 && o->optimizer.beta2 == 0.999);
    assert_true(o->clip_norm == 0);
    assert_string_equal(o->checkpoint.monitor, "val/loss");
    assert_int_equal(o->checkpoint.keep_best, 1);
    assert_int_equal(o->checkpoint.keep_last, 1);
    assert_null(o->early_stop.monitor);
    assert_int_equal(o->early_stop.patience, 3);
    assert_string_equal(ls__settings_origin(&s, "batch_size"), "default");
}

static void flags_outrank_the_program(void **state)
{
    (void)state;
    ls_run_options program = { .batch_size = 64, .max_epochs = 5, .optimizer = { .lr = 0.5 } };
    ls__settings s = resolve(LINE("--batch-size", "128", "--optimizer", "sgd"), &program);
    assert_int_equal(s.options.batch_size, 128);
    assert_string_equal(ls__settings_origin(&s, "batch_size"), "flag");
    assert_int_equal(s.options.max_epochs, 5);
    assert_string_equal(ls__settings_origin(&s, "max_epochs"), "program");
    assert_true(s.options.optimizer.lr == 0.5);
    assert_ptr_equal(s.options.optimizer.kind, &ls_sgd);
    assert_true(s.options.optimizer.momentum == 0.9);
    assert_true(s.options.optimizer.weight_decay == 0);
}

static void variables_count_less_than_flags(void **state)
{
    (void)state;
    setenv("LOCKSTEP_BATCH_SIZE", "16", 1);
    setenv("LOCKSTEP_SEED", "3", 1);
    ls__settings s = resolve(LINE("--seed", "9"), NULL);
    unsetenv("LOCKSTEP_BATCH_SIZE");
    unsetenv("LOCKSTEP_SEED");
    assert_int_equal(s.options.batch_size, 16);
    assert_string_equal(ls__settings_origin(&s, "batch_size"), "variable LOCKSTEP_BATCH_SIZE");
    assert_int_equal(s.options.seed, 9);
}

static void one_bound_switches_the_default_of_the_other_off(void **state)
{
    (void)state;
    ls__settings s = resolve(LINE("--max-steps", "100"), NULL);
    assert_int_equal(s.options.max_steps, 100);
    assert_int_equal(s.options.max_epochs, LS_NONE);
    s = resolve(LINE("--max-steps", "100"), &(ls_run_options) { .max_epochs = 3 });
    assert_int_equal(s.options.max_epochs, 3);
}

static void none_and_zero_mean_off(void **state)
{
    (void)state;
    ls_run_options program = { .optimizer = { .weight_decay = LS_NONE, .momentum = LS_NONE },
                               .clip_norm = LS_NONE };
    ls__settings s;
    assert_ok(ls__settings_resolve(NULL, &program, &s));
    assert_true(s.options.optimizer.weight_decay == 0);
    assert_true(s.options.optimizer.momentum == 0);
    assert_true(s.options.clip_norm == 0);
    s = resolve(LINE("--weight-decay", "0", "--momentum", "0", "--optimizer", "sgd"), NULL);
    assert_true(s.options.optimizer.weight_decay == 0);
    assert_true(s.options.optimizer.momentum == 0);
    s = resolve(LINE("--keep-best", "all", "--save-every", "none", "--max-epochs", "none"), NULL);
    assert_int_equal(s.options.checkpoint.keep_best, LS_NONE);
    assert_int_equal(s.options.save_every.steps, LS_NONE);
    assert_int_equal(s.options.max_epochs, LS_NONE);
}

static void fails(const ls_run_options *options, const char *part)
{
    ls__settings s;
    assert_fails(ls__settings_resolve(NULL, options, &s), LS_ERR_CONFIG, part);
}

static void wrong_values_of_a_program_are_refused_by_name(void **state)
{
    (void)state;
    fails(&(ls_run_options) { .batch_size = -2 }, "batch_size -2: must be at least 1");
    fails(&(ls_run_options) { .batch_size = LS_NONE }, "batch_size -1");
    fails(&(ls_run_options) { .micro_batches = 5000 }, "micro_batches 5000: must be at most 1024");
    fails(&(ls_run_options) { .max_steps = -7 }, "max_steps -7");
    fails(&(ls_run_options) { .optimizer = { .lr = -1 } }, "optimizer.lr");
    fails(&(ls_run_options) { .optimizer = { .lr = NAN } }, "must be a finite number");
    fails(&(ls_run_options) { .optimizer = { .momentum = 1 } }, "must be below 1");
    fails(&(ls_run_options) { .early_stop = { .patience = -1 } }, "patience");
    fails(&(ls_run_options) { .log_every = { .steps = 5, .epochs = 1 } }, "log_every: a period is");
    fails(&(ls_run_options) { .save_every = { .seconds = -1 } }, "save_every");
    fails(&(ls_run_options) { .name = "" }, "name");
    fails(&(ls_run_options) { .max_epochs = LS_NONE, .schedule = { .kind = LS_SCHEDULE_COSINE } },
          "max-epochs");
}

static void a_label_says_where_the_value_comes_from(void **state)
{
    (void)state;
    char label[96];
    ls__settings s = resolve(LINE("--micro-batches", "2"), &(ls_run_options) { .batch_size = 8 });
    ls__settings_label(&s, "micro_batches", label);
    assert_string_equal(label, "--micro-batches 2");
    ls__settings_label(&s, "batch_size", label);
    assert_string_equal(label, "batch_size 8");
    setenv("LOCKSTEP_MONITOR", "val/f1", 1);
    s = resolve(LINE("--seed", "1"), NULL);
    unsetenv("LOCKSTEP_MONITOR");
    ls__settings_label(&s, "checkpoint.monitor", label);
    assert_string_equal(label, "LOCKSTEP_MONITOR=val/f1");
}

/* What a checkpoint of `then` says about going on with `now`. */
static ls_status compare(const ls_run_options *then, const ls_run_options *now, char **changes)
{
    ls__settings a, b;
    assert_ok(ls__settings_resolve(NULL, then, &a));
    assert_ok(ls__settings_resolve(NULL, now, &b));
    json_t *recorded = ls__settings_json(&a);
    assert_non_null(recorded);
    char *text = json_dumps(recorded, JSON_COMPACT);
    json_t *read = json_loads(text, 0, NULL);
    ls_status status = ls__settings_compare(&b, read, changes);
    free(text);
    json_decref(read);
    json_decref(recorded);
    return status;
}

static void changes_since_a_checkpoint_are_listed(void **state)
{
    (void)state;
    char *changes;
    ls_run_options then = { .batch_size = 64, .max_epochs = 3, .optimizer = { .lr = 0.001 } };
    ls_run_options now = then;
    assert_ok(compare(&then, &now, &changes));
    assert_string_equal(changes, "");
    ls__free(changes);
    now.max_epochs = 8;
    now.optimizer.lr = 0.0003;
    now.name = "other";
    now.micro_batches = 8;
    assert_ok(compare(&then, &now, &changes));
    assert_string_equal(changes, "max_epochs 3 -> 8, optimizer.lr 0.001 -> 0.0003");
    ls__free(changes);
}

static void seed_and_batch_size_must_stay(void **state)
{
    (void)state;
    char *changes;
    ls_run_options then = { .batch_size = 64 }, now = { .batch_size = 32 };
    assert_fails(compare(&then, &now, &changes), LS_ERR_CONFIG, "begun with 64");
    now = (ls_run_options) { .batch_size = 64, .seed = 1 };
    assert_fails(compare(&then, &now, &changes), LS_ERR_CONFIG, "seed");
    now = (ls_run_options) { .batch_size = 64, .norm_group = 16 };
    assert_fails(compare(&then, &now, &changes), LS_ERR_CONFIG, "norm_group");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(defaults_are_what_the_header_says, free_kept),
        cmocka_unit_test_teardown(flags_outrank_the_program, free_kept),
        cmocka_unit_test_teardown(variables_count_less_than_flags, free_kept),
        cmocka_unit_test_teardown(one_bound_switches_the_default_of_the_other_off, free_kept),
        cmocka_unit_test_teardown(none_and_zero_mean_off, free_kept),
        cmocka_unit_test_teardown(wrong_values_of_a_program_are_refused_by_name, free_kept),
        cmocka_unit_test_teardown(a_label_says_where_the_value_comes_from, free_kept),
        cmocka_unit_test_teardown(changes_since_a_checkpoint_are_listed, free_kept),
        cmocka_unit_test_teardown(seed_and_batch_size_must_stay, free_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
