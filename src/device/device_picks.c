/* Reads picks. A pick is looked up in the list of what CUDA shows, and what is picked becomes the
 * list: so a rank's device is a place in it, whatever numbers nvidia-smi, CUDA and the batch system
 * each give to a GPU. The same GPU twice is taken for a mistake unless it is said by "*". */
#include "device/device_picks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* --- what CUDA shows --- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_number(const char *text, size_t length)
{
    return length > 0 && length < 6 && strspn(text, "0123456789") >= length;
}

/* Whether CUDA counts GPUs as the driver does: when it is told to, and where all are of one kind. */
static bool counts_alike(const char *order, const ls__gpus *gpus)
{
    if (order && strcmp(order, "PCI_BUS_ID") == 0) return true;
    for (int i = 1; i < gpus->count; i++)
        if (strcmp(gpus->gpus[i].name, gpus->gpus[0].name) != 0) return false;
    return true;
}

static void add_known(ls__gpu_names *out, const ls__gpus *gpus, int i)
{
    const ls__gpu *gpu = &gpus->gpus[i];
    ls__gpu_name *name = &out->list[out->count++];
    *name = (ls__gpu_name) { .known = i, .divided = gpu->divided };
    if (gpu->uuid[0])
        snprintf(name->name, sizeof name->name, "%s", gpu->uuid);
    else
        snprintf(name->name, sizeof name->name, "%d", i);
}

/* An entry of CUDA_VISIBLE_DEVICES. */
static void add_listed(ls__gpu_names *out, const char *text, size_t length, bool alike,
                       const ls__gpus *gpus, int known)
{
    ls__gpu_name *name = &out->list[out->count];
    if (length >= sizeof name->name) length = sizeof name->name - 1;
    if (alike && is_number(text, length) && atoi(text) < known) {
        add_known(out, gpus, atoi(text));
        return;
    }
    *name = (ls__gpu_name) { .known = -1 };
    memcpy(name->name, text, length);
    out->count++;
    for (int i = 0; i < known && !is_number(text, length); i++)
        if (begins(gpus->gpus[i].uuid, name->name)) name->known = i;
}

static void find_listed(const char *visible, bool alike, const ls__gpus *gpus, int known,
                        ls__gpu_names *out)
{
    out->listed = true;
    while (*visible && out->count < LS__NAMES_MAX) {
        while (*visible == ' ') visible++;
        size_t length = strcspn(visible, ", ");
        if (length == 0 || *visible == '-' || begins(visible, "NoDev")) return;
        add_listed(out, visible, length, alike, gpus, known);
        visible += length;
        visible += strspn(visible, " ");
        visible += *visible == ',';
    }
}

void ls__gpu_names_find(const char *visible, const char *order, const ls__gpus *gpus, int files,
                        ls__gpu_names *out)
{
    memset(out, 0, sizeof *out);
    int known = gpus ? gpus->count : 0;
    if (visible) {
        find_listed(visible, known > 0 && counts_alike(order, gpus), gpus, known, out);
        return;
    }
    for (int i = 0; i < known && i < LS__NAMES_MAX; i++) add_known(out, gpus, i);
    for (int i = out->count; i < files && known == 0 && i < LS__NAMES_MAX; i++) {
        out->list[i].known = -1;
        snprintf(out->list[i].name, sizeof out->list[i].name, "%d", i);
        out->count++;
    }
}

/* --- what was asked for --- */

bool ls__picks_are(const char *spec)
{
    return begins(spec, "gpu@") || begins(spec, "sim@") || begins(spec, "GPU-") ||
           begins(spec, "MIG-") ||
           (spec[strspn(spec, "0123456789,*")] == '\0' && strpbrk(spec, ",*") &&
            strpbrk(spec, "0123456789"));
}

/* One entry: "2", "GPU-6e5c41a2", with "*3" behind it or not. */
typedef struct pick {
    const char *text;
    int length; /* of the name */
    int times;
} pick;

typedef struct reading {
    const char *spec;
    const ls__gpu_names *names; /* NULL: of the simulation */
    ls__picks *out;
    int used; /* GPUs that were named */
    int16_t place[LS__PICKS_MAX];
} reading;

static ls_status fail_entry(const reading *r, const pick *p, const char *why)
{
    return ls_fail(LS_ERR_CONFIG, "--devices %.64s: %.*s: %s", r->spec,
                   p->length < 48 ? p->length : 48, p->text, why);
}

/* Where the entry is in the list; -1 after saying why it is nowhere. */
static ls_status find_place(const reading *r, const pick *p, int *out)
{
    bool number = is_number(p->text, (size_t)p->length);
    int count = r->names ? r->names->count : LS__PICKS_MAX, found = 0;
    *out = number ? atoi(p->text) : -1;
    if (number && *out < count) return LS_OK;
    if (number)
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: there is no GPU %d: %d can be used here%s (lockstep "
                       "devices lists them)",
                       r->spec, *out, count,
                       r->names && r->names->listed ? " by CUDA_VISIBLE_DEVICES" : "");
    if (!r->names || p->length < 5)
        return fail_entry(r, p, "a number, or the beginning of a UUID (GPU-..., MIG-...)");
    for (int i = 0; i < count; i++) {
        if (strncmp(r->names->list[i].name, p->text, (size_t)p->length) != 0) continue;
        *out = i;
        found++;
    }
    /* Parts of GPUs are not in the list of what the driver counts, but have names of their own. */
    bool part = strncmp(p->text, "MIG-", 4) == 0 && !r->names->listed;
    if (found > 1) return fail_entry(r, p, "several GPUs have a UUID that begins so");
    if (found == 0 && !part)
        return fail_entry(r, p,
                          r->names->listed ? "not among those that CUDA_VISIBLE_DEVICES lists"
                                           : "no GPU here has this UUID (lockstep devices)");
    return LS_OK;
}

static ls_status append_name(const reading *r, const pick *p, int place)
{
    size_t used = strlen(r->out->visible), room = sizeof r->out->visible - used;
    const char *name = place >= 0 ? r->names->list[place].name : p->text;
    int length = place >= 0 ? (int)strlen(name) : p->length;
    int n = snprintf(r->out->visible + used, room, "%s%.*s", used ? "," : "", length, name);
    if (n < 0 || (size_t)n >= room) return fail_entry(r, p, "the list is too long");
    return LS_OK;
}

/* Named before? Parts are compared by their names, which begin at the same letter. */
static bool is_repeated(const reading *r, const pick *p, int place)
{
    for (int i = 0; i < r->used && place >= 0; i++)
        if (r->place[i] == place) return true;
    if (place >= 0) return false;
    for (const char *at = r->out->visible; (at = strstr(at, "MIG-")) != NULL; at++)
        if (strncmp(at, p->text, (size_t)p->length) == 0) return true;
    return false;
}

static ls_status take(reading *r, const pick *p)
{
    int place;
    LS_TRY(find_place(r, p, &place));
    if (is_repeated(r, p, place))
        return ls_fail(LS_ERR_CONFIG,
                       "--devices %.64s: %.*s is named twice; %.*s*2 puts two ranks on one GPU",
                       r->spec, p->length < 48 ? p->length : 48, p->text,
                       p->length < 48 ? p->length : 48, p->text);
    if (r->names && place >= 0 && r->names->list[place].divided)
        return fail_entry(r, p,
                          "this GPU is divided (MIG): name one of its parts, which lockstep "
                          "devices lists");
    if (r->out->count + p->times > LS__PICKS_MAX)
        return fail_entry(r, p, "too many ranks: at most 256 on GPUs that are named");
    if (r->names) LS_TRY(append_name(r, p, place));
    for (int k = 0; k < p->times; k++)
        r->out->device[r->out->count++] = (int16_t)(r->names ? r->used : place);
    r->place[r->used++] = (int16_t)place;
    return LS_OK;
}

/* "NAME" or "NAME*N" up to the next comma. */
static ls_status read_entry(const reading *r, const char *at, size_t length, pick *out)
{
    static const char letters[] = "0123456789abcdefABCDEFGIMPU-/";
    size_t name = strspn(at, letters);
    *out = (pick) { .text = at, .length = (int)(name < length ? name : length), .times = 1 };
    const char *star = at + out->length;
    if (out->length == 0) {
        out->length = (int)length;
        return fail_entry(r, out, "a GPU's number or UUID is missing");
    }
    if ((size_t)out->length == length) return LS_OK;
    const char *digits = star + 1;
    size_t n = length - (size_t)out->length - 1;
    if (*star != '*' || !is_number(digits, n) || atoi(digits) < 1) {
        out->length = (int)length;
        return fail_entry(r, out, "must be a GPU's number or UUID, with *N for N ranks on it");
    }
    out->times = atoi(digits);
    return LS_OK;
}

ls_status ls__picks_read(const char *spec, const ls__gpu_names *names, ls__device_kind *kind,
                         ls__picks *out)
{
    *kind = begins(spec, "sim@") ? LS__DEVICE_SIM : LS__DEVICE_GPU;
    memset(out, 0, sizeof *out);
    reading r = { .spec = spec, .names = *kind == LS__DEVICE_GPU ? names : NULL, .out = out };
    const char *at = spec + (begins(spec, "gpu@") || begins(spec, "sim@") ? 4 : 0);
    for (;;) {
        size_t length = strcspn(at, ",");
        pick p;
        LS_TRY(read_entry(&r, at, length, &p));
        LS_TRY(take(&r, &p));
        if (at[length] == '\0') return LS_OK;
        at += length + 1;
    }
}
