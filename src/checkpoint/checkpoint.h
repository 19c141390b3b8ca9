/* Checkpoints: folders `step-00000500` that are complete or not there, written in the background,
 * loaded on any number of devices.
 *
 *     model.safetensors      whole tensors, plain layout: parameters and running statistics
 *     optimizer.safetensors  "<state>.<parameter>", whole tensors; absent without states
 *     trainer.json           lockstep.trainer/1: what the caller gives
 *     manifest.json          lockstep.manifest/1: sizes and XXH3-64 checksums of the other files
 *
 * A save. Rank 0 makes a hidden sibling, `.step-00000500.<random>.tmp`, with both files in full
 * size and tells its name through the store. Every owner writes its ranges where they belong,
 * syncs, and reports the checksums of what it wrote through the store: never a collective, because
 * training goes on meanwhile. Rank 0 checks that the reports cover each file exactly once, writes
 * trainer.json and manifest.json, syncs, renames, syncs the folder. Then `last` and `best`,
 * symlinks beside it, are replaced, and only then old checkpoints are removed (never what the two
 * point to). A folder whose step is later than the one saved belongs to a past that the run has
 * left (it was damaged, or the run was resumed from an earlier step): it is renamed
 * `superseded-<step>` and nobody looks at it again.
 *
 * The manifest. A file is a sequence of pieces, the ranges as their owners wrote them (at most
 * 4 MiB each), in the order of the file and without gaps. Each has its XXH3-64; the file's own
 * checksum is the XXH3-64 over (checksum, bytes) of its pieces, all little-endian 64-bit numbers.
 * So an owner needs to see nothing but its own ranges, and whoever verifies reads each file once
 * from front to back, whatever the number of devices then and now:
 *
 *     {"schema":"lockstep.manifest/1","step":500,"monitor":"val/loss","metric":0.31,
 *      "files":{"model.safetensors":{"bytes":N,"xxh3":"<hex>","pieces":["<hex> <bytes>",...]},
 *               "trainer.json":{"bytes":N,"xxh3":"<hex>"}},   (without pieces: of its bytes)
 *      "xxh3":"<hex>"}    (of this document without this member, compact and with sorted keys)
 */
#ifndef LS_CHECKPOINT_H
#define LS_CHECKPOINT_H

#include <lockstep/base.h>

#include "base/file.h"
#include "base/json.h"
#include "world/store.h"

/* A tensor of the saved model: where it lies in the flat space. */
typedef struct ls__saved_tensor {
    const char *name;
    int rank;
    int64_t shape[LS_MAX_RANK];
    int64_t offset; /* elements in the flat space */
    bool has_state; /* parameters have optimizer states; statistics do not */
} ls__saved_tensor;

/* A part of the flat space that this rank writes or reads: [offset, offset + count), offset counted
 * in the flat space, inside one tensor. */
typedef struct ls__saved_range {
    int tensor;
    int64_t offset, count;
} ls__saved_range;

typedef struct ls__checkpointer ls__checkpointer;

typedef struct ls__checkpointer_options {
    const ls__fs *fs;   /* NULL = the real one */
    const char *folder; /* ".../checkpoints"; made when it is not there */
    int rank, size;
    ls__store *store; /* writers report here; NULL when size is 1 */
    int timeout_ms;   /* for a peer's report, beside its time to write at 20 MB/s; 0 = 300000; -1 =
                       no limit */
    const ls__saved_tensor *tensors;
    int ntensors;
    const ls__saved_range *ranges; /* this rank's; those of all ranks cover each tensor once */
    int nranges;
    const char *const *states; /* names of the optimizer's states */
    int nstates;
    int keep_last;       /* the newest so many are kept; 0 = 1; -1 = all */
    int keep_best;       /* and so many best by the metric; -1 = all; 0 = none */
    const char *monitor; /* the metric's name; only checkpoints of the same one are compared; NULL
                            = none is named */
    bool higher_is_better;
    bool seldom; /* no save is planned: memory for one is taken when it comes */
} ls__checkpointer_options;

/* [all] Everything in options is copied. Starts the thread that writes; it first touches its
 * buffer and removes what interrupted saves left. The folder is under the run's lock; the store is
 * that of this start of the job. */
ls_status ls__checkpointer_create(const ls__checkpointer_options *options, ls__checkpointer **out);
/* Bytes of this rank's buffer, for the predicted peak. */
int64_t ls__checkpointer_bytes(const ls__checkpointer *c);

/* [all] Copies this rank's ranges of params and states into the buffer and returns; the thread
 * writes. Waits first for a save that is still being written, and returns its error if it failed
 * (then nothing new is begun). params: the space's base. states[i]: (sum of the ranges' counts) the
 * i-th state of this rank's ranges one after the other; ranges of tensors without state have their
 * place too, which is not looked at. trainer (rank 0; borrowed for the call) is the document.
 * metric: for `best`; NAN = none. */
ls_status ls__checkpoint_save(ls__checkpointer *c, int64_t step, const float *params,
                              float *const *states, const json_t *trainer, double metric);
/* Waits for the save being written; its error, on every rank, once. newest: the step of
 * the newest durable checkpoint of this checkpointer, -1 = none. */
ls_status ls__checkpoint_wait(ls__checkpointer *c, int64_t *newest);
/* Rank 0, after a wait: the best checkpoint there is, "" and NAN = none. */
void ls__checkpointer_best(const ls__checkpointer *c, char path[LS_PATH_MAX], double *metric);
void ls__checkpointer_destroy(ls__checkpointer *c); /* waits */

/* --- reading --- */
/* The newest complete checkpoint of a folder, with verified checksums, and its trainer document
 * (trainer may be NULL). A damaged one is passed over with a warning; LS_ERR_DATA when there are
 * some and all are damaged; "" = there is none. clean: first removes what interrupted saves left;
 * only with the run's lock held. */
ls_status ls__checkpoint_find(const char *folder, bool clean, char path[LS_PATH_MAX],
                              json_t **trainer);
/* Verifies sizes and checksums; LS_ERR_DATA says which file and how. path may also be a
 * .safetensors file, which has no checksum: its header is checked. One rank is enough. */
ls_status ls__checkpoint_verify(const char *path);
ls_status ls__checkpoint_trainer(const char *path, json_t **trainer);
/* Reads this rank's ranges into params (the space's base) and states (as in save; states[i] NULL =
 * not read). Every tensor must be there with its shape; others in the file are left. path: a
 * checkpoint's folder or a .safetensors file (then nstates is 0). Does not verify checksums. */
ls_status ls__checkpoint_load(const char *path, const ls__saved_tensor *tensors, int ntensors,
                              const ls__saved_range *ranges, int nranges, float *params,
                              const char *const *state_names, int nstates, float *const *states);

/* RUN, RUN@last, RUN@best, RUN@STEP (RUN: a name under runs_dir, or a path), a checkpoint's folder,
 * a .safetensors file -> the path of a checkpoint's folder or file. RUN alone is its newest.
 * LS_ERR_CONFIG lists what is there. */
ls_status ls__checkpoint_resolve(const char *runs_dir, const char *name, char path[LS_PATH_MAX]);
/* LS_ERR_CONFIG for a name that no folder in runs_dir has: the text says where it was looked for, and
 * which runs are there. */
ls_status ls__run_unknown(const char *runs_dir, const char *run);

/* What a folder of checkpoints holds, oldest first; complete at first sight, not verified. */
typedef struct ls__checkpoint_entry {
    int64_t step;
    double metric;   /* NAN = none */
    char *monitor;   /* its name; NULL = none */
    int64_t nbytes;  /* of all files; -1 = its manifest cannot be read */
    bool last, best; /* what the symlinks point to */
} ls__checkpoint_entry;
ls_status ls__checkpoint_list(const char *folder, ls__checkpoint_entry **entries, int *n);
void ls__checkpoint_list_free(ls__checkpoint_entry *entries, int n);

/* --- safetensors --- */
typedef struct ls__safetensor {
    char *name;
    char dtype[16]; /* "F32" */
    int rank;
    int64_t shape[LS_MAX_RANK];
    int64_t begin, end; /* bytes from the file's start */
} ls__safetensor;
typedef struct ls__safetensors {
    int count; /* in the order of their data */
    ls__safetensor *tensors;
    json_t *metadata; /* or NULL */
} ls__safetensors;
/* Strict: every rule of the format is checked before anything is believed. */
ls_status ls__safetensors_open(const char *path, ls__safetensors *out);
void ls__safetensors_free(ls__safetensors *s);
/* NULL when it is not there. */
const ls__safetensor *ls__safetensors_find(const ls__safetensors *s, const char *name);
/* The header for f32 tensors in this order; data begins at *nbytes, a multiple of align (a power of
 * two >= 8; checkpoints use 4096). begins: (n) bytes from the file's start; may be NULL. Freed by
 * ls__free. */
ls_status ls__safetensors_header(const ls__saved_tensor *tensors, int n, size_t align,
                                 char **header, size_t *nbytes, int64_t *begins);
/* A whole file of weights, atomically; params: the space's base. */
ls_status ls__safetensors_write(const ls__fs *fs, const char *path, const ls__saved_tensor *tensors,
                                int n, const float *params);

#endif
