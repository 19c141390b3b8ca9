/* Buckets: runs of tensors that become complete together in the backward pass. */
#include "run/space_state.h"

/* elements: 64 KiB and 1 MiB of f32; between devices 24 MiB, since each exchange has its own start */
enum { FIRST_BUCKET = 16 * 1024, BUCKET = 256 * 1024, DEVICE_BUCKET = 6 * 1024 * 1024 };

void ls__space_buckets(const ls__space_tensor *tensors, int ntensors, bool on_device, int *buckets)
{
    int64_t filled = 0, target = FIRST_BUCKET;
    int bucket = 0;
    for (int i = ntensors - 1; i >= 0; i--) {
        bool new_layer = i + 1 < ntensors && tensors[i].depth != tensors[i + 1].depth;
        if (new_layer && filled >= target) {
            bucket++;
            filled = 0;
            target = on_device ? DEVICE_BUCKET : BUCKET;
        }
        int64_t count = 1;
        for (int d = 0; d < tensors[i].rank; d++) count *= tensors[i].shape[d];
        filled += count;
        buckets[i] = bucket;
    }
    for (int i = 0; i < ntensors; i++) buckets[i] = bucket - buckets[i];
}
