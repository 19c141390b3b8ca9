/* Reads the cgroup's count of out-of-memory kills, before the ranks start and after one died. */
#include "world/oom.h"

#include <stdio.h>
#include <string.h>

#include <lockstep/base.h>

/* The number behind key in a file of "key number" lines; -1 = not there. */
static int64_t read_key(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256], word[64];
    long long value = -1, found = -1;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %lld", word, &value) == 2 && strcmp(word, key) == 0) found = value;
    fclose(file);
    return found;
}

/* A line of /proc/self/cgroup: "0::/path" (v2) or "5:memory,cpu:/path" (v1). */
static int64_t read_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    if (!controllers) return -1;
    char *group = strchr(controllers + 1, ':');
    if (!group) return -1;
    *group++ = '\0';
    controllers++;
    group[strcspn(group, "\n")] = '\0';
    bool unified = controllers[0] == '\0';
    bool memory = false;
    for (char *rest = controllers, *word; (word = strsep(&rest, ",")) != NULL;)
        memory = memory || strcmp(word, "memory") == 0;
    if (!unified && !memory) return -1;
    char path[LS_PATH_MAX];
    int n = unified ? snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/memory.events", root, group)
                    : snprintf(path, sizeof path, "%s/sys/fs/cgroup/memory%s/memory.oom_control",
                               root, group);
    return n > 0 && (size_t)n < sizeof path ? read_key(path, "oom_kill") : -1;
}

int64_t ls__oom_kills(const char *root)
{
    char path[LS_PATH_MAX], line[LS_PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    int64_t kills = -1;
    while (kills < 0 && fgets(line, sizeof line, file)) kills = read_line(root, line);
    fclose(file);
    return kills;
}
