/* Named weighted sums: what ls_run_log collects, added in one fixed order. */
#ifndef LS_RUN_SUMS_H
#define LS_RUN_SUMS_H

#include <lockstep/metric.h>

#include "base/json.h"
#include "comm/exchange.h"

/* Plain data that begins as zero bytes, so that it is the state of a metric too. */
typedef struct ls__sums {
    int64_t count;
    ls__record items[LS__RECORDS_MAX];
} ls__sums;

/* False when the name is too long or there are too many. */
bool ls__sums_add(ls__sums *sums, const char *name, double sum, double weight);
void ls__sums_merge(ls__sums *sums, const ls__sums *next);
json_t *ls__sums_json(const ls__sums *sums); /* [[name, sum, weight], ...] */
bool ls__sums_parse(const json_t *json, ls__sums *out);

/* "loss" -> "train/loss"; a name with '/' stays. False when too long. */
bool ls__metric_name(const char *stage, const char *name, char out[LS__RECORD_NAME_MAX]);

extern const ls_metric ls__sums_metric; /* for ls__metric_gather: merges by name, in chunk order */

#endif
