/* Removes a folder with what is in it. Apart from file.c because it is the one function that
 * deletes what it was not told by name: it follows no links and goes only as deep as we build. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include <string.h>

#include "base/check.h"
#include "base/file.h"

enum { DEEPEST = 16 };

static ls_status remove_tree(const ls__fs *fs, const char *path, int depth);

static ls_status remove_entry(const ls__fs *fs, const char *folder, const char *name, int depth)
{
    char path[LS_PATH_MAX];
    LS_TRY(ls__path_join(path, folder, name));
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) return remove_tree(fs, path, depth + 1);
    if (fs->unlink(fs->user, path) != 0 && errno != ENOENT)
        return ls__fail_errno(LS_ERR_IO, "%s: cannot remove", path);
    return LS_OK;
}

static ls_status remove_tree(const ls__fs *fs, const char *path, int depth)
{
    if (depth > DEEPEST)
        return ls_fail(LS_ERR_IO, "%s: folders deeper than %d are not removed", path, DEEPEST);
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT ? LS_OK : ls__fail_errno(LS_ERR_IO, "%s: cannot open", path);
    ls_status status = LS_OK;
    const struct dirent *entry;
    while (status == LS_OK && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        status = remove_entry(fs, path, entry->d_name, depth);
    }
    closedir(folder);
    if (status == LS_OK && fs->rmdir(fs->user, path) != 0 && errno != ENOENT)
        status = ls__fail_errno(LS_ERR_IO, "%s: cannot remove", path);
    return status;
}

ls_status ls__folder_remove(const ls__fs *fs, const char *path)
{
    return remove_tree(fs, path, 0);
}
