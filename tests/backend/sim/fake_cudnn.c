/* Stands in for libcudnn.so.9: takes every description, has one plan for it, and keeps what a run was
 * handed. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 202, WORKSPACE_OF_PLAN = 402, IDS = 1000, POINTERS = 1001, WORKSPACE = 1003 };
enum { MOST = 32 };

static struct {
    int64_t ids[MOST];
    void *pointers[MOST];
    int64_t n;
    void *workspace, *stream;
} last;
static int failure;

/* For tests. */
void *fake_cudnn_bound(int64_t id); /* in the last run; NULL = not at all */
int64_t fake_cudnn_count(void);
void *fake_cudnn_workspace(void);
void *fake_cudnn_stream(void);
void fake_cudnn_fail(int status); /* of the next runs */

/* cuDNN's, as vendor_cuda_cudnn.c asks for them. */
size_t cudnnGetVersion(void);
int cudnnCreate(void **handle);
int cudnnSetStream(void *handle, void *stream);
int cudnnBackendCreateDescriptor(int kind, void **out);
int cudnnBackendDestroyDescriptor(void *d);
int cudnnBackendFinalize(void *d);
int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *x);
int cudnnBackendGetAttribute(void *d, int name, int type, int64_t room, int64_t *n, void *out);
int cudnnBackendExecute(void *handle, void *plan, void *pack);

void *fake_cudnn_bound(int64_t id)
{
    for (int64_t i = 0; i < last.n; i++)
        if (last.ids[i] == id) return last.pointers[i];
    return NULL;
}

int64_t fake_cudnn_count(void)
{
    return last.n;
}

void *fake_cudnn_workspace(void)
{
    return last.workspace;
}

void *fake_cudnn_stream(void)
{
    return last.stream;
}

void fake_cudnn_fail(int status)
{
    failure = status;
}

size_t cudnnGetVersion(void)
{
    return 92600;
}

int cudnnCreate(void **handle)
{
    *handle = &last;
    return 0;
}

int cudnnSetStream(void *handle, void *stream)
{
    last.stream = stream;
    return handle != &last;
}

int cudnnBackendCreateDescriptor(int kind, void **out)
{
    (void)kind;
    *out = malloc(1);
    return *out ? 0 : 1;
}

int cudnnBackendDestroyDescriptor(void *d)
{
    free(d);
    return 0;
}

int cudnnBackendFinalize(void *d)
{
    return d == NULL;
}

int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *x)
{
    (void)d, (void)type;
    if (n > MOST) return name == IDS || name == POINTERS;
    if (name == IDS) memcpy(last.ids, x, (size_t)n * sizeof *last.ids);
    if (name == POINTERS) memcpy(last.pointers, x, (size_t)n * sizeof *last.pointers);
    if (name == IDS) last.n = n;
    if (name == WORKSPACE) memcpy(&last.workspace, x, sizeof last.workspace);
    return 0;
}

int cudnnBackendGetAttribute(void *d, int name, int type, int64_t room, int64_t *n, void *out)
{
    (void)d, (void)type, (void)room;
    const int64_t nbytes = 1000;
    *n = 1;
    if (name == WORKSPACE_OF_PLAN) memcpy(out, &nbytes, sizeof nbytes);
    return name != RESULTS && name != WORKSPACE_OF_PLAN;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    return failure ? failure : handle != &last || !plan || !pack;
}
