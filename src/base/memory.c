/* Allocation. malloc with a status instead of a crash, and one counter by which tests make the n-th
 * allocation of the process fail. Not for hot loops: everything a training step needs is allocated
 * before the first step. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

static atomic_long fail_countdown; /* 0 = no failure asked for */

void ls__alloc_fail_at(long n)
{
    atomic_store(&fail_countdown, n);
}

static bool fails_now(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0) return false;
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

static void *checked(void *p, size_t nbytes)
{
    if (!p) ls_fail(LS_ERR_MEMORY, "out of memory: could not get %zu bytes", nbytes);
    return p;
}

void *ls__alloc(size_t count, size_t size)
{
    size_t nbytes;
    if (__builtin_mul_overflow(count, size, &nbytes)) return checked(NULL, SIZE_MAX);
    return checked(fails_now() ? NULL : calloc(1, nbytes ? nbytes : 1), nbytes);
}

void *ls__realloc(void *old, size_t count, size_t size)
{
    size_t nbytes;
    if (__builtin_mul_overflow(count, size, &nbytes)) return checked(NULL, SIZE_MAX);
    return checked(fails_now() ? NULL : realloc(old, nbytes ? nbytes : 1), nbytes);
}

void ls__free(void *p)
{
    free(p);
}

char *ls__strdup(const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = ls__alloc(nbytes, 1);
    return copy ? memcpy(copy, text, nbytes) : NULL;
}

char *ls__format(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = ls__alloc((size_t)(n < 0 ? 0 : n) + 1, 1);
    if (text && n > 0) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

enum { HUGE_PAGE = 2 << 20 };

/* What is really mapped for nbytes: whole pages; whole huge pages from two of them on, where the
 * fewer page faults outweigh the half page wasted on average. */
static size_t mapped_size(size_t nbytes)
{
    size_t unit = nbytes >= 2 * HUGE_PAGE ? HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE);
    if (nbytes == 0) return unit;
    return nbytes > SIZE_MAX - 2 * unit ? 0 : (nbytes + unit - 1) / unit * unit;
}

/* mmap knows no alignment: map one huge page more, give back what is outside. */
static void *map_aligned(size_t nbytes)
{
    char *p =
        mmap(NULL, nbytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(p, before);
    if (before < HUGE_PAGE) munmap(p + before + nbytes, HUGE_PAGE - before);
    madvise(p + before, nbytes, MADV_HUGEPAGE); /* only advice: kernels without it refuse */
    return p + before;
}

void *ls__map(size_t nbytes)
{
    size_t size = mapped_size(nbytes);
    if (size == 0 || fails_now()) return checked(NULL, nbytes);
    if (size >= 2 * HUGE_PAGE) return checked(map_aligned(size), nbytes);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return checked(p == MAP_FAILED ? NULL : p, nbytes);
}

void ls__unmap(void *p, size_t nbytes)
{
    if (p) munmap(p, mapped_size(nbytes));
}

/* --- taking pages --- */

enum { PIECE = 64 << 20 }; /* whole huge pages */

typedef struct pages {
    char *p;
    size_t nbytes;
} pages;

static void take(void *context, int64_t piece)
{
    const pages *all = context;
    size_t begin = (size_t)piece * PIECE;
    size_t n = all->nbytes - begin < PIECE ? all->nbytes - begin : PIECE;
    if (madvise(all->p + begin, n, MADV_POPULATE_WRITE) == 0) return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE); /* kernels before 5.14 */
    volatile char *at = all->p + begin;
    for (size_t i = 0; i < n; i += page) at[i] = at[i];
}

void ls__map_populate(void *p, size_t nbytes, ls__parallel_fn *parallel)
{
    pages all = { p, nbytes };
    if (!p || nbytes == 0) return;
    (parallel ? parallel : ls__parallel_serial)((int64_t)((nbytes + PIECE - 1) / PIECE), take,
                                                &all);
}

void ls__map_shrink(void *p, size_t from, size_t to)
{
    size_t before = mapped_size(from), after = mapped_size(to);
    if (after < before) munmap((char *)p + after, before - after);
}
