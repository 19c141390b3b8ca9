/* Fuzz entry: words of the launcher's command line and of PET_* variables. The first byte says which
 * parser the rest goes to. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "launch/launcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good) abort();
}

static void feed_injections(const char *text)
{
    ls__launcher_plan *plan = ls__alloc(1, sizeof *plan);
    if (plan && ls__launcher_injections(text, 4, plan) == LS_OK) {
        check(plan->ninjections <= LS__INJECTIONS_MAX);
        for (int i = 0; i < plan->ninjections; i++) {
            const ls__injection *injection = &plan->injections[i];
            check(injection->rank >= 0 && injection->rank < 4 && injection->signal > 0);
            check(injection->at >= 0 && (i == 0 || injection->at >= plan->injections[i - 1].at));
        }
    }
    ls__free(plan);
}

static void feed_shown(const char *text, char which)
{
    ls__launcher_flags flags;
    unsigned char shown[4];
    ls__launcher_flags_init(&flags);
    *(which == 't'   ? &flags.tee
      : which == 'r' ? &flags.redirects
                     : &flags.local_ranks_filter) = text;
    if (ls__launcher_shown(&flags, 4, true, shown) != LS_OK) return;
    for (int r = 0; r < 4; r++) check(shown[r] <= (LS__SHOW_STDOUT | LS__SHOW_STDERR));
}

/* "nnodes=1\nhosts=a" as PET_NNODES and so on, and as words of the line. */
static void feed_line(char *text, bool as_variables)
{
    enum { WORDS = 16 };
    char command[] = "lockstep run", *argv[WORDS + 1] = { command }, *rest = NULL, name[80];
    int argc = 1;
    ls__launcher_flags flags;
    ls__launcher_words words;
    ls__launcher_flags_init(&flags);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(line, '=');
        if (!as_variables && argc < WORDS) argv[argc++] = line;
        if (!as_variables || !equals || equals == line || equals - line > 40) continue;
        snprintf(name, sizeof name, "PET_%.*s", (int)(equals - line), line);
        setenv(name, equals + 1, 1);
    }
    if (ls__launcher_split(argc, argv, &flags, &words) == LS_OK) {
        check(words.nflags >= 1 && words.program >= argv && words.program <= argv + argc);
        ls__launcher_words_free(&words);
    }
    for (const ls_flag *f = flags.table; f->name && as_variables; f++) {
        int n = snprintf(name, sizeof name, "PET_%s", f->name);
        for (int i = 4; i < n; i++) name[i] = name[i] == '-' ? '_' : (char)(name[i] & ~0x20);
        unsetenv(name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    char *text = ls__alloc(size, 1);
    if (!text) return 0;
    memcpy(text, data + 1, size - 1); /* ls__alloc gives zeros: it ends with one */
    if (data[0] == 'i')
        feed_injections(text);
    else if (data[0] == 'p' || data[0] == 'w')
        feed_line(text, data[0] == 'p');
    else
        feed_shown(text, (char)data[0]);
    ls__free(text);
    return 0;
}
