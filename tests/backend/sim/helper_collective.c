/* What every library that connects devices must do. */
#include "backend/sim/helper_collective.h"

#include <string.h>

#include "base/clock.h"

/* --- a rank --- */

bool device_rank_begin(device_rank *d, test_rank *t, int timeout_ms)
{
    *d = (device_rank) { .t = t };
    void *data = NULL;
    bool good = cudaSetDevice(t->rank) == cudaSuccess &&
                cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking) == cudaSuccess &&
                ls__vendor_collective_allocate(MEMORY * sizeof(float), &data) == cudaSuccess;
    d->data = data;
    cuda_collective_options options = { .comm = t->comm,
                                        .device = t->rank,
                                        .most_bytes = MEMORY * sizeof(float),
                                        .timeout_ms = timeout_ms };
    if (good) good = ls__vendor_collective_create(&options, &d->c) == LS_OK;
    if (good) good = ls__vendor_collective_register(d->c, d->data, MEMORY * sizeof(float)) == LS_OK;
    if (!good) rank_failed(t, __FILE__, __LINE__, "%s", ls_error_text());
    return good;
}

void device_rank_end(device_rank *d)
{
    cudaStreamSynchronize(d->stream);
    ls__vendor_collective_destroy(d->c);
    ls__vendor_collective_free(d->data);
    cudaStreamDestroy(d->stream);
}

/* The host's memory is pageable: both return when it is done. */
static bool copy(device_rank *d, void *to, const void *from, int64_t n)
{
    cudaError_t error =
        cudaMemcpyAsync(to, from, (size_t)n * sizeof(float), cudaMemcpyDefault, d->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(d->stream);
    if (error != cudaSuccess)
        rank_failed(d->t, __FILE__, __LINE__, "copying: %s", cudaGetErrorString(error));
    return error == cudaSuccess;
}

bool device_rank_put(device_rank *d, int64_t at, const float *values, int64_t n)
{
    return copy(d, d->data + at, values, n);
}

bool device_rank_get(device_rank *d, int64_t at, float *values, int64_t n)
{
    return copy(d, values, d->data + at, n);
}

ls_status device_rank_wait(device_rank *d)
{
    ls_status status = LS_OK;
    while (status == LS_OK && cudaStreamQuery(d->stream) == cudaErrorNotReady) {
        ls__sleep_ms(1);
        status = ls__vendor_collective_check(d->c);
    }
    return status == LS_OK ? ls__vendor_collective_check(d->c) : status;
}

/* --- what travels: whole numbers, so that any order of sums gives the same --- */

static float value(int rank, int64_t i)
{
    return (float)((rank + 1) * 1000 + i);
}

static bool fill(device_rank *d, int64_t n)
{
    float values[MEMORY];
    for (int64_t i = 0; i < n; i++) values[i] = value(d->t->rank, i);
    return device_rank_put(d, 0, values, n);
}

enum { FIRST = 5, SECOND = 12, RESULT = 1024 };

/* Two spans of a call: parts of 5 and of 12 numbers. */
static void sums(test_rank *t)
{
    device_rank d;
    float got[FIRST + SECOND];
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, fill(&d, t->size * (FIRST + SECOND)));
    cuda_span spans[] = { { d.data, d.data + RESULT, FIRST },
                          { d.data + t->size * FIRST, d.data + RESULT + FIRST, SECOND } };
    for (int turn = 0; turn < 3; turn++)
        RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", spans, 2));
    RANK_OK(t, device_rank_wait(&d));
    RANK_CHECK(t, device_rank_get(&d, RESULT, got, FIRST + SECOND));
    for (int i = 0; i < FIRST + SECOND; i++) {
        int64_t at =
            i < FIRST ? t->rank * FIRST + i : t->size * FIRST + t->rank * SECOND + i - FIRST;
        float sum = 0;
        for (int p = 0; p < t->size; p++) sum += value(p, at);
        RANK_CHECK(t, got[i] == sum);
    }
    device_rank_end(&d);
}

static void gathers(test_rank *t)
{
    device_rank d;
    float got[8 * (FIRST + SECOND)];
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, fill(&d, FIRST + SECOND));
    float *second = d.data + RESULT + t->size * FIRST, *place = second + t->rank * SECOND;
    RANK_CHECK(t, cudaMemcpyAsync(place, d.data + FIRST, SECOND * sizeof(float),
                                  cudaMemcpyDeviceToDevice, d.stream) == cudaSuccess);
    cuda_span spans[] = { { d.data, d.data + RESULT, FIRST }, { place, second, SECOND } };
    RANK_OK(t, ls__vendor_collective_all_gather(d.c, d.stream, "parameters", spans, 2));
    RANK_OK(t, device_rank_wait(&d));
    RANK_CHECK(t, device_rank_get(&d, RESULT, got, t->size * (FIRST + SECOND)));
    for (int p = 0; p < t->size; p++) {
        for (int i = 0; i < FIRST; i++) RANK_CHECK(t, got[p * FIRST + i] == value(p, i));
        for (int i = 0; i < SECOND; i++)
            RANK_CHECK(t, got[t->size * FIRST + p * SECOND + i] == value(p, FIRST + i));
    }
    device_rank_end(&d);
}

/* To every other rank a message of rank + 1 numbers, then one of 3. */
static void exchanges(test_rank *t)
{
    device_rank d;
    cuda_transfer sends[16], receives[16];
    float got[16];
    int n = 0;
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, fill(&d, 16));
    for (int p = 0; p < t->size; p++) {
        float *room = d.data + RESULT + 16 * p;
        if (p == t->rank) continue;
        sends[n] = (cuda_transfer) { p, d.data, (size_t)(t->rank + 1) * sizeof(float) };
        receives[n] = (cuda_transfer) { p, room, (size_t)(p + 1) * sizeof(float) };
        sends[n + 1] = (cuda_transfer) { p, d.data + 8, 3 * sizeof(float) };
        receives[n + 1] = (cuda_transfer) { p, room + p + 1, 3 * sizeof(float) };
        n += 2;
    }
    RANK_OK(t, ls__vendor_collective_exchange(d.c, d.stream, "gradients", sends, n, receives, n));
    RANK_OK(t, device_rank_wait(&d));
    for (int p = 0; p < t->size; p++) {
        if (p == t->rank) continue;
        RANK_CHECK(t, device_rank_get(&d, RESULT + 16 * p, got, p + 4));
        for (int i = 0; i <= p; i++) RANK_CHECK(t, got[i] == value(p, i));
        for (int i = 0; i < 3; i++) RANK_CHECK(t, got[p + 1 + i] == value(p, 8 + i));
    }
    device_rank_end(&d);
}

void collective_values(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) {
        run_ranks(size, NULL, sums, NULL);
        run_ranks(size, NULL, gathers, NULL);
        run_ranks(size, NULL, exchanges, NULL);
    }
}

/* --- what goes wrong --- */

void collective_missing(test_rank *t)
{
    device_rank d;
    if (!device_rank_begin(&d, t, 300)) return;
    RANK_CHECK(t, fill(&d, t->size * FIRST));
    cuda_span span = { d.data, d.data + RESULT, FIRST };
    int64_t began = ls__now_ns();
    if (t->rank == 1) {
        ls__sleep_ms(900);
    } else {
        RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1));
        ls_status status = device_rank_wait(&d);
        RANK_CHECK(t, status == LS_ERR_TIMEOUT || status == LS_ERR_DEVICE);
        RANK_CHECK(t, strstr(ls_error_text(),
                             "rank 1 has not come to the exchange of gradients within 0.3 s"));
        RANK_CHECK(t, ls__now_ns() - began > INT64_C(250000000));
        RANK_CHECK(t, ls__now_ns() - began < INT64_C(5000000000));
    }
    /* It has been given up for all: whoever comes late is told why, and does not wait. */
    if (t->rank == 1) {
        ls_status status =
            ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1);
        if (status == LS_OK) status = device_rank_wait(&d);
        RANK_CHECK(t, status == LS_ERR_DEVICE);
        RANK_CHECK(t, strstr(ls_error_text(), "rank 1 has not come"));
        ls__vendor_collective_abort(d.c, "rank 0 has"); /* as the backend does */
    }
    device_rank_end(&d);
}

void collective_given_up(test_rank *t)
{
    device_rank d;
    if (!device_rank_begin(&d, t, -1)) return;
    RANK_CHECK(t, fill(&d, t->size * FIRST));
    cuda_span span = { d.data, d.data + RESULT, FIRST };
    if (t->rank == 1) {
        ls__sleep_ms(50);
        ls__vendor_collective_abort(d.c, "its memory is full");
    } else {
        RANK_OK(t, ls__vendor_collective_reduce_scatter(d.c, d.stream, "gradients", &span, 1));
        RANK_FAILS(t, device_rank_wait(&d), LS_ERR_DEVICE, "rank 1: its memory is full");
    }
    device_rank_end(&d);
}
