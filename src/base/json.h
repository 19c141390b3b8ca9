/* Jansson, and what it lacks for us. */
#ifndef LS_BASE_JSON_H
#define LS_BASE_JSON_H

#include <jansson.h>

#include <lockstep/base.h>

#include "base/file.h"

json_t *ls__json_double(double value); /* NaN and infinities become null */
json_t *ls__json_u64(uint64_t value);  /* 64-bit checksums are strings, "0123456789abcdef" */
bool ls__json_parse_u64(const json_t *value, uint64_t *out);
/* Strict (no duplicate keys), at most limit bytes; the error names path, line and column. */
ls_status ls__json_read(const char *path, size_t limit, json_t **out);
/* Indented, atomic. */
ls_status ls__json_write(const ls__fs *fs, const char *path, const json_t *value);
/* One compact line without its newline; freed by ls__free. */
char *ls__json_line(const json_t *value);

#endif
