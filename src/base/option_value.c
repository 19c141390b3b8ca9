/* Reads the values of options: strict, bounded, and every error says what is allowed. */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/option_internal.h"

/* A plain decimal number at the start of text, whatever the locale; *end behind it. No "inf",
 * "nan", "0x1p3" or leading space. */
static bool read_number(const char *text, double *out, const char **end)
{
    const char *digits = text + (*text == '-' || *text == '+');
    bool plain = strspn(digits, "0123456789") > 0 ||
                 (digits[0] == '.' && strspn(digits + 1, "0123456789") > 0);
    if (!plain || (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))) return false;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c) return false;
    char *stop;
    *out = strtod_l(text, &stop, c);
    freelocale(c);
    *end = stop;
    return isfinite(*out);
}

/* False leaves in errno whether it was beyond all numbers (ERANGE). */
static bool read_whole_number(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    errno = 0;
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0') return false;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

typedef struct time_unit {
    const char *word;
    double factor;
} time_unit;

static const time_unit time_units[] = { { "ms", 1e-3 }, { "s", 1 },    { "sec", 1 },
                                        { "min", 60 },  { "h", 3600 }, { "d", 86400.0 } };

static bool read_time_unit(const char *word, double *factor)
{
    for (size_t i = 0; i < sizeof time_units / sizeof time_units[0]; i++) {
        if (strcmp(word, time_units[i].word) == 0) {
            *factor = time_units[i].factor;
            return true;
        }
    }
    return false;
}

/* "300", "30s", "5min" -> seconds. */
bool ls__duration_parse(const char *text, double *seconds)
{
    const char *word;
    double factor = 1;
    if (!read_number(text, seconds, &word) || (*word && !read_time_unit(word, &factor)))
        return false;
    *seconds *= factor;
    return isfinite(*seconds);
}

bool ls__every_parse(const char *text, ls_every *out)
{
    const char *word;
    double number, factor;
    if (strcmp(text, "none") == 0) {
        *out = LS_STEPS(LS_NONE);
        return true;
    }
    if (!read_number(text, &number, &word) || !(number > 0)) return false;
    if (strcmp(word, "epoch") == 0 || strcmp(word, "epochs") == 0) {
        *out = LS_EPOCHS(number);
    } else if (read_time_unit(word, &factor)) {
        *out = (ls_every) { .seconds = number * factor };
    } else if (*word == '\0' || strcmp(word, "step") == 0 || strcmp(word, "steps") == 0) {
        /* "1.0" is an epoch elsewhere: too dear a misunderstanding */
        if (strchr(text, '.') || number != floor(number) || number > 1e15) return false;
        *out = LS_STEPS((int64_t)number);
    } else {
        return false;
    }
    return isfinite(out->seconds);
}

void ls__every_text(ls_every every, char out[32])
{
    if (every.steps == LS_NONE)
        snprintf(out, 32, "none");
    else if (every.steps != 0)
        snprintf(out, 32, "%lld", (long long)every.steps);
    else if (every.epochs != 0)
        snprintf(out, 32, "%.10gepoch", every.epochs);
    else if (every.seconds >= 60 && fmod(every.seconds, 60) == 0)
        snprintf(out, 32, "%.10gmin", every.seconds / 60);
    else
        snprintf(out, 32, "%.10gs", every.seconds);
}

/* "; or none" behind what is allowed. */
static const char *or_none(const ls__option_row *row, char out[32])
{
    out[0] = '\0';
    if (row->none_word) snprintf(out, 32, ", or %s", row->none_word);
    return out;
}

/* Long values are not repeated whole in errors. */
static ls_status fail_value(const ls__option_row *row, const char *as_given, const char *text,
                            const char *allowed)
{
    char none[32];
    bool whole = strlen(text) <= 64;
    return ls_fail(LS_ERR_CONFIG, "%s %.64s%s: must be %s%s", as_given, text[0] ? text : "(empty)",
                   whole ? "" : "...", allowed, or_none(row, none));
}

/* Of ours: it ends up in JSON documents, which other ranks and later runs read. */
static ls_status check_text(const char *as_given, const char *text)
{
    if (!text[0]) return ls_fail(LS_ERR_CONFIG, "%s: must not be empty", as_given);
    json_t *string = json_string(text);
    if (!string) return ls_fail(LS_ERR_CONFIG, "%s: must be UTF-8", as_given);
    json_decref(string);
    return LS_OK;
}

/* The largest values are there to keep arithmetic exact; only who exceeds one need hear of it. */
static ls_status fail_range(const ls__option_row *row, const char *as_given, const char *text,
                            double value)
{
    char allowed[64];
    const char *unit = row->type == LS__OPTION_DURATION ? " seconds" : "";
    if (value > row->max)
        snprintf(allowed, sizeof allowed, "at most %.16g%s", row->max, unit);
    else
        snprintf(allowed, sizeof allowed, "%s %.16g%s", row->above_min ? "more than" : "at least",
                 row->min, unit);
    return fail_value(row, as_given, text, allowed);
}

static bool in_range(const ls__option_row *row, double x)
{
    if (row->min == 0 && row->max == 0) return true;
    return x <= row->max && (row->above_min ? x > row->min : x >= row->min);
}

static ls_status parse_int(const ls__option_row *row, const char *as_given, const char *text,
                           ls__option_value *out)
{
    if (!read_whole_number(text, &out->i))
        return fail_value(row, as_given, text,
                          errno == ERANGE ? "a whole number of at most 18 digits"
                                          : "a whole number");
    if (!in_range(row, (double)out->i)) return fail_range(row, as_given, text, (double)out->i);
    return LS_OK;
}

static ls_status parse_double(const ls__option_row *row, const char *as_given, const char *text,
                              ls__option_value *out)
{
    const char *end;
    if (!read_number(text, &out->d, &end) || *end)
        return fail_value(row, as_given, text, "a number");
    if (!in_range(row, out->d)) return fail_range(row, as_given, text, out->d);
    return LS_OK;
}

static ls_status parse_duration(const ls__option_row *row, const char *as_given, const char *text,
                                ls__option_value *out)
{
    if (!ls__duration_parse(text, &out->d))
        return fail_value(row, as_given, text, "a time such as 300, 30s, 5min, 2h");
    if (!in_range(row, out->d)) return fail_range(row, as_given, text, out->d);
    return LS_OK;
}

static ls_status parse_bool(const ls__option_row *row, const char *as_given, const char *text,
                            ls__option_value *out)
{
    static const char *const yes[] = { "true", "1", "yes", "on" };
    static const char *const no[] = { "false", "0", "no", "off" };
    for (int i = 0; i < 4; i++) {
        out->b = strcmp(text, yes[i]) == 0;
        if (out->b || strcmp(text, no[i]) == 0) return LS_OK;
    }
    return fail_value(row, as_given, text, "true or false");
}

enum { CHOICES_MAX = 8 };

/* The words are separated by '|' in the placeholder. */
static ls_status parse_choice(const ls__option_row *row, const char *as_given, const char *text,
                              ls__option_value *out)
{
    char words[96], allowed[160] = "one of ";
    const char *names[CHOICES_MAX + 1] = { NULL };
    int n = 0;
    snprintf(words, sizeof words, "%s", row->placeholder);
    char *rest = words, *word;
    while (n < CHOICES_MAX && (word = strsep(&rest, "|"))) {
        if (strcmp(word, text) == 0) {
            out->s = text;
            return LS_OK;
        }
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", n ? ", " : "", word);
        names[n++] = word;
    }
    ls_status status = fail_value(row, as_given, text, allowed);
    const char *close = ls__suggest(text, names);
    return close ? ls_fail(status, "%s; did you mean %s?", ls_error_text(), close) : status;
}

static ls_status parse_every(const ls__option_row *row, const char *as_given, const char *text,
                             ls__option_value *out)
{
    if (!ls__every_parse(text, &out->every))
        return fail_value(row, as_given, text, "a period such as 500 (steps), 0.5epoch, 10min");
    return LS_OK;
}

static void set_none(const ls__option_row *row, ls__option_value *out)
{
    out->none = true;
    switch (row->type) {
    case LS__OPTION_INT:
        out->i = LS_NONE;
        break;
    case LS__OPTION_DOUBLE:
    case LS__OPTION_DURATION:
        out->d = LS_NONE;
        break;
    case LS__OPTION_EVERY:
        out->every = LS_STEPS(LS_NONE);
        break;
    default:
        out->s = NULL;
    }
}

static ls_status parse_plain(const ls__option_row *row, const char *as_given, const char *text,
                             ls__option_value *out)
{
    switch (row->type) {
    case LS__OPTION_INT:
        return parse_int(row, as_given, text, out);
    case LS__OPTION_DOUBLE:
        return parse_double(row, as_given, text, out);
    case LS__OPTION_DURATION:
        return parse_duration(row, as_given, text, out);
    case LS__OPTION_BOOL:
        return parse_bool(row, as_given, text, out);
    case LS__OPTION_CHOICE:
        return parse_choice(row, as_given, text, out);
    case LS__OPTION_EVERY:
        return parse_every(row, as_given, text, out);
    case LS__OPTION_STRING:
        break;
    }
    out->s = text;
    return row->group == LS__GROUP_PROGRAM ? LS_OK : check_text(as_given, text);
}

ls_status ls__option_value_parse(const ls__option_row *row, const char *as_given, const char *text,
                                 ls__option_value *out)
{
    *out = (ls__option_value) { .text = text };
    if (strnlen(text, LS__OPTION_VALUE_MAX) == LS__OPTION_VALUE_MAX)
        return ls_fail(LS_ERR_CONFIG, "%s %.64s...: longer than %d bytes", as_given, text,
                       LS__OPTION_VALUE_MAX - 1);
    if (row->none_word && strcmp(text, row->none_word) == 0) {
        set_none(row, out);
        return LS_OK;
    }
    LS_TRY(parse_plain(row, as_given, text, out));
    if (row->zero_is_none && out->d == 0) set_none(row, out);
    return LS_OK;
}
