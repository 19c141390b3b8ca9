/* Signals that ask a program to stop: SIGTERM, SIGINT, SIGUSR1. A rank does not act on them alone:
 * it hands the number to its watcher, which tells whoever counts them. A program on its own counts
 * here: the first asks for a stop, a second one more than a second later, or the end of the grace
 * period, ends it at once. */
#ifndef LS_WORLD_SIGNALS_H
#define LS_WORLD_SIGNALS_H

#include <lockstep/base.h>

#include "world/last_words.h"

/* Each signal becomes one byte, its number, on fd (non-blocking; borrowed). */
ls_status ls__signals_forward(int fd);
/* This process is the whole job. grace in seconds, -1 = none; talks: says what a signal does. */
ls_status ls__signals_alone(double grace, bool talks);
int ls__signals_stop_request(void); /* after ls__signals_alone: the first signal, 0 = none */
/* What a program on its own writes when a signal ends it; taken over. NULL = nothing. */
void ls__signals_set_last_words(ls__last_words *words);
/* Default actions again. */
void ls__signals_restore(void);

/* The signals that ask to stop. */
enum { LS__SIGNALS = 3 };
extern const int ls__signals[LS__SIGNALS];

#endif
