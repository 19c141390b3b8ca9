/* The progress line as text. Parts have a fixed order and a rank of importance; on a narrow
 * terminal the least important go first, so that the line never wraps (a wrapped line cannot be
 * redrawn). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "record/record.h"

enum { PARTS_MAX = 16, PART_BYTES = 96, GAP = 2 };

typedef struct part {
    char text[PART_BYTES];
    int importance; /* higher stays longer */
} part;

typedef struct parts {
    part all[PARTS_MAX];
    int n;
} parts;

static part *add(parts *p, int importance)
{
    part *new = &p->all[p->n < PARTS_MAX ? p->n++ : PARTS_MAX - 1];
    new->importance = importance;
    new->text[0] = '\0';
    return new;
}

/* Columns of UTF-8 text, one per character. */
static int columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* 8.4, 512, 12.3k, 4.56M */
static void rate_text(double rate, char out[32])
{
    if (rate < 10)
        snprintf(out, 32, "%.1f", rate);
    else if (rate < 1000)
        snprintf(out, 32, "%.0f", rate);
    else if (rate < 1e6)
        snprintf(out, 32, rate < 99950 ? "%.1fk" : "%.0fk", rate / 1e3);
    else
        snprintf(out, 32, "%.2fM", rate / 1e6);
}

/* 0:42, 12:05, 3:07:00 */
static void time_text(double seconds, char out[32])
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (s < 3600)
        snprintf(out, 32, "%" PRId64 ":%02" PRId64, s / 60, s % 60);
    else
        snprintf(out, 32, "%" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60, s % 60);
}

static void add_epoch(parts *out, const ls__progress *p)
{
    int64_t epoch = (int64_t)p->epoch + 1;
    if (p->epochs > 0 && epoch > p->epochs) epoch = p->epochs; /* the end of the last */
    char *text = add(out, 3)->text;
    if (p->epochs > 0)
        snprintf(text, PART_BYTES, "epoch %" PRId64 "/%" PRId64, epoch, p->epochs);
    else
        snprintf(text, PART_BYTES, "epoch %" PRId64, epoch);
}

static void add_step(parts *out, const ls__progress *p)
{
    char *text = add(out, 9)->text;
    if (p->steps > 0)
        snprintf(text, PART_BYTES, "step %" PRId64 "/%" PRId64, p->step, p->steps);
    else
        snprintf(text, PART_BYTES, "step %" PRId64, p->step);
}

/* Four significant digits, zeros kept, so that the line does not jump about. */
static void add_value(parts *out, int importance, const char *name, double value)
{
    if (isnan(value)) return;
    snprintf(add(out, importance)->text, PART_BYTES, "%.40s %#.4g", name, value);
}

static void add_pace(parts *out, const ls__progress *p)
{
    char text[32];
    if (p->rate > 0 && isfinite(p->rate)) {
        rate_text(p->rate, text);
        snprintf(add(out, 2)->text, PART_BYTES, "%s %.15s/s", text, p->unit ? p->unit : "samples");
    }
    if (p->eta >= 0 && p->eta < 1e9) {
        time_text(p->eta, text);
        snprintf(add(out, 4)->text, PART_BYTES, "ETA %s", text);
    }
}

static int width_of(const parts *p)
{
    int width = 0;
    for (int i = 0; i < p->n; i++)
        if (p->all[i].text[0]) width += columns(p->all[i].text) + (width > 0 ? GAP : 0);
    return width;
}

/* The last of the least important; the most important one stays in any case. */
static bool drop_one(parts *p)
{
    int least = -1;
    for (int i = 0; i < p->n; i++)
        if (p->all[i].text[0] && (least < 0 || p->all[i].importance <= p->all[least].importance))
            least = i;
    if (least < 0 || p->all[least].importance == 9) return false;
    p->all[least].text[0] = '\0';
    return true;
}

static void join(const parts *p, int width, char *out, size_t nbytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < p->n && used < nbytes; i++)
        if (p->all[i].text[0])
            used += (size_t)snprintf(out + used, nbytes - used, "%s%s", used ? "  " : "",
                                     p->all[i].text);
    if (width > 0 && columns(out) > width) out[width] = '\0'; /* "step 120/704" alone: ASCII */
}

void ls__progress_text(const ls__progress *p, int width, char *out, size_t nbytes)
{
    parts all = { .n = 0 };
    if (nbytes == 0) return;
    if (p->stage && strcmp(p->stage, "train") != 0)
        snprintf(add(&all, 8)->text, PART_BYTES, "%.40s", p->stage);
    add_epoch(&all, p);
    add_step(&all, p);
    add_value(&all, 5, "loss", p->loss);
    for (int i = 0; i < p->n && i < 8; i++) add_value(&all, 1, p->names[i], p->values[i]);
    add_pace(&all, p);
    while (width > 0 && width_of(&all) > width && drop_one(&all)) continue;
    join(&all, width, out, nbytes);
}

bool ls__progress_due(double *last, bool terminal)
{
    double now = ls__now();
    if (*last != 0 && now - *last < (terminal ? 0.1 : 10)) return false;
    *last = now;
    return true;
}
