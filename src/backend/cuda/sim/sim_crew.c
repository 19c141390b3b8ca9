/* The threads that share a launch's blocks: the stream's own, and helpers that sleep in between.
 *
 * Blocks are dealt out by a counter; which thread runs which block changes nothing that a correct
 * kernel computes. Each stream has helpers of its own: shared ones would order streams behind each
 * other in the thread sanitizer's eyes, and hide a missing event. Tiny launches are not worth waking
 * anybody. */
#include <stdatomic.h>

#include "backend/cuda/sim/sim_internal.h"

enum { WORTH_SHARING = 1024 /* threads */ };

typedef struct sim_job {
    const sim_launch *launch;
    const void *bound;
    uint64_t nblocks, step;
    atomic_ullong next;
    atomic_bool failed;
} sim_job;

struct sim_crew {
    int device, workers;
    bool started; /* the helpers */
    sim_block *own;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sim_job *job;        /* NULL = nothing to do */
    uint64_t generation; /* of jobs */
    int busy, alive;     /* helpers */
    bool closing;
    sim_order begin, end;
};

/* Runs blocks until there are none, or `most` of them. */
static void run_blocks(sim_crew *crew, sim_block *block, sim_job *job, uint64_t most)
{
    if (!ls__sim_block_prepare(block, job->launch, job->bound)) {
        ls__sim_fault(crew->device, cudaErrorMemoryAllocation, "kernel %s: no memory to run it",
                      job->launch->name);
        atomic_store(&job->failed, true);
    }
    for (uint64_t done = 0; done < most && !atomic_load(&job->failed); done += job->step) {
        uint64_t from = atomic_fetch_add_explicit(&job->next, job->step, memory_order_relaxed);
        if (from >= job->nblocks) break;
        uint64_t to = from + job->step < job->nblocks ? from + job->step : job->nblocks;
        for (uint64_t i = from; i < to; i++) {
            if (ls__sim_block_run(block, i)) continue;
            atomic_store(&job->failed, true);
            break;
        }
    }
}

static void help(sim_crew *crew, sim_block *block, sim_job *job)
{
    crew->busy++;
    sim_unlock(&crew->lock);
    sim_acquire(&crew->begin);
    run_blocks(crew, block, job, UINT64_MAX);
    sim_release(&crew->end);
    sim_lock(&crew->lock);
    crew->busy--;
    sim_wake(&crew->changed);
}

static void *run_helper(void *context)
{
    sim_crew *crew = context;
    sim_block *block = ls__sim_block_create(crew->device);
    uint64_t seen = 0;
    sim_lock(&crew->lock);
    while (block && !crew->closing) {
        if (crew->job && crew->generation != seen) {
            seen = crew->generation;
            help(crew, block, crew->job);
        } else
            sim_wait(&crew->changed, &crew->lock);
    }
    crew->alive--;
    sim_wake(&crew->changed);
    sim_unlock(&crew->lock);
    ls__sim_block_destroy(block);
    return NULL;
}

static void start_helpers(sim_crew *crew)
{
    if (crew->started) return;
    crew->started = true;
    for (int i = 1; i < crew->workers; i++) {
        pthread_t thread;
        sim_lock(&crew->lock);
        crew->alive++;
        sim_unlock(&crew->lock);
        bool created = pthread_create(&thread, NULL, run_helper, crew) == 0;
        if (created) {
            pthread_detach(thread);
            continue;
        }
        sim_lock(&crew->lock);
        crew->alive--;
        sim_unlock(&crew->lock);
    }
}

/* For the thread sanitizer blocks only race when different threads run them: helpers get a part of
 * every launch, whoever is faster. */
static uint64_t own_part(const sim_crew *crew, const sim_job *job)
{
    return SIM_TSAN && crew->alive > 0 ? (job->nblocks + 1) / 2 : UINT64_MAX;
}

static bool is_left_to_helpers(const sim_crew *crew, const sim_job *job)
{
    return SIM_TSAN && crew->alive > 0 && !atomic_load(&job->failed) &&
           atomic_load(&job->next) < job->nblocks;
}

static void share(sim_crew *crew, sim_job *job)
{
    start_helpers(crew);
    sim_release(&crew->begin);
    sim_lock(&crew->lock);
    crew->job = job;
    crew->generation++;
    uint64_t most = own_part(crew, job);
    sim_wake(&crew->changed);
    sim_unlock(&crew->lock);

    run_blocks(crew, crew->own, job, most);

    sim_lock(&crew->lock);
    while (crew->busy > 0 || is_left_to_helpers(crew, job)) sim_wait(&crew->changed, &crew->lock);
    crew->job = NULL;
    sim_unlock(&crew->lock);
    sim_acquire(&crew->end);
}

void ls__sim_crew_run(sim_crew *crew, const sim_launch *l, const void *bound)
{
    uint64_t nblocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    uint64_t threads = nblocks * l->block.x * l->block.y * l->block.z;
    int workers = crew->workers;
    sim_job job = { .launch = l, .bound = bound, .nblocks = nblocks };
    job.step = nblocks / (8 * (uint64_t)workers);
    if (job.step == 0) job.step = 1;
    if (workers > 1 && nblocks > 1 && (SIM_TSAN || threads >= WORTH_SHARING))
        share(crew, &job);
    else
        run_blocks(crew, crew->own, &job, UINT64_MAX);
}

sim_crew *ls__sim_crew_create(int device, int nworkers)
{
    sim_crew *crew = ls__alloc(1, sizeof(*crew));
    sim_block *own = ls__sim_block_create(device);
    if (!crew || !own) {
        ls__free(crew);
        ls__sim_block_destroy(own);
        return NULL;
    }
    crew->device = device;
    crew->workers = nworkers;
    crew->own = own;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->changed, NULL);
    return crew;
}

void ls__sim_crew_destroy(sim_crew *crew)
{
    if (!crew) return;
    sim_lock(&crew->lock);
    crew->closing = true;
    sim_wake(&crew->changed);
    while (crew->alive > 0) sim_wait(&crew->changed, &crew->lock);
    sim_unlock(&crew->lock);
    ls__sim_block_destroy(crew->own);
    sim_end(crew, &crew->lock, &crew->changed);
}
