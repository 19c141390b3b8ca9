/* Errors of the simulated GPU: of calls, per thread, and of devices, found late and for good.
 *
 * As on a GPU a launch that goes wrong is found by whoever synchronizes next, and from then on every
 * call of the device returns that error. Unlike there the text says what went wrong. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/sim/sim_internal.h"

enum { TEXT = 512 };

typedef struct fault {
    cudaError_t error;
    bool found;
    char text[TEXT];
    sim_order order; /* of the text */
} fault;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fault faults[SIM_MAX_DEVICES];

/* The calling thread's last error, and its text where there is more to say than CUDA's words. */
static __thread cudaError_t last_error;
static __thread cudaError_t told_error;
static __thread char told[TEXT];

static const char *plain_text(cudaError_t error)
{
    switch (error) {
#define TEXT_OF(name, value, text)                                                                 \
    case name:                                                                                     \
        return text;
        LS_SIM_ERROR_MAP(TEXT_OF)
    }
    return "unrecognized error code";
}

static void tell(cudaError_t error, const char *more)
{
    told_error = error;
    snprintf(told, sizeof(told), "%s: %.*s", plain_text(error), TEXT - 100, more);
}

cudaError_t ls__sim_error(cudaError_t error, const char *format, ...)
{
    last_error = error;
    told_error = cudaSuccess;
    if (format) {
        char text[TEXT];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        tell(error, text);
    }
    return error;
}

void ls__sim_fault(int device, cudaError_t error, const char *format, ...)
{
    sim_lock(&lock);
    fault *f = &faults[device];
    if (f->error == cudaSuccess) {
        f->error = error;
        va_list args;
        va_start(args, format);
        vsnprintf(f->text, sizeof(f->text), format, args);
        va_end(args);
        sim_release(&f->order);
    }
    sim_unlock(&lock);
}

static cudaError_t look(int device, bool finds)
{
    sim_lock(&lock);
    fault *f = &faults[device];
    if (finds && f->error != cudaSuccess) f->found = true;
    cudaError_t error = f->found ? f->error : cudaSuccess;
    if (error != cudaSuccess) {
        last_error = error;
        sim_acquire(&f->order);
        tell(error, f->text);
    }
    sim_unlock(&lock);
    return error;
}

cudaError_t ls__sim_found(int device)
{
    return look(device, true);
}

cudaError_t ls__sim_known(int device)
{
    return look(device, false);
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error != cudaSuccess && error == told_error ? told : plain_text(error);
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define NAME_OF(name, value, text)                                                                 \
    case name:                                                                                     \
        return #name;
        LS_SIM_ERROR_MAP(NAME_OF)
    }
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t error = ls__sim_known(ls__sim_device());
    return error != cudaSuccess ? error : last_error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}
