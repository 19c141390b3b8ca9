#include "helper_option.h"

#include <stdlib.h>
#include <unistd.h>

extern char **environ;

ls_status parse_line(line *l, const ls_world_options *program, const char *const *words)
{
    l->words[0] = (char *)"prog";
    l->argc = 1;
    while (words[l->argc - 1]) {
        l->words[l->argc] = (char *)words[l->argc - 1]; /* as main has it */
        l->argc++;
    }
    l->words[l->argc] = NULL;
    l->argv = l->words;
    return ls__options_parse(&l->argc, &l->argv, program, &l->o);
}

int clean_environment(void **state)
{
    (void)state;
    for (char **e = environ; *e;) {
        if (strncmp(*e, "LOCKSTEP_", 9) == 0) {
            char name[200];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
            unsetenv(name);
        } else {
            e++;
        }
    }
    return 0;
}
