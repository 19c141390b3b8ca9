/* What the output of ranks is made of; seen by output*.c only. */
#ifndef LS_WORLD_OUTPUT_PARTS_H
#define LS_WORLD_OUTPUT_PARTS_H

#include <stdint.h>

#include "world/store_frame.h"

bool ls__bytes_add(ls__bytes *bytes, const void *data, size_t nbytes);

/* --- one of our own streams: what it does not take at once waits here --- */
typedef struct ls__sink {
    int fd; /* 1 or 2 */
    bool broken;
    int error; /* of the write that failed */
    ls__bytes queue;
    int64_t dropped; /* lines, since the last word about it */
    bool begun;      /* the last line is not ended */
} ls__sink;

/* Writes what the stream takes without blocking. */
void ls__sink_flush(ls__sink *sink);
size_t ls__sink_waiting(const ls__sink *sink);
/* Queues the pieces as one line, or counts it as dropped when may_drop and the queue is full. */
void ls__sink_add(ls__sink *sink, bool may_drop, const char *prefix, const char *text,
                  size_t nbytes, bool newline);
bool ls__sink_full(const ls__sink *sink);
/* Ends a line that was begun, so that the launcher's own words do not hang on it. */
void ls__sink_end_line(ls__sink *sink);

/* --- the log of one rank --- */
typedef struct ls__rank_log {
    int fd; /* -1: no file (yet) */
    bool off;
    int64_t nbytes, limit; /* of the file; 0 = no limit */
    char path[LS_PATH_MAX];
    double drawn_at;   /* ls__now() of the last drawing that was kept */
    ls__bytes waiting; /* for the file to come, or for the next flush */
} ls__rank_log;

/* errno on failure, else 0. */
int ls__rank_log_open(ls__rank_log *log, const char *path);
void ls__rank_log_close(ls__rank_log *log);
/* Anything; many small pieces are one write. */
void ls__rank_log_add(ls__rank_log *log, const char *text, size_t nbytes);
/* Behind whole lines, or a piece of a long one: where a file may end and the next begin. */
int ls__rank_log_flush(ls__rank_log *log);
/* A state of a progress bar that was drawn over: one now and then is kept, as a line. */
void ls__rank_log_drawing(ls__rank_log *log, const char *text, size_t nbytes);

/* --- lines that several ranks say --- */
typedef struct ls__fold ls__fold;

/* A line and the ranks (size bits) that said it. */
typedef void ls__fold_show(void *user, int which, const uint64_t *ranks, const char *text,
                           size_t nbytes);
ls_status ls__fold_create(int size, ls__fold_show *show, void *user, ls__fold **out);
void ls__fold_destroy(ls__fold *fold);
void ls__fold_add(ls__fold *fold, int rank, int which, const char *text, size_t nbytes);
/* Shows what has waited long enough, or all. */
void ls__fold_flush(ls__fold *fold, bool all);
int ls__fold_fd(const ls__fold *fold); /* readable when something is due */
/* "[0-3,7] " of a set of ranks (size bits), "[host:0-3,7] " with a host; cut with "..." when it is
 * long. */
enum { LS__RANKS_TEXT = 128 };
void ls__ranks_text(const uint64_t *set, int size, const char *host, char out[LS__RANKS_TEXT]);

#endif
