/* A small model whose values are a function of (step, element), divided among ranks in many small
 * ranges, and jobs that save and load it with ranks as threads. */
#ifndef LS_TEST_HELPER_SAVED_H
#define LS_TEST_HELPER_SAVED_H

#include "checkpoint/checkpoint.h"

enum { SAVED_TENSORS = 5, SAVED_STATES = 2, SAVED_COUNT = 700, SAVED_RANKS_MAX = 4 };

extern const ls__saved_tensor saved_tensors[SAVED_TENSORS];
extern const char *const saved_states[SAVED_STATES];

/* Element i of the space (state -1) or of a state, at a step. */
float saved_value(int64_t step, int state, int64_t i);
/* The ranges of a rank; returns how many. out: room for SAVED_COUNT. */
int saved_ranges(int rank, int size, ls__saved_range *out);

typedef struct saved_save {
    int64_t step;
    double metric;
} saved_save;

typedef struct saved_job {
    const char *folder;
    const ls__fs *fs; /* of all ranks; NULL = the real one */
    int size;
    int keep_last, keep_best;
    bool higher_is_better;
    const char *monitor;
    int timeout_ms;
    int silent;  /* a rank that never takes part; 0 = none */
    bool resave; /* goes on after a save failed */
} saved_job;

/* Creates checkpointers, saves each in turn and waits; statuses: (nsaves) rank 0's view of each
 * save; NULL = not wanted. The first failure of any rank, text included; LS_ERR_INTERNAL when ranks
 * do not agree on it. */
ls_status saved_run(const saved_job *job, const saved_save *saves, int nsaves, ls_status *statuses);
/* Loads with size ranks and compares every element; a text of what differs, NULL = nothing. */
const char *saved_check(const char *path, int64_t step, int size);

/* A fresh folder under the test's temporary one. */
const char *fresh_folder(const char *name);
/* Changes a byte of a file, or cuts it at nbytes. */
void flip_byte(const char *path, int64_t offset);
void cut_file(const char *path, int64_t nbytes);
int64_t file_bytes(const char *path);

#endif
