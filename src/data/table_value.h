/* What the text of one field means. */
#ifndef LS_DATA_TABLE_VALUE_H
#define LS_DATA_TABLE_VALUE_H

#include <lockstep/base.h>

/* "", NA, N/A, NaN, null, ?: no value. */
bool ls__table_missing(const char *text, size_t nbytes);

typedef enum ls__number_kind {
    LS__NUMBER_NONE,    /* a text */
    LS__NUMBER_FINITE,  /* *value is it */
    LS__NUMBER_INFINITE /* inf, or beyond fp64 */
} ls__number_kind;

/* Decimal: 12, -0.5, .5, 1e-3; correctly rounded, whatever the locale. point: '.', or ',' for files
 * whose fields end at semicolons, where both are taken. */
ls__number_kind ls__table_number(const char *text, size_t nbytes, char point, double *value);

#endif
