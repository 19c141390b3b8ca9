/* The text protocol by which MPICH's process managers (Hydra, also Intel's; PMI version 1) let the
 * processes that they started exchange words. */
#ifndef LS_WORLD_PMI_H
#define LS_WORLD_PMI_H

#include <lockstep/base.h>

enum { LS__PMI_VALUE_MAX = 256, LS__PMI_LINE_MAX = 1024 };

/* All processes call it: the first one's text gets to all. Waits for the slowest of them, at most
 * timeout_ms; -1 = without end. text: no spaces. */
ls_status ls__pmi_share(int fd, bool first, int timeout_ms, char text[LS__PMI_VALUE_MAX]);
/* Says goodbye: a manager ends the others when a process that has spoken ends without. Not where MPI
 * runs in this process, which says it itself and needs the connection until then. */
void ls__pmi_leave(int fd);
/* The value of a word like "rc=0" in a line; false = it is not there, or longer. */
bool ls__pmi_word(const char *line, const char *name, char *out, size_t size);

#endif
