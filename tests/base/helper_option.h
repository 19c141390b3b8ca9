/* Command lines for the option table's tests. */
#ifndef LS_TESTS_HELPER_OPTION_H
#define LS_TESTS_HELPER_OPTION_H

#include "base/option.h"
#include "testing.h"

/* A command line that may be changed, and what became of it. */
typedef struct line {
    char *words[40];
    int argc;
    char **argv;
    ls__options *o;
} line;

#define WORDS(...) ((const char *const[]) { __VA_ARGS__, NULL })

/* The words behind the program's name, NULL-ended. */
ls_status parse_line(line *l, const ls_world_options *program, const char *const *words);

/* A test with none of our variables set, which leaves none. */
int clean_environment(void **state);
#define clean_test(test) cmocka_unit_test_setup_teardown(test, clean_environment, clean_environment)

#endif
