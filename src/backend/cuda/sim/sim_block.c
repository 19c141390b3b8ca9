/* A block's threads, run one at a time by one OS thread.
 *
 * A thread is called as a function on whatever fiber is free; only one that has to wait keeps its
 * fiber, and the next thread gets another. So a kernel without barriers costs a call per thread, and
 * a barrier one switch of stacks per thread. Who goes on is decided by what is ready and by number,
 * never by time: a block does the same in every run. */
#include "backend/cuda/sim/sim_block.h"

#include <stdio.h>
#include <string.h>

__thread sim_here *ls__sim_here __attribute__((visibility("hidden")));

/* --- the thread sanitizer: simulated threads are threads of their own ---
 *
 * It has room for 255 threads at a time. Where there are more, one takes the place of another, and who
 * is ordered behind the one then counts as ordered behind all that the other had done before: a
 * missing event between two streams was not seen once a kernel of 256 threads had run. So a block's
 * threads share a few identities. Their number is odd and a prime: those that a kernel lets meet, 1,
 * 2, 32 or 128 apart, have different ones. */
#ifdef LS_SIM_TSAN
static void become(void *identity)
{
    __tsan_switch_to_fiber(identity, __tsan_switch_to_fiber_no_sync);
}

static void become_thread(sim_block *b, int i)
{
    become(b->identities[i % b->nidentities]);
}

static void become_home(sim_block *b)
{
    become(b->home_identity);
}

/* Of all streams' workers together they leave room for the threads that there really are. */
static int identities_of(int workers)
{
    return workers <= 2 ? SIM_IDENTITIES : workers <= 4 ? 13 : 7;
}

/* All at once, at home: a new identity is ordered behind the one that creates it. */
static void make_identities(sim_block *b)
{
    b->home_identity = __tsan_get_current_fiber();
    if (b->nidentities == 0) b->nidentities = identities_of(ls__sim_workers());
    for (int i = 0; i < b->nidentities; i++)
        if (!b->identities[i]) b->identities[i] = __tsan_create_fiber(0);
}

static void drop_identities(sim_block *b)
{
    for (int i = 0; i < b->nidentities; i++) {
        if (b->identities[i]) __tsan_destroy_fiber(b->identities[i]);
        b->identities[i] = NULL;
    }
}
#else
static void become_thread(sim_block *b, int i)
{
    (void)b, (void)i;
}

static void become_home(sim_block *b)
{
    (void)b;
}

static void make_identities(sim_block *b)
{
    (void)b;
}

static void drop_identities(sim_block *b)
{
    (void)b;
}
#endif

/* --- who runs --- */

static void set_current(sim_block *b, int i)
{
    b->current = i;
    b->here.thread = b->threads[i].index;
    become_thread(b, i);
}

void ls__sim_block_ready(sim_block *b, int i)
{
    b->threads[i].waits = SIM_WAITS_NOT;
    b->ready[(b->ready_first + b->ready_count++) % SIM_MAX_BLOCK] = (uint16_t)i;
}

static int take_ready(sim_block *b)
{
    int i = b->ready[b->ready_first];
    b->ready_first = (b->ready_first + 1) % SIM_MAX_BLOCK;
    b->ready_count--;
    return i;
}

static void switch_to(sim_block *b, sim_fiber *to)
{
    sim_fiber *from = b->running;
    b->running = to;
    ls__sim_fiber_switch(from, to);
}

static void go_home(sim_block *b)
{
    become_home(b);
    switch_to(b, b->home);
}

void ls__sim_block_give_up(sim_block *b, cudaError_t error, const char *text)
{
    b->error = error;
    snprintf(b->trouble, sizeof(b->trouble), "%s", text);
    sim_release(&b->end); /* home reads the text */
    go_home(b);
    __builtin_unreachable();
}

static void carry(void *context);

/* Where the next thread runs. Under the thread sanitizer on a stack of its own, in every block: what
 * two threads leave in one place, one after the other, would be a race. */
static sim_fiber *idle_fiber(sim_block *b)
{
    if (SIM_TSAN && b->started < b->nfibers) return b->fibers[b->started];
    if (!SIM_TSAN && b->nidle > 0) return b->idle[--b->nidle];
    sim_fiber *f = ls__sim_fiber_create(carry, b);
    if (f) b->fibers[b->nfibers++] = f;
    return f;
}

static void stuck(sim_block *b)
{
    int at_barrier = 0, in_warp = 0, first = -1;
    for (int i = 0; i < b->nthreads; i++) {
        if (b->threads[i].waits == SIM_WAITS_NOT) continue;
        if (first < 0) first = i;
        if (b->threads[i].waits == SIM_WAITS_BARRIER)
            at_barrier++;
        else
            in_warp++;
    }
    char text[256];
    snprintf(text, sizeof(text),
             "of %d threads %d wait at __syncthreads and %d for lanes of their mask, the first is "
             "thread %d; nobody else will come",
             b->nthreads, at_barrier, in_warp, first);
    ls__sim_block_give_up(b, cudaErrorLaunchFailure, text);
}

/* The running fiber stops here, until it is switched to again. */
static void let_others(sim_block *b)
{
    if (b->ready_count > 0) {
        int i = take_ready(b);
        set_current(b, i);
        switch_to(b, b->threads[i].fiber);
        return;
    }
    if (b->started < b->nthreads) {
        sim_fiber *f = idle_fiber(b);
        if (!f)
            ls__sim_block_give_up(b, cudaErrorMemoryAllocation, "no memory for a thread's stack");
        switch_to(b, f);
        return;
    }
    if (b->live > 0) stuck(b);
    go_home(b);
}

void ls__sim_block_wait(sim_block *b, sim_waits waits)
{
    int self = b->current;
    b->threads[self].waits = waits;
    b->threads[self].fiber = b->running;
    let_others(b);
}

/* --- barriers --- */

static void open_barrier(sim_block *b)
{
    b->arrived = 0;
    b->generation++;
    for (int i = 0; i < b->nthreads; i++)
        if (b->threads[i].waits == SIM_WAITS_BARRIER) ls__sim_block_ready(b, i);
}

/* Two orders in turn: one who is through may be at the next barrier before others woke up. */
void ls__sim_barrier(void)
{
    sim_block *b = ls__sim_block_here();
    sim_order *order = &b->barrier[b->generation & 1];
    sim_release(order);
    if (++b->arrived == b->live)
        open_barrier(b);
    else
        ls__sim_block_wait(b, SIM_WAITS_BARRIER);
    sim_acquire(order);
}

/* --- threads --- */

static void run_thread(sim_block *b, int i)
{
    set_current(b, i);
    sim_acquire(&b->begin);
    b->launch->invoke(b->bound);
    sim_release(&b->end);
    b->live--;
    if (b->arrived > 0 && b->arrived == b->live) open_barrier(b);
}

/* What every fiber does. Those that are ready come first: so few fibers are in use at a time. */
static void carry(void *context)
{
    sim_block *b = context;
    while (SIM_TSAN) {
        run_thread(b, b->started++);
        let_others(b);
    }
    for (;;) {
        if (b->ready_count == 0 && b->started < b->nthreads) {
            run_thread(b, b->started++);
        } else {
            b->idle[b->nidle++] = b->running;
            let_others(b);
        }
    }
}

/* --- blocks --- */

static uint64_t threads_of(sim_index size)
{
    return (uint64_t)size.x * size.y * size.z;
}

/* nobody can be sure of what shared memory holds; bytes of ones are NaN */
static void new_shared(sim_block *b)
{
    size_t nbytes = b->launch->shared_bytes;
    if (nbytes) memset(b->here.dynamic_shared, 0xff, nbytes);
}

bool ls__sim_block_prepare(sim_block *b, const sim_launch *launch, const void *bound)
{
    if (!b->home) b->home = ls__sim_fiber_of_thread();
    if (!b->home) return false;
    if (launch->shared_bytes && !b->here.dynamic_shared) {
        b->here.dynamic_shared = ls__alloc(1, SIM_SHARED_MOST);
        if (!b->here.dynamic_shared) return false;
    }
    if (b->here.dynamic_shared) {
        sim_poison(b->here.dynamic_shared, SIM_SHARED_MOST);
        sim_unpoison(b->here.dynamic_shared, launch->shared_bytes);
    }
    b->launch = launch;
    b->bound = bound;
    b->here.block_size = launch->block;
    b->here.grid = launch->grid;
    b->nthreads = (int)threads_of(launch->block);
    sim_index at = { 0, 0, 0 };
    for (int i = 0; i < b->nthreads; i++) {
        b->threads[i].index = at;
        if (++at.x < launch->block.x) continue;
        at.x = 0;
        if (++at.y < launch->block.y) continue;
        at.y = 0;
        at.z++;
    }
    make_identities(b);
    return true;
}

/* Fibers that stopped amid a kernel are of no use any more. */
static void drop_fibers(sim_block *b)
{
    for (int i = 0; i < b->nfibers; i++) SIM_UNSEEN(ls__sim_fiber_destroy(b->fibers[i]));
    b->nfibers = b->nidle = 0;
    drop_identities(b);
}

static void reset(sim_block *b, uint64_t number)
{
    sim_index grid = b->launch->grid;
    b->here.block.x = (unsigned)(number % grid.x);
    b->here.block.y = (unsigned)(number / grid.x % grid.y);
    b->here.block.z = (unsigned)(number / grid.x / grid.y);
    b->started = b->arrived = b->ready_count = 0;
    b->live = b->nthreads;
    b->error = cudaSuccess;
}

bool ls__sim_block_run(sim_block *b, uint64_t number)
{
    reset(b, number);
    new_shared(b);
    ls__sim_here = &b->here;
    b->running = b->home;
    sim_release(&b->begin);
    sim_fiber *f = idle_fiber(b);
    if (f)
        switch_to(b, f);
    else {
        b->error = cudaErrorMemoryAllocation;
        snprintf(b->trouble, sizeof(b->trouble), "no memory for a thread's stack");
    }
    sim_acquire(&b->end);
    ls__sim_here = NULL;
    if (b->error == cudaSuccess) return true;
    ls__sim_fault(b->device, b->error, "kernel %s, block (%u, %u, %u): %s", b->launch->name,
                  b->here.block.x, b->here.block.y, b->here.block.z, b->trouble);
    for (int i = 0; i < b->nthreads; i++) b->threads[i].waits = SIM_WAITS_NOT;
    memset(b->warps, 0, sizeof(b->warps));
    drop_fibers(b);
    return false;
}

bool ls__sim_where(char *out, size_t nbytes)
{
    const sim_here *h = ls__sim_here;
    if (!h) return false;
    snprintf(out, nbytes, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)",
             ((const sim_block *)h)->launch->name, h->block.x, h->block.y, h->block.z, h->thread.x,
             h->thread.y, h->thread.z);
    return true;
}

sim_block *ls__sim_block_create(int device)
{
    sim_block *b = ls__alloc(1, sizeof(*b));
    if (b) b->device = device;
    return b;
}

void ls__sim_block_destroy(sim_block *b)
{
    if (!b) return;
    drop_fibers(b);
    ls__sim_fiber_destroy(b->home);
    if (b->here.dynamic_shared) sim_unpoison(b->here.dynamic_shared, SIM_SHARED_MOST);
    ls__free(b->here.dynamic_shared);
    ls__free(b);
}
