/* The lockstep command: finds the subcommand and hands it the rest of the line. The words of the
 * subcommand are taken off, so that it sees an argv like any program's. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/cli.h"

enum { WORDS_MAX = 2, ARGS_MAX = 8 };

typedef struct command {
    const char *words[WORDS_MAX]; /* "train", "image"; the second may be NULL */
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
    { { "train", "image" }, ls_cli_train_image, "train an image classifier" },
    { { "train", "gpt" }, ls_cli_train_gpt, "train a language model on text" },
    { { "train", "table" }, ls_cli_train_table, "predict a column of a CSV file" },
    { { "run", NULL }, ls_cli_run_program, "start any program, one process per device" },
    { { "generate", NULL }, ls_cli_generate, "let a language model write" },
    { { "eval", NULL }, ls_cli_eval, "evaluate a run's model on data, each sample once" },
    { { "runs", NULL }, ls_cli_runs, "the runs of this folder" },
    { { "logs", NULL }, ls_cli_logs, "what the ranks of a run have printed" },
    { { "top", NULL }, ls_cli_top, "what each rank of a run is doing" },
    { { "stop", NULL }, ls_cli_stop, "ask a run to save and stop" },
    { { "devices", NULL }, ls_cli_devices, "what can compute here, and what --devices takes" },
    { { "bench", "comm" }, ls_cli_bench_comm, "latency and bandwidth of the exchange" },
    { { "checkpoint", "show" }, ls_cli_checkpoint_show, "what is in a checkpoint" },
    { { "checkpoint", "verify" }, ls_cli_checkpoint_verify, "check a checkpoint's sums" },
    { { "checkpoint", "export" }, ls_cli_checkpoint_export, "weights for other programs" },
};
enum { NCOMMANDS = sizeof commands / sizeof commands[0] };

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* The commands whose first word is group; NULL = all. */
static void print_commands(FILE *stream, const char *group)
{
    for (int i = 0; i < NCOMMANDS; i++) {
        const command *c = &commands[i];
        if (group && strcmp(group, c->words[0]) != 0) continue;
        char name[64];
        snprintf(name, sizeof name, "%s%s%s", c->words[0], c->words[1] ? " " : "",
                 c->words[1] ? c->words[1] : "");
        fprintf(stream, "  lockstep %-18s %s\n", name, c->summary);
    }
}

static void print_overview(FILE *stream)
{
    fputs("Trains models on every device there is, from one unchanged program.\n\n"
          "usage: lockstep COMMAND [FLAG...]\n\n",
          stream);
    print_commands(stream, NULL);
    fputs("\nlockstep COMMAND --help shows a command's flags, lockstep --version the version.\n",
          stream);
}

/* No name of this word: with the closest one. nth: which word of the commands it would be. */
static ls_status fail_unknown(const char *group, const char *word)
{
    const char *names[NCOMMANDS + 1] = { NULL };
    int n = 0;
    for (int i = 0; i < NCOMMANDS; i++) {
        bool fits = !group || strcmp(group, commands[i].words[0]) == 0;
        const char *name = commands[i].words[group != NULL];
        if (fits && name) names[n++] = name;
    }
    const char *close = ls__suggest(word, names);
    const char *before = group ? group : "", *space = group ? " " : "";
    if (close)
        return ls_fail(LS_ERR_CONFIG, "%s%s%.64s: no such command; did you mean lockstep %s%s%s?",
                       before, space, word, before, space, close);
    return ls_fail(LS_ERR_CONFIG, "%s%s%.64s: no such command; lockstep%s%s --help lists them",
                   before, space, word, space, before);
}

/* The command that begins with these words; *nwords of them belong to it. */
static const command *find_command(int argc, char **argv, int *nwords)
{
    for (int i = 0; i < NCOMMANDS; i++) {
        const command *c = &commands[i];
        *nwords = c->words[1] ? 2 : 1;
        if (argc < *nwords || strcmp(argv[0], c->words[0]) != 0) continue;
        if (*nwords == 1 || strcmp(argv[1], c->words[1]) == 0) return c;
    }
    return NULL;
}

static bool is_group(const char *word)
{
    for (int i = 0; i < NCOMMANDS; i++)
        if (commands[i].words[1] && strcmp(word, commands[i].words[0]) == 0) return true;
    return false;
}

/* "lockstep train", "lockstep train --help", "lockstep train imgae". */
static int run_group(int argc, char **argv)
{
    bool asked = argc > 1 && is_help(argv[1]);
    if (argc > 1 && !asked) ls_check(fail_unknown(argv[0], argv[1]));
    print_commands(asked ? stdout : stderr, argv[0]);
    ls_check(ls_cli_flush());
    return asked ? 0 : 2;
}

/* "lockstep help train image" is "lockstep train image --help". */
static int run_command(const command *c, int nwords, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "lockstep %s%s%s", c->words[0], c->words[1] ? " " : "",
             c->words[1] ? c->words[1] : "");
    argv[nwords - 1] = name;
    return c->run(argc - nwords + 1, argv + nwords - 1);
}

static int run_help(int argc, char **argv)
{
    int nwords;
    const command *c = argc > 0 ? find_command(argc, argv, &nwords) : NULL;
    if (c) {
        char help[] = "--help";
        char *line[ARGS_MAX] = { argv[0], argv[nwords - 1] };
        line[nwords] = help;
        return run_command(c, nwords, nwords + 1, line);
    }
    if (argc > 0 && is_group(argv[0])) {
        print_commands(stdout, argv[0]);
    } else if (argc > 0) {
        ls_check(fail_unknown(NULL, argv[0]));
    } else {
        print_overview(stdout);
    }
    ls_check(ls_cli_flush());
    return 0;
}

/* Somebody may have closed our standard streams (a daemon, "2>&-"): the next files that we open would
 * take their numbers, and what is meant for people would go into them. Ranks of ls_world_init do the
 * same. */
static void open_streams(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv)
{
    open_streams();
    if (argc < 2) {
        print_overview(stderr);
        return 2;
    }
    argc--;
    argv++;
    int nwords;
    const command *c = find_command(argc, argv, &nwords);
    if (c) return run_command(c, nwords, argc, argv);
    if (is_help(argv[0])) return run_help(argc - 1, argv + 1);
    if (is_group(argv[0])) return run_group(argc, argv);
    if (strcmp(argv[0], "--version") == 0) {
        printf("lockstep %s\n", ls_version());
        ls_check(ls_cli_flush());
        return 0;
    }
    if (argv[0][0] == '-')
        ls_check(ls_fail(LS_ERR_CONFIG,
                         "%.64s: flags stand behind the command; lockstep --help "
                         "lists the commands",
                         argv[0]));
    ls_check(fail_unknown(NULL, argv[0]));
    return 2;
}
