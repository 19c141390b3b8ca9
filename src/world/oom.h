/* Whether the kernel killed a process for lack of memory: the cgroup counts it. */
#ifndef LS_WORLD_OOM_H
#define LS_WORLD_OOM_H

#include <stdint.h>

/* How often that has happened in this process's memory cgroup (v2: memory.events, v1:
 * memory.oom_control); -1 when nobody counts. root: "/" (tests: a folder with proc/self/cgroup and
 * sys/fs/cgroup below it). */
int64_t ls__oom_kills(const char *root);

#endif
