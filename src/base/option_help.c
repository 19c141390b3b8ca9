/* The text of --help: the program's own flags first, then those of runs, then those of launching.
 * As wide as the terminal, between 80 and 100 columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/option_internal.h"
#include "base/text.h"

enum { NARROWEST = 80, WIDEST = 100, HELP_COLUMN = 28 };

typedef struct page {
    ls__text text;
    int width;
} page;

static int page_width(void)
{
    struct winsize size;
    int columns = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0
                      ? size.ws_col
                      : NARROWEST;
    return columns < NARROWEST ? NARROWEST : columns > WIDEST ? WIDEST : columns;
}

/* Stands for a space at which a line must not break. */
#define HARD_SPACE "\x01"

/* Words of text, broken before the right edge; lines after the first begin at indent. */
static void add_wrapped(page *p, int column, int indent, const char *text)
{
    while (*text) {
        text += strspn(text, " ");
        int length = (int)strcspn(text, " ");
        if (length == 0) break;
        if (column > indent && column + 1 + length > p->width) {
            ls__text_add(&p->text, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            ls__text_add(&p->text, " ");
            column++;
        }
        for (int i = 0; i < length; i++)
            ls__text_append(&p->text, text[i] == *HARD_SPACE ? " " : text + i, 1);
        column += length;
        text += length;
    }
    ls__text_add(&p->text, "\n");
}

/* "(default 32)" behind the help; of a program's own flags what its variable held. */
static void default_text(const ls__option *option, char out[128])
{
    const ls__option_value *v = &option->initial;
    out[0] = '\0';
    const char *ours = option->program_default ? option->program_default : option->row.fallback;
    if (ours) snprintf(out, 128, " (default" HARD_SPACE "%.90s)", ours);
    if (!option->flag) return;
    switch (option->row.type) {
    case LS__OPTION_INT:
        snprintf(out, 128, " (default" HARD_SPACE "%lld)", (long long)v->i);
        break;
    case LS__OPTION_DOUBLE:
        snprintf(out, 128, " (default" HARD_SPACE "%g)", v->d);
        break;
    case LS__OPTION_BOOL:
        snprintf(out, 128, "%s", v->b ? " (default" HARD_SPACE "on)" : "");
        break;
    default:
        if (v->s && v->s[0]) snprintf(out, 128, " (default" HARD_SPACE "%.90s)", v->s);
    }
}

static void add_option(page *p, const ls__option *option)
{
    char left[80], right[640], fallback[128];
    const ls__option_row *row = &option->row;
    bool is_switch = row->type == LS__OPTION_BOOL;
    bool on = option->flag && is_switch && option->initial.b;
    int n = is_switch ? snprintf(left, sizeof left, "  --%s%s", on ? "no-" : "", row->name)
                      : snprintf(left, sizeof left, "  --%s %s", row->name, row->placeholder);
    default_text(option, fallback);
    snprintf(right, sizeof right, "%.480s%s", row->help, fallback);
    if (n + 2 > HELP_COLUMN)
        ls__text_add(&p->text, "%s\n%*s", left, HELP_COLUMN, "");
    else
        ls__text_add(&p->text, "%-*s", HELP_COLUMN, left);
    add_wrapped(p, HELP_COLUMN, HELP_COLUMN, right);
}

static void add_group(page *p, const ls__options *o, ls__option_group group, const char *title)
{
    bool any = false;
    for (int i = 0; i < o->count; i++) {
        if (o->options[i].row.group != group) continue;
        if (!any) ls__text_add(&p->text, "\n%s:\n", title);
        any = true;
        add_option(p, &o->options[i]);
    }
}

static bool has_type(const ls__options *o, ls__option_type type)
{
    for (int i = 0; i < o->count; i++)
        if (o->options[i].row.type == type) return true;
    return false;
}

char *ls__options_help(const ls__options *o, const char *program, const ls_world_options *options)
{
    page p = { .width = page_width() };
    const char *arguments = options && options->arguments ? options->arguments : "";
    const char *slash = strrchr(program, '/');
    if (options && options->summary) {
        add_wrapped(&p, 0, 0, options->summary);
        ls__text_add(&p.text, "\n");
    }
    ls__text_add(&p.text, "usage: %.200s [FLAG...]%s%.200s\n", slash ? slash + 1 : program,
                 *arguments ? " " : "", arguments);
    add_group(&p, o, LS__GROUP_PROGRAM, "Flags of this program");
    add_group(&p, o, LS__GROUP_RUN, "Flags of every training run");
    add_group(&p, o, LS__GROUP_LAUNCH, "Common flags");
    ls__text_add(&p.text, "\n");
    add_wrapped(&p, 0, 0,
                "Every flag may also be set by a variable (LOCKSTEP_JSON=1 is --json); a flag "
                "outranks its variable.");
    if (has_type(o, LS__OPTION_DURATION))
        add_wrapped(&p, 0, 0, "TIME is 300 (seconds), 30s, 5min, 2h or none.");
    if (has_type(o, LS__OPTION_EVERY))
        add_wrapped(&p, 0, 0, "PERIOD is 500 (steps), 0.5epoch, 10min or none.");
    return ls__text_take(&p.text);
}
