/* PMI-1: lines of words, an answer to each. Only what an exchange of one value needs. */
#include "launch/pmi.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

enum { ANSWER_MS = 60000 }; /* a barrier waits for the slowest */

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

static ls_status read_line(int fd, char line[LS__PMI_LINE_MAX])
{
    size_t used = 0;
    while (used < LS__PMI_LINE_MAX - 1) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, ANSWER_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) return ls_fail(LS_ERR_TIMEOUT, "the process manager does not answer");
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
static ls_status ask(int fd, const char *question, const char *kind, char answer[LS__PMI_LINE_MAX])
{
    char got[64], rc[16];
    size_t n = strlen(question);
    if (write(fd, question, n) != (ssize_t)n)
        return ls__fail_errno(LS_ERR_PEER, "the process manager cannot be asked");
    LS_TRY(read_line(fd, answer));
    bool good = ls__pmi_word(answer, "cmd", got, sizeof got) && strcmp(got, kind) == 0;
    if (good && ls__pmi_word(answer, "rc", rc, sizeof rc)) good = strcmp(rc, "0") == 0;
    if (good) return LS_OK;
    return ls_fail(LS_ERR_DATA, "the process manager answered \"%.100s\"", answer);
}

ls_status ls__pmi_share(int fd, bool first, char text[LS__PMI_VALUE_MAX])
{
    char answer[LS__PMI_LINE_MAX], space[256], question[LS__PMI_LINE_MAX];
    LS_TRY(ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", answer));
    LS_TRY(ask(fd, "cmd=get_my_kvsname\n", "my_kvsname", answer));
    if (!ls__pmi_word(answer, "kvsname", space, sizeof space))
        return ls_fail(LS_ERR_DATA, "the process manager has no name for its space");
    if (first) {
        snprintf(question, sizeof question, "cmd=put kvsname=%s key=lockstep value=%s\n", space,
                 text);
        LS_TRY(ask(fd, question, "put_result", answer));
    }
    LS_TRY(ask(fd, "cmd=barrier_in\n", "barrier_out", answer));
    snprintf(question, sizeof question, "cmd=get kvsname=%s key=lockstep\n", space);
    LS_TRY(ask(fd, question, "get_result", answer));
    if (!ls__pmi_word(answer, "value", text, LS__PMI_VALUE_MAX))
        return ls_fail(LS_ERR_DATA, "the process manager has no value");
    return ask(fd, "cmd=finalize\n", "finalize_ack", answer);
}
