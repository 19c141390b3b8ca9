/* Turns a return address into text for a report: "ls_fit+0x1b2" or "train+0x1b2e", the latter as
 * addr2line takes it.
 *
 * Addresses are recorded raw (a call costs one store) and may be of another process, which has its
 * modules elsewhere. So the module and offset are looked up in that process's /proc/PID/maps, and
 * the symbol in our own copy of the module, which every rank of one program has. */
#include "comm/comm_site.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct region {
    uintptr_t begin, end;
    uint64_t offset; /* of begin in the file */
    char path[512];
} region;

static bool parse_region(const char *line, region *out)
{
    int at = 0;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %" SCNx64 " %*s %*s %n", &out->begin, &out->end,
               &out->offset, &at) < 3 ||
        at == 0)
        return false;
    snprintf(out->path, sizeof out->path, "%s", line + at);
    out->path[strcspn(out->path, "\n")] = '\0';
    return out->path[0] == '/';
}

/* The file-backed mapping of pid that has address, or (path set) that has this part of the file. */
static bool find_region(int pid, uintptr_t address, const char *path, uint64_t offset, region *out)
{
    char name[64], line[1024];
    snprintf(name, sizeof name, "/proc/%d/maps", pid);
    FILE *file = fopen(name, "re");
    if (!file) return false;
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        if (!parse_region(line, out)) continue;
        if (path)
            found = strcmp(out->path, path) == 0 && offset >= out->offset &&
                    offset - out->offset < out->end - out->begin;
        else
            found = address >= out->begin && address < out->end;
    }
    fclose(file);
    return found;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool own_text(uintptr_t address, char *out, size_t nbytes)
{
    Dl_info info;
    struct link_map *map = NULL;
    /* A return address may be the first of the next function: the call itself is one before. */
    if (!dladdr1((void *)(address - 1), &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return false;
    if (info.dli_sname)
        snprintf(out, nbytes, "%s+0x%" PRIxPTR, info.dli_sname,
                 address - (uintptr_t)info.dli_saddr);
    else
        snprintf(out, nbytes, "%s+0x%" PRIxPTR, base_name(info.dli_fname),
                 address - 1 - (uintptr_t)map->l_addr);
    return true;
}

void ls__site_text(int pid, uint64_t site, char *out, size_t nbytes)
{
    uintptr_t address = (uintptr_t)site;
    if (pid == getpid() && own_text(address, out, nbytes)) return;
    region theirs, ours;
    if (pid != getpid() && find_region(pid, address, NULL, 0, &theirs)) {
        uint64_t offset = theirs.offset + (address - theirs.begin);
        if (find_region(getpid(), 0, theirs.path, offset, &ours) &&
            own_text(ours.begin + (uintptr_t)(offset - ours.offset), out, nbytes))
            return;
        snprintf(out, nbytes, "%s+0x%" PRIx64, base_name(theirs.path), offset - 1);
        return;
    }
    snprintf(out, nbytes, "0x%" PRIx64, site);
}
