/* The launcher's command line. Flags end where the program begins, which only somebody who knows which
 * flags take a value can tell; so the line is cut here, and then our part of it goes through the
 * option table like that of any program. Runs once. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/text.h"
#include "launch/launcher.h"

const char *const ls__launcher_shared_flags[] = {
    "devices", "threads-per-device", "name", "runs-dir", "grace-period", "max-restarts",
    "report",  "log-level",          "json", "help",     "version",      "timeout",
    NULL
};

void ls__launcher_flags_init(ls__launcher_flags *f)
{
    memset(f, 0, sizeof *f);
    const ls_flag table[] = {
        { "nproc-per-node", 's', &f->nproc_per_node,
          "processes on this machine: N, auto (as --devices), cpu (one per usable CPU)" },
        { "isolate-devices", 'b', &f->isolate_devices,
          "each rank sees one GPU, its own, and LOCAL_RANK 0; otherwise all see all in the order "
          "of "
          "LOCAL_RANK" },
        { "numa-binding", 's', &f->numa_binding,
          "bind ranks to the CPUs and memory of their device's node, socket, a share of the node "
          "(exclusive) or core-complex; none. Otherwise auto: node for GPUs, memory only "
          "preferred" },
        { "module", 'b', &f->module, "PROGRAM is a Python module (-m)" },
        { "no-python", 'b', &f->no_python, "execute a .py file itself, without an interpreter" },
        { "dry-run", 'b', &f->dry_run, "show what would be started, with its variables" },
        { "tee", 's', &f->tee,
          "show these streams of all ranks (-t): 1 stdout, 2 stderr, 3 both, or by rank, 0:3,1:1" },
        { "redirects", 's', &f->redirects, "do not show these streams (-r): as --tee" },
        { "local-ranks-filter", 's', &f->local_ranks_filter, "show only these ranks: 0,3" },
        { "log-dir", 's', &f->log_dir,
          "where the ranks' logs go; none: nowhere. Otherwise into the run's folder" },
        { "events", 's', &f->events, "append what happens to FILE, a line of JSON each" },
        { "hang-timeout", 's', &f->hang_timeout,
          "end the job when a rank gives no sign of life (line, $LOCKSTEP_HEARTBEAT) for so long; "
          "otherwise never" },
        { "silence-warning", 's', &f->silence_warning,
          "warn when nothing is printed and the CPUs idle for so long, or none; otherwise 10min" },
        { "inject", 's', &f->inject,
          "send ranks signals on purpose: kill:rank=1@10s, stop:rank=0@500ms,..." },
        { "slurm-script", 'b', &f->slurm_script,
          "print a batch script for sbatch that starts this; it goes on after a stop" },
        { "master-addr", 's', &f->master_addr,
          "MASTER_ADDR; otherwise 127.0.0.1. Of several machines: where the first one is" },
        { "master-port", 's', &f->master_port,
          "MASTER_PORT; otherwise a free one. Of several machines: where they meet" },
        { "standalone", 'b', &f->standalone, "one machine: what is done anyway" },
        { "nnodes", 's', &f->nnodes,
          "machines; the first prints the line for the others, unless --master-addr is given" },
        { "node-rank", 's', &f->node_rank,
          "which machine this is, from 0; otherwise as they come" },
        { "join", 's', &f->join, "become part of the job at HOST:PORT/SECRET" },
        { "hosts", 's', &f->hosts, "start on these machines: a,b*4 (four processes on b)" },
        { "hostfile", 's', &f->hostfile, "the same from a file: lines of HOST slots=N" },
        { "agent", 's', &f->agent,
          "command that runs a command on a host, given both; otherwise ssh" },
        { "rdzv-id", 's', &f->rdzv_id, "TORCHELASTIC_RUN_ID; otherwise the run's name" },
        { "role", 's', &f->role, "ROLE_NAME; otherwise default" },
    };
    _Static_assert(sizeof table < sizeof f->table, "a NULL name ends the table");
    memcpy(f->table, table, sizeof table);
}

/* torchrun's flags, and others of ours to come, that cannot mean anything here. */
static const struct {
    const char *name, *why;
} refused[] = {
    { "monitor-interval", "nothing is polled here, an exit is noticed at once; leave it out" },
    { "start-method", "every rank is a process of its own, started by exec; leave it out" },
    { "rdzv-backend", "machines meet at the first one (--master-addr, --join); leave it out" },
    { "rdzv-endpoint", "--master-addr and --master-port say where machines meet" },
    { "rdzv-conf", "machines meet at the first one, within --timeout; leave it out" },
    { "local-addr", "the ranks are told --master-addr and nothing else; use that" },
    { "run-path", "programs run as processes, not inside the launcher; leave it out" },
    { "logs-specs", "logs are whole lines of each rank in --log-dir; leave it out" },
    { "signals-to-handle", "every signal that can be relayed is relayed; leave it out" },
};

static ls_status check_refused(const char *name, size_t length, const char *as_given)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strlen(refused[i].name) == length && strncmp(name, refused[i].name, length) == 0)
            return ls_fail(LS_ERR_CONFIG, "%.64s: %s", as_given, refused[i].why);
    return LS_OK;
}

enum { UNKNOWN, SWITCH, WITH_VALUE };

static int kind_of(const ls__launcher_flags *flags, const char *name, size_t length)
{
    static const char *const switches[] = { "json", "help", "version" };
    for (const ls_flag *f = flags->table; f->name; f++)
        if (strlen(f->name) == length && strncmp(f->name, name, length) == 0)
            return f->type == 'b' ? SWITCH : WITH_VALUE;
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++)
        if (strlen(switches[i]) == length && strncmp(switches[i], name, length) == 0) return SWITCH;
    for (const char *const *shared = ls__launcher_shared_flags; *shared; shared++)
        if (strlen(*shared) == length && strncmp(*shared, name, length) == 0) return WITH_VALUE;
    return UNKNOWN;
}

/* torchrun's one-letter flags. */
static const char *long_form(const char *word)
{
    return strcmp(word, "-m") == 0   ? "--module"
           : strcmp(word, "-r") == 0 ? "--redirects"
           : strcmp(word, "-t") == 0 ? "--tee"
                                     : word;
}

static ls_status push(ls__launcher_words *out, char *word)
{
    if (!word) return LS_ERR_MEMORY;
    out->flags[out->nflags++] = word;
    return LS_OK;
}

/* One flag, and its value when that is the next word; *i stands behind it. */
static ls_status take_flag(int argc, char **argv, int *i, const ls__launcher_flags *flags,
                           ls__launcher_words *out)
{
    const char *as_given = argv[(*i)++];
    char *word = ls__strdup(long_form(as_given));
    LS_TRY(push(out, word));
    size_t end = strcspn(word, "=");
    for (size_t k = 2; k < end; k++)
        if (word[k] == '_') word[k] = '-';
    if (strncmp(word, "--", 2) != 0) return LS_OK; /* -h; what else is wrong the table says */
    LS_TRY(check_refused(word + 2, end - 2, as_given));
    bool needs_word = kind_of(flags, word + 2, end - 2) == WITH_VALUE && word[end] == '\0';
    return needs_word && *i < argc ? push(out, ls__strdup(argv[(*i)++])) : LS_OK;
}

static bool is_given(const ls__launcher_words *words, const char *name)
{
    size_t length = strlen(name);
    for (int i = 1; i < words->nflags; i++) {
        const char *word = words->flags[i];
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, length) == 0 &&
            (word[2 + length] == '\0' || word[2 + length] == '='))
            return true;
    }
    return false;
}

/* "nproc-per-node" with prefix "PET_" -> "PET_NPROC_PER_NODE" */
static const char *variable_of(const char *prefix, const char *name, char out[64])
{
    int n = snprintf(out, 64, "%s%s", prefix, name);
    for (int i = 0; i < n && i < 63; i++)
        out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
    return out;
}

/* A variable of torchrun's stands for its flag, unless the flag or our own variable is there. */
static ls_status take_variable(const char *name, ls__launcher_words *out, ls__text *told)
{
    char variable[64], ours[64], given[320];
    const char *value = getenv(variable_of("PET_", name, variable));
    const char *stronger = getenv(variable_of("LOCKSTEP_", name, ours));
    if (!value || !value[0] || (stronger && stronger[0]) || is_given(out, name)) return LS_OK;
    snprintf(given, sizeof given, "%s=%.200s", variable, value);
    LS_TRY(check_refused(name, strlen(name), given));
    ls__text_add(told, "%s%s", told->used ? ", " : "", given);
    return push(out, ls__format("--%s=%s", name, value));
}

static ls_status take_variables(const ls__launcher_flags *flags, ls__launcher_words *out)
{
    ls__text told = { 0 };
    ls_status status = LS_OK;
    for (const ls_flag *f = flags->table; f->name && status == LS_OK; f++)
        if (strcmp(f->name, "dry-run") != 0 && strcmp(f->name, "slurm-script") != 0)
            status = take_variable(f->name, out, &told);
    if (status == LS_OK) status = take_variable("max-restarts", out, &told);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0] && status == LS_OK; i++)
        status = take_variable(refused[i].name, out, &told);
    out->variables = ls__text_take(&told);
    return status == LS_OK && !out->variables ? LS_ERR_MEMORY : status;
}

ls_status ls__launcher_split(int argc, char **argv, const ls__launcher_flags *flags,
                             ls__launcher_words *out)
{
    *out = (ls__launcher_words) { 0 };
    size_t most = (size_t)argc + sizeof flags->table / sizeof flags->table[0] +
                  sizeof refused / sizeof refused[0] + 2;
    out->flags = ls__alloc(most, sizeof *out->flags);
    out->line = ls__alloc(most, sizeof *out->line);
    if (!out->flags || !out->line) {
        ls__launcher_words_free(out);
        return LS_ERR_MEMORY;
    }
    ls_status status = push(out, ls__strdup(argv[0]));
    int i = 1;
    while (status == LS_OK && i < argc) {
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (argv[i][0] != '-' || argv[i][1] == '\0') break;
        status = take_flag(argc, argv, &i, flags, out);
    }
    out->program = argv + i;
    if (status == LS_OK) status = take_variables(flags, out);
    if (status != LS_OK) {
        ls__launcher_words_free(out);
        return status;
    }
    out->nline = out->nflags;
    memcpy(out->line, out->flags, (size_t)out->nflags * sizeof *out->flags);
    return LS_OK;
}

void ls__launcher_words_free(ls__launcher_words *words)
{
    for (int i = 0; i < words->nflags; i++) ls__free(words->flags[i]);
    ls__free(words->flags);
    ls__free(words->line);
    ls__free(words->variables);
    *words = (ls__launcher_words) { 0 };
}
