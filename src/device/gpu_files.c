/* How many GPUs a process may use, without asking the driver's library, which takes a tenth of a
 * second to wake up: every start of a program asks. The driver makes a file /dev/nvidiaN per device,
 * and a container has those that it was given. What is wrong with a device, and what it is called,
 * is found out by whoever opens it. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/plugin.h"
#include "device/device.h"

/* "nvidia0", not "nvidiactl" */
static bool is_device(const char *name)
{
    static const char prefix[] = "nvidia";
    const char *number = name + sizeof prefix - 1;
    return strncmp(name, prefix, sizeof prefix - 1) == 0 && *number &&
           number[strspn(number, "0123456789")] == '\0';
}

static int count_files(const char *root)
{
    char folder[LS_PATH_MAX];
    int count = 0;
    if (ls__path_join(folder, root, "dev") != LS_OK) return 0;
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (const struct dirent *entry; (entry = readdir(dir));) count += is_device(entry->d_name);
    closedir(dir);
    return count;
}

/* CUDA_VISIBLE_DEVICES: a list that ends at the first entry that is none ("-1", "NoDevFiles"). */
static int count_visible(const char *list)
{
    int count = 0;
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length == 0 || *list == '-' || strncmp(list, "NoDev", 5) == 0) break;
        count++;
        list += length + (list[length] == ',');
    }
    return count;
}

void ls__gpu_files_discover(const char *root, ls__gpu_files *out)
{
    char path[LS_PATH_MAX];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *out = (ls__gpu_files) { .count = count_files(root) };
    if (visible && count_visible(visible) < out->count) out->count = count_visible(visible);
    out->plugin = ls__plugin_find("cuda", path) == LS_OK;
    out->sim = ls__plugin_find("sim", path) == LS_OK;
}
