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
