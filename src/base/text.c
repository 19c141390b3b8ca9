/* Text that grows, for help, documents and tables: a few kilobytes, made once. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Room for nbytes more and a NUL; doubles, so that adding is cheap on average. */
static bool make_room(ls__text *text, size_t nbytes)
{
    if (text->failed) return false;
    if (text->room - text->used > nbytes) return true;
    size_t room = 2 * text->room + nbytes + 256;
    char *grown = ls__realloc(text->data, room, 1);
    text->failed = !grown;
    if (!grown) return false;
    text->data = grown;
    text->room = room;
    return true;
}

void ls__text_append(ls__text *text, const char *bytes, size_t nbytes)
{
    if (!make_room(text, nbytes)) return;
    memcpy(text->data + text->used, bytes, nbytes);
    text->used += nbytes;
    text->data[text->used] = '\0';
}

void ls__text_add(ls__text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && make_room(text, (size_t)n)) {
        vsnprintf(text->data + text->used, (size_t)n + 1, format, again);
        text->used += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

char *ls__text_take(ls__text *text)
{
    ls__text_append(text, "", 0);
    char *data = text->failed ? NULL : text->data;
    if (text->failed) ls__free(text->data);
    *text = (ls__text) { 0 };
    return data;
}
