/* Build tool: copies a manual page's source to standard output and puts the flags of the option
 * table where a line says @RUN_FLAGS@ or @LAUNCH_FLAGS@, so that manual and parser cannot differ.
 * @LAUNCH_FLAGS a b c@ takes only the flags named; a=8 gives a another default. */
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

/* What list, words between spaces, says of a flag. */
typedef struct choice {
    int named;         /* the word is there, or no word names a flag */
    char fallback[64]; /* of a word "name=default"; "" = none */
} choice;

static choice choice_of(const char *list, const char *name)
{
    char words[512], *rest = words, *word;
    int any = 0;
    choice c = { 0 };
    size_t length = strlen(name);
    snprintf(words, sizeof words, "%s", list);
    while ((word = strsep(&rest, " "))) {
        if (strncmp(word, name, length) == 0 && word[length] == '=')
            snprintf(c.fallback, sizeof c.fallback, "%s", word + length + 1);
        any |= *word && !strchr(word, '=');
        c.named |= strcmp(word, name) == 0;
    }
    c.named |= !any;
    return c;
}

static void print_flag(const ls__option_row *row, const char *fallback)
{
    printf("*--%s*", row->name);
    if (row->placeholder) {
        printf(" _");
        print_plain(row->placeholder);
        printf("_");
    }
    printf("\n\t");
    print_plain(row->help);
    if (fallback) {
        printf(" (default ");
        print_plain(fallback);
        printf(")");
    }
    printf("\n\n");
}

static void print_flags(ls__option_group group, const char *list)
{
    for (int i = 0; i < ls__option_table_size; i++) {
        const ls__option_row *row = &ls__option_table[i];
        choice c = choice_of(list, row->name);
        if (row->group == group && c.named)
            print_flag(row, c.fallback[0] ? c.fallback : row->fallback);
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
