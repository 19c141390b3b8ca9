/* Texts that name machines: host lists, hostfiles, SLURM's node lists, the line that joins. All strict and
 * bounded; errors say what is wrong with which part. */
#ifndef LS_LAUNCH_NODE_NAMES_H
#define LS_LAUNCH_NODE_NAMES_H

#include <lockstep/base.h>

#include "launch/node_frame.h"

enum { LS__SLOTS_MAX = 1024, LS__HOSTFILE_MAX = 1 << 20 /* bytes */ };

typedef struct ls__host {
    char name[LS__NODE_NAME_MAX + 1];
    int slots; /* processes; 0 = not said */
} ls__host;

typedef struct ls__hosts {
    int count, capacity;
    ls__host *hosts;
} ls__hosts;

void ls__hosts_free(ls__hosts *hosts);
/* "a,b*4" (also "b:4", as horovodrun and mpirun have it). what: for messages. */
ls_status ls__hosts_parse(const char *what, const char *text, ls__hosts *out);
/* Lines "host", "host slots=4", "host:4"; '#' begins a comment. */
ls_status ls__hostfile_parse(const char *what, const char *text, size_t nbytes, ls__hosts *out);
/* "n[001-003,7],x": names in their order. */
ls_status ls__nodelist_parse(const char *text, ls__hosts *out);
/* SLURM's counts, "2(x3),1": of element i; 0 = the text is none, or has no such element. */
int ls__tasks_of(const char *text, int i);
/* "HOST:PORT/SECRET", "[::1]:PORT/SECRET". */
ls_status ls__join_parse(const char *text, char host[LS__NODE_NAME_MAX + 1], int *port,
                         char secret[260]);
/* Letters, digits, '.', '-', '_', ':' and '%': what a name or address has, and no shell minds. */
bool ls__host_is_good(const char *text, size_t nbytes);

#endif
