/* A command line: words separated by NUL or newline. Whatever they are, parsing ends with a table
 * or with a text, and a wrong line changes neither argv nor the program's variables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep/world.h>

#include "base/memory.h"
#include "base/option.h"

enum { WORDS_MAX = 64 };

static int split(char *text, size_t size, char **words)
{
    int n = 0;
    words[n++] = (char *)"fuzz";
    for (size_t i = 0; i < size && n < WORDS_MAX; i++)
        if (i == 0 || text[i - 1] == '\0')
            words[n++] = text + i;
        else if (text[i] == '\n')
            text[i] = '\0';
    words[n] = NULL;
    return n;
}

static void require(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "fuzz_option: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    char *words[WORDS_MAX + 1], *before[WORDS_MAX + 1];
    int argc = split(text, size, words), argc_before = argc;
    memcpy(before, words, sizeof words);
    char **argv = words;
    int64_t width = 7;
    const char *folder = "data";
    const ls_flag flags[] = { { "width", 'i', &width, "" }, { "data", 's', &folder, "" }, { 0 } };
    ls_world_options program = { .flags = flags,
                                 .arguments = size % 2 ? "RUN" : NULL,
                                 .keep_unknown_flags = size % 7 == 0,
                                 .no_run = size % 5 == 0 };
    ls__options *o;
    if (ls__options_parse(&argc, &argv, &program, &o) == LS_OK) {
        require(argc >= 1 && argc <= argc_before && argv[argc] == NULL, "argv is not whole");
        char *help = ls__options_help(o, argv[0], &program);
        json_t *json = ls__options_json(o);
        require(help && json, "no help or JSON");
        ls__free(help);
        json_decref(json);
        ls__options_free(o);
    } else {
        require(ls_error_text()[0] != '\0', "no error text");
        require(argc == argc_before && width == 7 && strcmp(folder, "data") == 0, "half parsed");
        for (int i = 0; i < argc; i++) require(words[i] == before[i], "argv changed");
    }
    ls_every every;
    char again[32];
    if (argc_before > 1 && ls__every_parse(before[1], &every)) ls__every_text(every, again);
    free(text);
    return 0;
}
