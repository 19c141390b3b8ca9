/* What the subcommands share: options without a world, documents, the end of a command. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "world/report.h"

ls_status ls_cli_flush(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        return ls__fail_errno(LS_ERR_IO, "cannot write to standard output");
    return LS_OK;
}

ls_status ls_cli_print_json(json_t *document)
{
    if (!document) return ls_fail(LS_ERR_MEMORY, "out of memory: could not write JSON");
    char *line = ls__json_line(document);
    json_decref(document);
    if (!line) return LS_ERR_MEMORY;
    puts(line);
    ls__free(line);
    return ls_cli_flush();
}

void ls_cli_bytes(int64_t nbytes, char out[32])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)nbytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

/* The text to stderr and, for readers of JSON, the report to stdout. */
static int fail(ls_status status, bool json)
{
    ls__report report = { .size = 1, .step = -1, .checkpoint = "" };
    report.end = (ls__end) { .kind = LS__END_STATUS, .rank = -1, .status = status };
    snprintf(report.end.said, sizeof report.end.said, "%s", ls_error_text());
    ls__log(LS__LOG_ERROR, "%s", report.end.said);
    if (json && ls_cli_print_json(ls__report_json(&report)) != LS_OK)
        ls__log(LS__LOG_ERROR, "%s", ls_error_text());
    return ls__exit_code(status);
}

static void set_log_level(const ls__options *o)
{
    const char *text;
    ls__log_level level;
    if (ls__options_string(o, "log-level", &text) && ls__log_parse_level(text, &level))
        ls__log_set_level(level);
}

/* Whether --json stands in a line that could not be parsed. */
static bool asks_for_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

ls__options *ls_cli_options(int *argc, char ***argv, const ls_world_options *program,
                            const char *const *only)
{
    ls__options *o;
    ls_status status = ls__options_parse_only(argc, argv, program, only, &o);
    if (status != LS_OK) exit(fail(status, asks_for_json(*argc, *argv)));
    if (ls__options_wants(o, "help")) {
        char *help = ls__options_help(o, (*argv)[0], program);
        ls_check(help ? LS_OK : LS_ERR_MEMORY);
        fputs(help, stdout);
        ls__free(help);
        exit(ls_cli_end(o, ls_cli_flush()));
    }
    if (ls__options_wants(o, "version")) {
        printf("lockstep %s\n", ls_version());
        exit(ls_cli_end(o, ls_cli_flush()));
    }
    set_log_level(o);
    return o;
}

int ls_cli_end(ls__options *o, ls_status status)
{
    int code = status == LS_OK ? 0 : fail(status, ls__options_wants(o, "json"));
    ls__options_free(o);
    return code;
}
