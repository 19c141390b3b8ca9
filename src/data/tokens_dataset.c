/* Token files by name or pattern. Sorted by name in bytes, whatever the locale, so that every
 * machine counts the same windows. */
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/tokens.h"

static ls_status open_run(const char *path, ls__token_run *run)
{
    run->name = ls__strdup(path);
    if (!run->name) return LS_ERR_MEMORY;
    LS_TRY(ls__data_file_map(path, &run->file));
    return ls__tokens_parse(run->file.bytes, run->file.nbytes, path, &run->tokens);
}

/* Any file could be one of tokens without a header, so it is told what was made of it. */
static void tell_headerless(const ls__token_source *source)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < source->nruns; i++) {
        const ls__token_run *run = &source->runs[i];
        if (run->tokens.values == run->file.bytes) tokens += run->tokens.count;
    }
    if (tokens > 0)
        ls__log(LS__LOG_INFO, "%s: %lld tokens of 16 bits, without a header", source->name,
                (long long)tokens);
}

static ls_status open_runs(char *const *paths, size_t npaths, ls__token_source *source)
{
    source->runs = ls__alloc(npaths, sizeof *source->runs);
    if (!source->runs) return LS_ERR_MEMORY;
    for (size_t i = 0; i < npaths; i++) {
        source->nruns++;
        LS_TRY(open_run(paths[i], &source->runs[i]));
    }
    tell_headerless(source);
    return LS_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static ls_status find_files(const char *pattern, glob_t *found)
{
    int code = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, found);
    if (code == GLOB_NOSPACE) return ls_fail(LS_ERR_MEMORY, "%s: out of memory", pattern);
    if (code == GLOB_ABORTED)
        return ls__fail_errno(LS_ERR_DATA, "%s: a folder cannot be read", pattern);
    if (code == GLOB_NOMATCH)
        return ls_fail(LS_ERR_DATA, "%s: no file has this name or matches this pattern", pattern);
    qsort(found->gl_pathv, found->gl_pathc, sizeof *found->gl_pathv, by_name);
    return LS_OK;
}

ls_status ls_dataset_tokens_with(const char *pattern, int64_t context,
                                 const ls_token_options *options, ls_dataset **out)
{
    *out = NULL;
    if (!pattern) return ls_fail(LS_ERR_ARG, "a dataset of tokens needs a file or a pattern");
    ls__token_source source = { .context = context,
                                .vocabulary = options ? options->vocabulary : 0,
                                .name = pattern };
    glob_t found = { 0 };
    ls_status status;
    if (access(pattern, F_OK) == 0) /* a name is itself, even with brackets in it */
        status = open_runs((char *[]) { (char *)pattern }, 1, &source);
    else if ((status = find_files(pattern, &found)) == LS_OK)
        status = open_runs(found.gl_pathv, found.gl_pathc, &source);
    globfree(&found);
    if (status == LS_OK) return ls__token_windows(&source, out);
    ls__token_source_close(&source);
    return status;
}

ls_status ls_dataset_tokens(const char *pattern, int64_t context, ls_dataset **out)
{
    return ls_dataset_tokens_with(pattern, context, NULL, out);
}
