/* Command lines, variables and errors of the option table. */
#include "helper_option.h"

#include <locale.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/option.h"
#include "base/option_internal.h"

static void values_of_each_type_are_read(void **state)
{
    (void)state;
    line l;
    assert_ok(parse_line(&l, NULL,
                         WORDS("--batch-size", "64", "--lr=0.5e-1", "--name=x", "--json",
                               "--save-every", "0.5epoch", "--timeout=2min", "--optimizer", "sgd",
                               "--min-delta", "+1e-3", "--log-every=10")));
    assert_int_equal(l.argc, 1);
    assert_null(l.argv[1]);
    int64_t i = 0;
    double d = 0;
    const char *s = NULL;
    bool b = false;
    ls_every every = { 0 };
    assert_true(ls__options_int(l.o, "batch-size", &i));
    assert_int_equal(i, 64);
    assert_true(ls__options_double(l.o, "lr", &d) && d == 0.05);
    assert_true(ls__options_double(l.o, "timeout", &d) && d == 120);
    assert_true(ls__options_double(l.o, "min-delta", &d) && d == 1e-3);
    assert_true(ls__options_string(l.o, "name", &s));
    assert_string_equal(s, "x");
    assert_true(ls__options_string(l.o, "optimizer", &s));
    assert_string_equal(s, "sgd");
    assert_true(ls__options_bool(l.o, "json", &b) && b);
    assert_true(ls__options_wants(l.o, "json"));
    assert_false(ls__options_wants(l.o, "help"));
    assert_true(ls__options_every(l.o, "save-every", &every) && every.epochs == 0.5);
    assert_true(ls__options_every(l.o, "log-every", &every) && every.steps == 10);

    i = 7;
    assert_false(ls__options_int(l.o, "max-steps", &i)); /* not set: the value stays */
    assert_int_equal(i, 7);
    assert_null(ls__options_origin(l.o, "max-steps"));
    assert_string_equal(ls__options_origin(l.o, "lr"), "flag");
    assert_string_equal(ls__options_first_set(l.o, LS__GROUP_RUN), "batch-size");
    assert_string_equal(ls__options_first_set(l.o, LS__GROUP_LAUNCH), "timeout");
    assert_null(ls__options_first_set(l.o, LS__GROUP_PROGRAM));
    ls__options_free(l.o);
}

static void off_and_unlimited(void **state)
{
    (void)state;
    line l;
    assert_ok(
        parse_line(&l, NULL,
                   WORDS("--max-steps", "none", "--timeout=none", "--weight-decay=0", "--momentum",
                         "none", "--keep-last=all", "--early-stop=none", "--validate-every=none",
                         "--gradient-clip-val=0", "--grace-period=0", "--no-json")));
    int64_t i;
    double d;
    const char *s = "program's";
    bool b = true;
    ls_every every;
    assert_true(ls__options_int(l.o, "max-steps", &i) && i == LS_NONE);
    assert_true(ls__options_int(l.o, "keep-last", &i) && i == LS_NONE);
    assert_true(ls__options_double(l.o, "timeout", &d) && d == LS_NONE);
    assert_true(ls__options_double(l.o, "weight-decay", &d) && d == LS_NONE);
    assert_true(ls__options_double(l.o, "momentum", &d) && d == LS_NONE);
    assert_true(ls__options_double(l.o, "gradient-clip-val", &d) && d == LS_NONE);
    assert_true(ls__options_double(l.o, "grace-period", &d) && d == 0);
    assert_true(ls__options_string(l.o, "early-stop", &s) && s == NULL);
    assert_true(ls__options_every(l.o, "validate-every", &every) && every.steps == LS_NONE);
    assert_true(ls__options_bool(l.o, "json", &b) && !b);
    assert_false(ls__options_wants(l.o, "json"));
    ls__options_free(l.o);
}

static void wrong_lines_say_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *words[3];
        const char *text;
    } cases[] = {
        { { "--batch-size", "0" }, "--batch-size 0: must be at least 1" },
        { { "--batch-size=-3" }, "--batch-size -3: must be at least 1" },
        { { "--batch-size", "64x" }, "--batch-size 64x: must be a whole number" },
        { { "--batch-size", "1.5" }, "must be a whole number" },
        { { "--batch-size", " 64" }, "must be a whole number" },
        { { "--batch-size", "0x40" }, "must be a whole number" },
        { { "--batch-size=" }, "--batch-size (empty): must be a whole number" },
        { { "--batch-size", "99999999999999999999" }, "must be a whole number" },
        { { "--batch-size", "3000000000" }, "must be at most 2147483647" },
        { { "--batch-size", "none" }, "must be a whole number" },
        { { "--max-steps", "many" }, "must be a whole number, or none" },
        { { "--keep-best", "none" }, "must be a whole number, or all" },
        { { "--lr", "0" }, "--lr 0: must be more than 0" },
        { { "--lr", "nan" }, "must be a number" },
        { { "--lr", "inf" }, "must be a number" },
        { { "--lr", "1e999" }, "must be a number" },
        { { "--lr", "0x1p-3" }, "must be a number" },
        { { "--lr", "0,1" }, "must be a number" },
        { { "--momentum", "1.5" }, "must be at most 1" },
        { { "--timeout", "0" }, "must be more than 0 seconds, or none" },
        { { "--timeout", "5 min" }, "must be a time such as 300, 30s, 5min, 2h, or none" },
        { { "--timeout", "1e300d" }, "must be" },
        { { "--optimizer", "adam" }, "one of sgd, nesterov, adamw; did you mean adamw?" },
        { { "--schedule", "cosin" }, "did you mean cosine?" },
        { { "--schedule", "" }, "--schedule (empty): must be one of constant," },
        { { "--save-every", "0" }, "must be a period such as 500 (steps), 0.5epoch, 10min" },
        { { "--save-every", "2.5" }, "must be a period" },
        { { "--save-every", "-1epoch" }, "must be a period" },
        { { "--json=maybe" }, "json maybe: must be true or false" },
        { { "--name", "" }, "--name: must not be empty" },
        { { "--runs-dir", "r\377s" }, "--runs-dir: must be UTF-8" },
        { { "--name" }, "--name: needs a value: NAME" },
        { { "--batch-size", "--json" }, "--batch-size: needs a value: N" },
        { { "--json", "--no-json" }, "--json: given twice" },
        { { "--lr=1", "--lr=1" }, "--lr: given twice" },
        { { "--batch-sise", "64" }, "--batch-sise: no such flag; did you mean --batch-size?" },
        { { "--batch-sise=64" }, "--batch-sise: no such flag; did you mean --batch-size?" },
        { { "--max_epochs=3" }, "--max_epochs: no such flag; did you mean --max-epochs?" },
        { { "--no-help=1" }, "--no-help: no such flag" },
        { { "--no-name" }, "--no-name: no such flag" },
        { { "--zzz" }, "--zzz: no such flag; --help lists them" },
        { { "-x" }, "-x: no such flag" },
        { { "---" }, "---: no such flag" },
        { { "--=5" }, "--: no such flag" },
        { { "word" }, "word: not a flag, and nothing else is expected here" },
        { { "/dev/null" }, "a pattern of files in quotes ('*.bin')" },
        { { "--", "word" }, "word: nothing is expected behind the flags" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        line l;
        assert_fails(parse_line(&l, NULL, cases[i].words), LS_ERR_CONFIG, cases[i].text);
        assert_null(l.o);
        assert_string_equal(l.argv[1], cases[i].words[0]); /* as it was */
    }
}

static void other_tools_spellings_are_answered_with_ours(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "--accumulate-grad-batches", "here it is --micro-batches" },
        { "--accumulate_grad_batches=4", "here it is --micro-batches" },
        { "--every-n-train-steps", "here it is --save-every N" },
        { "--gpus", "here it is --devices" },
        { "--nproc-per-node=2", "--nproc-per-node: no such flag; here it is --devices" },
        { "--nproc_per_node", "here it is --devices" },
        { "--learning-rate", "here it is --lr" },
        { "--check_val_every_n_epoch", "here it is --validate-every Nepoch" },
        { "--epochs", "here it is --max-epochs" },
        { "-np", "here it is --devices" },
    };
    line l;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(parse_line(&l, NULL, WORDS(cases[i][0])), LS_ERR_CONFIG, cases[i][1]);
    /* Not for a program to which ours is unknown too. */
    ls_world_options program = { .no_run = true };
    assert_fails(parse_line(&l, &program, WORDS("--learning-rate")), LS_ERR_CONFIG, "--help lists");
}

static void variables_count_when_no_flag_does(void **state)
{
    (void)state;
    line l;
    int64_t i;
    setenv("LOCKSTEP_BATCH_SIZE", "128", 1);
    setenv("LOCKSTEP_MAX_STEPS", "5", 1);
    setenv("LOCKSTEP_JSON", "1", 1);
    setenv("LOCKSTEP_NAME", "", 1);  /* empty: unset */
    setenv("LOCKSTEP_HELP", "1", 1); /* a flag only */
    assert_ok(parse_line(&l, NULL, WORDS("--max-steps=6")));
    assert_true(ls__options_int(l.o, "batch-size", &i) && i == 128);
    assert_true(ls__options_int(l.o, "max-steps", &i) && i == 6);
    assert_true(ls__options_wants(l.o, "json"));
    assert_false(ls__options_wants(l.o, "help"));
    assert_null(ls__options_origin(l.o, "name"));
    assert_string_equal(ls__options_origin(l.o, "batch-size"), "variable LOCKSTEP_BATCH_SIZE");
    assert_string_equal(ls__options_origin(l.o, "max-steps"), "flag");
    ls__options_free(l.o);

    ls__options *o; /* an embedded library has no command line */
    assert_ok(ls__options_parse(NULL, NULL, NULL, &o));
    assert_true(ls__options_int(o, "max-steps", &i) && i == 5);
    ls__options_free(o);

    setenv("LOCKSTEP_BATCH_SIZE", "many", 1);
    assert_fails(parse_line(&l, NULL, WORDS("--json")), LS_ERR_CONFIG,
                 "LOCKSTEP_BATCH_SIZE many: must be a whole number");
    assert_ok(parse_line(&l, NULL, WORDS("--batch-size=2"))); /* the flag is the way around it */
    ls__options_free(l.o);
}

static void misspelt_variables_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *meant; /* NULL: nothing is said */
    } cases[] = {
        { "LOCKSTEP_BATCH_SISE=2", "LOCKSTEP_BATCH_SISE is not read; did you mean "
                                   "LOCKSTEP_BATCH_SIZE?" },
        { "LOCKSTEP_DEVICE=2", "did you mean LOCKSTEP_DEVICES?" },
        { "LOCKSTEP_EPOCHS=2", "did you mean LOCKSTEP_MAX_EPOCHS?" },
        { "LOCKSTEP_NUM_GPUS=2", "did you mean LOCKSTEP_DEVICES?" },
        { "LOCKSTEP_WIDHT=2", "did you mean LOCKSTEP_WIDTH?" },
        { "LOCKSTEP_WIDTH=2", NULL },
        { "LOCKSTEP_BATCH_SIZE=2", NULL },
        { "LOCKSTEP_PLUGIN_DIR=/opt", NULL },
        { "LOCKSTEP_HELP=1", NULL },
        { "LOCKSTEP_SOMEBODY_ELSES_WORD=1", NULL },
        { "LOCKSTEP_BATCH_SISE=", NULL }, /* empty: unset */
        { "LOCKSTEP_BATCH_SISE", NULL },
        { "LOCKSTEP_=2", NULL },
        { "LOCKSTEP__JOIN=2", NULL },
        { "BATCH_SISE=2", NULL },
    };
    int64_t width = 1;
    const ls_flag flags[] = { { "width", 'i', &width, "channels" }, { 0 } };
    ls_world_options program = { .flags = flags };
    line l;
    assert_ok(parse_line(&l, &program, WORDS(NULL)));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[LS__MISSPELT] = "";
        assert_int_equal(ls__options_misspelt(l.o, cases[i].entry, text), cases[i].meant != NULL);
        if (cases[i].meant) assert_non_null(strstr(text, cases[i].meant));
    }
    ls__options_free(l.o);
}

static void words_stay_where_they_are_expected(void **state)
{
    (void)state;
    line l;
    ls_world_options program = { .arguments = "RUN..." };
    assert_ok(parse_line(&l, &program, WORDS("a", "--json", "b", "-", "--", "--lr")));
    assert_int_equal(l.argc, 5);
    const char *kept[] = { "prog", "a", "b", "-", "--lr" };
    for (int i = 0; i < 5; i++) assert_string_equal(l.argv[i], kept[i]);
    assert_null(l.argv[5]);
    ls__options_free(l.o);

    program = (ls_world_options) { .keep_unknown_flags = true };
    assert_ok(parse_line(&l, &program, WORDS("--theirs", "1", "--lr=2", "-v", "--", "--lr=3")));
    const char *theirs[] = { "prog", "--theirs", "1", "-v", "--", "--lr=3" };
    assert_int_equal(l.argc, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(l.argv[i], theirs[i]);
    double lr;
    assert_true(ls__options_double(l.o, "lr", &lr) && lr == 2);
    ls__options_free(l.o);
}

static void json_tells_values_and_origins(void **state)
{
    (void)state;
    line l;
    int64_t width = 3;
    const char *data = NULL;
    const ls_flag flags[] = { { "width", 'i', &width, "" }, { "data", 's', &data, "" }, { 0 } };
    ls_world_options program = { .flags = flags };
    setenv("LOCKSTEP_LR", "0.5", 1);
    assert_ok(parse_line(&l, &program,
                         WORDS("--save-every=0.5epoch", "--max-steps=none", "--batch-size=4",
                               "--json", "--data=\xff")));
    json_t *json = ls__options_json(l.o);
    char *text = ls__json_line(json);
    assert_string_equal(text, "{\"batch-size\":{\"value\":4,\"origin\":\"flag\"},"
                              "\"max-steps\":{\"value\":null,\"origin\":\"flag\"},"
                              "\"lr\":{\"value\":0.5,\"origin\":\"variable LOCKSTEP_LR\"},"
                              "\"save-every\":{\"value\":\"0.5epoch\",\"origin\":\"flag\"},"
                              "\"json\":{\"value\":true,\"origin\":\"flag\"},"
                              "\"width\":{\"value\":3,\"origin\":\"default\"},"
                              "\"data\":{\"value\":\"(not valid UTF-8)\",\"origin\":\"flag\"}}");
    ls__free(text);
    json_decref(json);
    ls__options_free(l.o);
}

static void periods_are_read_and_written(void **state)
{
    (void)state;
    static const char *const same[] = { "500", "0.5epoch", "10min", "90s", "none", "2epoch" };
    ls_every every;
    char text[32];
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_true(ls__every_parse(same[i], &every));
        ls__every_text(every, text);
        assert_string_equal(text, same[i]);
    }
    assert_true(ls__every_parse("2h", &every) && every.seconds == 7200);
    assert_true(ls__every_parse("500ms", &every) && every.seconds == 0.5);
    assert_true(ls__every_parse("3steps", &every) && every.steps == 3 && every.seconds == 0);
    assert_true(ls__every_parse("1.5epochs", &every) && every.epochs == 1.5 && every.steps == 0);
    static const char *const wrong[] = { "",      "0",     "-1",    "1.5",  "1.0",
                                         "epoch", "5 min", "5min ", "1e16", "m" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (ls__every_parse(wrong[i], &every)) fail_msg("\"%s\" was taken", wrong[i]);
}

static void suggestions_are_close(void **state)
{
    (void)state;
    static const char *const names[] = { "train", "eval", "devices", "bench", "checkpoint", NULL };
    assert_string_equal(ls__suggest("trian", names), "train");
    assert_string_equal(ls__suggest("evl", names), "eval");
    assert_string_equal(ls__suggest("device", names), "devices");
    assert_string_equal(ls__suggest("checkpoints", names), "checkpoint");
    assert_string_equal(ls__suggest("check", names), "checkpoint"); /* contained in one only */
    assert_string_equal(ls__suggest("cup", (const char *const[]) { "cpu", NULL }), "cpu");
    assert_null(ls__suggest("cut", (const char *const[]) { "cpu", NULL }));
    assert_null(ls__suggest("e", (const char *const[]) { "abc", NULL }));
    assert_null(ls__suggest("predict", names));
    assert_null(ls__suggest("", names));
    char longest[1000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(ls__suggest(longest, names));
}

/* 1 MB of anything is an error of a few hundred bytes. */
static void input_is_bounded(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    char *word = malloc(SIZE + 1);
    assert_non_null(word);
    memset(word, 'x', SIZE);
    word[SIZE] = '\0';
    line l;
    assert_fails(parse_line(&l, NULL, WORDS("--name", word)), LS_ERR_CONFIG,
                 "longer than 4095 bytes");
    assert_fails(parse_line(&l, NULL, WORDS("--lr", word)), LS_ERR_CONFIG,
                 "longer than 4095 bytes");
    assert_fails(parse_line(&l, NULL, WORDS(word)), LS_ERR_CONFIG, "not a flag");
    memcpy(word, "--", 2);
    assert_fails(parse_line(&l, NULL, WORDS(word)), LS_ERR_CONFIG, "no such flag");
    memcpy(word, "--name=", 7);
    assert_fails(parse_line(&l, NULL, WORDS(word)), LS_ERR_CONFIG, "longer than");
    assert_in_range(strlen(ls_error_text()), 1, 200);
    memset(word, '1', 4095);
    word[4095] = '\0';
    assert_fails(parse_line(&l, NULL, WORDS("--lr", word)), LS_ERR_CONFIG, "must be a number");
    assert_ok(parse_line(&l, NULL, WORDS("--name", word)));
    ls__options_free(l.o);
    free(word);
}

/* A decimal comma in the locale changes nothing. */
static void numbers_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) skip();
    line l;
    double lr;
    assert_ok(parse_line(&l, NULL, WORDS("--lr=0.5")));
    assert_true(ls__options_double(l.o, "lr", &lr) && lr == 0.5);
    ls__options_free(l.o);
    setlocale(LC_ALL, "C");
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    setenv("LOCKSTEP_LR", "0.5", 1);
    line l;
    bool done = false;
    for (int n = 1; !done; n++) {
        assert_in_range(n, 1, 50);
        ls__alloc_fail_at(n);
        ls_status status = parse_line(&l, NULL, WORDS("--batch-size=2", "--json"));
        if (status == LS_OK) {
            char *help = ls__options_help(l.o, "prog", NULL);
            done = help != NULL;
            ls__free(help);
            ls__options_free(l.o);
        } else {
            assert_int_equal(status, LS_ERR_MEMORY);
            assert_null(l.o);
        }
        ls__alloc_fail_at(0);
    }
    ls__alloc_fail_at(3); /* of the names for a suggestion */
    assert_fails(parse_line(&l, NULL, WORDS("--batch-sise=2")), LS_ERR_MEMORY, "out of memory");
    ls__alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        clean_test(values_of_each_type_are_read),
        clean_test(off_and_unlimited),
        clean_test(wrong_lines_say_what_is_allowed),
        clean_test(other_tools_spellings_are_answered_with_ours),
        clean_test(variables_count_when_no_flag_does),
        clean_test(misspelt_variables_are_found),
        clean_test(words_stay_where_they_are_expected),
        clean_test(json_tells_values_and_origins),
        clean_test(periods_are_read_and_written),
        clean_test(suggestions_are_close),
        clean_test(input_is_bounded),
        clean_test(numbers_do_not_depend_on_the_locale),
        clean_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
