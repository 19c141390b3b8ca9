/* SLURM's compressed lists, as far as a rank needs them: the first host, and one number. */
#include "world/nodelist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static bool part_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

ls_status ls__nodelist_first(const char *list, char *out, size_t limit)
{
    size_t used = 0;
    const char *at = list;
    while (*at && *at != ',' && used + 1 < limit) {
        if (*at == '[') { /* its first number, which ends at - , or ] */
            size_t digits = strspn(at + 1, "0123456789");
            const char *close = strchr(at, ']');
            if (digits == 0 || digits >= limit - used || !close || !strchr("-,]", at[1 + digits]))
                break;
            memcpy(out + used, at + 1, digits);
            used += digits;
            at = close + 1;
        } else if (part_of_name(*at)) {
            out[used++] = *at++;
        } else {
            break;
        }
    }
    bool good = used > 0 && (*at == '\0' || *at == ',');
    out[good ? used : 0] = '\0';
    if (good) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "\"%.100s\" is no list of hosts as SLURM writes them", list);
}

ls_status ls__tasks_of_node(const char *list, int node, int *tasks, int *nodes)
{
    long first = 0;
    bool found = false;
    const char *at = list;
    do {
        char *end;
        if (!isdigit((unsigned char)*at)) goto bad;
        long count = strtol(at, &end, 10), times = 1;
        at = end;
        if (strncmp(at, "(x", 2) == 0) {
            if (!isdigit((unsigned char)at[2])) goto bad;
            times = strtol(at + 2, &end, 10);
            if (*end != ')') goto bad;
            at = end + 1;
        }
        if (count < 1 || count > 1 << 20 || times < 1 || times > 1 << 20 || first > 1 << 20)
            goto bad;
        if (node >= first && node < first + times) {
            *tasks = (int)count;
            found = true;
        }
        first += times;
    } while (*at++ == ',');
    if (at[-1] != '\0') goto bad;
    *nodes = (int)first;
    if (found) return LS_OK;
    return ls_fail(LS_ERR_CONFIG, "SLURM_NODEID=%d is not one of the %ld nodes of \"%.100s\"", node,
                   first, list);
bad:
    return ls_fail(LS_ERR_CONFIG, "\"%.100s\" is no list of tasks per node as SLURM writes them",
                   list);
}
