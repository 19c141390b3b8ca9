/* What a program or a command brings to the option table: flags and defaults of its own, fewer of ours,
 * and --help of both. */
#include "helper_option.h"

#include "base/memory.h"
#include "base/option_internal.h"

typedef struct settings {
    int64_t width;
    double rate;
    const char *data;
    bool mirror, fast;
} settings;

static void a_programs_flags_are_like_ours(void **state)
{
    (void)state;
    settings s = { .width = 32, .rate = 0.25, .data = "images", .mirror = true };
    const ls_flag flags[] = { { "width", 'i', &s.width, "channels of the first layer" },
                              { "rate", 'd', &s.rate, "of dropout" },
                              { "data", 's', &s.data, "folder of images" },
                              { "mirror", 'b', &s.mirror, "mirror half of the images" },
                              { "fast", 'b', &s.fast, NULL },
                              { 0 } };
    ls_world_options program = { .flags = flags, .summary = "Train a CNN." };
    line l;
    setenv("LOCKSTEP_RATE", "0.75", 1);
    assert_ok(parse_line(&l, &program, WORDS("--width", "-5", "--data=", "--no-mirror", "--fast")));
    assert_int_equal(s.width, -5);
    assert_true(s.rate == 0.75);
    assert_string_equal(s.data, "");
    assert_false(s.mirror);
    assert_true(s.fast);
    char *help = ls__options_help(l.o, "/usr/bin/cnn", &program);
    assert_non_null(strstr(help, "Train a CNN.\n\nusage: cnn [FLAG...]\n"));
    assert_non_null(strstr(help, "--width N                 channels of the first layer "
                                 "(default 32)\n")); /* not -5 */
    assert_non_null(strstr(help, "--no-mirror"));
    assert_non_null(strstr(help, "--fast"));
    assert_true(strstr(help, "Flags of this program") <
                strstr(help, "Flags of every training run"));
    assert_true(strstr(help, "Flags of every training run") < strstr(help, "Common flags"));
    ls__free(help);
    ls__options_free(l.o);

    s.width = 32;
    assert_fails(parse_line(&l, &program, WORDS("--width=7", "--lr=x")), LS_ERR_CONFIG, "--lr x");
    assert_int_equal(s.width, 32); /* nothing is stored of a wrong line */
    assert_fails(parse_line(&l, &program, WORDS("--widht=7")), LS_ERR_CONFIG,
                 "did you mean --width?");
    assert_fails(parse_line(&l, &program, WORDS("--width=x")), LS_ERR_CONFIG,
                 "--width x: must be a whole number");
}

static void wrong_program_flags_are_the_programmers_error(void **state)
{
    (void)state;
    static int64_t x;
    static double d;
    static const struct {
        ls_flag flag;
        const char *text;
    } cases[] = {
        { { "lr", 'd', &d, "" }, "flag \"lr\" of this program: the name is taken" },
        { { "Width", 'i', &x, "" }, "needs a name of a-z, 0-9 and -" },
        { { "--width", 'i', &x, "" }, "needs a name of a-z, 0-9 and -" },
        { { "width", 'i', NULL, "" }, "and a value" },
        { { "width", 'x', &x, "" }, "its type is not i, d, s or b" },
    };
    line l;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_flag flags[] = { { "first", 'i', &x, "" }, cases[i].flag, { 0 } };
        ls_world_options program = { .flags = flags };
        assert_fails(parse_line(&l, &program, WORDS("--json")), LS_ERR_ARG, cases[i].text);
    }
}

static void programs_without_a_run_know_no_run_flags(void **state)
{
    (void)state;
    line l;
    ls_world_options program = { .no_run = true };
    assert_fails(parse_line(&l, &program, WORDS("--batch-size=2")), LS_ERR_CONFIG, "no such flag");
    setenv("LOCKSTEP_BATCH_SIZE", "many", 1); /* not its business */
    assert_ok(parse_line(&l, &program, WORDS("--help")));
    assert_true(ls__options_wants(l.o, "help"));
    int64_t i = 3;
    assert_false(ls__options_int(l.o, "batch-size", &i));
    assert_int_equal(i, 3);
    char *help = ls__options_help(l.o, "devices", &program);
    assert_null(strstr(help, "--batch-size"));
    assert_null(strstr(help, "PERIOD"));
    assert_non_null(strstr(help, "--devices"));
    ls__free(help);
    ls__options_free(l.o);
    assert_ok(parse_line(&l, &program, WORDS("-h")));
    assert_true(ls__options_wants(l.o, "help"));
    ls__options_free(l.o);
}

static void a_program_has_defaults_of_its_own(void **state)
{
    (void)state;
    const char *defaults[] = { "batch-size=256", "max-epochs=none", "schedule=cosine", NULL };
    ls_world_options program = { .defaults = defaults };
    line l;
    int64_t i = 0;
    const char *s = NULL;
    setenv("LOCKSTEP_MAX_EPOCHS", "3", 1);
    assert_ok(parse_line(&l, &program, WORDS("--schedule=step")));
    assert_true(ls__options_int(l.o, "batch-size", &i) && i == 256);
    assert_true(ls__options_int(l.o, "max-epochs", &i) && i == 3);
    assert_true(ls__options_string(l.o, "schedule", &s));
    assert_string_equal(s, "step");
    assert_string_equal(ls__options_origin(l.o, "batch-size"), "program");
    assert_string_equal(ls__options_origin(l.o, "schedule"), "flag");
    assert_string_equal(ls__options_first_set(l.o, LS__GROUP_RUN), "max-epochs");
    char *help = ls__options_help(l.o, "prog", &program);
    assert_non_null(strstr(help, "over all devices\n                            (default 256)"));
    assert_non_null(strstr(help, "during the run\n                            (default cosine)"));
    ls__free(help);
    json_t *json = ls__options_json(l.o);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "batch-size"), "origin")),
        "program");
    json_decref(json);
    ls__options_free(l.o);

    static const char *const wrong[] = { "batch-sise=3", "batch-size", "batch-size=0", "" };
    for (int k = 0; k < 4; k++) {
        defaults[0] = wrong[k];
        assert_int_not_equal(parse_line(&l, &program, WORDS("--json")), LS_OK);
    }
}

static void commands_may_know_a_few_flags_only(void **state)
{
    (void)state;
    static const char *const only[] = { "json", "devices", NULL };
    char *words[] = { (char *)"prog", (char *)"--json", (char *)"--devices=3", NULL };
    char **argv = words;
    int argc = 3;
    ls__options *o;
    setenv("LOCKSTEP_TIMEOUT", "nonsense", 1);
    assert_ok(ls__options_parse_only(&argc, &argv, NULL, only, &o));
    assert_true(ls__options_wants(o, "json"));
    char *help = ls__options_help(o, "prog", NULL);
    assert_null(strstr(help, "--timeout"));
    assert_null(strstr(help, "TIME is"));
    ls__free(help);
    ls__options_free(o);
    words[1] = (char *)"--timeout=3s";
    argc = 2;
    assert_fails(ls__options_parse_only(&argc, &argv, NULL, only, &o), LS_ERR_CONFIG,
                 "--timeout: no such flag");
    words[1] = (char *)"-h";
    assert_fails(ls__options_parse_only(&argc, &argv, NULL, only, &o), LS_ERR_CONFIG,
                 "-h: no such flag");
}

static void help_fits_the_page_and_has_every_flag(void **state)
{
    (void)state;
    line l;
    assert_ok(parse_line(&l, NULL, WORDS("--help")));
    char *help = ls__options_help(l.o, "prog", NULL);
    for (int i = 0; i < ls__option_table_size; i++) {
        char flag[64];
        snprintf(flag, sizeof flag, "\n  --%s", ls__option_table[i].name);
        if (!strstr(help, flag)) fail_msg("--help lacks%s", flag + 1);
        assert_non_null(ls__option_table[i].help);
    }
    for (const char *at = help; *at; at += strcspn(at, "\n") + 1)
        if (strcspn(at, "\n") > 80) fail_msg("wider than 80 columns: %.100s", at);
    assert_null(strchr(help, '\x01'));
    ls__free(help);
    ls__options_free(l.o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        clean_test(a_programs_flags_are_like_ours),
        clean_test(wrong_program_flags_are_the_programmers_error),
        clean_test(programs_without_a_run_know_no_run_flags),
        clean_test(a_program_has_defaults_of_its_own),
        clean_test(commands_may_know_a_few_flags_only),
        clean_test(help_fits_the_page_and_has_every_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
