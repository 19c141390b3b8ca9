/* Names of another program's weights: rules with one wildcard, looked up from either side. */
#include <stdio.h>
#include <string.h>

#include "trainer/weights_internal.h"

enum { DIGITS = 20 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Whether name is pattern with digits in place of each "*", the same ones everywhere. */
static bool fits(const char *pattern, const char *name, char digits[DIGITS])
{
    digits[0] = '\0';
    for (; *pattern; pattern++) {
        if (*pattern != '*') {
            if (*name++ != *pattern) return false;
            continue;
        }
        size_t n = 0;
        while (is_digit(name[n])) n++;
        if (n == 0 || n >= DIGITS) return false;
        if (digits[0] && (strlen(digits) != n || memcmp(digits, name, n) != 0)) return false;
        memcpy(digits, name, n);
        digits[n] = '\0';
        name += n;
    }
    return *name == '\0';
}

/* false = too long a name. */
static bool fill(const char *pattern, const char *digits, char out[LS__WEIGHT_NAME])
{
    size_t used = 0, n = strlen(digits);
    for (; *pattern; pattern++) {
        const char *piece = *pattern == '*' ? digits : pattern;
        size_t nbytes = *pattern == '*' ? n : 1;
        if (used + nbytes >= LS__WEIGHT_NAME) return false;
        memcpy(out + used, piece, nbytes);
        used += nbytes;
    }
    out[used] = '\0';
    return true;
}

const ls_weight_rule *ls__weight_rule_of_file(const ls_weight_rule *rules, const char *name,
                                              char model[LS__WEIGHT_NAME])
{
    char digits[DIGITS];
    model[0] = '\0';
    for (; rules->file; rules++) {
        if (!fits(rules->file, name, digits)) continue;
        if (rules->model && !fill(rules->model, digits, model)) return NULL;
        return rules;
    }
    return NULL;
}

const ls_weight_rule *ls__weight_rule_of_model(const ls_weight_rule *rules, const char *name,
                                               char file[LS__WEIGHT_NAME])
{
    char digits[DIGITS];
    for (; rules->file; rules++)
        if (rules->model && fits(rules->model, name, digits))
            return fill(rules->file, digits, file) ? rules : NULL;
    return NULL;
}
