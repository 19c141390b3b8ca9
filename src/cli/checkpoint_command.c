/* lockstep checkpoint show|verify RUN: what a checkpoint holds, and whether its bytes are those
 * that were written. Both work without a world: a checkpoint is looked at on any machine. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/checkpoint_internal.h"
#include "cli/cli.h"

#define SCHEMA "lockstep.checkpoint/1"

typedef struct shown {
    char path[LS_PATH_MAX];
    bool is_file; /* weights alone: no manifest, no trainer document */
    ls__manifest manifest;
    ls__safetensors tensors;
    json_t *trainer;
    ls__checkpoint_entry *siblings; /* the checkpoints of its run, itself among them */
    int nsiblings;
    double verify_seconds; /* 0 = it was only looked at */
} shown;

/* --- reading --- */

/* The one word that is not a flag. */
static ls_status run_of(int argc, char **argv, const char **run)
{
    if (argc == 2) {
        *run = argv[1];
        return LS_OK;
    }
    return ls_fail(LS_ERR_CONFIG,
                   argc < 2 ? "%s: which RUN? (a run's name, RUN@best, RUN@STEP, or a path)"
                            : "%s: one RUN, not several",
                   argv[0]);
}

static ls_status read_siblings(shown *s)
{
    char folder[LS_PATH_MAX];
    LS_TRY(ls__path_join(folder, s->path, ".."));
    return ls__checkpoint_list(folder, &s->siblings, &s->nsiblings);
}

static ls_status read_shown(shown *s)
{
    struct stat info;
    if (stat(s->path, &info) != 0) return ls__fail_errno(LS_ERR_IO, "%s: cannot open", s->path);
    s->is_file = !S_ISDIR(info.st_mode);
    if (s->is_file) return ls__safetensors_open(s->path, &s->tensors);
    char model[LS_PATH_MAX];
    LS_TRY(ls__manifest_read(s->path, &s->manifest));
    LS_TRY(ls__path_join(model, s->path, LS__MODEL_FILE));
    LS_TRY(ls__safetensors_open(model, &s->tensors));
    LS_TRY(ls__checkpoint_trainer(s->path, &s->trainer));
    return read_siblings(s);
}

static void release(shown *s)
{
    ls__manifest_free(&s->manifest);
    ls__safetensors_free(&s->tensors);
    json_decref(s->trainer);
    ls__checkpoint_list_free(s->siblings, s->nsiblings);
}

/* Itself in the list of its run; NULL = it lies alone. */
static const ls__checkpoint_entry *own_entry(const shown *s)
{
    for (int i = 0; i < s->nsiblings; i++)
        if (s->siblings[i].step == s->manifest.step) return &s->siblings[i];
    return NULL;
}

static int64_t elements_of(const ls__safetensor *t)
{
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    return count;
}

static int64_t all_elements(const shown *s)
{
    int64_t count = 0;
    for (int i = 0; i < s->tensors.count; i++) count += elements_of(&s->tensors.tensors[i]);
    return count;
}

/* --- JSON --- */

static json_t *files_json(const shown *s)
{
    json_t *files = json_array();
    for (int i = 0; i < s->manifest.nfiles; i++) {
        const ls__manifest_file *file = &s->manifest.files[i];
        json_array_append_new(files, json_pack("{s:s,s:I,s:o}", "name", file->name, "bytes",
                                               (json_int_t)file->nbytes, "xxh3",
                                               ls__json_u64(file->xxh3)));
    }
    return files;
}

static json_t *tensors_json(const shown *s)
{
    json_t *tensors = json_array();
    for (int i = 0; i < s->tensors.count; i++) {
        const ls__safetensor *t = &s->tensors.tensors[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->rank; d++) json_array_append_new(shape, json_integer(t->shape[d]));
        json_array_append_new(tensors, json_pack("{s:s,s:s,s:o}", "name", t->name, "dtype",
                                                 t->dtype, "shape", shape));
    }
    return tensors;
}

static json_t *siblings_json(const shown *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->nsiblings; i++) {
        const ls__checkpoint_entry *e = &s->siblings[i];
        json_array_append_new(
            list, json_pack("{s:I,s:o,s:s?,s:o,s:b,s:b}", "step", (json_int_t)e->step, "metric",
                            ls__json_double(e->metric), "monitor", e->monitor, "bytes",
                            e->nbytes < 0 ? json_null() : json_integer(e->nbytes), "last",
                            (int)e->last, "best", (int)e->best));
    }
    return list;
}

static json_t *document(const shown *s)
{
    json_t *d = json_pack("{s:s,s:s,s:o,s:o,s:I}", "schema", SCHEMA, "path", s->path, "step",
                          s->is_file ? json_null() : json_integer(s->manifest.step), "tensors",
                          tensors_json(s), "elements", (json_int_t)all_elements(s));
    if (s->verify_seconds > 0) {
        json_object_set_new(d, "verified", json_true());
        json_object_set_new(d, "seconds", json_real(s->verify_seconds));
    }
    if (s->is_file) return d;
    const ls__checkpoint_entry *own = own_entry(s);
    json_object_set_new(d, "monitor",
                        s->manifest.monitor ? json_string(s->manifest.monitor) : json_null());
    json_object_set_new(d, "metric", ls__json_double(s->manifest.metric));
    json_object_set_new(d, "last", json_boolean(own && own->last));
    json_object_set_new(d, "best", json_boolean(own && own->best));
    json_object_set_new(d, "files", files_json(s));
    json_object_set(d, "trainer", s->trainer);
    json_object_set_new(d, "checkpoints", siblings_json(s));
    return d;
}

/* --- text --- */

static void print_head(const shown *s)
{
    const ls__checkpoint_entry *own = own_entry(s);
    const char *links = "";
    if (own && own->last)
        links = own->best ? " (last, best)" : " (last)";
    else if (own && own->best)
        links = " (best)";
    printf("%-12s %s%s\n", s->is_file ? "weights" : "checkpoint", s->path, links);
    if (s->is_file) return;
    const json_t *epoch = json_object_get(s->trainer, "epoch");
    printf("%-12s %" PRId64, "step", s->manifest.step);
    if (json_is_number(epoch)) printf(", epoch %.2f", json_number_value(epoch));
    puts("");
    if (!isnan(s->manifest.metric))
        printf("%-12s %.6g\n", s->manifest.monitor ? s->manifest.monitor : "metric",
               s->manifest.metric);
    const json_t *micro_batches = json_object_get(s->trainer, "micro_batches");
    const json_t *size = json_object_get(s->trainer, "world_size");
    if (json_is_integer(micro_batches) && json_is_integer(size))
        printf("%-12s %" JSON_INTEGER_FORMAT " device%s, %" JSON_INTEGER_FORMAT " micro-batches\n",
               "written by", json_integer_value(size), json_integer_value(size) == 1 ? "" : "s",
               json_integer_value(micro_batches));
}

static void print_files(const shown *s)
{
    if (s->is_file) return;
    printf("\n%-24s %10s  %s\n", "file", "size", "xxh3");
    for (int i = 0; i < s->manifest.nfiles; i++) {
        char size[32];
        ls_cli_bytes(s->manifest.files[i].nbytes, size);
        printf("%-24s %10s  %016" PRIx64 "\n", s->manifest.files[i].name, size,
               s->manifest.files[i].xxh3);
    }
}

static void print_tensors(const shown *s)
{
    printf("\n%-32s %-6s %-20s %12s\n", "tensor", "dtype", "shape", "elements");
    for (int i = 0; i < s->tensors.count; i++) {
        const ls__safetensor *t = &s->tensors.tensors[i];
        char shape[160];
        size_t used = (size_t)snprintf(shape, sizeof shape, "(");
        for (int d = 0; d < t->rank; d++)
            used += (size_t)snprintf(shape + used, sizeof shape - used,
                                     d ? ",%" PRId64 : "%" PRId64, t->shape[d]);
        snprintf(shape + used, sizeof shape - used, ")");
        printf("%-32s %-6s %-20s %12" PRId64 "\n", t->name, t->dtype, shape, elements_of(t));
    }
    printf("%-32s %-6s %-20s %12" PRId64 "\n", "all", "", "", all_elements(s));
}

static void print_siblings(const shown *s)
{
    if (s->nsiblings < 2) return;
    printf("\nCheckpoints of this run:");
    for (int i = 0; i < s->nsiblings; i++)
        printf("%s %" PRId64 "%s%s", i ? "," : "", s->siblings[i].step,
               s->siblings[i].last ? " (last)" : "", s->siblings[i].best ? " (best)" : "");
    puts("");
}

/* --- the commands --- */

static const char *const own_flags[] = { "runs-dir", "log-level", "json", "help", "version", NULL };

static ls_status resolve(const ls__options *o, int argc, char **argv, shown *s)
{
    const char *run = NULL, *runs_dir = "runs";
    ls__options_string(o, "runs-dir", &runs_dir);
    LS_TRY(run_of(argc, argv, &run));
    return ls__checkpoint_resolve(runs_dir, run, s->path);
}

int ls_cli_checkpoint_show(int argc, char **argv)
{
    const ls_world_options program = {
        .summary = "Shows what a checkpoint holds: where the run stood, tensors, files.",
        .arguments = "RUN",
    };
    shown s = { .manifest = { .metric = NAN } };
    ls__options *o = ls_cli_options(&argc, &argv, &program, own_flags);
    ls_status status = resolve(o, argc, argv, &s);
    if (status == LS_OK) status = read_shown(&s);
    if (status == LS_OK && ls__options_wants(o, "json")) {
        status = ls_cli_print_json(document(&s));
    } else if (status == LS_OK) {
        print_head(&s);
        print_files(&s);
        print_tensors(&s);
        print_siblings(&s);
        status = ls_cli_flush();
    }
    release(&s);
    return ls_cli_end(o, status);
}

static ls_status verify(shown *s)
{
    double before = ls__now();
    LS_TRY(ls__checkpoint_verify(s->path));
    s->verify_seconds = ls__now() - before;
    return read_shown(s);
}

static ls_status print_verified(const shown *s)
{
    if (s->is_file) {
        printf("%s: a sound header over %d tensors; such a file has no checksum\n", s->path,
               s->tensors.count);
        return ls_cli_flush();
    }
    int64_t nbytes = 0;
    char size[32];
    for (int i = 0; i < s->manifest.nfiles; i++) nbytes += s->manifest.files[i].nbytes;
    ls_cli_bytes(nbytes, size);
    printf("%s: %d files, %s, all checksums are right\n", s->path, s->manifest.nfiles, size);
    return ls_cli_flush();
}

int ls_cli_checkpoint_verify(int argc, char **argv)
{
    const ls_world_options program = {
        .summary = "Reads a whole checkpoint and compares it with its sizes and checksums.",
        .arguments = "RUN",
    };
    shown s = { .manifest = { .metric = NAN } };
    ls__options *o = ls_cli_options(&argc, &argv, &program, own_flags);
    ls_status status = resolve(o, argc, argv, &s);
    if (status == LS_OK) status = verify(&s);
    if (status == LS_OK)
        status =
            ls__options_wants(o, "json") ? ls_cli_print_json(document(&s)) : print_verified(&s);
    release(&s);
    return ls_cli_end(o, status);
}
