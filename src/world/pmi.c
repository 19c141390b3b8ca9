/* PMI-1: lines of words, an answer to each. Only what an exchange of one value needs. The connection
 * is the process's, and MPI's if that is started later: so nothing is read beyond an answer, and the
 * goodbye comes at the end. Expected: once per rank. */
#include "world/pmi.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum { GOODBYE_MS = 1000 };

bool ls__pmi_word(const char *line, const char *name, char *out, size_t size)
{
    size_t n = strlen(name);
    for (const char *at = line; *at;) {
        at += strspn(at, " \n");
        size_t length = strcspn(at, " \n");
        if (length > n && at[n] == '=' && strncmp(at, name, n) == 0) {
            if (length - n - 1 >= size) return false;
            memcpy(out, at + n + 1, length - n - 1);
            out[length - n - 1] = '\0';
            return true;
        }
        at += length;
    }
    return false;
}

static int left_ms(double deadline)
{
    double left = deadline < 0 ? -1 : deadline - ls__now();
    return deadline < 0 ? -1 : left <= 0 ? 0 : (int)(left * 1e3) + 1;
}

static ls_status read_line(int fd, double deadline, char line[LS__PMI_LINE_MAX])
{
    size_t used = 0;
    while (used < LS__PMI_LINE_MAX - 1) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, left_ms(deadline));
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0)
            return ls_fail(LS_ERR_TIMEOUT, "the process manager does not answer, or not all of its "
                                           "processes have come");
        ssize_t n = read(fd, line + used, 1); /* what follows may not be ours */
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return ls_fail(LS_ERR_PEER, "the process manager is gone");
        if (line[used++] == '\n') {
            line[used] = '\0';
            return LS_OK;
        }
    }
    return ls_fail(LS_ERR_DATA, "the process manager's answer is too long");
}

/* Asks, and checks that the answer is of this kind. */
static ls_status ask(int fd, double deadline, const char *question, const char *kind,
                     char answer[LS__PMI_LINE_MAX])
{
    char got[64], rc[16];
    size_t n = strlen(question);
    ssize_t sent = send(fd, question, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == ENOTSOCK) sent = write(fd, question, n);
    if (sent != (ssize_t)n)
        return ls__fail_errno(LS_ERR_PEER, "the process manager cannot be asked");
    LS_TRY(read_line(fd, deadline, answer));
    bool good = ls__pmi_word(answer, "cmd", got, sizeof got) && strcmp(got, kind) == 0;
    if (good && ls__pmi_word(answer, "rc", rc, sizeof rc)) good = strcmp(rc, "0") == 0;
    if (good) return LS_OK;
    return ls_fail(LS_ERR_DATA, "the process manager answered \"%.100s\"", answer);
}

ls_status ls__pmi_share(int fd, bool first, int timeout_ms, char text[LS__PMI_VALUE_MAX])
{
    char answer[LS__PMI_LINE_MAX], space[256], question[LS__PMI_LINE_MAX];
    double end = timeout_ms < 0 ? -1 : ls__now() + timeout_ms * 1e-3;
    LS_TRY(ask(fd, end, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", answer));
    LS_TRY(ask(fd, end, "cmd=get_my_kvsname\n", "my_kvsname", answer));
    if (!ls__pmi_word(answer, "kvsname", space, sizeof space))
        return ls_fail(LS_ERR_DATA, "the process manager has no name for its space");
    if (first) {
        snprintf(question, sizeof question, "cmd=put kvsname=%s key=lockstep value=%s\n", space,
                 text);
        LS_TRY(ask(fd, end, question, "put_result", answer));
    }
    LS_TRY(ask(fd, end, "cmd=barrier_in\n", "barrier_out", answer));
    snprintf(question, sizeof question, "cmd=get kvsname=%s key=lockstep\n", space);
    LS_TRY(ask(fd, end, question, "get_result", answer));
    if (!ls__pmi_word(answer, "value", text, LS__PMI_VALUE_MAX))
        return ls_fail(LS_ERR_DATA, "the process manager has no value");
    return LS_OK;
}

/* Whether MPI was started in this process, by whichever library: what it has begun it ends. */
static bool mpi_was_started(void)
{
    static const char *const libraries[] = { NULL, "libmpich.so.12", "libmpi.so.12" };
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
        int (*initialized)(int *) = NULL, flag = 0;
        if (library) *(void **)&initialized = dlsym(library, "MPI_Initialized");
        bool started = initialized && initialized(&flag) == 0 && flag;
        if (library) dlclose(library);
        if (started) return true;
    }
    return false;
}

void ls__pmi_leave(int fd)
{
    char answer[LS__PMI_LINE_MAX];
    if (!mpi_was_started())
        (void)ask(fd, ls__now() + GOODBYE_MS * 1e-3, "cmd=finalize\n", "finalize_ack", answer);
}
