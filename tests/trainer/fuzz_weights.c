/* Any bytes as another program's weights: as a safetensors file whose tensors are all read, both ways
 * round, and as an index of files. */
#include "fuzzing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "trainer/weights_internal.h"

enum { ELEMENTS_MAX = 1 << 16 };

static const ls_weight_rule rules[] = { { "h.*.w", "block*.w", true },
                                        { "h.*.w*", "a*", false },
                                        { "mask*", NULL, false },
                                        { "b", "b", false },
                                        { 0 } };

static void read_all(const ls__weight_files *files)
{
    static float values[ELEMENTS_MAX];
    char name[LS__WEIGHT_NAME];
    for (int f = 0; f < files->count; f++)
        for (int i = 0; i < files->files[f].header.count; i++) {
            const ls__safetensor *t = &files->files[f].header.tensors[i];
            const ls_weight_rule *rule = ls__weight_rule_of_file(rules, t->name, name);
            if (rule && (rule->model != NULL) != (name[0] != '\0')) abort();
            if (ls__weight_elements(t->rank, t->shape) > ELEMENTS_MAX) continue;
            for (int transpose = 0; transpose < 2; transpose++)
                if (ls__weight_read(&files->files[f], t, transpose, values) == LS_OK && transpose &&
                    t->rank != 2)
                    abort();
        }
}

static void open_and_read(const char *path)
{
    ls__weight_files files;
    if (ls__weight_files_open(path, &files) != LS_OK) return;
    read_all(&files);
    ls__weight_files_free(&files);
}

static char folder[] = "/tmp/lockstep-fuzz-weights-XXXXXX", index_path[128];

static void remove_folder(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    unlink(path);
    unlink(index_path);
    rmdir(folder);
}

/* Beside the index lies one file that it may name. */
static void make_folder(void)
{
    static const char header[] =
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}";
    char path[128];
    uint64_t n = sizeof header - 1;
    if (index_path[0]) return;
    if (!mkdtemp(folder)) abort();
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(&n, 8, 1, file) != 1 || fwrite(header, n, 1, file) != 1 ||
        fwrite("ab", 2, 1, file) != 1 || fclose(file) != 0)
        abort();
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char path[64];
    make_folder();
    if (nbytes > 0 && data[0] == '{') {
        unlink(index_path); /* some disks write a file at once that is cut and written again */
        int fd = open(index_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 || write(fd, data, nbytes) != (ssize_t)nbytes) abort();
        close(fd);
        open_and_read(folder);
        return 0;
    }
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, nbytes) != (ssize_t)nbytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    open_and_read(path);
    close(fd);
    return 0;
}
