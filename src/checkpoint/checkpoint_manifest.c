/* The manifest: what a complete checkpoint consists of, down to the checksum of each piece. It is
 * the last file written before the rename and the first one read; it sums itself too, so that a
 * flipped bit in it is found like one in the data. Workload: one entry per range of an owner, up to
 * some 100,000 in the largest models. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

#define SCHEMA "lockstep.manifest/1"

/* --- sums --- */

static void put_u64(unsigned char out[8], uint64_t value)
{
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(value >> 8 * i);
}

uint64_t ls__pieces_sum(const ls__piece *pieces, int n)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) return 0; /* equals no sum but by chance: the file counts as damaged */
    XXH3_64bits_reset(state);
    for (int i = 0; i < n; i++) {
        unsigned char record[16];
        put_u64(record, pieces[i].xxh3);
        put_u64(record + 8, (uint64_t)pieces[i].nbytes);
        XXH3_64bits_update(state, record, sizeof record);
    }
    uint64_t sum = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return sum;
}

/* Of the document without its own sum. */
static ls_status document_sum(json_t *document, uint64_t *sum)
{
    char *text = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return ls_fail(LS_ERR_MEMORY, "out of memory: could not sum a manifest");
    *sum = XXH3_64bits(text, strlen(text));
    free(text);
    return LS_OK;
}

/* --- writing --- */

static json_t *pieces_json(const ls__piece *pieces, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        char text[64];
        snprintf(text, sizeof text, "%016" PRIx64 " %" PRId64, pieces[i].xxh3, pieces[i].nbytes);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

static json_t *file_json(const ls__manifest_file *file)
{
    json_t *entry = json_object();
    json_object_set_new(entry, "bytes", json_integer(file->nbytes));
    json_object_set_new(entry, "xxh3", ls__json_u64(file->xxh3));
    if (file->pieces)
        json_object_set_new(entry, "pieces", pieces_json(file->pieces, file->npieces));
    return entry;
}

static json_t *manifest_json(const ls__manifest *m)
{
    json_t *document = json_object();
    json_object_set_new(document, "schema", json_string(SCHEMA));
    json_object_set_new(document, "step", json_integer(m->step));
    if (m->monitor) json_object_set_new(document, "monitor", json_string(m->monitor));
    json_object_set_new(document, "metric", ls__json_double(m->metric));
    json_t *files = json_object();
    for (int i = 0; i < m->nfiles; i++)
        json_object_set_new(files, m->files[i].name, file_json(&m->files[i]));
    json_object_set_new(document, "files", files);
    return document;
}

ls_status ls__manifest_text(const ls__manifest *m, char **text)
{
    *text = NULL;
    json_t *document = manifest_json(m);
    uint64_t sum = 0;
    ls_status status = document_sum(document, &sum);
    if (status == LS_OK) {
        json_object_set_new(document, "xxh3", ls__json_u64(sum));
        *text = json_dumps(document, JSON_INDENT(1));
        if (!*text) status = ls_fail(LS_ERR_MEMORY, "out of memory: could not write a manifest");
    }
    json_decref(document);
    return status;
}

/* --- reading --- */

static ls_status bad(const char *path, const char *what)
{
    return ls_fail(LS_ERR_DATA, "%s: damaged: %s", path, what);
}

/* "<16 hex> <bytes>" */
static bool parse_piece(const char *text, ls__piece *piece)
{
    if (!text || strlen(text) < 18 || text[16] != ' ' || text[17] < '1' || text[17] > '9')
        return false;
    char hex[17];
    snprintf(hex, sizeof hex, "%.16s", text);
    json_t *value = json_string(hex);
    bool ok = ls__json_parse_u64(value, &piece->xxh3);
    json_decref(value);
    char *end;
    long long nbytes = strtoll(text + 17, &end, 10);
    piece->nbytes = nbytes;
    return ok && *end == '\0' && nbytes <= LS__PIECE_MAX;
}

/* The pieces' offsets follow from their order. */
static ls_status read_pieces(const char *path, const json_t *list, ls__manifest_file *file)
{
    if (!json_is_array(list)) return bad(path, "pieces are not a list");
    file->npieces = (int)json_array_size(list);
    file->pieces = ls__alloc((size_t)file->npieces + 1, sizeof *file->pieces);
    if (!file->pieces) return LS_ERR_MEMORY;
    int64_t offset = 0;
    for (int i = 0; i < file->npieces; i++) {
        ls__piece *piece = &file->pieces[i];
        if (!parse_piece(json_string_value(json_array_get(list, (size_t)i)), piece))
            return bad(path, "a piece that is not \"<xxh3> <bytes>\"");
        piece->offset = offset;
        offset += piece->nbytes;
    }
    if (offset != file->nbytes) return bad(path, "pieces do not cover their file");
    if (ls__pieces_sum(file->pieces, file->npieces) != file->xxh3)
        return bad(path, "the checksum of a file's pieces is wrong");
    return LS_OK;
}

static ls_status read_file(const char *path, const char *name, const json_t *entry,
                           ls__manifest_file *file)
{
    if (!*name || strchr(name, '/') || name[0] == '.') return bad(path, "not a file's name");
    const json_t *bytes = json_object_get(entry, "bytes");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
        !ls__json_parse_u64(json_object_get(entry, "xxh3"), &file->xxh3))
        return bad(path, "a file without bytes or xxh3");
    file->nbytes = json_integer_value(bytes);
    file->name = ls__strdup(name);
    if (!file->name) return LS_ERR_MEMORY;
    const json_t *pieces = json_object_get(entry, "pieces");
    return pieces ? read_pieces(path, pieces, file) : LS_OK;
}

static ls_status read_files(const char *path, json_t *files, ls__manifest *out)
{
    if (!json_object_get(files, LS__MODEL_FILE) || !json_object_get(files, LS__TRAINER_FILE))
        return bad(path, "it does not name " LS__MODEL_FILE " and " LS__TRAINER_FILE);
    out->files = ls__alloc(json_object_size(files), sizeof *out->files);
    if (!out->files) return LS_ERR_MEMORY;
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry)
    {
        out->nfiles++; /* before: what a failure leaves is freed too */
        LS_TRY(read_file(path, name, entry, &out->files[out->nfiles - 1]));
    }
    return LS_OK;
}

static ls_status check_sum(const char *path, json_t *document)
{
    uint64_t said = 0, sum = 0;
    if (!ls__json_parse_u64(json_object_get(document, "xxh3"), &said))
        return bad(path, "no xxh3 of its own");
    json_object_del(document, "xxh3");
    LS_TRY(document_sum(document, &sum));
    return sum == said ? LS_OK : bad(path, "its own checksum is wrong");
}

static ls_status read_members(const char *path, json_t *document, ls__manifest *out)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    if (!schema || strncmp(schema, "lockstep.manifest/", 18) != 0)
        return bad(path, "not a manifest");
    if (strcmp(schema, SCHEMA) != 0)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: %s; this version reads " SCHEMA, path, schema);
    LS_TRY(check_sum(path, document));
    const json_t *step = json_object_get(document, "step");
    const json_t *metric = json_object_get(document, "metric");
    const char *monitor = json_string_value(json_object_get(document, "monitor"));
    if (!json_is_integer(step)) return bad(path, "no step");
    out->step = json_integer_value(step);
    out->metric = json_is_number(metric) ? json_number_value(metric) : NAN;
    if (monitor && !(out->monitor = ls__strdup(monitor))) return LS_ERR_MEMORY;
    return read_files(path, json_object_get(document, "files"), out);
}

ls_status ls__manifest_parse(const char *path, json_t *document, ls__manifest *out)
{
    *out = (ls__manifest) { .metric = NAN };
    ls_status status = read_members(path, document, out);
    if (status != LS_OK) ls__manifest_free(out);
    return status;
}

ls_status ls__manifest_read(const char *folder, ls__manifest *out)
{
    *out = (ls__manifest) { .metric = NAN };
    char path[LS_PATH_MAX];
    json_t *document;
    LS_TRY(ls__path_join(path, folder, LS__MANIFEST_FILE));
    if (!ls__path_exists(path)) return bad(path, "it is missing");
    LS_TRY(ls__json_read(path, LS__MANIFEST_MAX, &document));
    ls_status status = ls__manifest_parse(path, document, out);
    json_decref(document);
    return status;
}

void ls__manifest_free(ls__manifest *m)
{
    for (int i = 0; i < m->nfiles; i++) {
        ls__free(m->files[i].name);
        ls__free(m->files[i].pieces);
    }
    ls__free(m->files);
    ls__free(m->monitor);
    *m = (ls__manifest) { .metric = NAN };
}
