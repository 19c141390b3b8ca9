/* How many GPUs a process may use, without asking the driver's library, which takes a tenth of a
 * second to wake up: every start of a program asks. The driver makes a file /dev/nvidiaN per device,
 * and a container has those that it was given. What is wrong with a device, and what it is called,
 * is found out by whoever opens it. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "device/device.h"
#include "device/nvml.h"

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

/* Whether folder has an entry that begins with one of names (NULL-ended). */
static bool has_entry(const char *root, const char *folder, const char *const names[])
{
    char path[LS_PATH_MAX];
    bool found = false;
    DIR *dir = ls__path_join(path, root, folder) == LS_OK ? opendir(path) : NULL;
    if (!dir) return false;
    for (const struct dirent *entry; !found && (entry = readdir(dir));)
        for (int i = 0; names[i] && !found; i++)
            found = strncmp(entry->d_name, names[i], strlen(names[i])) == 0;
    closedir(dir);
    return found;
}

bool ls__other_accelerators(const char *root)
{
    /* AMD, WSL, TPU and Gaudi, Ascend, Neuron, Cambricon, Moore Threads */
    static const char *const files[] = { "kfd",    "dxg",       "accel", "davinci",
                                         "neuron", "cambricon", "mtgpu", NULL };
    static const char *const render[] = { "renderD", NULL };
    return has_entry(root, "dev", files) || has_entry(root, "dev/dri", render);
}

/* --- where a GPU sits --- */

/* First line of root/sys/bus/pci/devices/DEVICE/NAME. */
static bool read_line(const char *root, const char *device, const char *name,
                      char out[LS__GPU_TEXT])
{
    char path[LS_PATH_MAX], *text;
    size_t nbytes;
    int n = snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, device, name);
    if (n < 0 || (size_t)n >= sizeof path || ls__file_read(path, 65536, &text, &nbytes) != LS_OK)
        return false;
    snprintf(out, LS__GPU_TEXT, "%.*s", (int)strcspn(text, "\n"), text);
    ls__free(text);
    return true;
}

void ls__gpu_locality(const char *root, const char *bus, int *numa_node, char cpus[LS__GPU_TEXT])
{
    unsigned domain, number, slot, function;
    char device[48], node[LS__GPU_TEXT];
    *numa_node = LS_NONE;
    cpus[0] = '\0';
    if (sscanf(bus, "%8x:%2x:%2x.%1x", &domain, &number, &slot, &function) != 4) return;
    snprintf(device, sizeof device, "%04x:%02x:%02x.%x", domain, number, slot, function);
    if (read_line(root, device, "numa_node", node)) *numa_node = atoi(node);
    if (*numa_node < 0) *numa_node = LS_NONE; /* the kernel's word for none */
    if (!read_line(root, device, "local_cpulist", cpus)) cpus[0] = '\0';
}
