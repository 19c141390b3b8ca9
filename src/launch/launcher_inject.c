/* --inject: mishaps on purpose, so that somebody can see what a failure does to a job before one happens
 * by itself. "kill:rank=3@10s": SIGKILL to rank 3, ten seconds after the first start. Each happens
 * once. */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "launch/launcher_job.h"

static ls_status wrong(const char *entry)
{
    return ls_fail(LS_ERR_CONFIG,
                   "--inject %.80s: must be SIGNAL:rank=R@TIME, such as kill:rank=1@10s or "
                   "stop:rank=0@500ms",
                   entry);
}

/* "kill" -> SIGKILL; 0 = unknown. */
static int signal_of(const char *name)
{
    char upper[16];
    snprintf(upper, sizeof upper, "%s", name);
    for (char *c = upper; *c; c++) *c = (char)toupper((unsigned char)*c);
    for (int number = 1; number < 32; number++) {
        const char *known = sigabbrev_np(number);
        if (known && strcmp(known, upper) == 0) return number;
    }
    return 0;
}

static ls_status read_entry(const char *entry, int size, ls__injection *out)
{
    char name[12], rank[12], at[24];
    int used = -1;
    if (sscanf(entry, "%11[a-zA-Z0-9]:rank=%11[0-9]@%23[0-9a-z.]%n", name, rank, at, &used) != 3 ||
        used != (int)strlen(entry))
        return wrong(entry);
    out->signal = signal_of(name);
    if (out->signal == 0 || !ls__duration_parse(at, &out->at) || out->at < 0) return wrong(entry);
    long number = strtol(rank, NULL, 10); /* digits; too many are LONG_MAX */
    if (number >= size)
        return ls_fail(LS_ERR_CONFIG, "--inject %.80s: there is no rank %s; the last is %d", entry,
                       rank, size - 1);
    out->rank = (int)number;
    return LS_OK;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const ls__injection *)a)->at, y = ((const ls__injection *)b)->at;
    return (x > y) - (x < y);
}

ls_status ls__launcher_injections(const char *text, int size, ls__launcher_plan *out)
{
    while (text && *text) {
        char entry[96];
        size_t length = strcspn(text, ",");
        snprintf(entry, sizeof entry, "%.*s", (int)(length < 95 ? length : 95), text);
        if (out->ninjections == LS__INJECTIONS_MAX)
            return ls_fail(LS_ERR_CONFIG, "--inject: at most %d", LS__INJECTIONS_MAX);
        LS_TRY(read_entry(entry, size, &out->injections[out->ninjections++]));
        text += length + (text[length] == ',');
    }
    qsort(out->injections, (size_t)out->ninjections, sizeof *out->injections, by_time);
    return LS_OK;
}

double ls__injection_due(const ls__launcher_job *j)
{
    if (j->restarts > 0 || j->ninjected >= j->plan->ninjections) return -1;
    return j->started + j->plan->injections[j->ninjected].at;
}

void ls__injection_fire(ls__launcher_job *j)
{
    const ls__injection *injection = &j->plan->injections[j->ninjected++];
    char name[32];
    int local = ls__job_local(j, injection->rank);
    if (local < 0) return; /* another machine's, which has the same flag */
    ls__signal_name(injection->signal, name);
    ls__log(LS__LOG_WARN, "injected: %s to rank %d", name, injection->rank);
    ls__events_write(j, "inject", json_pack("{s:i,s:s}", "rank", injection->rank, "signal", name));
    if (!j->crew.children[local].ended)
        ls__child_signal(&j->crew.children[local], injection->signal);
}
