#include "helper_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

char runs_dir[LS_PATH_MAX];

int fresh_runs(void **state)
{
    (void)state;
    snprintf(runs_dir, sizeof runs_dir, "/tmp/lockstep-test-%ld-runs", (long)getpid());
    if (ls__folder_remove(&ls__fs_posix, runs_dir) != LS_OK) return -1;
    return mkdir(runs_dir, 0777);
}

int remove_runs(void **state)
{
    (void)state;
    return ls__folder_remove(&ls__fs_posix, runs_dir) == LS_OK ? 0 : -1;
}

const char *run_file(const char *name, const char *file)
{
    static char path[LS_PATH_MAX];
    snprintf(path, sizeof path, "%.3000s/%s/%s", runs_dir, name, file);
    return path;
}

void write_text_file(const char *path, const void *text, size_t nbytes)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text, 1, nbytes, f) != nbytes || fclose(f) != 0) abort();
}

char *read_text_file(const char *path)
{
    char *text;
    size_t n;
    return ls__file_read(path, 1 << 28, &text, &n) == LS_OK ? text : NULL;
}
