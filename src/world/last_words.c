/* Last words: each possible report as one line of JSON, cut where the step belongs. */
#include "world/last_words.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"

enum { SIGNALS_MAX = 3, KINDS = 2 };

struct ls__last_words {
    char paths[LS__LAST_WORDS_PATHS][LS_PATH_MAX];
    int signals[SIGNALS_MAX], nsignals;
    char *lines[SIGNALS_MAX][KINDS]; /* second signal, grace over; ended by a newline */
    size_t cuts[SIGNALS_MAX][KINDS]; /* bytes before the step's null */
    const _Atomic int64_t *step;
};

static const char step_key[] = "\"step\":";
static const char no_step[] = "null";

static ls_status render(ls__last_words *words, const ls__report *model, int i, int kind,
                        double grace)
{
    ls__report report = *model;
    report.step = -1;
    report.end = (ls__end) { .kind = kind == 0 ? LS__END_SECOND : LS__END_GRACE_OVER,
                             .rank = -1,
                             .signal = words->signals[i],
                             .grace = grace };
    json_t *document = ls__report_json(&report);
    char *line = document ? ls__json_line(document) : NULL;
    json_decref(document);
    if (line) words->lines[i][kind] = ls__format("%s\n", line);
    ls__free(line);
    const char *key = words->lines[i][kind] ? strstr(words->lines[i][kind], step_key) : NULL;
    if (!key) return ls_fail(LS_ERR_MEMORY, "no memory for the report");
    words->cuts[i][kind] = (size_t)(key - words->lines[i][kind]) + sizeof step_key - 1;
    return LS_OK;
}

ls_status ls__last_words_create(const ls__report *report, const int *signals, int nsignals,
                                double grace, const char *const paths[LS__LAST_WORDS_PATHS],
                                const _Atomic int64_t *step, ls__last_words **out)
{
    *out = NULL;
    ls__last_words *words = ls__alloc(1, sizeof *words);
    if (!words) return LS_ERR_MEMORY;
    words->step = step;
    words->nsignals = nsignals;
    for (int i = 0; i < LS__LAST_WORDS_PATHS; i++)
        snprintf(words->paths[i], LS_PATH_MAX, "%s", paths[i]);
    ls_status status = LS_OK;
    for (int i = 0; i < nsignals; i++) {
        words->signals[i] = signals[i];
        for (int kind = 0; kind < KINDS && status == LS_OK; kind++)
            status = render(words, report, i, kind, grace);
    }
    if (status != LS_OK) {
        ls__last_words_free(words);
        return status;
    }
    *out = words;
    return LS_OK;
}

void ls__last_words_free(ls__last_words *words)
{
    if (!words) return;
    for (int i = 0; i < SIGNALS_MAX; i++)
        for (int kind = 0; kind < KINDS; kind++) ls__free(words->lines[i][kind]);
    ls__free(words);
}

/* Decimal digits of value (at least 0) at the end of out; where they begin. */
static const char *digits_of(int64_t value, char out[24])
{
    char *at = out + 23;
    *at = '\0';
    do *--at = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    return at;
}

static void write_all(int fd, const char *data, size_t nbytes)
{
    while (nbytes > 0) {
        ssize_t n = write(fd, data, nbytes);
        if (n <= 0) return;
        data += n;
        nbytes -= (size_t)n;
    }
}

void ls__last_words_write(const ls__last_words *words, int signal, bool grace_over)
{
    int i = 0, kind = grace_over ? 1 : 0;
    while (i < words->nsignals && words->signals[i] != signal) i++;
    if (i == words->nsignals) return;
    int64_t step = atomic_load_explicit(words->step, memory_order_relaxed);
    char room[24];
    const char *number = step >= 0 ? digits_of(step, room) : no_step;
    const char *line = words->lines[i][kind];
    size_t cut = words->cuts[i][kind], behind = cut + sizeof no_step - 1;
    for (int p = 0; p < LS__LAST_WORDS_PATHS; p++) {
        if (!words->paths[p][0]) continue;
        int fd = open(words->paths[p], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) continue;
        write_all(fd, line, cut);
        write_all(fd, number, strlen(number));
        write_all(fd, line + behind, strlen(line + behind));
        close(fd);
    }
}
