/* What ranks print: read from pipes in whole lines, shown, kept in files and as last lines. */
#ifndef LS_WORLD_OUTPUT_H
#define LS_WORLD_OUTPUT_H

#include <lockstep/base.h>

typedef struct ls__output ls__output;

ls_status ls__output_create(int size, ls__output **out);
void ls__output_destroy(ls__output *output);
int ls__output_fd(const ls__output *output); /* readable when there is work */
void ls__output_serve(ls__output *output);

/* What is shown of each rank: bit 0 stdout, bit 1 stderr; borrowed. Otherwise all of rank 0, and of
 * the others stderr. */
void ls__output_set_shown(ls__output *output, const unsigned char *shown);
/* The reading ends of a rank's stdout and stderr; taken over, also on failure. */
ls_status ls__output_attach(ls__output *output, int rank, int out_fd, int err_fd);
/* The job starts again: last lines are forgotten, files go on. */
void ls__output_restart(ls__output *output);
/* Logs go to folder/logs/rank-N.log from here on, with what was kept so far. Once. */
void ls__output_set_folder(ls__output *output, const char *folder);
/* Reads what the pipes still hold, then writes what waits for stdout and stderr, for at most
 * seconds (-1 = as long as it takes) or until interrupt_fd (-1 = none) becomes readable. */
void ls__output_drain(ls__output *output, double seconds, int interrupt_fd);

/* 0, or why stdout took no more; a reader that went away, as in "train | head", is no failure. */
int ls__output_error(const ls__output *output);

/* The last lines of a rank, oldest first: (*n), borrowed until more is read. */
char *const *ls__output_tail(ls__output *output, int rank, int *n);

#endif
