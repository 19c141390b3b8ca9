/* Where reports go. A report's file may be anything a scheduler names, such as a bind-mounted
 * /dev/termination-log, so replacing it by rename is only done where that can work. */
#include "world/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"

/* The folder a path lies in. */
static void folder_of(const char *path, char out[LS_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        snprintf(out, LS_PATH_MAX, ".");
    else
        snprintf(out, LS_PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

static bool is_plain_or_new(const char *path)
{
    struct stat info;
    return lstat(path, &info) != 0 ? errno == ENOENT : S_ISREG(info.st_mode);
}

ls_status ls__report_check_path(const char *path)
{
    char folder[LS_PATH_MAX];
    struct stat info;
    if (strlen(path) >= LS_PATH_MAX)
        return ls_fail(LS_ERR_CONFIG, "--report: a path of %zu bytes is too long", strlen(path));
    if (stat(path, &info) == 0) {
        if (S_ISDIR(info.st_mode))
            return ls_fail(LS_ERR_CONFIG, "--report %s: that is a folder; give a file", path);
        if (access(path, W_OK) == 0) return LS_OK;
        return ls__fail_errno(LS_ERR_CONFIG, "--report %s cannot be written", path);
    }
    folder_of(path, folder);
    if (access(folder, W_OK | X_OK) == 0) return LS_OK;
    return ls__fail_errno(LS_ERR_CONFIG, "--report %s cannot be written: folder %s", path, folder);
}

static ls_status write_in_place(const char *path, const char *data, size_t nbytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return ls__fail_errno(LS_ERR_IO, "%s", path);
    ls_status status = LS_OK;
    while (nbytes > 0) {
        ssize_t n = write(fd, data, nbytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = ls__fail_errno(LS_ERR_IO, "%s", path);
            break;
        }
        data += n;
        nbytes -= (size_t)n;
    }
    close(fd);
    return status;
}

/* Not waited for: a disk may take tens of milliseconds, every program pays for it at its end, and what a
 * power failure takes away here it explains, too. */
ls_status ls__report_write(const ls__report *report, const char *path)
{
    json_t *document = ls__report_json(report);
    if (!document) return ls_fail(LS_ERR_MEMORY, "no memory for the report");
    ls_status status = LS_ERR_IO;
    if (is_plain_or_new(path)) status = ls__json_write(&ls__fs_unsynced, path, document);
    if (status != LS_OK) {
        char *line = ls__json_line(document);
        status = line ? write_in_place(path, line, strlen(line)) : LS_ERR_MEMORY;
        ls__free(line);
    }
    json_decref(document);
    return status;
}

void ls__report_write_both(const ls__report *report, const char *const paths[2],
                           char where[LS_PATH_MAX])
{
    where[0] = '\0';
    for (int i = 0; i < 2; i++) {
        if (!paths[i][0]) continue;
        if (ls__report_write(report, paths[i]) != LS_OK)
            ls__log(LS__LOG_WARN, "the report could not be written: %s", ls_error_text());
        else if (!where[0])
            snprintf(where, LS_PATH_MAX, "%s", paths[i]);
    }
}

void ls__report_print(const ls__report *report, const char *where)
{
    char text[LS__REPORT_TEXT], hint[512];
    ls__report_text(report, text);
    ls__report_hint(report, hint);
    bool good = report->end.kind == LS__END_FINISHED || report->end.kind == LS__END_STOPPED;
    ls__log(good ? LS__LOG_INFO : LS__LOG_ERROR, "%s", text);
    if (hint[0]) ls__log(LS__LOG_INFO, "%s", hint);
    if (!good && where[0]) ls__log(LS__LOG_INFO, "the report: %s", where);
}

void ls__report_show(const ls__report *report)
{
    json_t *document = ls__report_json(report);
    char *line = document ? ls__json_line(document) : NULL;
    fflush(stdout);
    if (line) dprintf(STDOUT_FILENO, "%s\n", line);
    ls__free(line);
    json_decref(document);
}
