/* Metrics with a state that merges exactly: the same bits on any number of devices. */
#ifndef LOCKSTEP_METRIC_H
#define LOCKSTEP_METRIC_H

#include <lockstep/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_mode {
    LS_MODE_AUTO,
    LS_MODE_MIN,
    LS_MODE_MAX
} ls_mode; /* which way is better; auto: as the metric says, else min */

/* A state is state_size bytes, plain data without pointers, and begins as zero bytes. update sees
 * one micro-batch's values; states that were updated are merged in sample order, whichever ranks
 * computed them: next holds the samples behind state's. */
typedef struct ls_metric {
    const char *name;
    size_t state_size;
    ls_mode better;
    void (*update)(void *state, const ls_array *values, int nvalues);
    void (*merge)(void *state, const void *next);
    double (*result)(const void *state);
} ls_metric;

/* Named results of an evaluation. */
enum { LS_VALUES_MAX = 32, LS_VALUE_NAME_MAX = 64 };
typedef struct ls_values {
    int count;
    struct {
        char name[LS_VALUE_NAME_MAX];
        double value;
    } items[LS_VALUES_MAX];
} ls_values;

double ls_values_get(const ls_values *values, const char *name); /* NAN if there is none */

#ifdef __cplusplus
}
#endif
#endif
