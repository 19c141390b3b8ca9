/* JSON values as text. Jansson writes 0.1 as 0.10000000000000001; here a number is as short as it
 * can be while reading back to the same bits, because people read these files too. Documents are
 * small: a line per logged step, a file per checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

typedef struct writer {
    ls__text text;
    int indent; /* spaces per level; 0 = all on one line */
} writer;

static void write_value(writer *w, const json_t *value, int level);

static void write_string(writer *w, const char *bytes, size_t nbytes)
{
    ls__text *text = &w->text;
    ls__text_append(text, "\"", 1);
    for (size_t i = 0; i < nbytes; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\')
            ls__text_add(text, "\\%c", c);
        else if (c == '\n')
            ls__text_append(text, "\\n", 2);
        else if (c < 0x20 || c == 0x7f)
            ls__text_add(text, "\\u%04x", c);
        else
            ls__text_append(text, bytes + i, 1);
    }
    ls__text_append(text, "\"", 1);
}

static void write_real(writer *w, double value)
{
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    char *point = digits + strspn(digits, "+-0123456789");
    if (*point && *point != 'e') *point = '.'; /* the locale's may be a comma */
    ls__text_add(&w->text, "%s%s", digits, *point ? "" : ".0");
}

static void new_line(writer *w, int level)
{
    if (w->indent) ls__text_add(&w->text, "\n%*s", level * w->indent, "");
}

static void write_object(writer *w, json_t *object, int level)
{
    bool first = true;
    ls__text_append(&w->text, "{", 1);
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        if (!first) ls__text_append(&w->text, ",", 1);
        first = false;
        new_line(w, level + 1);
        const char *key = json_object_iter_key(at);
        write_string(w, key, strlen(key));
        ls__text_add(&w->text, w->indent ? ": " : ":");
        write_value(w, json_object_iter_value(at), level + 1);
    }
    if (!first) new_line(w, level);
    ls__text_append(&w->text, "}", 1);
}

/* Arrays of plain values (shapes, sets) stay on one line. */
static bool is_flat(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (json_is_object(item) || json_is_array(item)) return false;
    }
    return true;
}

static void write_array(writer *w, const json_t *array, int level)
{
    bool flat = is_flat(array);
    size_t n = json_array_size(array);
    ls__text_append(&w->text, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0) ls__text_add(&w->text, flat && w->indent ? ", " : ",");
        if (!flat) new_line(w, level + 1);
        write_value(w, json_array_get(array, i), level + 1);
    }
    if (!flat) new_line(w, level);
    ls__text_append(&w->text, "]", 1);
}

static void write_value(writer *w, const json_t *value, int level)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(w, (json_t *)value, level);
        break; /* iterators want no const */
    case JSON_ARRAY:
        write_array(w, value, level);
        break;
    case JSON_STRING:
        write_string(w, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER:
        ls__text_add(&w->text, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        write_real(w, json_real_value(value));
        break;
    case JSON_TRUE:
        ls__text_append(&w->text, "true", 4);
        break;
    case JSON_FALSE:
        ls__text_append(&w->text, "false", 5);
        break;
    case JSON_NULL:
        ls__text_append(&w->text, "null", 4);
        break;
    }
}

char *ls__json_line(const json_t *value)
{
    writer w = { .indent = 0 };
    write_value(&w, value, 0);
    return ls__text_take(&w.text);
}

ls_status ls__json_write(const ls__fs *fs, const char *path, const json_t *value)
{
    writer w = { .indent = 2 };
    write_value(&w, value, 0);
    ls__text_append(&w.text, "\n", 1);
    char *text = ls__text_take(&w.text);
    if (!text) return LS_ERR_MEMORY;
    ls_status status = ls__file_write_atomic(fs, path, text, strlen(text));
    ls__free(text);
    return status;
}
