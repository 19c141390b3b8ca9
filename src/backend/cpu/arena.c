/* Where every buffer lies: a part of the arena that is the same for all tiles, and behind it one
 * scratch per thread that holds a tile.
 *
 * A buffer that is cut by samples and only used by neighbouring tiled steps (one segment) lives in
 * the scratches: it takes a tile's memory instead of the batch's. Whatever else a segment touches
 * is alive for the whole of it, since other tiles may be at any of its steps. */
#include "backend/cpu/cpu.h"

typedef struct use {
    int first, last; /* steps; first > last: not used */
    int segment;     /* -1: more than one, or a whole step */
} use;

static void widen(use *u, int first, int last)
{
    if (first < u->first) u->first = first;
    if (last > u->last) u->last = last;
}

static void find_uses(const cpu_program *p, const int *begin, use *uses)
{
    for (int i = 0; i < p->nbuffers; i++) uses[i] = (use) { p->nsteps, -1, -2 };
    for (int s = 0; s < p->nsteps; s++) {
        const cpu_step *step = &p->steps[s];
        for (int k = 0; k < step->nbuffers; k++) {
            use *u = &uses[p->buffers[step->buffers[k]].root];
            int segment = step->tiled ? begin[s] : -1;
            u->segment = u->segment == -2 || u->segment == segment ? segment : -1;
            widen(u, s, s);
        }
    }
}

static void find_segments(const cpu_program *p, int *begin, int *end)
{
    for (int s = 0; s < p->nsteps; s++) {
        bool joined = s > 0 && p->steps[s].tiled && p->steps[s - 1].tiled;
        begin[s] = joined ? begin[s - 1] : s;
    }
    for (int s = p->nsteps - 1; s >= 0; s--) {
        bool joined = s + 1 < p->nsteps && p->steps[s].tiled && p->steps[s + 1].tiled;
        end[s] = joined ? end[s + 1] : s;
    }
}

static size_t tile_bytes(const cpu_program *p, const cpu_buffer *b)
{
    if (b->temporary) return b->nbytes;
    return b->per_sample * (size_t)p->tile;
}

/* kept[i]: some buffer in the memory of root i is a result. */
static void find_kept(const cpu_program *p, bool *kept)
{
    for (int i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].keep) kept[p->buffers[i].root] = true;
}

static ls__lifetime lifetime_of(const cpu_program *p, int i, const use *u, const int *begin,
                                const int *end, bool kept, bool tiled)
{
    const cpu_buffer *b = &p->buffers[i];
    bool mine = b->root == i && b->space == CPU_ARENA && u->first <= u->last;
    bool fits = b->temporary || (b->per_sample && u->segment >= 0 && !kept);
    ls__lifetime life = { .nbytes = mine && fits == tiled ? b->nbytes : 0,
                          .begin = u->first,
                          .end = u->last,
                          .offset = -1 };
    if (tiled) {
        if (life.nbytes) life.nbytes = tile_bytes(p, b);
        return life;
    }
    if (life.nbytes == 0) return life;
    life.begin = begin[u->first];
    life.end = kept ? p->nsteps : end[u->last];
    return life;
}

static ls_status place(cpu_program *p, const use *uses, const int *begin, const int *end,
                       const bool *kept, ls__lifetime *lives, bool tiled, size_t *total)
{
    for (int i = 0; i < p->nbuffers; i++)
        lives[i] = lifetime_of(p, i, &uses[i], begin, end, kept[i], tiled);
    *total = ls__memory_plan(lives, p->nbuffers);
    if (*total == SIZE_MAX) return LS_ERR_MEMORY;
    for (int i = 0; i < p->nbuffers; i++) {
        if (lives[i].nbytes == 0) continue;
        p->buffers[i].offset = lives[i].offset;
        p->buffers[i].tiled = tiled;
    }
    return LS_OK;
}

static void follow_roots(cpu_program *p)
{
    for (int i = 0; i < p->nbuffers; i++) {
        cpu_buffer *b = &p->buffers[i];
        b->offset = p->buffers[b->root].offset;
        b->tiled = p->buffers[b->root].tiled;
    }
}

/* Whole cache lines, and pages where there are many, so that threads share none. */
static size_t padded(size_t nbytes)
{
    size_t unit = nbytes > 65536 ? 4096 : 64;
    return (nbytes + unit - 1) / unit * unit;
}

ls_status ls__cpu_plan_memory(cpu_program *p)
{
    size_t n = (size_t)p->nbuffers + 1, steps = (size_t)p->nsteps + 1;
    use *uses = ls__alloc(n, sizeof *uses);
    int *begin = ls__alloc(steps, sizeof *begin), *end = ls__alloc(steps, sizeof *end);
    bool *kept = ls__alloc(n, sizeof *kept);
    ls__lifetime *lives = ls__alloc(n, sizeof *lives);
    ls_status status = uses && begin && end && kept && lives ? LS_OK : LS_ERR_MEMORY;
    if (status != LS_OK) goto done;
    find_segments(p, begin, end);
    find_uses(p, begin, uses);
    find_kept(p, kept);
    LS_TRY_GOTO(place(p, uses, begin, end, kept, lives, true, &p->scratch_bytes), status, done);
    LS_TRY_GOTO(place(p, uses, begin, end, kept, lives, false, &p->whole_bytes), status, done);
    p->scratch_bytes = padded(p->scratch_bytes);
    p->whole_bytes = padded(p->whole_bytes);
    follow_roots(p);
done:
    ls__free(lives);
    ls__free(kept);
    ls__free(end);
    ls__free(begin);
    ls__free(uses);
    return status;
}
