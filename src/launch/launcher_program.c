/* Which file is executed. It is found before anything is started, so that a misspelt program is one
 * clear error and not one from every rank; the codes are those of shells, 126 and 127. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "launch/launcher.h"

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* The first executable of this name on the PATH; a name with a slash is a path. */
static bool find_executable(const char *name, char out[LS_PATH_MAX])
{
    if (strchr(name, '/')) {
        snprintf(out, LS_PATH_MAX, "%s", name);
        return is_file(out) && access(out, X_OK) == 0;
    }
    const char *path = getenv("PATH");
    if (!path) path = "/usr/local/bin:/usr/bin:/bin";
    while (*path) {
        size_t length = strcspn(path, ":");
        int n = length == 0 ? snprintf(out, LS_PATH_MAX, "./%s", name)
                            : snprintf(out, LS_PATH_MAX, "%.*s/%s", (int)length, path, name);
        if (n < LS_PATH_MAX && is_file(out) && access(out, X_OK) == 0) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static ls_status not_executable(const char *name, int *exit_code)
{
    struct stat info;
    *exit_code = 126;
    if (stat(name, &info) == 0 && S_ISDIR(info.st_mode))
        return ls_fail(LS_ERR_CONFIG, "%.200s: that is a folder, not a program", name);
    if (is_file(name) && strchr(name, '/'))
        return ls_fail(LS_ERR_CONFIG,
                       "%.200s cannot be executed; chmod +x it, or name its interpreter before it",
                       name);
    *exit_code = 127;
    if (is_file(name))
        return ls_fail(LS_ERR_CONFIG, "%.200s: no such program on the PATH; did you mean ./%.200s?",
                       name, name);
    return ls_fail(LS_ERR_CONFIG, "%.200s: no such program", name);
}

/* A script whose first line names a program that is not there: the kernel's own words for it, "No
 * such file or directory", send people looking for the script. */
static ls_status interpreter_is_there(const char *name, const char *path, int *exit_code)
{
    char line[256] = "";
    FILE *file = fopen(path, "re");
    if (!file) return LS_OK; /* may be executed and not read */
    bool script = fgets(line, sizeof line, file) && strncmp(line, "#!", 2) == 0;
    fclose(file);
    if (!script) return LS_OK;
    char *interpreter = line + 2 + strspn(line + 2, " \t");
    size_t length = strcspn(interpreter, " \t\n");
    bool windows = memchr(interpreter, '\r', length) != NULL;
    interpreter[length] = '\0';
    if (length == 0 || access(interpreter, F_OK) == 0) return LS_OK;
    *exit_code = 127;
    if (windows)
        return ls_fail(LS_ERR_CONFIG,
                       "%.200s: its first line ends as on Windows, so that no interpreter is "
                       "found; sed -i 's/\\r$//' %.200s",
                       name, name);
    return ls_fail(LS_ERR_CONFIG, "%.200s: the interpreter of its first line, %.200s, is not there",
                   name, interpreter);
}

static ls_status find_python(char out[LS_PATH_MAX], int *exit_code)
{
    const char *chosen = getenv("PYTHON_EXEC"); /* as torchrun */
    if (chosen && chosen[0]) {
        if (find_executable(chosen, out)) return LS_OK;
        *exit_code = 127;
        return ls_fail(LS_ERR_CONFIG, "the variable PYTHON_EXEC=%.200s names no program", chosen);
    }
    if (find_executable("python3", out) || find_executable("python", out)) return LS_OK;
    *exit_code = 127;
    return ls_fail(LS_ERR_CONFIG, "there is no python3 on the PATH; the variable PYTHON_EXEC may "
                                  "name one");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

ls_status ls__launcher_program(const ls__launcher_flags *flags, char **words,
                               ls__launcher_plan *out, int *exit_code)
{
    static char unbuffered[] = "-u", module[] = "-m";
    int count = 0, n = 0;
    while (words[count]) count++;
    *exit_code = 2;
    if (count == 0)
        return ls_fail(LS_ERR_CONFIG, "no program: lockstep run [FLAG...] PROGRAM [ARG...]");
    if (flags->module && flags->no_python)
        return ls_fail(LS_ERR_CONFIG, "--module needs Python and --no-python wants none: leave one "
                                      "out");
    bool python = !flags->no_python && (flags->module || ends_with(words[0], ".py"));
    out->argv = ls__alloc((size_t)count + 4, sizeof *out->argv);
    if (!out->argv) return LS_ERR_MEMORY;
    if (python) {
        LS_TRY(find_python(out->path, exit_code));
        out->argv[n++] = out->path;
        out->argv[n++] = unbuffered;
        if (flags->module) out->argv[n++] = module;
        if (!flags->module && !is_file(words[0])) {
            *exit_code = 127;
            return ls_fail(LS_ERR_CONFIG, "%.200s: no such file", words[0]);
        }
    } else if (!find_executable(words[0], out->path)) {
        return not_executable(words[0], exit_code);
    } else {
        LS_TRY(interpreter_is_there(words[0], out->path, exit_code));
    }
    memcpy(out->argv + n, words, (size_t)count * sizeof *words);
    return LS_OK;
}
