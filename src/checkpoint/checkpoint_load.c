/* Loads a rank's ranges from whole tensors: the number of devices that saved does not appear in the
 * files, so it cannot matter. Every rank reads its own bytes and nothing else, straight to where
 * they belong. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

enum { NAMES_LISTED = 8 };

/* --- names and shapes --- */

static void shape_text(int rank, const int64_t *shape, char out[160])
{
    size_t used = (size_t)snprintf(out, 160, "(");
    for (int d = 0; d < rank; d++)
        used += (size_t)snprintf(out + used, 160 - used, d ? ",%" PRId64 : "%" PRId64, shape[d]);
    snprintf(out + used, 160 - used, ")");
}

static ls_status missing(const char *path, const ls__safetensors *file, const char *name)
{
    char list[512] = "";
    size_t used = 0;
    for (int i = 0; i < file->count && i < NAMES_LISTED && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%.60s", i ? ", " : "",
                                 file->tensors[i].name);
    return ls_fail(LS_ERR_DATA, "%s: no tensor \"%s\"; it has %d: %s%s", path, name, file->count,
                   list, file->count > NAMES_LISTED ? ", ..." : "");
}

static ls_status check_tensor(const char *path, const ls__saved_tensor *wanted,
                              const ls__safetensor *found)
{
    if (strcmp(found->dtype, "F32") != 0)
        return ls_fail(LS_ERR_DATA, "%s: tensor \"%s\" is %s; only F32 is loaded", path,
                       wanted->name, found->dtype);
    bool same = found->rank == wanted->rank;
    for (int d = 0; same && d < wanted->rank; d++) same = found->shape[d] == wanted->shape[d];
    if (same) return LS_OK;
    char there[160], here[160];
    shape_text(found->rank, found->shape, there);
    shape_text(wanted->rank, wanted->shape, here);
    return ls_fail(LS_ERR_DATA, "%s: tensor \"%s\" has shape %s, the model's is %s", path,
                   wanted->name, there, here);
}

/* Where each wanted tensor begins in the file. Ours are in the same order, so that the next one is
 * looked at before a search. */
static ls_status locate(const char *path, const ls__safetensors *file,
                        const ls__saved_tensor *tensors, int n, int64_t *begins)
{
    int next = 0;
    for (int t = 0; t < n; t++) {
        const ls__safetensor *found = NULL;
        if (next < file->count && strcmp(file->tensors[next].name, tensors[t].name) == 0)
            found = &file->tensors[next];
        else
            found = ls__safetensors_find(file, tensors[t].name);
        if (!found) return missing(path, file, tensors[t].name);
        LS_TRY(check_tensor(path, &tensors[t], found));
        begins[t] = found->begin;
        next = (int)(found - file->tensors) + 1;
    }
    return LS_OK;
}

/* left: how many tensors of the file are none of these. */
static ls_status open_and_locate(const char *path, const ls__saved_tensor *tensors, int n,
                                 int64_t *begins, int *fd, int *left)
{
    ls__safetensors file;
    LS_TRY(ls__safetensors_open(path, &file));
    ls_status status = locate(path, &file, tensors, n, begins);
    *left = file.count - n;
    ls__safetensors_free(&file);
    if (status != LS_OK) return status;
    do *fd = open(path, O_RDONLY | O_CLOEXEC);
    while (*fd < 0 && errno == EINTR);
    return *fd >= 0 ? LS_OK : ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
}

/* --- data --- */

static ls_status read_range(int fd, const char *path, float *out, int64_t count, int64_t offset)
{
    char *next = (char *)out;
    int64_t left = 4 * count;
    while (left > 0) {
        ssize_t n = pread(fd, next, (size_t)left, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot read", path);
        if (n == 0) return ls_fail(LS_ERR_DATA, "%s: truncated at byte %" PRId64, path, offset);
        next += n;
        left -= n;
        offset += n;
    }
    return LS_OK;
}

static ls_status load_params(const char *path, const ls__saved_tensor *tensors, int ntensors,
                             const ls__saved_range *ranges, int nranges, float *params)
{
    int fd = -1, left;
    int64_t *begins = ls__alloc((size_t)ntensors + 1, sizeof *begins);
    if (!begins) return LS_ERR_MEMORY;
    ls_status status = open_and_locate(path, tensors, ntensors, begins, &fd, &left);
    if (status == LS_OK && left > 0)
        ls__log(LS__LOG_INFO, "%s: %d of its tensors are not in the model and are left", path,
                left);
    for (int r = 0; status == LS_OK && r < nranges; r++) {
        int64_t inside = ranges[r].offset - tensors[ranges[r].tensor].offset;
        status = read_range(fd, path, params + ranges[r].offset, ranges[r].count,
                            begins[ranges[r].tensor] + 4 * inside);
    }
    if (fd >= 0) close(fd);
    ls__free(begins);
    return status;
}

/* begins: of the tensors that have states, state by state; index[t]: which of them tensor t is. */
static ls_status read_states(int fd, const char *path, const ls__saved_tensor *tensors,
                             const ls__saved_range *ranges, int nranges, const int64_t *begins,
                             const int *index, float *state)
{
    int64_t local = 0; /* ranges without state have their place too */
    for (int r = 0; r < nranges; r++) {
        int t = ranges[r].tensor;
        if (tensors[t].has_state)
            LS_TRY(read_range(fd, path, state + local, ranges[r].count,
                              begins[index[t]] + 4 * (ranges[r].offset - tensors[t].offset)));
        local += ranges[r].count;
    }
    return LS_OK;
}

/* All of states are wanted. */
static ls_status load_states(const char *path, const ls__saved_tensor *tensors, int ntensors,
                             const ls__saved_range *ranges, int nranges, const char *const *names,
                             int nstates, float *const *states)
{
    int fd = -1, left, n = 0, with_state = 0;
    int64_t *begins = NULL;
    ls__saved_tensor *named = NULL;
    ls_status status;
    int *index = ls__alloc((size_t)ntensors + 1, sizeof *index);
    if (!index) return LS_ERR_MEMORY;
    for (int t = 0; t < ntensors; t++) index[t] = tensors[t].has_state ? with_state++ : -1;
    LS_TRY_GOTO(ls__layout_states(tensors, ntensors, names, nstates, &named, &n), status, done);
    begins = ls__alloc((size_t)n + 1, sizeof *begins);
    if (!begins) {
        status = LS_ERR_MEMORY;
        goto done;
    }
    LS_TRY_GOTO(open_and_locate(path, named, n, begins, &fd, &left), status, done);
    for (int s = 0; s < nstates; s++)
        LS_TRY_GOTO(read_states(fd, path, tensors, ranges, nranges, begins + s * with_state, index,
                                states[s]),
                    status, done);
done:
    if (fd >= 0) close(fd);
    ls__layout_states_free(named, n);
    ls__free(begins);
    ls__free(index);
    return status;
}

/* Those of the states that are wanted. */
static ls_status load_some_states(const char *folder, const ls__saved_tensor *tensors, int ntensors,
                                  const ls__saved_range *ranges, int nranges,
                                  const char *const *names, int nstates, float *const *states)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, LS__OPTIMIZER_FILE));
    const char **wanted = ls__alloc((size_t)nstates + 1, sizeof *wanted);
    float **into = ls__alloc((size_t)nstates + 1, sizeof *into);
    ls_status status = wanted && into ? LS_OK : LS_ERR_MEMORY;
    int n = 0;
    for (int s = 0; status == LS_OK && s < nstates; s++) {
        if (!states[s]) continue;
        wanted[n] = names[s];
        into[n++] = states[s];
    }
    if (status == LS_OK && n > 0)
        status = load_states(path, tensors, ntensors, ranges, nranges, wanted, n, into);
    ls__free(wanted);
    ls__free(into);
    return status;
}

ls_status ls__checkpoint_load(const char *path, const ls__saved_tensor *tensors, int ntensors,
                              const ls__saved_range *ranges, int nranges, float *params,
                              const char *const *state_names, int nstates, float *const *states)
{
    struct stat info;
    if (stat(path, &info) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    if (!S_ISDIR(info.st_mode)) {
        if (nstates > 0)
            return ls_fail(LS_ERR_ARG, "%s: a file of weights has no optimizer states", path);
        return load_params(path, tensors, ntensors, ranges, nranges, params);
    }
    char file[LS_PATH_MAX];
    LS_TRY(ls__path_join(file, path, LS__MODEL_FILE));
    LS_TRY(load_params(file, tensors, ntensors, ranges, nranges, params));
    return load_some_states(path, tensors, ntensors, ranges, nranges, state_names, nstates, states);
}
