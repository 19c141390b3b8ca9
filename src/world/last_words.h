/* Last words: the report of a program on its own that a second signal, or the end of the grace
 * period, ends at once. It is written by a signal handler, so everything but the step is made ready
 * beforehand. */
#ifndef LS_WORLD_LAST_WORDS_H
#define LS_WORLD_LAST_WORDS_H

#include <stdatomic.h>

#include "world/report.h"

typedef struct ls__last_words ls__last_words;

enum { LS__LAST_WORDS_PATHS = 2 };

/* For each of signals (nsignals, at most 3). paths: where to, "" = nowhere. report: all that does
 * not depend on the signal. step is read when the words are written; borrowed. */
ls_status ls__last_words_create(const ls__report *report, const int *signals, int nsignals,
                                double grace, const char *const paths[LS__LAST_WORDS_PATHS],
                                const _Atomic int64_t *step, ls__last_words **out);
void ls__last_words_free(ls__last_words *words);
/* Safe in a signal handler. */
void ls__last_words_write(const ls__last_words *words, int signal, bool grace_over);

#endif
