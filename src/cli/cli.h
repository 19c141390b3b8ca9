/* The lockstep command: one function per subcommand, each in its own file, and what they share. */
#ifndef LS_CLI_CLI_H
#define LS_CLI_CLI_H

#include <jansson.h>

#include <lockstep/world.h>

#include "base/option.h"

/* argv[0] is "lockstep train image", what follows is the subcommand's: ready for ls_world_init.
 * Each returns main's exit code. */
int ls_cli_train_image(int argc, char **argv);
int ls_cli_eval(int argc, char **argv);
int ls_cli_devices(int argc, char **argv);
int ls_cli_bench_comm(int argc, char **argv);
int ls_cli_checkpoint_show(int argc, char **argv);
int ls_cli_checkpoint_verify(int argc, char **argv);

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

#endif
