/* The text protocol by which MPICH's process managers (Hydra, also Intel's; PMI version 1) let the
 * processes that they started exchange words. */
#ifndef LS_LAUNCH_PMI_H
#define LS_LAUNCH_PMI_H

#include <lockstep/base.h>

enum { LS__PMI_VALUE_MAX = 256, LS__PMI_LINE_MAX = 1024 };

/* All processes call it: the first one's text gets to all. Says goodbye to the manager. */
ls_status ls__pmi_share(int fd, bool first, char text[LS__PMI_VALUE_MAX]);
/* The value of a word like "rc=0" in a line; false = it is not there, or longer. */
bool ls__pmi_word(const char *line, const char *name, char *out, size_t size);

#endif
