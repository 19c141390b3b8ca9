/* Jansson, and what it lacks for us: bounded strict files, NaN as null, 64-bit sums as strings. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

json_t *ls__json_double(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *ls__json_u64(uint64_t value)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

bool ls__json_parse_u64(const json_t *value, uint64_t *out)
{
    if (!json_is_string(value) || json_string_length(value) != 16) return false;
    static const char digits[] = "0123456789abcdef";
    const char *text = json_string_value(value);
    uint64_t x = 0;
    for (int i = 0; i < 16; i++) {
        const char *digit = memchr(digits, text[i], 16);
        if (!digit) return false;
        x = x << 4 | (uint64_t)(digit - digits);
    }
    *out = x;
    return true;
}

ls_status ls__json_read(const char *path, size_t limit, json_t **out)
{
    *out = NULL;
    char *text;
    size_t nbytes;
    LS_TRY(ls__file_read(path, limit, &text, &nbytes));
    json_error_t error;
    *out = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
    ls__free(text);
    if (!*out && json_error_code(&error) == json_error_out_of_memory)
        return ls_fail(LS_ERR_MEMORY, "%s: out of memory", path);
    if (!*out)
        return ls_fail(LS_ERR_DATA, "%s:%d:%d: not valid JSON: %s", path, error.line, error.column,
                       error.text);
    return LS_OK;
}
