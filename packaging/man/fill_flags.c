/* Build tool: copies a manual page's source to standard output and puts the flags of the option
 * table where a line says @RUN_FLAGS@ or @LAUNCH_FLAGS@, so that manual and parser cannot differ.
 * @LAUNCH_FLAGS a b c@ takes only the flags named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/option_internal.h"

/* scdoc gives * and _ a meaning. */
static void print_plain(const char *text)
{
    for (; *text; text++) {
        if (strchr("*_\\", *text)) putchar('\\');
        putchar(*text);
    }
}

static void print_flag(const ls__option_row *row)
{
    printf("*--%s*", row->name);
    if (row->placeholder) {
        printf(" _");
        print_plain(row->placeholder);
        printf("_");
    }
    printf("\n\t");
    print_plain(row->help);
    if (row->fallback) {
        printf(" (default ");
        print_plain(row->fallback);
        printf(")");
    }
    printf("\n\n");
}

/* Whether name is a word of list; an empty list has all. */
static int lists(const char *list, const char *name)
{
    char words[512], *rest = words, *word;
    snprintf(words, sizeof words, "%s", list);
    if (words[strspn(words, " ")] == '\0') return 1;
    while ((word = strsep(&rest, " ")))
        if (strcmp(word, name) == 0) return 1;
    return 0;
}

static void print_flags(ls__option_group group, const char *list)
{
    for (int i = 0; i < ls__option_table_size; i++) {
        const ls__option_row *row = &ls__option_table[i];
        if (row->group == group && lists(list, row->name)) print_flag(row);
    }
}

int main(int argc, char **argv)
{
    char line[4096];
    FILE *page = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!page) {
        fprintf(stderr, "usage: fill_flags PAGE.scd\n");
        return 2;
    }
    while (fgets(line, sizeof line, page)) {
        char *end = strrchr(line, '@');
        if (strncmp(line, "@RUN_FLAGS", 10) == 0 && end > line) {
            *end = '\0';
            print_flags(LS__GROUP_RUN, line + 10);
        } else if (strncmp(line, "@LAUNCH_FLAGS", 13) == 0 && end > line) {
            *end = '\0';
            print_flags(LS__GROUP_LAUNCH, line + 13);
        } else {
            fputs(line, stdout);
        }
    }
    fclose(page);
    return fflush(stdout) == 0 ? 0 : 1;
}
