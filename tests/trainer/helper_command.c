#include "helper_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

extern char **environ;

char *folder_make(void)
{
    char *folder = strdup("/tmp/lockstep-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    return folder;
}

void folder_remove(char *path)
{
    assert_ok(ls__folder_remove(&ls__fs_posix, path));
    free(path);
}

char *runs_folder;

int make_runs_folder(void **state)
{
    (void)state;
    runs_folder = folder_make();
    return 0;
}

int remove_runs_folder(void **state)
{
    (void)state;
    folder_remove(runs_folder);
    return 0;
}

static void add_word(command *c, const char *word)
{
    assert_true(c->nwords < COMMAND_WORDS - 1);
    c->words[c->nwords++] = strdup(word);
}

static void add_line(command *c, const char *program, const char *format, va_list args)
{
    char path[LS_PATH_MAX], line[4096];
    const char *build = getenv("LS_BINARY_DIR");
    const char *folder = strncmp(program, "prog_", 5) == 0 ? "tests" : "bin";
    snprintf(path, sizeof path, "%s/%s/%s", build ? build : "..", folder, program);
    *c = (command) { .out_fd = -1, .err_fd = -1 };
    add_word(c, path);
    assert_true(vsnprintf(line, sizeof line, format, args) < (int)sizeof line);
    char *rest = line, *word;
    while ((word = strsep(&rest, " ")))
        if (*word) add_word(c, word);
}

void command_init(command *c, const char *program, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(c, program, format, args);
    va_end(args);
}

void command_start(command *c)
{
    int out[2], err[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    c->pid = fork();
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        /* A group of its own, as a shell gives a job. */
        setpgid(0, 0);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execve(c->words[0], c->words, environ);
        _exit(127);
    }
    setpgid(c->pid, c->pid);
    close(out[1]);
    close(err[1]);
    c->out_fd = out[0];
    c->err_fd = err[0];
}

static bool read_more(int *fd, char **text, size_t *used)
{
    char *grown = realloc(*text, *used + 65537);
    assert_non_null(grown);
    *text = grown;
    ssize_t n = read(*fd, grown + *used, 65536);
    if (n > 0) *used += (size_t)n;
    grown[*used] = '\0';
    if (n > 0 || (n < 0 && errno == EINTR)) return true;
    close(*fd);
    *fd = -1;
    return false;
}

void command_wait(command *c)
{
    size_t out_used = 0, err_used = 0;
    while (c->out_fd >= 0 || c->err_fd >= 0) {
        struct pollfd polled[2] = { { .fd = c->out_fd, .events = POLLIN },
                                    { .fd = c->err_fd, .events = POLLIN } };
        if (poll(polled, 2, -1) < 0) continue;
        if (polled[0].revents) read_more(&c->out_fd, &c->out, &out_used);
        if (polled[1].revents) read_more(&c->err_fd, &c->err, &err_used);
    }
    int status;
    while (waitpid(c->pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void command_free(command *c)
{
    for (int i = 0; i < c->nwords; i++) free(c->words[i]);
    free(c->out);
    free(c->err);
}

static void show(const command *c)
{
    for (int i = 0; i < c->nwords; i++) fprintf(stderr, "%s ", c->words[i]);
    fprintf(stderr, "\n%s%s", c->out ? c->out : "", c->err ? c->err : "");
}

void command_run(command *c, int code, const char *program, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_line(c, program, format, args);
    va_end(args);
    command_start(c);
    command_wait(c);
    if (c->code == code) return;
    show(c);
    fail_msg("exit code %d, not %d", c->code, code);
}

json_t *command_document(const command *c)
{
    const char *end = c->out ? c->out + strlen(c->out) : NULL;
    assert_true(end && end > c->out && end[-1] == '\n');
    const char *begin = end - 1;
    while (begin > c->out && begin[-1] != '\n') begin--;
    json_t *document = json_loadb(begin, (size_t)(end - begin), JSON_REJECT_DUPLICATES, NULL);
    if (!document) show(c);
    assert_non_null(document);
    return document;
}

const char *text_at(const json_t *document, const char *key)
{
    const char *text = json_string_value(json_object_get(document, key));
    assert_non_null(text);
    return text;
}

double number_at(const json_t *document, const char *key, const char *sub)
{
    const json_t *value = json_object_get(document, key);
    if (sub) value = json_object_get(value, sub);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

void fit_signature(char out[256], const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    command c;
    command_run(&c, 0, "prog_fit", "--json --threads-per-device 1 --log-level warn %s", line);
    json_t *d = command_document(&c);
    snprintf(out, 256, "%s loss %.17g val %.17g %.17g", text_at(d, "weights_xxh3"),
             number_at(d, "train", "loss"), number_at(d, "val", "loss"),
             number_at(d, "val", "accuracy"));
    json_decref(d);
    command_free(&c);
}
