/* The report: how a job ended, as a document (lockstep.report/1), as an exit code and in words. */
#ifndef LS_WORLD_REPORT_H
#define LS_WORLD_REPORT_H

#include <lockstep/base.h>

#include "base/json.h"

/* X(name, text, retry: whether the same command is worth another try) */
#define LS__VERDICT_MAP(X)                                                                         \
    X(FINISHED, "finished", "no")                                                                  \
    X(STOPPED, "stopped", "yes")                                                                   \
    X(PREEMPTED, "preempted", "yes")                                                               \
    X(FAILED, "failed", "unknown")                                                                 \
    X(SIGNALLED, "signalled", "unknown")                                                           \
    X(OUT_OF_MEMORY, "out-of-memory", "no")                                                        \
    X(HUNG, "hung", "unknown")                                                                     \
    X(MISMATCH, "mismatch", "no")                                                                  \
    X(NODE_LOST, "node-lost", "yes")                                                               \
    X(RENDEZVOUS_TIMEOUT, "rendezvous-timeout", "yes")                                             \
    X(USAGE, "usage", "no")                                                                        \
    X(IO, "io", "no")                                                                              \
    X(DIVERGED, "diverged", "no")                                                                  \
    X(INTERNAL, "internal", "no")

#define LS__STDOUT_LOST "cannot write to standard output: %s" /* strerror(errno) */

typedef enum ls__verdict {
#define LS__VERDICT_ENUM(name, text, retry) LS__VERDICT_##name,
    LS__VERDICT_MAP(LS__VERDICT_ENUM)
#undef LS__VERDICT_ENUM
} ls__verdict;

enum { LS__REPORT_TEXT = 3072, LS__TAIL_LINES = 30 };

/* How one rank, or the job as a whole, came to its end. */
typedef enum ls__end_kind {
    LS__END_FINISHED,
    LS__END_STOPPED,    /* as asked by signal, saved */
    LS__END_EXIT,       /* exit code, nothing said */
    LS__END_EARLY,      /* exit code 0 without ls_world_finish */
    LS__END_SIGNAL,     /* died of signal */
    LS__END_STATUS,     /* ls_check: status, said */
    LS__END_ABORT,      /* ls_world_abort: said */
    LS__END_LOST,       /* its connection ended; pid, if known */
    LS__END_GRACE_OVER, /* asked to stop by signal, did not */
    LS__END_SECOND,     /* a second signal */
    LS__END_HUNG,       /* no sign of life; killed by us after grace seconds */
    LS__END_SILENT,     /* its machine has not been heard of for grace seconds */
} ls__end_kind;

typedef struct ls__end {
    ls__end_kind kind;
    int rank; /* -1: the job */
    int exit_code, signal, pid;
    ls_status status;
    bool joining;       /* before all ranks had come together */
    bool foreign;       /* a program without the library: its codes mean what it likes */
    bool out_of_memory; /* the kernel says that it killed for lack of memory */
    double grace;       /* seconds */
    char host[64];      /* of the rank; "" = not named */
    int64_t step_told;  /* with a host: what step it was at; -1 = unknown */
    char said[2048];
} ls__end;

typedef struct ls__report {
    ls__end end;
    int size, restarts;
    int64_t step;           /* -1 = unknown */
    const char *checkpoint; /* "" = none */
    double seconds;         /* the job took */
    const char *host;       /* of the rank; NULL = this one */
    char *const *tail;      /* (ntail) last lines of the rank */
    int ntail;
    char *const *stacks; /* (nstacks) where the threads of the ranks were, a line each */
    int nstacks;
} ls__report;

ls__verdict ls__report_verdict(const ls__end *end);
int ls__report_exit_code(const ls__end *end);
/* One or two sentences: who, what, where. */
void ls__report_text(const ls__report *report, char out[LS__REPORT_TEXT]);
/* What to do next; "" when there is nothing to say. */
void ls__report_hint(const ls__report *report, char out[512]);
json_t *ls__report_json(const ls__report *report);
/* To path, atomically where path is (or will be) a plain file in a folder we may write to, else in
 * place (/dev/termination-log). */
ls_status ls__report_write(const ls__report *report, const char *path);
/* To each of two paths that is not ""; a failure is logged. where: the first one written, or "". */
void ls__report_write_both(const ls__report *report, const char *const paths[2],
                           char where[LS_PATH_MAX]);
/* Checked when the job begins: LS_ERR_CONFIG when path could not be written. */
ls_status ls__report_check_path(const char *path);
/* Text and hint to stderr, by the log; where: the report's path or "". */
void ls__report_print(const ls__report *report, const char *where);

/* One line of JSON to stdout: what --json promises of a command that failed. */
void ls__report_show(const ls__report *report);

/* "SIGKILL"; "signal 99" for one without a name. */
const char *ls__signal_name(int signal, char out[32]);
/* text with bytes that are not UTF-8, and control characters but tabs, replaced by '?'. */
void ls__clean_text(char *text);

#endif
