/* Reads golden files: safetensors, trusted, so anything odd just fails the test. */
#include "golden.h"

#include <jansson.h>

#include "base/file.h"
#include "base/memory.h"
#include "testing.h"

static ls_dtype type_of(const char *name)
{
    if (!strcmp(name, "F32")) return LS_DTYPE_F32;
    if (!strcmp(name, "I32")) return LS_DTYPE_I32;
    if (!strcmp(name, "I64")) return LS_DTYPE_I64;
    assert_string_equal(name, "U8");
    return LS_DTYPE_U8;
}

/* Copied: a batch's fields are aligned, what lies in a file is not. */
static void add_array(golden *g, const char *name, const json_t *entry, const char *data)
{
    assert_true(g->count < GOLDEN_ARRAYS && strlen(name) < sizeof g->arrays->name);
    golden_array *a = &g->arrays[g->count++];
    const json_t *shape = json_object_get(entry, "shape");
    strcpy(a->name, name);
    a->array = (ls_array) {
        .type = type_of(json_string_value(json_object_get(entry, "dtype"))),
        .rank = (int)json_array_size(shape),
    };
    for (int i = 0; i < a->array.rank; i++)
        a->array.shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
    size_t nbytes = (size_t)ls_array_count(&a->array) * ls_dtype_size(a->array.type);
    a->array.data = aligned_alloc(64, (nbytes + 63) / 64 * 64);
    data += json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    memcpy(a->array.data, data, nbytes);
}

void golden_load(golden *g, const char *path)
{
    size_t nbytes;
    uint64_t header;
    *g = (golden) { 0 };
    assert_ok(ls__file_read(path, 1 << 20, &g->file, &nbytes));
    memcpy(&header, g->file, sizeof header);
    assert_true(header + 8 <= nbytes);
    json_t *root = json_loadb(g->file + 8, header, 0, NULL), *entry;
    assert_non_null(root);
    const char *name;
    json_object_foreach(root, name, entry)
    {
        if (!strcmp(name, "__metadata__"))
            g->metadata = json_incref(entry);
        else
            add_array(g, name, entry, g->file + 8 + header);
    }
    json_decref(root);
    assert_non_null(g->metadata);
}

void golden_free(golden *g)
{
    for (int i = 0; i < g->count; i++) free(g->arrays[i].array.data);
    json_decref(g->metadata);
    ls__free(g->file);
}

const ls_array *golden_find(const golden *g, const char *kind, const char *name)
{
    char full[160];
    snprintf(full, sizeof full, "%s.%s", kind, name);
    for (int i = 0; i < g->count; i++)
        if (!strcmp(g->arrays[i].name, full)) return &g->arrays[i].array;
    return NULL;
}

const char *golden_text(const golden *g, const char *key)
{
    return json_string_value(json_object_get(g->metadata, key));
}

int64_t golden_int(const golden *g, const char *key)
{
    const char *text = golden_text(g, key);
    return text ? atoll(text) : 0;
}
