/* What the sanitizers are told, since they cannot see it: fibers, orders, memory that is not ours.
 *
 * Under the thread sanitizer (LS_SIM_TSAN) the simulation's own files are not instrumented, and what
 * its locks order is hidden: a GPU's work is ordered by enqueueing, events, synchronization and
 * barriers, by nothing else. Each of those is announced by release and acquire. */
#ifndef LS_BACKEND_CUDA_SIM_SANITIZER_H
#define LS_BACKEND_CUDA_SIM_SANITIZER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define LS_SIM_ASAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define LS_SIM_ASAN 1
#endif

/* What is released and acquired. Eight bytes, aligned: the sanitizer cannot tell apart what lies
 * within such a word. */
typedef struct sim_order {
    _Alignas(8) uint64_t unused;
} sim_order;

#ifdef LS_SIM_TSAN
#include <sanitizer/tsan_interface.h>
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
enum { SIM_TSAN = 1 };
/* Ends something that other threads have used under its lock, which is hidden. */
#define SIM_UNSEEN(statement)                                                                      \
    do {                                                                                           \
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);                                             \
        statement;                                                                                 \
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);                                               \
    } while (0)
#define SIM_HIDDEN(statement)                                                                      \
    do {                                                                                           \
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);                                               \
        statement;                                                                                 \
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);                                                 \
    } while (0)
static inline void sim_release(sim_order *order)
{
    __tsan_release(order);
}
static inline void sim_acquire(sim_order *order)
{
    __tsan_acquire(order);
}
#else
enum { SIM_TSAN = 0 };
#define SIM_UNSEEN(statement)                                                                      \
    do {                                                                                           \
        statement;                                                                                 \
    } while (0)
#define SIM_HIDDEN(statement)                                                                      \
    do {                                                                                           \
        statement;                                                                                 \
    } while (0)
static inline void sim_release(sim_order *order)
{
    (void)order;
}
static inline void sim_acquire(sim_order *order)
{
    (void)order;
}
#endif

#ifdef LS_SIM_ASAN
#include <sanitizer/asan_interface.h>
static inline void sim_poison(const void *p, size_t nbytes)
{
    __asan_poison_memory_region(p, nbytes);
}
static inline void sim_unpoison(const void *p, size_t nbytes)
{
    __asan_unpoison_memory_region(p, nbytes);
}
#else
static inline void sim_poison(const void *p, size_t nbytes)
{
    (void)p, (void)nbytes;
}
static inline void sim_unpoison(const void *p, size_t nbytes)
{
    (void)p, (void)nbytes;
}
#endif

/* Locks that order nothing in the sanitizer's eyes. */
static inline void sim_lock(pthread_mutex_t *lock)
{
    SIM_HIDDEN(pthread_mutex_lock(lock));
}
static inline void sim_unlock(pthread_mutex_t *lock)
{
    SIM_HIDDEN(pthread_mutex_unlock(lock));
}
static inline void sim_wait(pthread_cond_t *changed, pthread_mutex_t *lock)
{
    SIM_HIDDEN(pthread_cond_wait(changed, lock));
}
/* Frees what holds the two. */
static inline void sim_end(void *p, pthread_mutex_t *lock, pthread_cond_t *changed)
{
    SIM_UNSEEN({
        pthread_mutex_destroy(lock);
        pthread_cond_destroy(changed);
        ls__free(p);
    });
}
static inline void sim_wake(pthread_cond_t *changed)
{
    SIM_HIDDEN(pthread_cond_broadcast(changed));
}

#endif
