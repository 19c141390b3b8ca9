/* The text that rank 0 leaves with the process manager, and which manager that is. Managers are asked
 * in their own words (PMIx, PMI 1), not through MPI: those need no MPI library that fits, start no
 * transport, and work with --comm gloo. Only where an Open MPI has kept its PMIx library to itself, its
 * MPI is asked, by the plugin. Expected: once per rank, where nobody gave an address. */
#include "world/manager.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "comm/link.h"
#include "world/pmix.h"

enum { ADDRESS_MAX = 46 };

struct ls__manager {
    int pmi_fd; /* -1 */
    ls__pmix *pmix;
};

void ls__where_write(const ls__where *where, char text[LS__WHERE_TEXT])
{
    size_t used = (size_t)snprintf(text, LS__WHERE_TEXT, "%s/%d", where->secret, where->port);
    for (const char *at = where->addresses; *at;) {
        size_t n = strcspn(at, " ");
        if (n > 0 && used + n + 2 <= LS__WHERE_TEXT)
            used += (size_t)snprintf(text + used, LS__WHERE_TEXT - used, "/%.*s", (int)n, at);
        at += n;
        at += strspn(at, " ");
    }
}

static bool is_address(const char *text, size_t n)
{
    bool separated = false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '.' && text[i] != ':' && !isxdigit((unsigned char)text[i])) return false;
        separated = separated || text[i] == '.' || text[i] == ':';
    }
    return separated && n < ADDRESS_MAX;
}

ls_status ls__where_read(const char *text, ls__where *out)
{
    memset(out, 0, sizeof *out);
    const size_t digits = LS__SECRET_TEXT - 1;
    char *end = NULL;
    bool good = strlen(text) < LS__WHERE_TEXT && strspn(text, "0123456789abcdef") == digits &&
                text[digits] == '/' && isdigit((unsigned char)text[digits + 1]);
    long port = good ? strtol(text + digits + 1, &end, 10) : 0;
    good = good && port >= 1 && port <= 65535 && *end == '/';
    size_t used = 0;
    while (good && *end == '/') {
        const char *address = ++end;
        size_t n = strcspn(address, "/");
        good = is_address(address, n);
        if (good)
            used += (size_t)snprintf(out->addresses + used, sizeof out->addresses - used, "%s%.*s",
                                     used ? " " : "", (int)n, address);
        end += n;
    }
    if (!good) return ls_fail(LS_ERR_DATA, "what the process manager handed out is no address");
    memcpy(out->secret, text, digits);
    out->port = (int)port;
    return LS_OK;
}

static ls_status share_by_pmix(const ls__place *place, int timeout_ms, char text[LS__WHERE_TEXT],
                               ls__manager *m)
{
    char why[512];
    ls_status status = ls__pmix_share(place->rank == 0, timeout_ms, text, LS__WHERE_TEXT, &m->pmix);
    if (status != LS_ERR_UNSUPPORTED) return status;
    snprintf(why, sizeof why, "%s", ls_error_text());
    if (ls__link_there("mpi"))
        return ls__link_share("mpi", place->rank, place->size, timeout_ms, text, LS__WHERE_TEXT);
    return ls_fail(status, "%s", why);
}

static ls_status share(const ls__place *place, int timeout_ms, char text[LS__WHERE_TEXT],
                       ls__manager *m)
{
    if (place->found == LS__FOUND_BY_PMIX) return share_by_pmix(place, timeout_ms, text, m);
    m->pmi_fd = place->pmi_fd;
    return ls__pmi_share(place->pmi_fd, place->rank == 0, timeout_ms, text);
}

ls_status ls__manager_share(const ls__place *place, int timeout_ms, char text[LS__WHERE_TEXT],
                            ls__manager **out)
{
    *out = NULL;
    ls__manager *m = ls__alloc(1, sizeof *m);
    if (!m) return LS_ERR_MEMORY;
    m->pmi_fd = -1;
    ls_status status = share(place, timeout_ms, text, m);
    if (status == LS_OK) {
        *out = m;
        return LS_OK;
    }
    ls__manager_leave(m);
    return ls_fail(
        status,
        "where rank 0 is could not be learnt from what started the ranks: %s; give all of "
        "them the address of rank 0's machine, in the variables MASTER_ADDR and "
        "MASTER_PORT (mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500; MPICH: -genv)",
        ls_error_text());
}

void ls__manager_leave(ls__manager *manager)
{
    if (!manager) return;
    if (manager->pmi_fd >= 0) ls__pmi_leave(manager->pmi_fd);
    ls__pmix_leave(manager->pmix);
    ls__free(manager);
}
