/* Limits of control groups. A limit of any group between ours and the root binds us, so each path
 * is walked upwards. /proc/self/cgroup names our group and /proc/self/mountinfo where its hierarchy
 * is mounted and from which group on: in a container both differ from the usual. A dozen small
 * reads at every start of a program. */
#include "device/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"

enum { LISTING_LIMIT = 4 << 20, VALUE_SIZE = 64 };

/* Where one hierarchy of control groups is seen. */
typedef struct hierarchy {
    char mount[LS_PATH_MAX];      /* "/sys/fs/cgroup", below root */
    char mount_root[LS_PATH_MAX]; /* the group that is mounted there */
    char group[LS_PATH_MAX];      /* ours, as /proc/self/cgroup says */
} hierarchy;

/* --- reading values --- */

/* A small file's first line; false when it is not there. */
static bool read_value(const char *folder, const char *name, char out[VALUE_SIZE])
{
    char path[LS_PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, out, VALUE_SIZE - 1);
    close(fd);
    if (n <= 0) return false;
    out[n] = '\0';
    return true;
}

static void tighten(double *limit, double value)
{
    if (value > 0 && (*limit == 0 || value < *limit)) *limit = value;
}

/* v2: "max 100000" or "200000 100000"; v1: two files, -1 for no limit. */
static void read_cpu_limit(const char *folder, double *cpus)
{
    char value[VALUE_SIZE], period_text[VALUE_SIZE];
    double quota = 0, period = 0;
    if (read_value(folder, "cpu.max", value)) {
        if (sscanf(value, "%lf %lf", &quota, &period) != 2) return;
    } else if (read_value(folder, "cpu.cfs_quota_us", value) &&
               read_value(folder, "cpu.cfs_period_us", period_text)) {
        quota = strtod(value, NULL);
        period = strtod(period_text, NULL);
    }
    if (quota > 0 && period > 0) tighten(cpus, quota / period);
}

static void read_memory_limit(const char *folder, double *memory)
{
    char value[VALUE_SIZE];
    if (!read_value(folder, "memory.max", value) &&
        !read_value(folder, "memory.limit_in_bytes", value))
        return;
    double nbytes = strtod(value, NULL); /* "max" is 0 */
    if (nbytes < 0x1p62) tighten(memory, nbytes);
}

/* --- finding our groups --- */

/* /proc writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        bool escaped = from[0] == '\\' && strspn(from + 1, "01234567") >= 3;
        if (escaped) {
            *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 3;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* Whether word is among the comma-separated words of list. */
static bool lists(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (list) {
        if (strncmp(list, word, n) == 0 && (list[n] == ',' || list[n] == '\0')) return true;
        list = strchr(list, ',');
        if (list) list++;
    }
    return false;
}

/* Reads a line of mountinfo: "36 35 98:0 ROOT MOUNT options [optional...] - TYPE source SUPER".
 * controller NULL asks for v2. */
static bool is_mount_of(char *line, const char *controller, hierarchy *h)
{
    char *rest = line, *fields[6];
    for (int i = 0; i < 6; i++) fields[i] = strsep(&rest, " ");
    if (!rest) return false;
    bool no_optional = strncmp(rest, "- ", 2) == 0;
    const char *dash = no_optional ? rest - 1 : strstr(rest, " - ");
    if (!dash) return false;
    char type[16] = "", super[512] = "";
    if (sscanf(dash + 3, "%15s %*s %511s", type, super) != 2) return false;
    bool fits = controller ? strcmp(type, "cgroup") == 0 && lists(super, controller)
                           : strcmp(type, "cgroup2") == 0;
    if (!fits) return false;
    unescape(fields[3]);
    unescape(fields[4]);
    snprintf(h->mount_root, sizeof h->mount_root, "%s", fields[3]);
    snprintf(h->mount, sizeof h->mount, "%s", fields[4]);
    return true;
}

/* Reads a line of /proc/self/cgroup: "4:cpu,cpuacct:/group", "0::/group". */
static bool is_group_of(char *line, const char *controller, hierarchy *h)
{
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return false;
    *group++ = '\0';
    controllers++;
    if (controller ? !lists(controllers, controller) : controllers[0] != '\0') return false;
    snprintf(h->group, sizeof h->group, "%s", group);
    return true;
}

typedef bool line_matches(char *line, const char *controller, hierarchy *h);

/* The first line that matches fills h; each is cut up in a copy. Lines of other file systems may be
 * longer than ours ever are: they are cut off. */
static bool find_line(const char *text, const char *controller, hierarchy *h, line_matches *matches)
{
    char line[2 * LS_PATH_MAX];
    while (*text) {
        size_t length = strcspn(text, "\n");
        size_t kept = length < sizeof line ? length : sizeof line - 1;
        memcpy(line, text, kept);
        line[kept] = '\0';
        if (matches(line, controller, h)) return true;
        text += length + (text[length] == '\n');
    }
    return false;
}

static char *read_listing(const char *root, const char *file)
{
    char path[LS_PATH_MAX], *text = NULL;
    size_t nbytes;
    if (snprintf(path, sizeof path, "%s/%s", root, file) < (int)sizeof path)
        (void)!ls__file_read(path, LISTING_LIMIT, &text, &nbytes); /* text stays NULL */
    return text;
}

/* --- walking up --- */

typedef struct limits {
    double cpus, memory;
} limits;

/* Our group as it is seen below the mount: a container without a cgroup namespace sees the host's
 * path in /proc/self/cgroup, of which only what lies below the mounted group is there. */
static const char *group_below_mount(const hierarchy *h)
{
    size_t n = strlen(h->mount_root);
    if (strcmp(h->mount_root, "/") == 0) return h->group;
    bool below =
        strncmp(h->group, h->mount_root, n) == 0 && (h->group[n] == '/' || h->group[n] == '\0');
    return below ? h->group + n : "";
}

static void walk_up(const char *root, const hierarchy *h, limits *out)
{
    char folder[3 * LS_PATH_MAX];
    int top = snprintf(folder, sizeof folder, "%s%s", root, h->mount);
    snprintf(folder + top, sizeof folder - (size_t)top, "%s", group_below_mount(h));
    for (;;) {
        read_cpu_limit(folder, &out->cpus);
        read_memory_limit(folder, &out->memory);
        char *slash = strrchr(folder, '/');
        if (!slash || slash < folder + top) break;
        *slash = '\0';
    }
}

void ls__cgroup_read(const char *root, ls__cgroup_limits *out)
{
    static const char *const controllers[] = { NULL, "cpu", "memory" }; /* NULL: v2, with both */
    const char *below = strcmp(root, "/") == 0 ? "" : root;
    limits all = { 0 };
    hierarchy *h = ls__alloc(1, sizeof *h);
    char *groups = read_listing(below, "proc/self/cgroup");
    char *mounts = read_listing(below, "proc/self/mountinfo");
    for (int i = 0; h && groups && mounts && i < 3; i++) {
        if (find_line(groups, controllers[i], h, is_group_of) &&
            find_line(mounts, controllers[i], h, is_mount_of))
            walk_up(below, h, &all);
    }
    ls__free(mounts);
    ls__free(groups);
    ls__free(h);
    out->cpus = all.cpus;
    out->memory = (int64_t)all.memory;
}
