/* lockstep run: any program, one process per device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "launch/launcher.h"
#include "world/report.h"

/* What is wrong is told once, with the code that shells use. */
static int fail(const ls__options *o, ls_status status, int exit_code)
{
    ls__report report = { .size = 1, .step = -1, .checkpoint = "" };
    report.end =
        (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = status, .exit_code = exit_code };
    snprintf(report.end.said, sizeof report.end.said, "%s", ls_error_text());
    ls__log(LS__LOG_ERROR, "%s", report.end.said);
    if (ls__options_wants(o, "json")) ls__report_show(&report);
    return exit_code;
}

static int show(const ls__options *o, const ls__launcher_plan *plan)
{
    ls_status status = ls__options_wants(o, "json") ? ls_cli_print_json(ls__launcher_json(plan))
                                                    : ls__launcher_show(plan);
    if (status == LS_OK) status = ls_cli_flush();
    return status == LS_OK ? 0 : fail(o, status, ls__exit_code(status));
}

/* Others can read a command line: the secret of --join HOST:PORT/SECRET is taken out of ours, once it has
 * been read. */
static void hide_secret(char **argv, char *const *program)
{
    for (char **word = argv + 1; word < program; word++) {
        bool joins = strncmp(*word, "--join=", 7) == 0 || strcmp(word[-1], "--join") == 0;
        char *slash = joins ? strchr(*word, '/') : NULL;
        if (slash) memset(slash + 1, '*', strlen(slash + 1));
    }
}

int ls_cli_run_program(int argc, char **argv)
{
    ls__launcher_flags flags;
    ls__launcher_words words;
    ls__launcher_plan plan;
    int code;
    ls__launcher_flags_init(&flags);
    const ls_world_options program = {
        .summary = "Starts any program, one process per device, with the variables that frameworks "
                   "look for, and watches it to its end.",
        .arguments = "PROGRAM [ARG...]",
        .flags = flags.table,
    };
    ls_check(ls__launcher_split(argc, argv, &flags, &words));
    hide_secret(argv, words.program);
    ls__options *o = ls_cli_options(&words.nline, &words.line, &program, ls__launcher_shared_flags);
    if (flags.slurm_script) {
        ls_status written = ls__slurm_script(&flags, &words);
        if (written == LS_OK) written = ls_cli_flush();
        code = written == LS_OK ? 0 : fail(o, written, ls__exit_code(written));
        ls__options_free(o);
        ls__launcher_words_free(&words);
        return code;
    }
    ls_status status = ls__launcher_plan_make(&flags, o, &words, &plan, &code);
    if (status != LS_OK) {
        code = fail(o, status, code);
    } else {
        code = flags.dry_run ? show(o, &plan) : ls__launcher_run(&plan);
        ls__launcher_plan_free(&plan);
    }
    ls__options_free(o);
    ls__launcher_words_free(&words);
    return code;
}
