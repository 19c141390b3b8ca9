/* Where everything lies in the files of a checkpoint, and which bytes are this rank's. Worked out
 * once per run, so that a save is a loop of copies into a buffer and a loop of writes from it. The
 * buffer keeps the order of the files: ranges that are neighbours there are written in one piece.
 * Workload: thousands of ranges, tens of bytes to megabytes each. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"

int64_t ls__saved_tensor_count(const ls__saved_tensor *tensor)
{
    int64_t count = 1;
    for (int d = 0; d < tensor->rank; d++) count *= tensor->shape[d];
    return count;
}

/* --- tensors of the optimizer's file --- */

ls_status ls__layout_states(const ls__saved_tensor *tensors, int ntensors,
                            const char *const *states, int nstates, ls__saved_tensor **out, int *n)
{
    *n = 0;
    *out = ls__alloc((size_t)ntensors * (size_t)nstates + 1, sizeof **out);
    if (!*out) return LS_ERR_MEMORY;
    for (int s = 0; s < nstates; s++) {
        for (int t = 0; t < ntensors; t++) {
            if (!tensors[t].has_state) continue;
            char *name = ls__format("%s.%s", states[s], tensors[t].name);
            if (!name) return LS_ERR_MEMORY;
            (*out)[*n] = tensors[t];
            (*out)[(*n)++].name = name;
        }
    }
    return LS_OK;
}

void ls__layout_states_free(ls__saved_tensor *tensors, int n)
{
    for (int i = 0; tensors && i < n; i++) ls__free((char *)tensors[i].name);
    ls__free(tensors);
}

/* --- files --- */

static ls_status layout_file(ls__layout *layout, const char *name, const ls__saved_tensor *tensors,
                             int n, int64_t *begins)
{
    ls__layout_file *file = &layout->files[layout->nfiles];
    LS_TRY(ls__safetensors_header(tensors, n, 4096, &file->header, &file->header_bytes, begins));
    layout->nfiles++;
    file->name = name;
    file->nbytes = (int64_t)file->header_bytes;
    for (int i = 0; i < n; i++) file->nbytes += 4 * ls__saved_tensor_count(&tensors[i]);
    return LS_OK;
}

/* --- copies --- */

static void add_copy(ls__layout *layout, int file, int64_t begin, const ls__saved_tensor *tensor,
                     const ls__saved_range *range, int state, int64_t source)
{
    layout->copies[layout->ncopies++] = (ls__layout_copy) {
        .file = file,
        .offset = begin + 4 * (range->offset - tensor->offset),
        .state = state,
        .source = source,
        .count = range->count,
    };
}

static void copies_of_params(const ls__checkpointer_options *o, const int64_t *begins,
                             ls__layout *layout)
{
    for (int r = 0; r < o->nranges; r++) {
        const ls__saved_range *range = &o->ranges[r];
        add_copy(layout, 0, begins[range->tensor], &o->tensors[range->tensor], range, -1,
                 range->offset);
    }
}

/* begins: of the tensors that have states, state by state; index[t]: which of them tensor t is. */
static void copies_of_states(const ls__checkpointer_options *o, const int64_t *begins,
                             const int *index, int with_state, ls__layout *layout)
{
    int64_t local = 0; /* ranges lie one after the other in a state's array */
    for (int r = 0; r < o->nranges; r++) {
        const ls__saved_range *range = &o->ranges[r];
        const ls__saved_tensor *tensor = &o->tensors[range->tensor];
        for (int s = 0; tensor->has_state && s < o->nstates; s++)
            add_copy(layout, 1, begins[s * with_state + index[range->tensor]], tensor, range, s,
                     local);
        local += range->count;
    }
}

static int by_place(const void *left, const void *right)
{
    const ls__layout_copy *a = left, *b = right;
    if (a->file != b->file) return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void place_in_buffer(ls__layout *layout)
{
    if (layout->ncopies > 0)
        qsort(layout->copies, (size_t)layout->ncopies, sizeof *layout->copies, by_place);
    size_t at = 0;
    for (int i = 0; i < layout->ncopies; i++) {
        layout->copies[i].at = at;
        at += 4 * (size_t)layout->copies[i].count;
    }
    layout->buffer_bytes = at;
}

/* --- pieces --- */

/* Appends nbytes at offset, joined to the piece before where they touch; counts only when pieces is
 * NULL. */
static int add_bytes(ls__piece *pieces, int n, ls__piece *last, int64_t file, int64_t offset,
                     int64_t nbytes)
{
    while (nbytes > 0) {
        bool touches = n > 0 && last->file == file && last->offset + last->nbytes == offset &&
                       last->nbytes < LS__PIECE_MAX;
        int64_t room = LS__PIECE_MAX - (touches ? last->nbytes : 0);
        int64_t part = nbytes < room ? nbytes : room;
        if (touches) {
            last->nbytes += part;
        } else {
            *last = (ls__piece) { .file = file, .offset = offset, .nbytes = part };
            n++;
        }
        if (pieces) pieces[n - 1] = *last;
        offset += part;
        nbytes -= part;
    }
    return n;
}

static int cut(const ls__layout *layout, ls__piece *pieces)
{
    ls__piece last = { 0 };
    int n = 0;
    for (int i = 0; i < layout->ncopies; i++)
        n = add_bytes(pieces, n, &last, layout->copies[i].file, layout->copies[i].offset,
                      4 * layout->copies[i].count);
    return n;
}

/* --- all of it --- */

static int by_name(const void *left, const void *right)
{
    const char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

static ls_status check_names(const ls__saved_tensor *tensors, int n)
{
    const char **names = ls__alloc((size_t)n + 1, sizeof *names);
    if (!names) return LS_ERR_MEMORY;
    for (int t = 0; t < n; t++) names[t] = tensors[t].name;
    qsort(names, (size_t)n, sizeof *names, by_name);
    const char *twice = NULL;
    for (int t = 1; t < n && !twice; t++)
        if (strcmp(names[t], names[t - 1]) == 0) twice = names[t];
    ls__free(names);
    return twice ? ls_fail(LS_ERR_ARG, "checkpoint: two tensors are named \"%s\"", twice) : LS_OK;
}

static void assert_ranges(const ls__checkpointer_options *o)
{
    for (int r = 0; r < o->nranges; r++) {
        const ls__saved_range *range = &o->ranges[r];
        LS_ASSERT(range->tensor >= 0 && range->tensor < o->ntensors);
        const ls__saved_tensor *tensor = &o->tensors[range->tensor];
        LS_ASSERT(range->offset >= tensor->offset && range->count >= 0 &&
                  range->offset + range->count <= tensor->offset + ls__saved_tensor_count(tensor));
    }
}

static ls_status layout_params(const ls__checkpointer_options *o, ls__layout *layout)
{
    int64_t *begins = ls__alloc((size_t)o->ntensors + 1, sizeof *begins);
    if (!begins) return LS_ERR_MEMORY;
    ls_status status = layout_file(layout, LS__MODEL_FILE, o->tensors, o->ntensors, begins);
    if (status == LS_OK) copies_of_params(o, begins, layout);
    ls__free(begins);
    return status;
}

static ls_status layout_states(const ls__checkpointer_options *o, ls__layout *layout)
{
    ls_status status;
    int n = 0, with_state = 0;
    ls__saved_tensor *tensors = NULL;
    int64_t *begins = NULL;
    int *index = ls__alloc((size_t)o->ntensors + 1, sizeof *index);
    if (!index) return LS_ERR_MEMORY;
    for (int t = 0; t < o->ntensors; t++) index[t] = o->tensors[t].has_state ? with_state++ : -1;
    LS_TRY_GOTO(ls__layout_states(o->tensors, o->ntensors, o->states, o->nstates, &tensors, &n),
                status, done);
    begins = ls__alloc((size_t)n + 1, sizeof *begins);
    if (!begins) {
        status = LS_ERR_MEMORY;
        goto done;
    }
    LS_TRY_GOTO(layout_file(layout, LS__OPTIMIZER_FILE, tensors, n, begins), status, done);
    copies_of_states(o, begins, index, with_state, layout);
done:
    ls__layout_states_free(tensors, n);
    ls__free(begins);
    ls__free(index);
    return status;
}

static ls_status build(const ls__checkpointer_options *o, ls__layout *out)
{
    size_t most = (size_t)o->nranges * (size_t)(1 + o->nstates);
    out->copies = ls__alloc(most + 1, sizeof *out->copies);
    if (!out->copies) return LS_ERR_MEMORY;
    LS_TRY(layout_params(o, out));
    if (o->nstates > 0) LS_TRY(layout_states(o, out));
    place_in_buffer(out);
    out->npieces = cut(out, NULL);
    out->pieces = ls__alloc((size_t)out->npieces + 1, sizeof *out->pieces);
    if (!out->pieces) return LS_ERR_MEMORY;
    cut(out, out->pieces);
    return LS_OK;
}

ls_status ls__layout_create(const ls__checkpointer_options *options, ls__layout *out)
{
    *out = (ls__layout) { 0 };
    LS_TRY(check_names(options->tensors, options->ntensors));
    assert_ranges(options);
    ls_status status = build(options, out);
    if (status != LS_OK) ls__layout_free(out);
    return status;
}

void ls__layout_free(ls__layout *layout)
{
    for (int i = 0; i < layout->nfiles; i++) ls__free(layout->files[i].header);
    ls__free(layout->copies);
    ls__free(layout->pieces);
    *layout = (ls__layout) { 0 };
}
