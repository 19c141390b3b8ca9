/* Parses the command line and the environment into one table of options: ours, then the program's
 * own. Runs once per process, before anything else. Nothing is stored in the program's variables
 * until the whole line has been found right. */
#include "base/option.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "base/option_internal.h"

/* --- the table of this program --- */

ls__option *ls__option_find(const ls__options *o, const char *name, size_t length)
{
    for (int i = 0; i < o->count; i++) {
        const char *candidate = o->options[i].row.name;
        if (strncmp(candidate, name, length) == 0 && candidate[length] == '\0')
            return &o->options[i];
    }
    return NULL;
}

const char **ls__option_names(const ls__options *o)
{
    const char **names = ls__alloc((size_t)o->count + 1, sizeof *names);
    for (int i = 0; names && i < o->count; i++) names[i] = o->options[i].row.name;
    return names;
}

static bool is_flag_name(const char *name)
{
    if (!name || name[0] < 'a' || name[0] > 'z' || strlen(name) > 40) return false;
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0';
}

/* A program's own flag; its variable holds the default. */
static ls_status add_program_flag(ls__options *o, const ls_flag *flag)
{
    if (!is_flag_name(flag->name) || !flag->value)
        return ls_fail(LS_ERR_ARG,
                       "flag \"%.40s\" of this program: needs a name of a-z, 0-9 and - and a value",
                       flag->name ? flag->name : "");
    if (ls__option_find(o, flag->name, strlen(flag->name)))
        return ls_fail(LS_ERR_ARG, "flag \"%s\" of this program: the name is taken", flag->name);
    ls__option option = { .flag = flag,
                          .row = { .name = flag->name,
                                   .group = LS__GROUP_PROGRAM,
                                   .help = flag->help ? flag->help : "" } };
    switch (flag->type) {
    case 'i':
        option.row.type = LS__OPTION_INT;
        option.row.placeholder = "N";
        option.initial.i = *(const int64_t *)flag->value;
        break;
    case 'd':
        option.row.type = LS__OPTION_DOUBLE;
        option.row.placeholder = "X";
        option.initial.d = *(const double *)flag->value;
        break;
    case 's':
        option.row.type = LS__OPTION_STRING;
        option.row.placeholder = "TEXT";
        option.initial.s = *(const char *const *)flag->value;
        break;
    case 'b':
        option.row.type = LS__OPTION_BOOL;
        option.initial.b = *(const bool *)flag->value;
        break;
    default:
        return ls_fail(LS_ERR_ARG, "flag \"%s\" of this program: its type is not i, d, s or b",
                       flag->name);
    }
    option.value = option.initial;
    o->options[o->count++] = option;
    return LS_OK;
}

static bool is_known(const ls__option_row *row, const ls_world_options *program,
                     const char *const *only)
{
    if (program->no_run && row->group == LS__GROUP_RUN) return false;
    if (!only) return true;
    while (*only && strcmp(*only, row->name) != 0) only++;
    return *only != NULL;
}

static ls_status build_table(ls__options *o, const ls_world_options *program,
                             const char *const *only)
{
    int nflags = 0;
    while (program->flags && program->flags[nflags].name) nflags++;
    o->options = ls__alloc((size_t)(ls__option_table_size + nflags), sizeof *o->options);
    if (!o->options) return LS_ERR_MEMORY;
    for (int i = 0; i < ls__option_table_size; i++) {
        const ls__option_row *row = &ls__option_table[i];
        if (is_known(row, program, only)) o->options[o->count++] = (ls__option) { .row = *row };
    }
    for (int i = 0; i < nflags; i++) LS_TRY(add_program_flag(o, &program->flags[i]));
    return LS_OK;
}

/* "name=value" of the program's. */
static ls_status set_default(ls__options *o, const char *text)
{
    size_t length = strcspn(text, "=");
    ls__option *option = ls__option_find(o, text, length);
    if (!option || option->flag || text[length] != '=')
        return ls_fail(LS_ERR_ARG, "default \"%.64s\" of this program: no such flag of ours", text);
    option->program_default = text + length + 1;
    return ls__option_value_parse(&option->row, option->row.name, option->program_default,
                                  &option->value);
}

static ls_status set_defaults(ls__options *o, const ls_world_options *program)
{
    for (const char *const *text = program->defaults; text && *text; text++)
        LS_TRY(set_default(o, *text));
    return LS_OK;
}

/* --- the command line --- */

typedef struct command_line {
    ls__options *o;
    const ls_world_options *program;
    int argc;
    char **argv;
    int next; /* the word to look at */
    int kept; /* argv[1 .. kept] stay */
} command_line;

static ls_status set_from_flag(ls__option *option, const char *given, const char *text)
{
    if (option->origin) return ls_fail(LS_ERR_CONFIG, "--%s: given twice", option->row.name);
    ls__option_value value;
    LS_TRY(ls__option_value_parse(&option->row, given, text, &value));
    option->origin = ls__strdup("flag");
    if (!option->origin) return LS_ERR_MEMORY;
    option->value = value;
    return LS_OK;
}

static ls_status fail_unknown(const command_line *line, const char *word, size_t length)
{
    char given[80];
    snprintf(given, sizeof given, "%.*s", (int)(length < 79 ? length : 79), word);
    const char **names = ls__option_names(line->o);
    if (!names) return LS_ERR_MEMORY;
    ls_status status = ls__option_unknown(given, names);
    ls__free(names);
    return status;
}

static void keep_word(command_line *line, char *word)
{
    line->argv[++line->kept] = word; /* never ahead of what is read */
}

/* "--name", "--name value", "--name=value", "--no-name"; word is already consumed. */
static ls_status take_flag(command_line *line, char *word)
{
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    const char *inline_value = name[length] == '=' ? name + length + 1 : NULL;
    ls__option *option = ls__option_find(line->o, name, length);
    char given[64];
    if (option && option->row.type == LS__OPTION_BOOL)
        return set_from_flag(option, option->row.name, inline_value ? inline_value : "true");
    if (option) {
        snprintf(given, sizeof given, "--%s", option->row.name);
        if (inline_value) return set_from_flag(option, given, inline_value);
        /* A value may begin with one dash (-1) but not with two. */
        if (line->next >= line->argc || strncmp(line->argv[line->next], "--", 2) == 0)
            return ls_fail(LS_ERR_CONFIG, "%s: needs a value: %s", given, option->row.placeholder);
        return set_from_flag(option, given, line->argv[line->next++]);
    }
    if (strncmp(name, "no-", 3) == 0 && !inline_value) {
        option = ls__option_find(line->o, name + 3, length - 3);
        if (option && option->row.type == LS__OPTION_BOOL)
            return set_from_flag(option, option->row.name, "false");
    }
    if (!line->program->keep_unknown_flags) return fail_unknown(line, word, length + 2);
    keep_word(line, word);
    return LS_OK;
}

static ls_status take_word(command_line *line)
{
    char *word = line->argv[line->next++];
    bool is_flag = word[0] == '-' && word[1] != '\0';
    ls__option *help = ls__option_find(line->o, "help", 4);
    if (help && strcmp(word, "-h") == 0) return set_from_flag(help, "-h", "true");
    if (is_flag && word[1] == '-') return take_flag(line, word);
    if (line->program->keep_unknown_flags || (!is_flag && line->program->arguments)) {
        keep_word(line, word);
        return LS_OK;
    }
    if (is_flag) return fail_unknown(line, word, strcspn(word, "="));
    return ls_fail(LS_ERR_CONFIG, "%.64s: not a flag, and nothing else is expected here%s", word,
                   access(word, F_OK) != 0 ? "" /* else given bare, or by the shell for a pattern */
                                           : "; a file goes behind its flag (--data FILE), and a "
                                             "pattern of files in quotes ('*.bin')");
}

/* Reads the words behind the program's name; argv keeps what is not ours. */
static ls_status read_words(command_line *line)
{
    while (line->next < line->argc) {
        if (strcmp(line->argv[line->next], "--") == 0) break;
        LS_TRY(take_word(line));
    }
    if (line->next < line->argc && !line->program->keep_unknown_flags) line->next++; /* the "--" */
    if (line->next < line->argc && !line->program->arguments && !line->program->keep_unknown_flags)
        return ls_fail(LS_ERR_CONFIG, "%.64s: nothing is expected behind the flags",
                       line->argv[line->next]);
    while (line->next < line->argc) keep_word(line, line->argv[line->next++]);
    return LS_OK;
}

/* Works on a copy, so that a wrong line leaves argv as it was. */
static ls_status read_command_line(ls__options *o, const ls_world_options *program, int *argc,
                                   char ***argv)
{
    if (!argc || !argv || *argc < 1) return LS_OK;
    char **words = ls__alloc((size_t)*argc + 1, sizeof *words);
    if (!words) return LS_ERR_MEMORY;
    memcpy(words, *argv, (size_t)*argc * sizeof *words);
    command_line line = { .o = o, .program = program, .argc = *argc, .argv = words, .next = 1 };
    ls_status status = read_words(&line);
    if (status == LS_OK) {
        memcpy(*argv, words, ((size_t)line.kept + 1) * sizeof *words);
        (*argv)[line.kept + 1] = NULL;
        *argc = line.kept + 1;
    }
    ls__free(words);
    return status;
}

/* --- all of it --- */

static void store_program_values(const ls__options *o)
{
    for (int i = 0; i < o->count; i++) {
        const ls__option *option = &o->options[i];
        if (!option->flag || !option->origin) continue;
        switch (option->flag->type) {
        case 'i':
            *(int64_t *)option->flag->value = option->value.i;
            break;
        case 'd':
            *(double *)option->flag->value = option->value.d;
            break;
        case 's':
            *(const char **)option->flag->value = option->value.s;
            break;
        default:
            *(bool *)option->flag->value = option->value.b;
        }
    }
}

ls_status ls__options_parse_only(int *argc, char ***argv, const ls_world_options *options,
                                 const char *const *only, ls__options **out)
{
    static const ls_world_options none;
    const ls_world_options *program = options ? options : &none;
    *out = NULL;
    ls__options *o = ls__alloc(1, sizeof *o);
    if (!o) return LS_ERR_MEMORY;
    ls_status status = LS_OK;
    LS_TRY_GOTO(build_table(o, program, only), status, failed);
    LS_TRY_GOTO(set_defaults(o, program), status, failed);
    LS_TRY_GOTO(read_command_line(o, program, argc, argv), status, failed);
    LS_TRY_GOTO(ls__option_read_variables(o), status, failed);
    store_program_values(o);
    *out = o;
    return LS_OK;
failed:
    ls__options_free(o);
    return status;
}

ls_status ls__options_parse(int *argc, char ***argv, const ls_world_options *options,
                            ls__options **out)
{
    return ls__options_parse_only(argc, argv, options, NULL, out);
}

void ls__options_free(ls__options *o)
{
    if (!o) return;
    for (int i = 0; i < o->count; i++) ls__free(o->options[i].origin);
    ls__free(o->options);
    ls__free(o);
}
