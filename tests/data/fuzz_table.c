/* Any bytes as a CSV file, from which a schema is learnt and by which it is read again; and as a
 * schema's JSON. */
#include "fuzzing.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/table_internal.h"

static void as_records(const uint8_t *data, size_t nbytes)
{
    ls__csv csv;
    bool more;
    uint64_t sum = 0;
    ls__csv_open((const char *)data, nbytes, "fuzz", &csv);
    while (ls__csv_next(&csv, &more) == LS_OK && more)
        for (int i = 0; i < csv.nfields; i++)
            for (size_t k = 0; k < csv.fields[i].nbytes; k++) sum += (uint8_t)csv.fields[i].text[k];
    if (sum == UINT64_MAX) abort(); /* never: so that the bytes are read */
    ls__csv_close(&csv);
}

/* What was learnt from a table reads it. */
static void as_table(const uint8_t *data, size_t nbytes)
{
    static int fd = -1;
    char path[64];
    ls_table_schema *schema, *again;
    ls_dataset *d;
    if (fd < 0) fd = memfd_create("fuzz", 0);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, nbytes, 0) != (ssize_t)nbytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ls_table_options options = { .hash_above = 3, .classify = nbytes % 2 };
    if (ls_table_schema_learn(path, &options, &schema) != LS_OK) return;
    json_t *document = ls__table_schema_json(schema);
    if (!document || ls__table_schema_parse(document, "fuzz", &again) != LS_OK) abort();
    if (ls_dataset_table(path, again, &d) == LS_OK) {
        int nfields;
        float *out[3] = { 0 };
        const ls_field *fields = ls_dataset_fields(d, &nfields);
        for (int i = 0; i < nfields; i++)
            out[i] = malloc(4 * (fields[i].rank ? (size_t)fields[i].shape[0] : 1));
        for (int64_t i = 0; i < ls_dataset_length(d); i++)
            if (ls_dataset_read(d, i, NULL, (void *const *)out) != LS_OK) abort();
        for (int i = 0; i < nfields; i++) free(out[i]);
        ls_dataset_destroy(d);
    }
    json_decref(document);
    ls_table_schema_destroy(again);
    ls_table_schema_destroy(schema);
}

static void as_schema(const uint8_t *data, size_t nbytes)
{
    ls_table_schema *schema;
    json_t *document = json_loadb((const char *)data, nbytes, JSON_REJECT_DUPLICATES, NULL);
    if (document && ls__table_schema_parse(document, "fuzz", &schema) == LS_OK) {
        json_t *again = ls__table_schema_json(schema);
        if (!again) abort();
        json_decref(again);
        ls_table_schema_destroy(schema);
    }
    json_decref(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    as_records(data, nbytes);
    as_table(data, nbytes);
    as_schema(data, nbytes);
    return 0;
}
