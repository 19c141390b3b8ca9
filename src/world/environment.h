/* Environment: which variables say that this process is a rank, and of what. */
#ifndef LS_WORLD_ENVIRONMENT_H
#define LS_WORLD_ENVIRONMENT_H

#include <lockstep/base.h>

#include "base/mac.h"
#include "device/device.h"

typedef enum ls__started_by {
    LS__STARTED_ALONE,
    LS__STARTED_BY_US,
    LS__STARTED_BY_OTHERS
} ls__started_by;

/* Where the store of a job on several machines is found. */
typedef enum ls__found_at {
    LS__FOUND_HERE,       /* all ranks are on one machine */
    LS__FOUND_AT_ADDRESS, /* rank 0's machine listens at address and port */
    LS__FOUND_AT_AGENT, /* at address and port is the agent's TCPStore (torchrun), which is told */
    LS__FOUND_BY_PMIX,  /* the process manager that started the ranks lets them exchange words, */
    LS__FOUND_BY_PMI,   /* in one of two languages */
    LS__FOUND_NOWHERE,  /* nobody has said */
} ls__found_at;

typedef struct ls__place {
    ls__started_by by;
    int rank, size, local_rank;
    int local_size;    /* ranks on this machine */
    int nodes;         /* machines; 0 = not told */
    bool world_of_one; /* the environment says so: one device, whatever is here */

    /* Started by us: descriptors that were inherited, and what the supervisor decided. */
    int socket_fd, memory_fd, board_fd;
    int restarts;
    char folder[LS_PATH_MAX]; /* of the run that a restarted job was at; "" = none */
    bool terminal;            /* stderr of the job is one */
    bool crowded;             /* more threads than CPUs */
    double started;           /* ls__now() scale */
    ls__device_plan plan;

    /* Started by others: */
    const char *size_name;       /* the variable that says how many ranks there are */
    const char *local_size_name; /* and how many of them are here */
    char job[256];               /* tells this job from others, the same on every machine */
    char meeting[384]; /* the same for the ranks of this machine, or of what counts as one */
    ls__found_at found;
    char address[256];
    int port;
    int pmi_fd;                      /* to the process manager */
    char secret[LS__SECRET_MAX + 1]; /* "" = none */
    char run_name[256];              /* what the launcher calls the run; "" = nothing */
} ls__place;

/* Reads the environment and takes our own variables out of it. Incomplete variables are reported in
 * one line and ignored; inconsistent ones are LS_ERR_CONFIG. */
ls_status ls__environment_read(ls__place *out);

/* The variable that tells a child its place, "NAME=value"; freed by ls__free. */
char *ls__environment_for_child(const ls__place *place);

/* For the children of a restart: the folder of the run that the job was at. */
void ls__environment_set_folder(const char *folder);

/* Variables for OpenMP libraries, which read them when they are loaded: threads of a rank, no more
 * than a short wait by spinning, none when crowded. */
typedef struct ls__variable {
    const char *name;
    char value[16];
} ls__variable;
enum { LS__OPENMP_VARIABLES = 5 };
void ls__openmp_variables(int threads, bool crowded, ls__variable out[LS__OPENMP_VARIABLES]);

#endif
