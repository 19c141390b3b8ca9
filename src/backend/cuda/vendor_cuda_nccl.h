/* NCCL as it is used here, opened at run time. The few prototypes are our own, so that no header of
 * NCCL's is needed to build; where there is one, they are compared with it. */
#ifndef LS_BACKEND_CUDA_VENDOR_CUDA_NCCL_H
#define LS_BACKEND_CUDA_VENDOR_CUDA_NCCL_H

#include <stddef.h>

#include "backend/cuda/runtime.h"

enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7 }; /* results */
enum { NCCL_INT8 = 0, NCCL_FLOAT = 7 };     /* types */
enum { NCCL_SUM = 0, NCCL_ID_BYTES = 128 };
enum { NCCL_MAGIC = (int)0xcafebeef, NCCL_KNOWN_VERSION = 21400 };

typedef struct nccl_comm nccl_comm;
typedef struct nccl_id {
    char bytes[NCCL_ID_BYTES];
} nccl_id;
typedef struct nccl_config { /* of that version: later fields are taken as not set */
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;

typedef struct ls__nccl_table {
    int (*get_version)(int *version);
    int (*get_unique_id)(nccl_id *out);
    int (*init)(nccl_comm **out, int size, nccl_id id, int rank, nccl_config *config);
    int (*finalize)(nccl_comm *comm);
    int (*destroy)(nccl_comm *comm);
    int (*abort)(nccl_comm *comm);
    int (*async_error)(nccl_comm *comm, int *error);
    int (*send)(const void *data, size_t count, int type, int peer, nccl_comm *comm,
                cudaStream_t stream);
    int (*recv)(void *data, size_t count, int type, int peer, nccl_comm *comm, cudaStream_t stream);
    int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int operation,
                          nccl_comm *comm, cudaStream_t stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type, nccl_comm *comm,
                      cudaStream_t stream);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*error_string)(int result);
    const char *(*last_error)(nccl_comm *comm);
    /* From 2.19 on; NULL where it is older. */
    int (*reg)(nccl_comm *comm, void *data, size_t nbytes, void **handle);
    int (*dereg)(nccl_comm *comm, void *handle);
    int (*mem_alloc)(void **data, size_t nbytes);
    int (*mem_free)(void *data);
} ls__nccl_table;

/* The library, opened by the first call; NULL: *why says why it cannot be used. */
const ls__nccl_table *ls__nccl(const char **why);

/* Several machines: NCCL_SOCKET_IFNAME becomes the interface from which this one reaches root, the
 * first machine, unless the user has chosen (by that variable, NCCL_COMM_ID, or NCCL's own files).
 * Before NCCL's first call, which reads it. */
void ls__nccl_choose_interface(const char *root);

#endif
