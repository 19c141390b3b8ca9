/* Host lists of all kinds. They come from a command line, a file or another program's variables, so
 * they are read strictly: what is not understood is told, and a short text cannot become more names
 * than a job may have nodes. */
#include "launch/node_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

enum { WIDTH_MAX = 12 };

void ls__hosts_free(ls__hosts *hosts)
{
    ls__free(hosts->hosts);
    *hosts = (ls__hosts) { 0 };
}

bool ls__host_is_good(const char *text, size_t nbytes)
{
    if (nbytes == 0 || nbytes > LS__NODE_NAME_MAX || text[0] == '-') return false;
    for (size_t i = 0; i < nbytes; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr(".-_:%", text[i])) return false;
    return memchr(text, '\0', nbytes) == NULL;
}

static ls_status add(const char *what, const char *name, size_t nbytes, int slots, ls__hosts *out)
{
    if (!ls__host_is_good(name, nbytes))
        return ls_fail(LS_ERR_CONFIG, "%s: \"%.*s\" is no name of a host", what,
                       (int)(nbytes < 64 ? nbytes : 64), name);
    if (out->count == LS__NODES_MAX)
        return ls_fail(LS_ERR_CONFIG, "%s: more than %d hosts", what, LS__NODES_MAX);
    if (out->count == out->capacity) {
        int capacity = out->capacity > 0 ? out->capacity * 2 : 16;
        ls__host *hosts = ls__realloc(out->hosts, (size_t)capacity, sizeof *hosts);
        if (!hosts) return LS_ERR_MEMORY;
        out->hosts = hosts;
        out->capacity = capacity;
    }
    ls__host *host = &out->hosts[out->count++];
    memcpy(host->name, name, nbytes);
    host->name[nbytes] = '\0';
    host->slots = slots;
    return LS_OK;
}

/* Digits only, no more than nbytes of them; -1 = it is no number up to most. */
static int number_of(const char *text, size_t nbytes, int most)
{
    int value = 0;
    if (nbytes == 0 || nbytes > 9) return -1;
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value <= most ? value : -1;
}

/* "b*4", "b:4", "b", "fe80::1": one colon counts, several are an address. */
static ls_status add_entry(const char *what, const char *text, size_t nbytes, ls__hosts *out)
{
    const char *star = memchr(text, '*', nbytes), *colon = memchr(text, ':', nbytes);
    const char *mark = star ? star : colon && colon == memrchr(text, ':', nbytes) ? colon : NULL;
    if (!mark) return add(what, text, nbytes, 0, out);
    size_t length = (size_t)(mark - text);
    int slots = number_of(mark + 1, nbytes - length - 1, LS__SLOTS_MAX);
    if (slots < 1)
        return ls_fail(LS_ERR_CONFIG, "%s: \"%.*s\": behind the host must be a number from 1 to %d",
                       what, (int)(nbytes < 64 ? nbytes : 64), text, LS__SLOTS_MAX);
    return add(what, text, length, slots, out);
}

ls_status ls__hosts_parse(const char *what, const char *text, ls__hosts *out)
{
    *out = (ls__hosts) { 0 };
    ls_status status = LS_OK;
    for (;;) {
        size_t length = strcspn(text, ",");
        status = add_entry(what, text, length, out);
        if (status != LS_OK || text[length] == '\0') break;
        text += length + 1;
    }
    if (status != LS_OK) ls__hosts_free(out);
    return status;
}

/* --- a hostfile --- */

static ls_status add_line(const char *what, const char *line, size_t nbytes, ls__hosts *out)
{
    const char *comment = memchr(line, '#', nbytes);
    if (comment) nbytes = (size_t)(comment - line);
    while (nbytes > 0 && isspace((unsigned char)line[nbytes - 1])) nbytes--;
    while (nbytes > 0 && isspace((unsigned char)*line)) line++, nbytes--;
    if (nbytes == 0) return LS_OK;
    size_t length = 0;
    while (length < nbytes && !isspace((unsigned char)line[length])) length++;
    LS_TRY(add_entry(what, line, length, out));
    while (length < nbytes && isspace((unsigned char)line[length])) length++;
    if (length == nbytes) return LS_OK;
    static const char slots[] = "slots=";
    size_t rest = nbytes - length, n = sizeof slots - 1;
    int value = rest > n && memcmp(line + length, slots, n) == 0
                    ? number_of(line + length + n, rest - n, LS__SLOTS_MAX)
                    : -1;
    if (value < 1)
        return ls_fail(LS_ERR_CONFIG,
                       "%s: \"%.*s\": behind a host may stand slots=N, N from 1 to %d, and nothing "
                       "else",
                       what, (int)(rest < 64 ? rest : 64), line + length, LS__SLOTS_MAX);
    out->hosts[out->count - 1].slots = value;
    return LS_OK;
}

ls_status ls__hostfile_parse(const char *what, const char *text, size_t nbytes, ls__hosts *out)
{
    *out = (ls__hosts) { 0 };
    ls_status status = LS_OK;
    if (nbytes > LS__HOSTFILE_MAX)
        return ls_fail(LS_ERR_CONFIG, "%s: larger than %d bytes", what, LS__HOSTFILE_MAX);
    while (nbytes > 0 && status == LS_OK) {
        const char *newline = memchr(text, '\n', nbytes);
        size_t length = newline ? (size_t)(newline - text) : nbytes;
        status = add_line(what, text, length, out);
        length += newline != NULL;
        text += length;
        nbytes -= length;
    }
    if (status == LS_OK && out->count == 0)
        status = ls_fail(LS_ERR_CONFIG, "%s: there is no host in it", what);
    if (status != LS_OK) ls__hosts_free(out);
    return status;
}

/* --- SLURM's lists --- */

static ls_status bad_list(const char *text, const char *why)
{
    return ls_fail(LS_ERR_CONFIG, "node list \"%.80s\": %s", text, why);
}

/* prefix + number of width digits + suffix */
static ls_status add_numbered(const char *prefix, size_t nprefix, int number, size_t width,
                              const char *suffix, size_t nsuffix, ls__hosts *out)
{
    char name[LS__NODE_NAME_MAX + 1];
    if (nprefix + nsuffix + WIDTH_MAX > LS__NODE_NAME_MAX)
        return ls_fail(LS_ERR_CONFIG, "node list: a name is too long");
    int n = snprintf(name, sizeof name, "%.*s%0*d%.*s", (int)nprefix, prefix, (int)width, number,
                     (int)nsuffix, suffix);
    return add("node list", name, (size_t)n, 0, out);
}

/* What stands in brackets: "001-003,7". */
static ls_status add_ranges(const char *text, const char *ranges, size_t nranges,
                            const char *prefix, size_t nprefix, const char *suffix, size_t nsuffix,
                            ls__hosts *out)
{
    for (size_t at = 0; at <= nranges;) {
        const char *comma = memchr(ranges + at, ',', nranges - at);
        size_t length = comma ? (size_t)(comma - ranges) - at : nranges - at;
        const char *dash = memchr(ranges + at, '-', length);
        size_t width = dash ? (size_t)(dash - ranges) - at : length;
        int low = width < WIDTH_MAX ? number_of(ranges + at, width, 999999999) : -1;
        int high = dash ? number_of(dash + 1, length - width - 1, 999999999) : low;
        if (low < 0 || high < low) return bad_list(text, "a range in brackets is no range");
        if (high - low >= LS__NODES_MAX) return bad_list(text, "too many nodes");
        for (int i = low; i <= high; i++)
            LS_TRY(add_numbered(prefix, nprefix, i, width, suffix, nsuffix, out));
        at += length + 1;
    }
    return LS_OK;
}

/* One name, which may have one pair of brackets; SLURM has more than one only for grids of nodes. */
static ls_status add_pattern(const char *text, const char *item, size_t nbytes, ls__hosts *out)
{
    const char *open = memchr(item, '[', nbytes), *close = memchr(item, ']', nbytes);
    if (!open && !close) return add("node list", item, nbytes, 0, out);
    if (!open || !close || close < open) return bad_list(text, "brackets do not match");
    size_t suffix = nbytes - (size_t)(close + 1 - item);
    if (memchr(close + 1, '[', suffix) || memchr(close + 1, ']', suffix))
        return bad_list(text, "two pairs of brackets in a name are not understood");
    return add_ranges(text, open + 1, (size_t)(close - open) - 1, item, (size_t)(open - item),
                      close + 1, suffix, out);
}

ls_status ls__nodelist_parse(const char *text, ls__hosts *out)
{
    *out = (ls__hosts) { 0 };
    ls_status status = LS_OK;
    const char *item = text;
    bool inside = false;
    for (const char *at = text; status == LS_OK; at++) {
        inside = *at == '[' ? true : *at == ']' ? false : inside;
        if (*at != '\0' && (*at != ',' || inside)) continue;
        status = add_pattern(text, item, (size_t)(at - item), out);
        item = at + 1;
        if (*at == '\0') break;
    }
    if (status != LS_OK) ls__hosts_free(out);
    return status;
}

int ls__tasks_of(const char *text, int i)
{
    while (text && *text) {
        size_t digits = strspn(text, "0123456789");
        int tasks = number_of(text, digits, 1 << 20), repeat = 1;
        if (tasks < 0) return 0;
        text += digits;
        if (strncmp(text, "(x", 2) == 0) {
            digits = strspn(text + 2, "0123456789");
            repeat = number_of(text + 2, digits, 1 << 20);
            if (repeat < 1 || text[2 + digits] != ')') return 0;
            text += digits + 3;
        }
        if (i < repeat) return tasks;
        i -= repeat;
        if (*text == ',')
            text++;
        else if (*text)
            return 0;
    }
    return 0;
}

/* --- the line that joins --- */

ls_status ls__join_parse(const char *text, char host[LS__NODE_NAME_MAX + 1], int *port,
                         char secret[260])
{
    const char *begin = text, *end, *slash = strchr(text, '/');
    if (text[0] == '[') {
        begin++;
        end = strchr(text, ']');
        if (!end || end[1] != ':') end = NULL;
    } else {
        end = slash ? memrchr(text, ':', (size_t)(slash - text)) : NULL;
    }
    const char *digits = end ? end + (*end == ']') + 1 : NULL;
    size_t n = end ? (size_t)(end - begin) : 0;
    *port =
        digits && slash && slash > digits ? number_of(digits, (size_t)(slash - digits), 65535) : -1;
    if (*port < 1 || !ls__host_is_good(begin, n) || !slash[1] || strlen(slash + 1) > 255)
        return ls_fail(LS_ERR_CONFIG,
                       "--join must be HOST:PORT/SECRET, as the first node has printed it");
    memcpy(host, begin, n);
    host[n] = '\0';
    snprintf(secret, 260, "%s", slash + 1);
    return LS_OK;
}
