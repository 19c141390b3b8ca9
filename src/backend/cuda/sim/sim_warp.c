/* Operations of a warp: shuffles, ballots, __syncwarp.
 *
 * The last lane to come works out what all get, so that a lane that hurries on to its next operation
 * can overwrite nothing that another has yet to read. */
#include <stdio.h>

#include "backend/cuda/sim/sim_block.h"

static uint64_t result_of(const sim_thread *lanes, unsigned mask, const sim_thread *t)
{
    if (t->op == SIM_WARP_BALLOT) {
        uint64_t bits = 0;
        for (unsigned lane = 0; lane < SIM_WARP; lane++)
            if (mask >> lane & 1 && lanes[lane].value) bits |= 1u << lane;
        return bits;
    }
    bool given = t->source >= 0 && t->source < SIM_WARP && mask >> t->source & 1;
    return given ? lanes[t->source].value : UINT64_MAX;
}

static void complete(sim_block *b, int first, unsigned mask, int self)
{
    sim_thread *lanes = &b->threads[first];
    for (int lane = 0; lane < SIM_WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        if (lanes[lane].mask != mask || lanes[lane].op != b->threads[self].op) {
            char text[160];
            snprintf(text, sizeof(text),
                     "lanes of a warp meet in different operations or with different masks: %#x, "
                     "and %#x of lane %d",
                     mask, lanes[lane].mask, lane);
            ls__sim_block_give_up(b, cudaErrorLaunchFailure, text);
        }
        lanes[lane].result = result_of(lanes, mask, &lanes[lane]);
    }
    for (int lane = 0; lane < SIM_WARP; lane++)
        if (mask >> lane & 1 && first + lane != self) ls__sim_block_ready(b, first + lane);
}

uint64_t ls__sim_warp(sim_warp_op op, unsigned mask, uint64_t value, int source)
{
    sim_block *b = ls__sim_block_here();
    int self = b->current, lane = self % SIM_WARP;
    sim_warp *w = &b->warps[self / SIM_WARP];
    sim_thread *t = &b->threads[self];
    if (!(mask >> lane & 1))
        ls__sim_block_give_up(b, cudaErrorLaunchFailure, "a lane that its own mask does not name");
    t->op = op;
    t->mask = mask;
    t->value = value;
    t->source = source;
    sim_order *order = &w->order[w->generation & 1];
    if (op == SIM_WARP_SYNC) sim_release(order);
    w->arrived |= 1u << lane;
    if ((w->arrived & mask) == mask) {
        w->arrived &= ~mask;
        w->generation++;
        complete(b, self - lane, mask, self);
    } else
        ls__sim_block_wait(b, SIM_WAITS_WARP);
    if (op == SIM_WARP_SYNC) sim_acquire(order);
    return t->result;
}

int ls__sim_lane(void)
{
    return ls__sim_block_here()->current % SIM_WARP;
}
