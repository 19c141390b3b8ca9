/* Agents. Each is a shell that runs the agent's words and then says with which code they ended, on a pipe
 * of ours: so it does not matter who reaps it. Expected: some dozens, for the time that it takes to
 * log in; most stay until the job ends. */
#include "launch/agents.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

enum { INPUT_MAX = 1 << 20 };

static const double late_seconds =
    1.0; /* for a launcher whose agent has ended well to be heard of */
static const double look_seconds = 0.2;
static const double longest_pause = 15.0;
static const double input_seconds = 30.0;

typedef struct agent {
    ls__child child;
    int status_fd; /* its code comes here; -1 = it has come, or none was started */
    int code;
    double ended_at; /* 0 = it runs */
    double pause;    /* before it is called again */
} agent;

struct ls__agents {
    const ls__launcher_plan *plan;
    ls__crew *crew;
    int port;
    agent *list; /* (hosts) */
};

/* --- words --- */

char *ls__shell_word(const char *word)
{
    ls__text text = { 0 };
    bool plain = word[0] != '\0';
    for (const char *c = word; *c && plain; c++)
        plain = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+",
                       *c) != NULL;
    if (plain) return ls__strdup(word);
    ls__text_append(&text, "'", 1);
    for (const char *c = word; *c; c++) {
        if (*c == '\'')
            ls__text_append(&text, "'\\''", 4);
        else
            ls__text_append(&text, c, 1);
    }
    ls__text_append(&text, "'", 1);
    return ls__text_take(&text);
}

static void add_word(ls__text *text, const char *word)
{
    char *quoted = ls__shell_word(word);
    if (quoted) ls__text_add(text, "%s%s", text->used ? " " : "", quoted);
    if (!quoted) text->failed = true;
    ls__free(quoted);
}

static bool is_one_of(const char *word, const char *const *names)
{
    for (; *names; names++) {
        size_t n = strlen(*names);
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, *names, n) == 0 &&
            (word[2 + n] == '\0' || word[2 + n] == '='))
            return true;
    }
    return false;
}

void ls__launcher_words_again(const ls__launcher_words *words, const char *const *left_out,
                              ls__text *out)
{
    static const char *const switches[] = { "slurm-script", "dry-run", "standalone", "json", NULL };
    for (int i = 1; i < words->nflags; i++) {
        const char *word = words->flags[i];
        bool goes = is_one_of(word, left_out) || is_one_of(word, switches);
        if (!goes) add_word(out, word);
        if (goes && !strchr(word, '=') && !is_one_of(word, switches)) i++; /* its value */
    }
    for (char **word = words->program; *word; word++) add_word(out, *word);
}

char *ls__agents_command(const ls__launcher_plan *plan, int i, int port)
{
    const ls__host *host = &plan->nodes.hosts->hosts[i];
    char address[LS__ADDRESS_TEXT], folder[LS_PATH_MAX], self[LS_PATH_MAX];
    ls__text text = { 0 };
    ls__address_guess(address);
    const char *name = plan->nodes.host[0] ? plan->nodes.host : address;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    if (getcwd(folder, sizeof folder)) {
        add_word(&text, "cd");
        add_word(&text, folder);
        ls__text_add(&text, " &&");
    }
    add_word(&text, "exec");
    add_word(&text, n > 0 ? self : "lockstep");
    ls__text_add(&text, " run --join ");
    ls__text_add(&text, strchr(name, ':') ? "[%s]:%d/- --node-rank %d" : "%s:%d/- --node-rank %d",
                 name, port, i);
    if (host->slots > 0) ls__text_add(&text, " --nproc-per-node %d", host->slots);
    static const char *const all[] = { LS__FLAGS_OF_NODES, "name", "report", "events", NULL };
    static const char *const but_slots[] = { LS__FLAGS_OF_NODES, "name",           "report",
                                             "events",           "nproc-per-node", NULL };
    ls__launcher_words_again(plan->words, host->slots > 0 ? but_slots : all, &text);
    return ls__text_take(&text);
}

/* --- what it is told --- */

/* Variables that programs are steered by, which a login elsewhere would not have. */
static bool is_taken_along(const char *entry)
{
    static const char *const names[] = { "PATH=",        "LD_LIBRARY_PATH=",
                                         "VIRTUAL_ENV=", "PYTHON",
                                         "CONDA_",       "CUDA_",
                                         "NCCL_",        "GLOO_",
                                         "TORCH_",       "HF_",
                                         "JAX_",         "XLA_",
                                         "OMP_",         "MKL_",
                                         "WANDB_",       "LS_",
                                         "LOCKSTEP_" };
    if (strncmp(entry, "LOCKSTEP_SECRET=", 16) == 0 || ls__launcher_scrubs(entry)) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* A pipe that holds all of it: the secret and the variables, each ended by NUL. */
static ls_status input_of(const ls__launcher_plan *plan, int *fd)
{
    int ends[2];
    ls__text text = { 0 };
    ls__text_append(&text, plan->nodes.secret, strlen(plan->nodes.secret) + 1);
    for (char **entry = environ; *entry; entry++)
        if (is_taken_along(*entry) && text.used + strlen(*entry) < INPUT_MAX)
            ls__text_append(&text, *entry, strlen(*entry) + 1);
    if (text.failed) return LS_ERR_MEMORY;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        ls__free(text.data);
        return ls__fail_errno(LS_ERR_MEMORY, "cannot start an agent");
    }
    fcntl(ends[1], F_SETPIPE_SZ, INPUT_MAX);
    ssize_t n = write(ends[1], text.data, text.used);
    bool whole = n == (ssize_t)text.used;
    ls__free(text.data);
    close(ends[1]);
    fcntl(ends[0], F_SETFL, 0);
    *fd = ends[0];
    if (whole) return LS_OK;
    close(ends[0]);
    return ls_fail(LS_ERR_CONFIG, "cannot hand %zd bytes of variables to an agent", (ssize_t)n);
}

ls_status ls__agents_read_input(char secret[260])
{
    char *text = ls__alloc(INPUT_MAX + 1, 1);
    size_t used = 0;
    double deadline = ls__now() + input_seconds;
    if (!text) return LS_ERR_MEMORY;
    while (used < INPUT_MAX) {
        struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
        double left = deadline - ls__now();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0) break;
        ssize_t n = read(STDIN_FILENO, text + used, INPUT_MAX - used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    size_t length = strnlen(text, used);
    bool good = length > 0 && length < used && length < 256;
    if (good) snprintf(secret, 260, "%s", text);
    for (char *entry = text + length + 1; good && entry < text + used; entry += strlen(entry) + 1) {
        char *equals = strchr(entry, '=');
        if (!equals || equals == entry || !is_taken_along(entry)) continue;
        *equals = '\0';
        setenv(entry, equals + 1, 1);
        *equals = '=';
    }
    explicit_bzero(text, used);
    ls__free(text);
    if (good) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "--join HOST:PORT/-: the secret was expected on standard input");
}

/* --- starting --- */

static ls_status start(ls__agents *a, int i)
{
    static char sh[] = "/bin/sh", c[] = "-c", zero[] = "agent";
    agent *one = &a->list[i];
    int input = -1, status_pipe[2] = { -1, -1 };
    char *host = a->plan->nodes.hosts->hosts[i].name, script[1400];
    char *command = ls__agents_command(a->plan, i, a->port);
    ls_status status = command ? input_of(a->plan, &input) : LS_ERR_MEMORY;
    if (status == LS_OK && pipe2(status_pipe, O_CLOEXEC) != 0)
        status = ls__fail_errno(LS_ERR_MEMORY, "cannot start an agent");
    if (status == LS_OK) {
        snprintf(script, sizeof script, "%s \"$@\" >&2; echo $?", a->plan->nodes.agent);
        char *argv[] = { sh, c, script, zero, host, command, NULL };
        status = ls__child_start(&(ls__child_options) { .path = sh,
                                                        .argv = argv,
                                                        .envp = environ,
                                                        .null_fd = input,
                                                        .out_fd = status_pipe[1],
                                                        .err_fd = STDERR_FILENO,
                                                        .mask = &a->crew->mask_before,
                                                        .files = &a->crew->files_before },
                                 &one->child);
    }
    /* The crew kills what it does not know; agents are to live through a restart. */
    if (status == LS_OK) status = ls__pids_add(&a->crew->strangers, one->child.pid);
    if (status == LS_OK) {
        one->status_fd = status_pipe[0];
        one->code = -1;
        one->ended_at = 0;
        fcntl(one->status_fd, F_SETFL, O_NONBLOCK);
    } else if (status_pipe[0] >= 0) {
        close(status_pipe[0]);
    }
    if (status_pipe[1] >= 0) close(status_pipe[1]);
    if (input >= 0) close(input);
    ls__free(command);
    return status;
}

ls_status ls__agents_create(const ls__launcher_plan *plan, ls__crew *crew, int port,
                            ls__agents **out)
{
    ls__agents *a = ls__alloc(1, sizeof *a);
    *out = a;
    if (!a) return LS_ERR_MEMORY;
    a->plan = plan;
    a->crew = crew;
    a->port = port;
    a->list = ls__alloc((size_t)plan->nodes.launchers, sizeof *a->list);
    if (!a->list) return LS_ERR_MEMORY;
    for (int i = 0; i < plan->nodes.launchers; i++) {
        a->list[i].status_fd = -1;
        a->list[i].child.pid_fd = -1;
    }
    return LS_OK;
}

void ls__agents_destroy(ls__agents *a)
{
    if (!a) return;
    for (int i = 0; a->list && i < a->plan->nodes.launchers; i++) {
        agent *one = &a->list[i];
        if (one->child.pid > 0 && one->status_fd >= 0) kill(-one->child.pid, SIGKILL);
        if (one->status_fd >= 0) close(one->status_fd);
        if (one->child.pid_fd >= 0) close(one->child.pid_fd);
    }
    ls__free(a->list);
    ls__free(a);
}

/* The first host is this one when this launcher starts ranks itself. */
static bool is_own(const ls__agents *a, int i)
{
    return i == 0 && a->plan->size > 0;
}

ls_status ls__agents_start_all(ls__agents *a)
{
    for (int i = 0; i < a->plan->nodes.launchers; i++)
        if (!is_own(a, i)) LS_TRY(start(a, i));
    return LS_OK;
}

static void read_status(agent *one)
{
    char text[16];
    ssize_t n = one->status_fd >= 0 ? read(one->status_fd, text, sizeof text - 1) : -1;
    if (n < 0) return;
    text[n] = '\0';
    one->code = n > 0 ? atoi(text) : -1;
    one->ended_at = ls__now();
    close(one->status_fd);
    one->status_fd = -1;
    if (one->child.pid_fd >= 0) close(one->child.pid_fd);
    one->child = (ls__child) { .pid_fd = -1 };
}

void ls__agents_start_missing(ls__agents *a, const ls__hub *hub)
{
    for (int i = 0; i < a->plan->nodes.launchers; i++) {
        agent *one = &a->list[i];
        if (is_own(a, i) || ls__hub_is_here(hub, i)) continue;
        read_status(one);
        if (one->status_fd >= 0) { /* it may hang on a host that is gone */
            kill(-one->child.pid, SIGKILL);
            close(one->status_fd);
            close(one->child.pid_fd);
        }
        *one = (agent) { .status_fd = -1, .child.pid_fd = -1 };
        if (start(a, i) != LS_OK) ls__log(LS__LOG_WARN, "%s", ls_error_text());
    }
}

double ls__agents_due(const ls__agents *a)
{
    return a ? ls__now() + look_seconds : -1;
}

static void call_again(ls__agents *a, int i)
{
    agent *one = &a->list[i];
    if (one->pause == 0)
        ls__log(LS__LOG_WARN, "host %s: the agent (%.200s) ended with code %d; it is called again",
                a->plan->nodes.hosts->hosts[i].name, a->plan->nodes.agent, one->code);
    if (ls__now() - one->ended_at < one->pause) return;
    one->pause = one->pause == 0 ? 1 : one->pause < longest_pause ? one->pause * 2 : longest_pause;
    if (start(a, i) != LS_OK) ls__log(LS__LOG_WARN, "%s", ls_error_text());
}

ls_status ls__agents_check(ls__agents *a, const ls__hub *hub, bool again)
{
    for (int i = 0; i < a->plan->nodes.launchers; i++) {
        agent *one = &a->list[i];
        read_status(one);
        if (one->ended_at == 0 || ls__hub_is_here(hub, i)) continue;
        if (one->code == 0 && ls__now() - one->ended_at < late_seconds) continue;
        if (again) {
            call_again(a, i);
            continue;
        }
        return ls_fail(LS_ERR_PEER,
                       "host %s: the agent (%.200s) ended with code %d, and no node came",
                       a->plan->nodes.hosts->hosts[i].name, a->plan->nodes.agent, one->code);
    }
    return LS_OK;
}
