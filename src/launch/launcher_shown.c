/* What of the ranks' output is on our own streams. Nothing of it is lost by not being shown: all is in
 * the logs. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "launch/launcher.h"

enum { NOT_SAID = 255 };

static ls_status read_entry(const char *flag, const char *entry, int size, unsigned char *streams)
{
    char rank_text[32];
    int rank, value;
    const char *colon = strchr(entry, ':');
    if (!colon) {
        LS_TRY(ls__launcher_number(flag, entry, 0, 3, &value));
        memset(streams, value, (size_t)size);
        return LS_OK;
    }
    snprintf(rank_text, sizeof rank_text, "%.*s", (int)(colon - entry), entry);
    LS_TRY(ls__launcher_number(flag, rank_text, 0, size - 1, &rank));
    LS_TRY(ls__launcher_number(flag, colon + 1, 0, 3, &value));
    streams[rank] = (unsigned char)value;
    return LS_OK;
}

/* "3", or "0:3,1:1"; ranks that are not named keep NOT_SAID. */
static ls_status read_streams(const char *flag, const char *text, int size, unsigned char *streams)
{
    memset(streams, NOT_SAID, (size_t)size);
    while (text && *text) {
        char entry[64];
        size_t length = strcspn(text, ",");
        snprintf(entry, sizeof entry, "%.*s", (int)(length < 63 ? length : 63), text);
        LS_TRY(read_entry(flag, entry, size, streams));
        text += length + (text[length] == ',');
    }
    return LS_OK;
}

static ls_status apply_filter(const char *text, int size, unsigned char *shown)
{
    unsigned char kept[LS__DEVICES_MAX] = { 0 };
    if (!text) return LS_OK;
    while (*text) {
        char entry[32];
        int rank;
        size_t length = strcspn(text, ",");
        snprintf(entry, sizeof entry, "%.*s", (int)(length < 31 ? length : 31), text);
        LS_TRY(ls__launcher_number("local-ranks-filter", entry, 0, size - 1, &rank));
        kept[rank] = 1;
        text += length + (text[length] == ',');
    }
    for (int r = 0; r < size; r++)
        if (!kept[r]) shown[r] = 0;
    return LS_OK;
}

ls_status ls__launcher_shown(const ls__launcher_flags *flags, int size, bool first,
                             unsigned char *shown)
{
    unsigned char tee[LS__DEVICES_MAX], redirects[LS__DEVICES_MAX];
    LS_TRY(read_streams("tee", flags->tee, size, tee));
    LS_TRY(read_streams("redirects", flags->redirects, size, redirects));
    for (int r = 0; r < size; r++) {
        int streams = first && r == 0 ? LS__SHOW_STDOUT | LS__SHOW_STDERR : LS__SHOW_STDERR;
        if (redirects[r] != NOT_SAID) streams &= ~redirects[r];
        if (tee[r] != NOT_SAID) streams |= tee[r];
        shown[r] = (unsigned char)streams;
    }
    return apply_filter(flags->local_ranks_filter, size, shown);
}
