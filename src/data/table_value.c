/* Fields as values. Nearly all numbers of tables have few digits and small exponents, for which one
 * multiplication of exact doubles rounds correctly (Clinger, PLDI 1990); the others go to strtod with
 * its decimal point put in place. */
#include "data/table_value.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DIGITS_MAX = 400, EXPONENT_MAX = 100000 };

bool ls__table_missing(const char *text, size_t nbytes)
{
    static const char *const words[] = { "NA", "N/A", "NaN", "nan", "null", "NULL", "?" };
    if (nbytes == 0) return true;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i]) == nbytes && memcmp(words[i], text, nbytes) == 0) return true;
    return false;
}

typedef struct decimal {
    bool negative;
    uint64_t digits; /* without the point; exact while ndigits <= 19 */
    int ndigits;     /* significant ones */
    int exponent;    /* of ten */
} decimal;

static const char *take_digits(const char *p, const char *end, decimal *d, int step)
{
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        if (d->ndigits > 0 || *p != '0') d->ndigits++;
        if (d->ndigits <= 19) d->digits = d->digits * 10 + (uint64_t)(*p - '0');
        d->exponent -= step;
    }
    return p;
}

/* False: not a number's spelling. */
static bool parse(const char *p, const char *end, char point, decimal *d)
{
    if (p < end && (*p == '-' || *p == '+')) d->negative = *p++ == '-';
    const char *begin = p;
    p = take_digits(p, end, d, 0);
    size_t before = (size_t)(p - begin), behind = 0;
    if (p < end && (*p == '.' || *p == point)) {
        begin = ++p;
        p = take_digits(p, end, d, 1);
        behind = (size_t)(p - begin);
    }
    if (before + behind == 0) return false;
    if (p == end) return true;
    if (*p != 'e' && *p != 'E') return false;
    p++;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    int exponent = 0;
    begin = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (exponent < EXPONENT_MAX) exponent = exponent * 10 + (*p - '0');
    d->exponent += negative ? -exponent : exponent;
    return p == end && p > begin;
}

/* text is a number's spelling: with the locale's point it is one for strtod. */
static double by_strtod(const char *text, size_t nbytes, char point)
{
    const char *locale_point = localeconv()->decimal_point;
    char copy[DIGITS_MAX + 16];
    size_t used = 0;
    for (size_t i = 0; i < nbytes && used < DIGITS_MAX; i++) {
        if (text[i] == '.' || text[i] == point)
            for (const char *p = locale_point; *p && used < DIGITS_MAX; p++) copy[used++] = *p;
        else
            copy[used++] = text[i];
    }
    copy[used] = '\0';
    return strtod(copy, NULL);
}

ls__number_kind ls__table_number(const char *text, size_t nbytes, char point, double *value)
{
    static const double powers[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    decimal d = { 0 };
    if (!parse(text, text + nbytes, point, &d)) {
        size_t sign = nbytes > 0 && (text[0] == '-' || text[0] == '+');
        bool infinite = (nbytes - sign == 3 && strncasecmp(text + sign, "inf", 3) == 0) ||
                        (nbytes - sign == 8 && strncasecmp(text + sign, "infinity", 8) == 0);
        return infinite ? LS__NUMBER_INFINITE : LS__NUMBER_NONE;
    }
    if (nbytes >= DIGITS_MAX) return LS__NUMBER_NONE; /* nobody's measurement */
    bool exact = d.ndigits <= 15 && d.exponent >= -22 && d.exponent <= 22;
    if (!exact) {
        *value = by_strtod(text, nbytes, point);
        return isfinite(*value) ? LS__NUMBER_FINITE : LS__NUMBER_INFINITE;
    }
    double x = (double)d.digits;
    x = d.exponent < 0 ? x / powers[-d.exponent] : x * powers[d.exponent];
    *value = d.negative ? -x : x;
    return LS__NUMBER_FINITE;
}
