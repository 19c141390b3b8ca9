/* What ranks print: read from pipes in whole lines, shown, kept in files and as last lines. */
#ifndef LS_WORLD_OUTPUT_H
#define LS_WORLD_OUTPUT_H

#include <lockstep/base.h>

typedef struct ls__output ls__output;

typedef struct ls__output_options {
    /* (size) What is shown of each rank: bit 0 stdout, bit 1 stderr; borrowed. NULL = all of rank 0,
     * and of the others stderr. */
    const unsigned char *shown;
    bool
        fold; /* the same line of several ranks at about the same time is shown once: "[1-7] text" */
    bool drop; /* ranks never wait for a slow terminal: lines are left out there, and counted; only
                  rank 0's stdout into a pipe or file is always whole */
    int64_t log_limit; /* bytes of a log file before it is moved to .1; 0 = none */
    int first;         /* number of the first rank in names of files */
    /* optional: the machine of a rank, where there are several: "[host:9] "; the first of the job is
     * shown as it is all the same */
    const char *(*host_of)(void *user, int rank);
    /* optional: every line as it comes, without its newline (which: 0 stdout, 1 stderr) */
    void (*line)(void *user, int rank, int which, const char *text, size_t nbytes);
    void *user;
} ls__output_options;

ls_status ls__output_create(int size, const ls__output_options *options, ls__output **out);
void ls__output_destroy(ls__output *output);
int ls__output_fd(const ls__output *output); /* readable when there is work */
void ls__output_serve(ls__output *output);

/* The reading ends of a rank's stdout and stderr; taken over, also on failure. */
ls_status ls__output_attach(ls__output *output, int rank, int out_fd, int err_fd);
/* A line of a rank on another machine, without its newline. */
void ls__output_put(ls__output *output, int rank, int which, const char *text, size_t nbytes);
/* The job starts again: last lines are forgotten, files go on. */
void ls__output_restart(ls__output *output);
/* Logs go to folder/rank-N.log from here on, with what was kept so far. Once. NULL = no logs. */
void ls__output_set_logs(ls__output *output, const char *folder);
/* Reads what the pipes still hold, then writes what waits for stdout and stderr, for at most
 * seconds (-1 = as long as it takes) or until interrupt_fd (-1 = none) becomes readable. */
void ls__output_drain(ls__output *output, double seconds, int interrupt_fd);

/* 0, or why stdout took no more; a reader that went away, as in "train | head", is no failure. */
int ls__output_error(const ls__output *output);

/* The last lines of a rank, oldest first: (*n), borrowed until more is read. */
char *const *ls__output_tail(ls__output *output, int rank, int *n);
/* Whether this one of them need not be told again: all that the rank said on stderr is the last that
 * was shown on ours, and the line's stream is one that is shown. */
bool ls__output_tail_seen(const ls__output *output, int rank, int line);

#endif
