/* Allocation whose failure is a status, and which tests can make fail. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <lockstep/base.h>

#include "base/parallel.h"

/* Zeroed; count * size is checked. NULL on failure, after ls_fail(LS_ERR_MEMORY, ...). */
void *ls__alloc(size_t count, size_t size);
void *ls__realloc(void *old, size_t count, size_t size); /* grown part is not zeroed */
void ls__free(void *p);
char *ls__strdup(const char *text);
char *ls__format(const char *format, ...) LS_PRINTF(1, 2); /* freed by ls__free */

/* Large arrays: page-aligned, zeroed by the kernel, huge pages advised where they help. Freed by
 * ls__unmap. */
void *ls__map(size_t nbytes);
void ls__unmap(void *p, size_t nbytes);
/* Takes an array's pages now, so that no page fault is left for the loop that uses it; its values
 * stay. parallel NULL = the caller alone. */
void ls__map_populate(void *p, size_t nbytes, ls__parallel_fn *parallel);
/* Gives back what lies behind the first `to` of an array of `from` bytes, which then has that size. */
void ls__map_shrink(void *p, size_t from, size_t to);

/* For tests: the n-th allocation from now on fails (1 = the next one); 0 = none. Process-wide. */
void ls__alloc_fail_at(long n);

#endif
