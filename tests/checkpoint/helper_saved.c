#include "helper_saved.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "helper_store.h"

/* With gaps between tensors, as in a space whose tensors are aligned. */
const ls__saved_tensor saved_tensors[SAVED_TENSORS] = {
    { .name = "fc1.weight", .rank = 2, .shape = { 23, 17 }, .offset = 0, .has_state = true },
    { .name = "fc1.bias", .rank = 1, .shape = { 23 }, .offset = 400, .has_state = true },
    { .name = "norm.mean", .rank = 1, .shape = { 31 }, .offset = 432 },
    { .name = "scale", .rank = 0, .offset = 464, .has_state = true },
    { .name = "fc2.weight", .rank = 3, .shape = { 5, 5, 8 }, .offset = 480, .has_state = true },
};
const char *const saved_states[SAVED_STATES] = { "momentum", "variance" };

float saved_value(int64_t step, int state, int64_t i)
{
    return (float)(step * 10000 + (state + 1) * 1000 + i) + 0.25f;
}

static int64_t elements(const ls__saved_tensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    return count;
}

/* Blocks of 16 elements from each tensor's start are dealt like slices of buckets. */
int saved_ranges(int rank, int size, ls__saved_range *out)
{
    int n = 0;
    for (int t = 0; t < SAVED_TENSORS; t++) {
        int64_t count = elements(&saved_tensors[t]);
        for (int64_t block = 0; block * 16 < count; block++) {
            if ((block / 3 + t) % size != rank) continue;
            int64_t left = count - block * 16;
            out[n++] = (ls__saved_range) { .tensor = t,
                                           .offset = saved_tensors[t].offset + block * 16,
                                           .count = left < 16 ? left : 16 };
        }
    }
    return n;
}

/* --- saving --- */

typedef struct rank_thread {
    const saved_job *job;
    const saved_save *saves;
    int nsaves, rank;
    test_store *store;
    ls_status *statuses;
    ls_status status;
    char text[2048];
} rank_thread;

static void note(rank_thread *r, int i, ls_status status)
{
    if (r->statuses && r->rank == 0 && r->statuses[i] == LS_OK) r->statuses[i] = status;
    if (status == LS_OK || r->status != LS_OK) return;
    r->status = status;
    snprintf(r->text, sizeof r->text, "%s", ls_error_text());
}

static void fill(int64_t step, const ls__saved_range *ranges, int n, float *params, float **states)
{
    for (int i = 0; i < SAVED_COUNT; i++) params[i] = saved_value(step, -1, i);
    for (int s = 0; s < SAVED_STATES; s++) {
        int64_t local = 0;
        for (int r = 0; r < n; r++)
            for (int64_t i = 0; i < ranges[r].count; i++)
                states[s][local++] = saved_value(step, s, ranges[r].offset + i);
    }
}

static void save_all(rank_thread *r, ls__checkpointer *c, const ls__saved_range *ranges, int n)
{
    float *params = calloc(SAVED_COUNT, sizeof *params), *states[SAVED_STATES];
    for (int s = 0; s < SAVED_STATES; s++) states[s] = calloc(SAVED_COUNT, sizeof **states);
    for (int i = 0; i < r->nsaves && (r->status == LS_OK || r->job->resave); i++) {
        json_t *trainer = json_pack("{s:s,s:I}", "schema", "lockstep.trainer/1", "step",
                                    (json_int_t)r->saves[i].step);
        fill(r->saves[i].step, ranges, n, params, states);
        note(r, i,
             ls__checkpoint_save(c, r->saves[i].step, params, states, trainer, r->saves[i].metric));
        memset(params, 0, SAVED_COUNT * sizeof *params); /* training goes on */
        for (int s = 0; s < SAVED_STATES; s++) memset(states[s], 0, SAVED_COUNT * sizeof **states);
        json_decref(trainer);
        note(r, i, ls__checkpoint_wait(c, NULL));
    }
    for (int s = 0; s < SAVED_STATES; s++) free(states[s]);
    free(params);
}

static void *rank_main(void *user)
{
    rank_thread *r = user;
    const saved_job *job = r->job;
    ls__saved_range *ranges = calloc(SAVED_COUNT, sizeof *ranges);
    int n = saved_ranges(r->rank, job->size, ranges);
    ls__checkpointer_options options = {
        .fs = job->fs,
        .folder = job->folder,
        .rank = r->rank,
        .size = job->size,
        .store = job->size > 1 ? test_store_client(r->store, r->rank) : NULL,
        .timeout_ms = job->timeout_ms,
        .tensors = saved_tensors,
        .ntensors = SAVED_TENSORS,
        .ranges = ranges,
        .nranges = n,
        .states = saved_states,
        .nstates = SAVED_STATES,
        .keep_last = job->keep_last,
        .keep_best = job->keep_best,
        .monitor = job->monitor,
        .higher_is_better = job->higher_is_better,
    };
    ls__checkpointer *c = NULL;
    note(r, 0, ls__checkpointer_create(&options, &c));
    if (c) save_all(r, c, ranges, n);
    ls__checkpointer_destroy(c);
    free(ranges);
    return NULL;
}

/* Of all but the last save no name is left in the store. */
static ls_status check_forgotten(test_store *store, const saved_job *job, int nsaves)
{
    for (int save = 1; save < nsaves; save++) {
        for (int i = -2; i < job->size; i++) {
            char key[64], *value;
            size_t nbytes;
            int n = snprintf(key, sizeof key, "checkpoint/1/%d/", save);
            if (i < 0)
                snprintf(key + n, sizeof key - (size_t)n, i == -2 ? "begin" : "done");
            else
                snprintf(key + n, sizeof key - (size_t)n, "rank/%d/0", i);
            if (ls__store_get(test_store_client(store, 0), key, 1, &value, &nbytes) == LS_OK) {
                ls__free(value);
                return ls_fail(LS_ERR_INTERNAL, "the store still has %s", key);
            }
        }
    }
    return LS_OK;
}

ls_status saved_run(const saved_job *job, const saved_save *saves, int nsaves, ls_status *statuses)
{
    pthread_t threads[SAVED_RANKS_MAX];
    rank_thread ranks[SAVED_RANKS_MAX];
    test_store *store = job->size > 1 ? test_store_create(job->size) : NULL;
    for (int i = 0; statuses && i < nsaves; i++) statuses[i] = LS_OK;
    for (int r = 0; r < job->size; r++) {
        ranks[r] = (rank_thread) { .job = job,
                                   .saves = saves,
                                   .nsaves = nsaves,
                                   .rank = r,
                                   .store = store,
                                   .statuses = statuses };
        if (r == 0 || r != job->silent) pthread_create(&threads[r], NULL, rank_main, &ranks[r]);
    }
    for (int r = 0; r < job->size; r++)
        if (r == 0 || r != job->silent) pthread_join(threads[r], NULL);
    ls_status forgotten = LS_OK;
    if (store && ranks[0].status == LS_OK) forgotten = check_forgotten(store, job, nsaves);
    if (store) test_store_destroy(store);
    if (forgotten != LS_OK) return forgotten;
    for (int r = 1; !job->silent && r < job->size; r++)
        if (ranks[r].status != ranks[0].status)
            return ls_fail(LS_ERR_INTERNAL, "rank 0 has status %d, rank %d has %d: %s",
                           ranks[0].status, r, ranks[r].status, ranks[r].text);
    for (int r = 0; r < job->size; r++)
        if (ranks[r].status != LS_OK) return ls_fail(ranks[r].status, "%s", ranks[r].text);
    return LS_OK;
}

/* --- loading --- */

static const char *compare(int64_t step, const ls__saved_range *ranges, int n, const float *params,
                           float *const *states)
{
    static char text[256];
    int64_t local = 0;
    for (int r = 0; r < n; r++) {
        for (int64_t i = 0; i < ranges[r].count; i++, local++) {
            int64_t at = ranges[r].offset + i;
            bool has_state = saved_tensors[ranges[r].tensor].has_state;
            for (int s = -1; s < (has_state ? SAVED_STATES : 0); s++) {
                float is = s < 0 ? params[at] : states[s][local];
                if (is == saved_value(step, s, at)) continue;
                snprintf(text, sizeof text, "step %lld, state %d, element %lld is %g, not %g",
                         (long long)step, s, (long long)at, (double)is,
                         (double)saved_value(step, s, at));
                return text;
            }
        }
    }
    return NULL;
}

const char *saved_check(const char *path, int64_t step, int size)
{
    const char *differs = NULL;
    for (int rank = 0; rank < size && !differs; rank++) {
        float *params = calloc(SAVED_COUNT, sizeof *params), *states[SAVED_STATES];
        for (int s = 0; s < SAVED_STATES; s++) states[s] = calloc(SAVED_COUNT, sizeof **states);
        ls__saved_range *ranges = calloc(SAVED_COUNT, sizeof *ranges);
        int n = saved_ranges(rank, size, ranges);
        ls_status status = ls__checkpoint_load(path, saved_tensors, SAVED_TENSORS, ranges, n,
                                               params, saved_states, SAVED_STATES, states);
        differs = status == LS_OK ? compare(step, ranges, n, params, states) : ls_error_text();
        for (int s = 0; s < SAVED_STATES; s++) free(states[s]);
        free(ranges);
        free(params);
    }
    return differs;
}

/* --- files --- */

const char *fresh_folder(const char *name)
{
    static char path[LS_PATH_MAX];
    /* In memory where possible: thousands of states of a disk are made, and none has to last. */
    const char *where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof path, "%s/lockstep-test-%ld-%s", where, (long)getpid(), name);
    if (ls__folder_remove(&ls__fs_posix, path) != LS_OK) abort();
    if (mkdir(path, 0777) != 0) abort();
    return path;
}

void flip_byte(const char *path, int64_t offset)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;
    if (fd < 0 || pread(fd, &byte, 1, offset) != 1) abort();
    byte ^= 0x10;
    if (pwrite(fd, &byte, 1, offset) != 1) abort();
    close(fd);
}

void cut_file(const char *path, int64_t nbytes)
{
    if (truncate(path, nbytes) != 0) abort();
}

int64_t file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? info.st_size : -1;
}
