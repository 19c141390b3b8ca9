/* Any bytes as what a process manager hands out: an error, or an address that can be written again. */
#include "fuzzing.h"

#include "world/manager.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char *text = malloc(nbytes + 1), word[16], again[LS__WHERE_TEXT];
    if (!text) return 0;
    if (nbytes) memcpy(text, data, nbytes);
    text[nbytes] = '\0';
    ls__where where;
    if (ls__where_read(text, &where) == LS_OK) {
        if (where.port < 1 || where.port > 65535 || !where.addresses[0]) abort();
        if (strlen(where.secret) != LS__SECRET_TEXT - 1) abort();
        ls__where_write(&where, again);
        if (ls__where_read(again, &where) != LS_OK) abort();
    }
    if (ls__pmi_word(text, "rc", word, sizeof word) && strlen(word) >= sizeof word) abort();
    free(text);
    return 0;
}
