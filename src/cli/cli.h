/* The lockstep command: one function per subcommand, each in its own file, and what they share. */
#ifndef LS_CLI_CLI_H
#define LS_CLI_CLI_H

#include <jansson.h>

#include <lockstep/trainer.h>
#include <lockstep/world.h>

#include "base/option.h"
#include "launch/launch_state.h"

/* argv[0] is "lockstep train image", what follows is the subcommand's: ready for ls_world_init.
 * Each returns main's exit code. */
int ls_cli_train_image(int argc, char **argv);
int ls_cli_train_gpt(int argc, char **argv);
int ls_cli_train_table(int argc, char **argv);
int ls_cli_eval(int argc, char **argv);
int ls_cli_generate(int argc, char **argv);
int ls_cli_run_program(int argc, char **argv);
int ls_cli_runs(int argc, char **argv);
int ls_cli_logs(int argc, char **argv);
int ls_cli_top(int argc, char **argv);
int ls_cli_stop(int argc, char **argv);
int ls_cli_devices(int argc, char **argv);
int ls_cli_bench_comm(int argc, char **argv);
int ls_cli_checkpoint_show(int argc, char **argv);
int ls_cli_checkpoint_verify(int argc, char **argv);
int ls_cli_checkpoint_export(int argc, char **argv);

/* The options of a command that needs no world; only: the flags of ours that it knows, NULL-ended,
 * "json", "help", "version" among them. Ends the process after --help, --version or a wrong line.
 * Freed by ls__options_free. */
ls__options *ls_cli_options(int *argc, char ***argv, const ls_world_options *program,
                            const char *const *only);

/* Ends a command that needs no world: on failure the error's text to stderr and, with --json, the
 * report as the last line on stdout. Frees o. Returns main's exit code. */
int ls_cli_end(ls__options *o, ls_status status);

/* The document of --json: one line on stdout. Takes the reference; NULL is LS_ERR_MEMORY. */
ls_status ls_cli_print_json(json_t *document);

/* What a stream could not write is an error too (a full disk behind a pipe). */
ls_status ls_cli_flush(void);

/* "23.5 GiB" */
void ls_cli_bytes(int64_t nbytes, char out[32]);

/* --- the run that a command is about --- */
typedef enum ls_cli_recipe {
    LS_CLI_RECIPE_NONE,
    LS_CLI_RECIPE_IMAGE,
    LS_CLI_RECIPE_GPT,
    LS_CLI_RECIPE_TABLE
} ls_cli_recipe;

typedef struct ls_cli_run {
    char path[LS_PATH_MAX];   /* the checkpoint */
    char folder[LS_PATH_MAX]; /* the run's */
    ls_cli_recipe recipe;
    json_t *trainer; /* trainer.json; the caller's */
} ls_cli_run;

/* name: RUN, RUN@last, RUN@best, RUN@STEP or a path; RUN alone is its best checkpoint, where there is
 * one. A run that no recipe trained is an error. */
ls_status ls_cli_run_find(const char *runs_dir, const char *name, ls_cli_run *out);
/* What a flag of the recipe's own was; NULL = nothing. */
const json_t *ls_cli_run_value(const ls_cli_run *run, const char *flag);
const char *ls_cli_run_text(const ls_cli_run *run, const char *flag);
int64_t ls_cli_run_step(const ls_cli_run *run);
/* The state of the run that a person has named; one who mistypes is told what is there. */
ls_status ls_cli_run_state(const char *runs_dir, const char *name, ls__run_state *out);
/* Gives the model the precision that wanted (--precision) names, NULL = that of the run. */
ls_status ls_cli_run_precision(const ls_cli_run *run, const char *wanted, ls_model *model);

#endif
