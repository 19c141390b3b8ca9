/* Windows over tokens. A read copies one window and the token behind it out of a mapping, so that a
 * shard of any size costs no memory of its own.
 *
 * Windows are read in random order, and every page that one touches stays in the process's resident
 * memory, with its neighbours that the kernel maps along: a run over a shard of a gigabyte would
 * seem to need a gigabyte. So reads count what they touch, and now and then the mappings' pages are
 * handed back. They stay in the page cache, where the next read finds them. */
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "data/tokens.h"

enum {
    AROUND = 1 << 20,       /* bytes that the kernel maps around a fault: 64 KB, or a large folio */
    RESIDENT_MAX = 1 << 26, /* bytes of mappings that may be touched before they are handed back */
    LOOK = 1 << 22,         /* tokens of all files that are looked at before training */
};

typedef struct token_windows {
    ls__token_source source;
    int64_t length;
    size_t mapped; /* bytes of all mappings */
    atomic_size_t touched;
} token_windows;

static int64_t windows_of(const ls__token_run *run, int64_t context)
{
    return (run->tokens.count - 1) / context;
}

/* The run that holds window *index, which becomes the window's index in it. */
static const ls__token_run *find_run(const token_windows *w, int64_t *index)
{
    int64_t low = 0, high = w->source.nruns; /* the run is in [low, high) */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (w->source.runs[middle].windows <= *index)
            low = middle;
        else
            high = middle;
    }
    *index -= w->source.runs[low].windows;
    return &w->source.runs[low];
}

static void count_touched(token_windows *w, size_t nbytes)
{
    if (w->mapped <= RESIDENT_MAX) return;
    size_t before = atomic_fetch_add_explicit(&w->touched, nbytes + AROUND, memory_order_relaxed);
    if (before > RESIDENT_MAX || before + nbytes + AROUND <= RESIDENT_MAX) return;
    for (int64_t i = 0; i < w->source.nruns; i++) {
        const ls__data_file *file = &w->source.runs[i].file;
        ls__data_file_drop(file, 0, file->nbytes);
    }
    atomic_store_explicit(&w->touched, 0, memory_order_relaxed);
}

static ls_status check_tokens(const token_windows *w, const ls__token_run *run,
                              const int32_t *tokens, int64_t count, int64_t begin)
{
    uint32_t limit = w->source.vocabulary ? (uint32_t)w->source.vocabulary : (uint32_t)INT32_MAX;
    bool bad = false;
    for (int64_t i = 0; i < count; i++) bad |= (uint32_t)tokens[i] >= limit;
    if (!bad) return LS_OK;
    int64_t i = 0;
    while ((uint32_t)tokens[i] < limit) i++;
    bool headerless = run->tokens.values == run->file.bytes;
    return ls_fail(LS_ERR_DATA,
                   "%s: token %lld holds %u, but the vocabulary has %u: the file was made with "
                   "another tokenizer, or is damaged%s",
                   run->name, (long long)(begin + i), (uint32_t)tokens[i], limit,
                   headerless ? ", or is not one of 16-bit tokens without a header" : "");
}

/* The beginning of each file: another tokenizer's tokens show there, not after hours of training. */
static ls_status look_at_tokens(token_windows *w)
{
    enum { PIECE = 4096 };
    int32_t tokens[PIECE];
    int64_t most = LOOK / w->source.nruns + 1;
    for (int64_t i = 0; i < w->source.nruns; i++) {
        const ls__token_run *run = &w->source.runs[i];
        const ls__stored *stored = run->tokens.stored;
        int64_t used = windows_of(run, w->source.context) * w->source.context + 1;
        int64_t count = used == 1 ? 0 : used < most ? used : most;
        if (!run->file.is_file || (!w->source.vocabulary && stored->size < 4)) continue;
        for (int64_t begin = 0; begin < count; begin += PIECE) {
            int64_t n = count - begin < PIECE ? count - begin : PIECE;
            stored->convert(tokens, run->tokens.values + begin * stored->size, n);
            LS_TRY(check_tokens(w, run, tokens, n, begin));
        }
        count_touched(w, (size_t)(count * stored->size));
    }
    return LS_OK;
}

static int64_t windows_length(void *self)
{
    return ((const token_windows *)self)->length;
}

static ls_status windows_read(void *self, int64_t index, ls_rng *rng, void *const *out)
{
    (void)rng;
    token_windows *w = self;
    const ls__token_run *run = find_run(w, &index);
    const ls__stored *stored = run->tokens.stored;
    int64_t context = w->source.context, begin = index * context;
    const uint8_t *from = run->tokens.values + begin * stored->size;
    int32_t *tokens = out[0], *targets = out[1];
    stored->convert(tokens, from, context);
    stored->convert(targets + context - 1, from + context * stored->size, 1);
    if (w->source.table) {
        for (int64_t i = 0; i < context; i++) tokens[i] = w->source.table[tokens[i]];
        targets[context - 1] = w->source.table[targets[context - 1]];
    }
    memcpy(targets, tokens + 1, (size_t)(context - 1) * sizeof *targets);
    if (run->file.is_file) count_touched(w, (size_t)(context * stored->size));
    if (!w->source.vocabulary && stored->size < 4) return LS_OK;
    LS_TRY(check_tokens(w, run, tokens, context, begin));
    return check_tokens(w, run, targets + context - 1, 1, begin + context);
}

/* Samples in memory are asked for from there, others from the disk. */
static void windows_prefetch(const void *self, int64_t index)
{
    enum { LINE = 64, LINES_MAX = 64 };
    const token_windows *w = self;
    const ls__token_run *run = find_run(w, &index);
    int64_t nbytes = w->source.context * run->tokens.stored->size;
    const uint8_t *from = run->tokens.values + index * nbytes;
    if (run->file.is_file && !run->file.in_memory) {
        size_t begin = (size_t)(from - run->file.bytes);
        ls__data_file_fetch(&run->file, begin, begin + (size_t)nbytes + 4);
        return;
    }
    for (int64_t i = 0; i < nbytes && i < LINE * LINES_MAX; i += LINE) __builtin_prefetch(from + i);
}

void ls__token_source_close(ls__token_source *source)
{
    for (int64_t i = 0; i < source->nruns; i++) {
        ls__data_file_close(&source->runs[i].file);
        ls__free(source->runs[i].name);
    }
    ls__free(source->runs);
    ls__free(source->table);
    *source = (ls__token_source) { 0 };
}

static void windows_destroy(void *self)
{
    token_windows *w = self;
    ls__token_source_close(&w->source);
    ls__free(w);
}

static const ls_dataset_ops windows_ops = {
    .length = windows_length,
    .read = windows_read,
    .destroy = windows_destroy,
};

/* A file without a window is left out with a warning, as long as another one has some. */
static ls_status count_windows(token_windows *w)
{
    const ls__token_source *s = &w->source;
    const ls__token_run *shorter = NULL;
    for (int64_t i = 0; i < s->nruns; i++) {
        ls__token_run *run = &s->runs[i];
        run->windows = w->length;
        w->length += windows_of(run, s->context);
        if (run->file.is_file) w->mapped += run->file.nbytes;
        if (windows_of(run, s->context) == 0) shorter = run;
    }
    if (!shorter) return LS_OK;
    if (w->length == 0)
        return ls_fail(LS_ERR_DATA,
                       "%s: %lld tokens, but a window of %lld and the token behind it need %lld: "
                       "give a smaller context or more data",
                       shorter->name, (long long)shorter->tokens.count, (long long)s->context,
                       (long long)s->context + 1);
    for (int64_t i = 0; i < s->nruns; i++)
        if (windows_of(&s->runs[i], s->context) == 0)
            ls__log(LS__LOG_WARN, "%s: only %lld tokens, less than one window: left out",
                    s->runs[i].name, (long long)s->runs[i].tokens.count);
    return LS_OK;
}

ls_status ls__token_windows(ls__token_source *source, ls_dataset **out)
{
    *out = NULL;
    ls_status status = LS_OK;
    token_windows *w = NULL;
    if (source->context < 1 || source->context > INT32_MAX)
        status = ls_fail(LS_ERR_ARG, "%s: a context of %lld tokens: give 1 or more", source->name,
                         (long long)source->context);
    else if (source->vocabulary < 0 || source->vocabulary > INT32_MAX)
        status = ls_fail(LS_ERR_ARG, "%s: a vocabulary of %lld tokens", source->name,
                         (long long)source->vocabulary);
    else if (!(w = ls__alloc(1, sizeof *w)))
        status = LS_ERR_MEMORY;
    if (status != LS_OK) {
        ls__token_source_close(source);
        return status;
    }
    w->source = *source;
    *source = (ls__token_source) { 0 };
    const ls_field fields[] = { { "tokens", LS_DTYPE_I32, 1, { w->source.context } },
                                { "targets", LS_DTYPE_I32, 1, { w->source.context } } };
    LS_TRY_GOTO(count_windows(w), status, failed);
    bool whole = w->mapped <= LS__DATA_WHOLE_MAX;
    for (int64_t i = 0; i < w->source.nruns; i++)
        ls__data_file_want(&w->source.runs[i].file, whole);
    LS_TRY_GOTO(look_at_tokens(w), status, failed);
    LS_TRY_GOTO(ls__dataset_create(&windows_ops, w, fields, 2, w->source.name, out), status,
                failed);
    w->source.name = NULL; /* the dataset has a copy */
    (*out)->prefetch = windows_prefetch;
    (*out)->in_memory = whole;
    return LS_OK;
failed:
    windows_destroy(w);
    return status;
}
