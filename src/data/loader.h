/* Sampler and loader: which samples a micro-batch holds, and threads that read them ahead of time.
 */
#ifndef LS_DATA_LOADER_H
#define LS_DATA_LOADER_H

#include <lockstep/dataset.h>

/* --- how a batch is cut: pure arithmetic --- */
typedef struct ls__cut {
    int64_t batch; /* samples of the global batch */
    int64_t unit;  /* samples that stay together (a batch norm's group); 0 = 1 */
    int micro_batches;
} ls__cut;
/* Micro-batch s of a batch of `samples` samples (at most cut->batch; a run's last step may be
 * short): [*begin, *end), empty when there are fewer units. */
void ls__cut_micro_batch(const ls__cut *cut, int64_t samples, int s, int64_t *begin, int64_t *end);

/* --- the order of samples: position p counts samples since the run began; epochs follow each other
 * without a gap --- */
int64_t ls__sampler_index(uint64_t seed, int64_t length,
                          int64_t position); /* the sample at a position */
int64_t ls__sampler_epoch(int64_t length, int64_t position);
/* The samples at count positions in a row; cheaper than one by one. */
void ls__sampler_indices(uint64_t seed, int64_t length, int64_t position, int64_t count,
                         int64_t *indices);

/* --- loader --- */
typedef struct ls__loader ls__loader;

typedef struct ls__loader_options {
    ls_dataset *dataset;
    uint64_t seed;
    bool training;     /* rng per (seed, epoch, sample) and the sampler's order; else the dataset's
                          order, no rng */
    int threads;       /* LS_NONE = the caller reads, in ls__loader_next; 0 = so when the dataset
                          lies in memory (a thread would only take CPU time from computing), else 1 */
    int depth;         /* batches read ahead; 0 = 3 */
    bool peeks;        /* ls__loader_peek will be called */
    int64_t max_count; /* samples of the largest batch */
    /* The k-th batch that this rank will ask for, k = 0, 1, ...: positions [*begin, *begin +
     * *count); *count may be 0; false = no more. Called in the order of k, by the loader's threads
     * under its lock; a pure function of k. */
    bool (*plan)(void *user, int64_t k, int64_t *begin, int64_t *count);
    void *user;
} ls__loader_options;

typedef struct ls__loader_batch {
    int64_t begin, count;
    const int64_t *samples; /* (count) */
    void *const *fields;    /* aligned to 64 */
} ls__loader_batch;

ls_status ls__loader_create(const ls__loader_options *options, ls__loader **out);
/* Waits for the next batch, in order; the one before is given back. *more = false behind the last.
 * A read error names dataset and index, and comes again at every further call. */
ls_status ls__loader_next(ls__loader *loader, ls__loader_batch *out, bool *more);
/* The batch that ls__loader_next will hand out, without giving the present one back; read now where
 * the caller reads. False when there is none, it cannot be read, or it is not read yet. */
bool ls__loader_peek(ls__loader *loader, ls__loader_batch *out);
/* At any time; waits for reads in progress. */
void ls__loader_destroy(ls__loader *loader);
int64_t ls__loader_bytes(const ls__loader *loader); /* of its buffers */

#endif
