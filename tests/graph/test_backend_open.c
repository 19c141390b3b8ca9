/* Finding a plugin: where it is looked for, and what is said when it is not usable. */
#include "testing.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "graph/backend.h"

static char folder[] = "/tmp/lockstep-plugins-XXXXXX";

static void path_of(char out[256])
{
    snprintf(out, 256, "%s/lockstep_test.so", folder);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) && !setenv("LOCKSTEP_PLUGIN_DIR", folder, 1) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void test_not_there(void **state)
{
    (void)state;
    const ls__backend *backend = (void *)1;
    assert_fails(ls__backend_open("test", 1, &backend), LS_ERR_CONFIG,
                 "lockstep_test.so is not in");
    assert_null(backend);
    assert_non_null(strstr(ls_error_text(), folder)); /* the chosen folder and no other */
    assert_non_null(strstr(ls_error_text(), "LOCKSTEP_PLUGIN_DIR"));
    assert_null(strstr(ls_error_text(), ","));
}

static void test_not_a_library(void **state)
{
    (void)state;
    char path[256];
    const ls__backend *backend;
    path_of(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("text", file);
    fclose(file);
    assert_fails(ls__backend_open("test", 1, &backend), LS_ERR_CONFIG, "cannot be loaded");
    unlink(path);
}

static void test_another_library(void **state)
{
    (void)state;
    char path[256];
    Dl_info info;
    const ls__backend *backend;
    path_of(path);
    assert_true(dladdr((void *)&qsort, &info) != 0); /* the C library */
    assert_int_equal(symlink(info.dli_fname, path), 0);
    assert_fails(ls__backend_open("test", 1, &backend), LS_ERR_CONFIG, "no plugin of this version");
    unlink(path);
}

static void test_places_without_the_variable(void **state)
{
    (void)state;
    const ls__backend *backend;
    unsetenv("LOCKSTEP_PLUGIN_DIR");
    assert_fails(ls__backend_open("test", 1, &backend), LS_ERR_CONFIG,
                 "lockstep_test.so is not in");
    assert_non_null(strstr(ls_error_text(), getenv("LS_BINARY_DIR"))); /* beside the library */
    setenv("LOCKSTEP_PLUGIN_DIR", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_not_a_library),
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_places_without_the_variable),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
