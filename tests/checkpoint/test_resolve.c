/* What people type for a checkpoint. */
#include "testing.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "helper_saved.h"

static char runs[LS_PATH_MAX];

static const char *under(const char *name)
{
    static char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s", runs, name);
    return path;
}

static void make_run(const char *name, const saved_save *saves, int n)
{
    char folder[LS_PATH_MAX];
    snprintf(folder, sizeof folder, "%.4000s/checkpoints", under(name));
    saved_job job = { .folder = folder, .size = 1, .keep_last = -1, .keep_best = 1 };
    if (n > 0)
        assert_ok(saved_run(&job, saves, n, NULL));
    else
        assert_ok(ls__folder_make(&ls__fs_posix, folder));
}

static int setup(void **state)
{
    (void)state;
    snprintf(runs, sizeof runs, "%s", fresh_folder("runs"));
    saved_save saves[] = { { 100, 0.5 }, { 200, 0.2 }, { 300, 0.4 } };
    make_run("amber-fox-0412", saves, 3);
    make_run("blue-owl-1200", NULL, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, runs) == LS_OK ? 0 : -1;
}

static void resolves(const char *typed, const char *expected)
{
    char path[LS_PATH_MAX], full[LS_PATH_MAX];
    snprintf(full, sizeof full, "%s", expected);
    assert_ok(ls__checkpoint_resolve(runs, typed, path));
    assert_string_equal(path, full);
}

static void names(void **state)
{
    (void)state;
    char typed[LS_PATH_MAX];
    resolves("amber-fox-0412", under("amber-fox-0412/checkpoints/step-00000300"));
    resolves("amber-fox-0412@last", under("amber-fox-0412/checkpoints/step-00000300"));
    resolves("amber-fox-0412@best", under("amber-fox-0412/checkpoints/step-00000200"));
    resolves("amber-fox-0412@100", under("amber-fox-0412/checkpoints/step-00000100"));
    snprintf(typed, sizeof typed, "%s", under("amber-fox-0412@best"));
    resolves(typed, under("amber-fox-0412/checkpoints/step-00000200"));
    snprintf(typed, sizeof typed, "%.4000s/", under("amber-fox-0412"));
    resolves(typed, under("amber-fox-0412/checkpoints/step-00000300"));
    snprintf(typed, sizeof typed, "%s", under("amber-fox-0412/checkpoints/step-00000100"));
    resolves(typed, typed);
    snprintf(typed, sizeof typed, "%s", under("amber-fox-0412/checkpoints/best"));
    resolves(typed, typed);
    snprintf(typed, sizeof typed, "%s",
             under("amber-fox-0412/checkpoints/step-00000100/model.safetensors"));
    resolves(typed, typed);
}

/* A name means the run even where a file of that name lies in the working directory; links may be
 * missing. */
static void besides(void **state)
{
    (void)state;
    char here[LS_PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(runs), 0);
    saved_save save = { 7, NAN };
    make_run("mlp", &save, 1);
    fclose(fopen("weights.safetensors", "w"));
    assert_int_equal(mkdir("elsewhere", 0777), 0);
    fclose(fopen("elsewhere/mlp", "w"));
    assert_int_equal(chdir("elsewhere"), 0);
    resolves("mlp", under("mlp/checkpoints/step-00000007"));
    resolves("../weights.safetensors", "../weights.safetensors");
    assert_int_equal(chdir(".."), 0);
    resolves("weights.safetensors", "weights.safetensors");
    assert_int_equal(unlink("mlp/checkpoints/last"), 0);
    resolves("mlp@last", under("mlp/checkpoints/step-00000007"));
    assert_int_equal(chdir(here), 0);
}

static void refused(const char *typed, const char *text)
{
    char path[LS_PATH_MAX];
    assert_fails(ls__checkpoint_resolve(runs, typed, path), LS_ERR_CONFIG, text);
}

static void errors(void **state)
{
    (void)state;
    char path[LS_PATH_MAX];
    refused("amber-fox-0412@150", "there are last, best and the steps 100, 200, 300");
    refused("amber-fox-0412@", "no checkpoint \"\"");
    refused("amber-fox-0412@-100", "no checkpoint \"-100\"");
    refused("amber-fox-0412@100x", "no checkpoint \"100x\"");
    refused("amber-fox-0412@99999999999999999999", "no checkpoint");
    refused("blue-owl-1200", "no checkpoint yet");
    refused("blue-owl-1200@best", "no checkpoint yet");
    refused("amber-fox-0413", "did you mean amber-fox-0412?");
    refused("zebra", "there are: amber-fox-0412, blue-owl-1200");
    refused("", "an empty name");
    refused("a/b/c", "there is nothing");
    refused(runs, "neither a run nor a checkpoint");
    assert_fails(ls__checkpoint_resolve("/nonexistent", "zebra", path), LS_ERR_CONFIG,
                 "holds no runs");
    char endless[2 * LS_PATH_MAX];
    memset(endless, 'a', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_fails(ls__checkpoint_resolve(runs, endless, path), LS_ERR_ARG, "longer than");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(names), cmocka_unit_test(besides),
                                        cmocka_unit_test(errors) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
