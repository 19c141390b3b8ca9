/* Any JSON as a manifest: an error, or pieces that cover their files. The document's own checksum
 * would stop nearly every mutation, so it is put right for a second try. */
#include "fuzzing.h"

#define XXH_INLINE_ALL /* so that the entry needs no library but ours */
#include <xxhash.h>

#include "checkpoint/checkpoint_internal.h"

static void parse(json_t *document)
{
    ls__manifest m;
    if (ls__manifest_parse("fuzz", document, &m) != LS_OK) return;
    for (int f = 0; f < m.nfiles; f++) {
        int64_t at = 0;
        for (int i = 0; i < m.files[f].npieces; i++) {
            if (m.files[f].pieces[i].offset != at || m.files[f].pieces[i].nbytes <= 0) abort();
            at += m.files[f].pieces[i].nbytes;
        }
        if (m.files[f].pieces && at != m.files[f].nbytes) abort();
        if (strchr(m.files[f].name, '/')) abort();
    }
    ls__manifest_free(&m);
}

static void put_right(json_t *document)
{
    if (!json_is_object(document)) return;
    json_object_del(document, "xxh3");
    char *text = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) abort();
    json_object_set_new(document, "xxh3", ls__json_u64(XXH3_64bits(text, strlen(text))));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    json_t *document = json_loadb((const char *)data, nbytes, JSON_REJECT_DUPLICATES, NULL);
    if (!document) return 0;
    parse(document);
    put_right(document);
    parse(document);
    json_decref(document);
    return 0;
}
