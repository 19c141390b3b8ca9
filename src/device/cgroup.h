/* What a container or a scheduler lets this process have. */
#ifndef LS_DEVICE_CGROUP_H
#define LS_DEVICE_CGROUP_H

#include <stdint.h>

typedef struct ls__cgroup_limits {
    double cpus;    /* CPUs' worth of time; 0 = no limit */
    int64_t memory; /* bytes; 0 = no limit */
} ls__cgroup_limits;

/* The tightest limits on the path from this process's groups to the root, of v1 and v2. What cannot
 * be read is no limit. */
void ls__cgroup_read(const char *root, ls__cgroup_limits *out);

#endif
