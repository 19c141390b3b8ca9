/* The files that another program's weights lie in: one, or several behind an index, as large models
 * are published. Each is checked as strictly as our own before a byte of it is used; values are
 * widened to f32 as they are read. Workload: a few hundred tensors, once, before training. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "trainer/weights_internal.h"

enum { INDEX_MAX = 64 << 20, FILES_MAX = 4096, PIECE = 1 << 20 /* bytes */ };

/* --- which files --- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static ls_status add_file(ls__weight_files *files, const char *path)
{
    ls__weight_file *grown =
        ls__realloc(files->files, (size_t)files->count + 1, sizeof *files->files);
    if (!grown) return LS_ERR_MEMORY;
    files->files = grown;
    ls__weight_file *file = &grown[files->count];
    memset(file, 0, sizeof *file);
    snprintf(file->path, sizeof file->path, "%s", path);
    LS_TRY(ls__safetensors_open(path, &file->header));
    files->count++;
    return LS_OK;
}

static ls_status add_indexed(ls__weight_files *files, const char *index, const char *name)
{
    char path[LS_PATH_MAX], folder[LS_PATH_MAX];
    const char *slash = strrchr(index, '/');
    if (!name || !name[0] || strchr(name, '/'))
        return ls_fail(LS_ERR_DATA,
                       "%s: weight_map: \"%.100s\" is not the name of a file beside it", index,
                       name ? name : "");
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - index) : 1, slash ? index : ".");
    LS_TRY(ls__path_join(path, folder, name));
    for (int i = 0; i < files->count; i++)
        if (strcmp(files->files[i].path, path) == 0) return LS_OK;
    if (files->count == FILES_MAX)
        return ls_fail(LS_ERR_DATA, "%s: more than %d files", index, FILES_MAX);
    return add_file(files, path);
}

/* {"weight_map": {"tensor": "file", ...}}; every tensor it names must be where it says. */
static ls_status open_index(const char *path, ls__weight_files *files)
{
    json_t *document = NULL;
    LS_TRY(ls__json_read(path, INDEX_MAX, &document));
    json_t *map = json_object_get(document, "weight_map"), *value;
    const char *tensor;
    ls_status status = LS_OK;
    if (!json_is_object(map) || json_object_size(map) == 0)
        status = ls_fail(LS_ERR_DATA, "%s: there is no weight_map in it", path);
    json_object_foreach(map, tensor, value)
    {
        if (status == LS_OK) status = add_indexed(files, path, json_string_value(value));
    }
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        for (int i = 0; status == LS_OK && i < files->count; i++)
            if (strcmp(strrchr(files->files[i].path, '/') + 1, name) == 0 &&
                !ls__safetensors_find(&files->files[i].header, tensor))
                status = ls_fail(LS_ERR_DATA, "%s: there is no \"%.100s\" in it, which %s promises",
                                 files->files[i].path, tensor, path);
    }
    json_decref(document);
    return status;
}

static ls_status open_folder(const char *folder, ls__weight_files *files)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, "model.safetensors"));
    if (ls__path_exists(path)) return add_file(files, path);
    LS_TRY(ls__path_join(path, folder, "model.safetensors.index.json"));
    if (ls__path_exists(path)) return open_index(path, files);
    LS_TRY(ls__path_join(path, folder, "pytorch_model.bin"));
    if (ls__path_exists(path))
        return ls_fail(LS_ERR_DATA,
                       "%s: a pickle, which is a program and not data; Python writes it as "
                       "safetensors: from safetensors.torch import save_file; "
                       "save_file(torch.load(...), \"model.safetensors\")",
                       path);
    return ls_fail(LS_ERR_DATA,
                   "%s: neither model.safetensors nor model.safetensors.index.json is in it",
                   folder);
}

ls_status ls__weight_files_open(const char *path, ls__weight_files *out)
{
    struct stat info;
    *out = (ls__weight_files) { 0 };
    if (stat(path, &info) != 0) return ls__fail_errno(LS_ERR_DATA, "%s: cannot open", path);
    ls_status status = S_ISDIR(info.st_mode)                        ? open_folder(path, out)
                       : ends_with(path, ".safetensors.index.json") ? open_index(path, out)
                                                                    : add_file(out, path);
    if (status != LS_OK) ls__weight_files_free(out);
    return status;
}

void ls__weight_files_free(ls__weight_files *files)
{
    for (int i = 0; i < files->count; i++) ls__safetensors_free(&files->files[i].header);
    ls__free(files->files);
    *files = (ls__weight_files) { 0 };
}

/* --- values --- */

int64_t ls__weight_elements(int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++)
        if (shape[d] == 0) return 0; /* other dimensions may be of any size then */
    for (int d = 0; d < rank; d++) count *= shape[d];
    return count;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half >> 15) << 31, exponent = half >> 10 & 31, rest = half & 1023;
    if (exponent == 31) return of_bits(sign | 0x7f800000u | rest << 13);
    if (exponent > 0) return of_bits(sign | (exponent + 112) << 23 | rest << 13);
    float tiny = (float)rest * 0x1p-24f; /* exact: subnormal there, normal here */
    return sign ? -tiny : tiny;
}

typedef enum value_type { KIND_F32, KIND_F16, KIND_BF16, KIND_OTHER } value_type;

static value_type kind_of(const char *dtype)
{
    static const char *const names[] = { "F32", "F16", "BF16" };
    for (int i = 0; i < KIND_OTHER; i++)
        if (strcmp(dtype, names[i]) == 0) return (value_type)i;
    return KIND_OTHER;
}

static float value_at(value_type kind, const char *bytes, int64_t i)
{
    uint16_t half;
    float value;
    if (kind == KIND_F32) {
        memcpy(&value, bytes + 4 * i, sizeof value);
        return value;
    }
    memcpy(&half, bytes + 2 * i, sizeof half);
    return kind == KIND_F16 ? of_f16(half) : of_bits((uint32_t)half << 16);
}

static ls_status read_bytes(int fd, const char *path, char *to, int64_t nbytes, int64_t offset)
{
    while (nbytes > 0) {
        ssize_t n = pread(fd, to, (size_t)nbytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
        if (n == 0) return ls_fail(LS_ERR_DATA, "%s: it became shorter while it was read", path);
        to += n;
        nbytes -= n;
        offset += n;
    }
    return LS_OK;
}

/* (rows, cols) there, (cols, rows) here. */
static void place(value_type kind, const char *bytes, int64_t first, int64_t count, int64_t rows,
                  int64_t cols, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i, row = at / cols, col = at % cols;
        out[col * rows + row] = value_at(kind, bytes, i);
    }
}

static ls_status read_values(int fd, const ls__weight_file *file, const ls__safetensor *t,
                             bool transpose, char *piece, float *out)
{
    value_type kind = kind_of(t->dtype);
    int64_t size = kind == KIND_F32 ? 4 : 2, count = ls__weight_elements(t->rank, t->shape), n;
    for (int64_t first = 0; first < count; first += n) {
        n = count - first < PIECE / size ? count - first : PIECE / size;
        LS_TRY(read_bytes(fd, file->path, piece, n * size, t->begin + first * size));
        if (transpose)
            place(kind, piece, first, n, t->shape[0], t->shape[1], out);
        else
            for (int64_t i = 0; i < n; i++) out[first + i] = value_at(kind, piece, i);
    }
    return LS_OK;
}

ls_status ls__weight_read(const ls__weight_file *file, const ls__safetensor *tensor, bool transpose,
                          float *out)
{
    if (kind_of(tensor->dtype) == KIND_OTHER)
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: %s is of type %s; F32, F16 and BF16 can be loaded",
                       file->path, tensor->name, tensor->dtype);
    if (transpose && tensor->rank != 2)
        return ls_fail(LS_ERR_DATA, "%s: %s has %d dimensions; a matrix has 2", file->path,
                       tensor->name, tensor->rank);
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", file->path);
    char *piece = ls__alloc(PIECE, 1);
    ls_status status = piece ? read_values(fd, file, tensor, transpose, piece, out) : LS_ERR_MEMORY;
    ls__free(piece);
    close(fd);
    return status;
}
