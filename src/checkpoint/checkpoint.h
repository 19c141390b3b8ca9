/* Checkpoints: folders `step-00000500` that are complete or not there, written in the background,
 * loaded on any number of devices.
 *
 *     model.safetensors      whole tensors, plain layout: parameters and running statistics
 *     optimizer.safetensors  "<state>.<parameter>", whole tensors
 *     trainer.json           lockstep.trainer/1: what the caller gives
 *     manifest.json          lockstep.manifest/1: sizes and XXH3 checksums of the other files
 *
 * Written as a hidden sibling, synced by every owner, renamed, the folder synced. `last` and `best`
 * beside it are symlinks, replaced atomically. */
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

/* A part of the flat space that this rank writes or reads: [offset, offset + count) inside one
 * tensor. */
typedef struct ls__saved_range {
    int tensor;
    int64_t offset, count;
} ls__saved_range;

typedef struct ls__checkpointer ls__checkpointer;

typedef struct ls__checkpointer_options {
    const ls__fs *fs;   /* NULL = the real one */
    const char *folder; /* ".../checkpoints" */
    int rank, size;
    ls__store *store; /* writers report here; NULL when size is 1 */
    const ls__saved_tensor *tensors;
    int ntensors;
    const ls__saved_range *ranges; /* this rank's */
    int nranges;
    const char *const *states; /* names of the optimizer's states */
    int nstates;
    int keep_last; /* the newest so many are kept; -1 = all */
    int keep_best; /* and so many best by the metric; -1 = all; 0 = none */
    bool higher_is_better;
} ls__checkpointer_options;

ls_status ls__checkpointer_create(const ls__checkpointer_options *options, ls__checkpointer **out);

/* [all] Copies this rank's ranges of params and states (params: the space's base; states[i]: this
 * rank's ranges one after the other) into a buffer kept for it, and returns; a thread writes. Waits
 * first for a save that is still being written. trainer (rank 0; borrowed for the call) is the
 * document. metric: for `best`; NAN = none. */
ls_status ls__checkpoint_save(ls__checkpointer *c, int64_t step, const float *params,
                              float *const *states, const json_t *trainer, double metric);
/* Waits for the save being written; its error. complete (rank 0's view): the step of the newest
 * durable checkpoint, -1 = none. */
ls_status ls__checkpoint_wait(ls__checkpointer *c, int64_t *newest);
void ls__checkpointer_destroy(ls__checkpointer *c); /* waits */

/* --- reading --- */
/* The newest complete checkpoint of a folder, with verified checksums; a damaged one is passed over
 * with a warning. "" = none. Also removes stale temporaries when clean. */
ls_status ls__checkpoint_find(const char *folder, bool clean, char path[LS_PATH_MAX],
                              json_t **trainer);
/* Verifies sizes and checksums; the error says which file and how. */
ls_status ls__checkpoint_verify(const char *path);
ls_status ls__checkpoint_trainer(const char *path, json_t **trainer);
/* Reads this rank's ranges; states[i] NULL = not read. Every tensor must be there with its shape.
 */
ls_status ls__checkpoint_load(const char *path, const ls__saved_tensor *tensors, int ntensors,
                              const ls__saved_range *ranges, int nranges, float *params,
                              const char *const *state_names, int nstates, float *const *states);

/* --- safetensors --- */
typedef struct ls__safetensor {
    char *name;
    char dtype[16]; /* "F32" */
    int rank;
    int64_t shape[LS_MAX_RANK];
    int64_t begin, end; /* bytes from the file's start */
} ls__safetensor;
typedef struct ls__safetensors {
    int count;
    ls__safetensor *tensors;
    json_t *metadata; /* or NULL */
} ls__safetensors;
/* Strict: every rule of the format is checked before anything is believed. */
ls_status ls__safetensors_open(const char *path, ls__safetensors *out);
void ls__safetensors_free(ls__safetensors *s);
const ls__safetensor *ls__safetensors_find(const ls__safetensors *s, const char *name);
/* The header for f32 tensors in this order; data begins at *nbytes, a multiple of 4096. Freed by
 * ls__free. */
ls_status ls__safetensors_header(const ls__saved_tensor *tensors, int n, const char *prefix,
                                 char **header, size_t *nbytes, int64_t *begins);

/* RUN, RUN@last, RUN@best, RUN@STEP, a checkpoint's folder, a .safetensors file -> the path of a
 * checkpoint's folder or file. */
ls_status ls__checkpoint_resolve(const char *runs_dir, const char *name, char path[LS_PATH_MAX]);

#endif
