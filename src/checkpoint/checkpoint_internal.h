/* What the files of this room share: layout of the saved files, the manifest, the folder. */
#ifndef LS_CHECKPOINT_INTERNAL_H
#define LS_CHECKPOINT_INTERNAL_H

#include <pthread.h>

#include "checkpoint/checkpoint.h"

#define LS__MODEL_FILE     "model.safetensors"
#define LS__OPTIMIZER_FILE "optimizer.safetensors"
#define LS__TRAINER_FILE   "trainer.json"
#define LS__MANIFEST_FILE  "manifest.json"

enum {
    LS__PIECE_MAX = 4 << 20,     /* bytes */
    LS__MANIFEST_MAX = 1 << 30,  /* bytes of text */
    LS__TRAINER_MAX = 256 << 20, /* bytes of text */
    LS__SHARED_FILES = 2         /* those that owners write together */
};

/* A run of bytes of a shared file that one rank writes and sums. */
typedef struct ls__piece {
    int64_t file, offset, nbytes;
    uint64_t xxh3;
} ls__piece;

/* --- layout: what lies where in the files, and which part of it is this rank's --- */

typedef struct ls__layout_file {
    const char *name;
    char *header;
    size_t header_bytes;
    int64_t nbytes; /* of the whole file */
} ls__layout_file;

/* From the training's memory into the buffer. */
typedef struct ls__layout_copy {
    int64_t file, offset; /* where it goes in the end */
    int state;            /* -1 = params */
    int64_t source;       /* elements from the base of params or of states[state] */
    int64_t count;        /* elements */
    size_t at;            /* bytes in the buffer */
} ls__layout_copy;

typedef struct ls__layout {
    ls__layout_file files[LS__SHARED_FILES];
    int nfiles;
    ls__layout_copy *copies; /* in the order of the files, which is that of the buffer */
    int ncopies;
    size_t buffer_bytes;
    ls__piece
        *pieces; /* this rank's, in the order of the files; in the buffer one after the other */
    int npieces;
} ls__layout;

ls_status ls__layout_create(const ls__checkpointer_options *options, ls__layout *out);
void ls__layout_free(ls__layout *layout);
/* Tensors of optimizer.safetensors: every state of every tensor that has states, state by state.
 * *out and the names in it are freed by ls__layout_states_free. */
ls_status ls__layout_states(const ls__saved_tensor *tensors, int ntensors,
                            const char *const *states, int nstates, ls__saved_tensor **out, int *n);
void ls__layout_states_free(ls__saved_tensor *tensors, int n);
int64_t ls__saved_tensor_count(const ls__saved_tensor *tensor); /* elements */

/* --- the manifest --- */

typedef struct ls__manifest_file {
    char *name;
    int64_t nbytes;
    uint64_t xxh3;
    ls__piece *pieces; /* NULL = the whole file is one */
    int npieces;
} ls__manifest_file;

typedef struct ls__manifest {
    int64_t step;
    double metric;
    char *monitor; /* or NULL */
    ls__manifest_file *files;
    int nfiles;
} ls__manifest;

/* Checked: members, types, that pieces cover their file, all checksums of the document itself. */
ls_status ls__manifest_read(const char *folder, ls__manifest *out);
/* path is for messages; document loses its own checksum. */
ls_status ls__manifest_parse(const char *path, json_t *document, ls__manifest *out);
void ls__manifest_free(ls__manifest *m);
/* The document as text, freed by ls__free. */
ls_status ls__manifest_text(const ls__manifest *m, char **text);
/* Of a file's pieces. */
uint64_t ls__pieces_sum(const ls__piece *pieces, int n);

/* --- the folder of checkpoints --- */

void ls__step_name(int64_t step, char out[64]);
/* false = not the name of a checkpoint. */
bool ls__step_parse(const char *name, int64_t *step);
/* Steps of the folder's checkpoints, ascending; freed by ls__free. A folder that is not there is
 * empty. */
ls_status ls__checkpoint_steps(const char *folder, int64_t **steps, int *n);
/* What the symlink points to: its step; -1 = nothing that is there. */
int64_t ls__checkpoint_link(const char *folder, const char *link);
/* Removes what interrupted saves left. */
ls_status ls__checkpoint_clean(const ls__fs *fs, const char *folder);
/* Renames a folder out of sight, durably, then removes it. */
ls_status ls__checkpoint_remove(const ls__fs *fs, const char *folder, int64_t step);

/* --- the checkpointer --- */

struct ls__checkpointer {
    ls__checkpointer_options options; /* of it only numbers, fs and store are used after create */
    char folder[LS_PATH_MAX];
    char *monitor;
    ls__layout layout;
    char *buffer; /* (layout.buffer_bytes) */

    /* rank 0's, used by the thread alone */
    ls__checkpoint_entry *entries; /* ascending steps */
    int nentries;

    /* the save in hand; read by the thread while busy */
    int64_t id;    /* in names in the store: which checkpointer of the job */
    int64_t saves; /* begun */
    int64_t step;
    double metric;
    char *trainer; /* text */

    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool busy, quit;
    ls_status status; /* of the last save; reported once */
    char *text;
    int64_t newest, best;
    double best_metric;
};

/* One save in the thread, all ranks' parts of it. */
ls_status ls__checkpoint_write(ls__checkpointer *c);
/* Rank 0: gives the complete and synced temporary folder its name; durable when it returns. */
ls_status ls__checkpoint_publish(ls__checkpointer *c, const char *temporary);
/* Rank 0, after the new one is durable: links, then retention; what cannot be removed is a warning.
 */
ls_status ls__checkpoint_retain(ls__checkpointer *c);
/* Rank 0: fills entries from the folder. */
ls_status ls__checkpoint_survey(ls__checkpointer *c);

/* Messages of writers through the store; each waits at most timeout_ms. Never called alone. */
ls_status ls__report_begin(ls__checkpointer *c, ls_status status, const char *temporary);
ls_status ls__report_await_begin(ls__checkpointer *c, int timeout_ms, char temporary[256]);
ls_status ls__report_pieces(ls__checkpointer *c, ls_status status);
/* rank's pieces behind those in *pieces (grown); its failure is returned with its rank named. */
ls_status ls__report_await_pieces(ls__checkpointer *c, int rank, int timeout_ms, ls__piece **pieces,
                                  int *n);
ls_status ls__report_done(ls__checkpointer *c, ls_status status);
ls_status ls__report_await_done(ls__checkpointer *c, int timeout_ms);

#endif
