/* World: who am I among whom.
 *
 * ls_world_init is the first line of a program; nothing that has an effect may come before it. What
 * it does depends on who started the program:
 *  - nobody special, one device chosen: it returns at once with a world of size 1;
 *  - nobody special, several devices chosen: this process becomes the supervisor. It starts one
 * copy of itself per device, watches them, and exits with the job's code; ls_world_init returns
 * only in the copies;
 *  - the environment names a rank (ours, or as torchrun, Open MPI, MPICH or srun set it): it joins
 * the others, also on other machines. docs/starting-ranks.md has the variables.
 */
#ifndef LOCKSTEP_WORLD_H
#define LOCKSTEP_WORLD_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_world ls_world;
typedef struct ls_comm ls_comm;

/* A flag of the program's own; a table of them ends with {0}. They appear in --help, as
 * LOCKSTEP_<NAME> variables and in run.json like ours. */
typedef struct ls_flag {
    const char *name; /* without dashes */
    char type;        /* i: int64_t, d: double, s: const char *, b: bool */
    void *value;      /* holds the default before, the chosen value after ls_world_init */
    const char *help;
} ls_flag;

typedef struct ls_world_options {
    const char *summary;   /* first line of --help */
    const char *arguments; /* what may follow the flags, "RUN" or "FILE..."; they stay in argv; NULL
                              = nothing may */
    const ls_flag *flags;  /* the program's own; must outlive the world */
    const char *const *defaults; /* "batch-size=256", NULL-ended: the program's values for flags of
                                    ours; --help shows them, flags and variables outrank them */
    bool keep_unknown_flags; /* leave what is not ours in argv; default: an error with a suggestion
                              */
    bool never_launch; /* embedded in another program: join or be alone, never become the supervisor
                        */
    bool one_device;   /* this command never uses more than one device */
    bool no_run; /* this program trains nothing: --batch-size and other flags of runs are unknown
                          to it */
} ls_world_options;

/* [all] Parses the command line and the environment, starts or joins the ranks. Called once. A wrong
 * command line prints its error and exits with 2; --help and --version print and exit with 0; in the
 * supervisor it exits with the job's code. argc and argv may be NULL. */
LS_NODISCARD ls_status ls_world_init(int *argc, char ***argv, const ls_world_options *options,
                                     ls_world **out);

/* [all] Leaves, frees, and returns main's exit code: 0, or 75 or 130 after an agreed stop by
 * signal. */
int ls_world_finish(ls_world *world);

int ls_world_rank(const ls_world *world); /* in [0, size) */
int ls_world_size(const ls_world *world);
int ls_world_local_rank(const ls_world *world); /* on this machine */
int ls_world_local_size(const ls_world *world); /* machines may differ in it */
int ls_world_node(const ls_world *world);       /* this machine, in [0, nodes) */
int ls_world_nodes(const ls_world *world);
int ls_world_threads(const ls_world *world); /* threads this rank may use */
/* The folder that holds runs, as --runs-dir says; "runs" otherwise. Lives as long as the world. */
const char *ls_world_runs_dir(const ls_world *world);

/* The communicator over all ranks; borrowed, lives as long as the world. */
ls_comm *ls_world_comm(ls_world *world);

/* [all] One rank per machine does the work, then all get the status and text, of the first machine
 * where it failed. For downloads, unpacking, caches. */
LS_NODISCARD ls_status ls_world_once(ls_world *world, ls_status (*work)(void *user), void *user);

/* Ends the job of every rank at once with exit code 1; the text heads the report. Does not return.
 */
void ls_world_abort(ls_world *world, const char *format, ...) LS_PRINTF(2, 3)
    __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif
