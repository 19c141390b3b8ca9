/* Agents: commands such as ssh that start launchers on other hosts. An agent gets the host and a command
 * of a shell as its last two words, and the secret by its standard input, never in words that others
 * could read. Launchers live by their own connection, not by the agent's. */
#ifndef LS_LAUNCH_AGENTS_H
#define LS_LAUNCH_AGENTS_H

#include "base/text.h"
#include "launch/hub.h"
#include "launch/launcher.h"
#include "launch/node_names.h"
#include "world/crew.h"

typedef struct ls__agents ls__agents;

/* port: of the hub. crew: agents are children that it leaves alone. */
ls_status ls__agents_create(const ls__launcher_plan *plan, ls__crew *crew, int port,
                            ls__agents **out);
/* Ends those that still run. */
void ls__agents_destroy(ls__agents *agents);
ls_status ls__agents_start_all(ls__agents *agents);
/* For hosts whose launchers are gone; failures are logged. */
void ls__agents_start_missing(ls__agents *agents, const ls__hub *hub);
/* LS_ERR_PEER: an agent has ended, and no launcher came from it. again: the job has run before, and its
 * host may be starting; agents are called again, ever more rarely. */
ls_status ls__agents_check(ls__agents *agents, const ls__hub *hub, bool again);
/* When to look, while launchers are waited for. */
double ls__agents_due(const ls__agents *agents);

/* What a launcher that an agent has started reads from its standard input: the secret, and variables
 * of the one who called, which it takes over. */
ls_status ls__agents_read_input(char secret[260]);
/* The command of host i, as the agent gets it; freed by ls__free. */
char *ls__agents_command(const ls__launcher_plan *plan, int i, int port);
/* Flags about the set of machines, which are the first one's business. */
#define LS__FLAGS_OF_NODES                                                                         \
    "hosts", "hostfile", "agent", "nnodes", "node-rank", "master-addr", "master-port", "join"
/* Adds the launcher's own flags but these (with values; NULL-ended), and the program's words, for a shell
 * to read. */
void ls__launcher_words_again(const ls__launcher_words *words, const char *const *left_out,
                              ls__text *out);
/* A word as a shell reads it; freed by ls__free. */
char *ls__shell_word(const char *word);

#endif
