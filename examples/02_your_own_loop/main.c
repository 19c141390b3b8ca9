/* A linear model by hand: the loop and the gradients are yours, the rest is not. */
#include <lockstep/lockstep.h>
#include <stdio.h>

#include "data.h"

int main(int argc, char **argv)
{
    ls_world *world;
    ls_dataset *data;
    ls_run *run;
    ls_space *space;
    ls_batch b;
    ls_run_options options = { .batch_size = 64,
                               .max_epochs = 3,
                               .save_every = LS_STEPS(100),
                               .optimizer = { .kind = &ls_sgd, .lr = 0.005 } };
    ls_check(ls_world_init(&argc, &argv, NULL, &world));
    ls_check(ls_world_once(world, make_data, NULL));
    ls_check(ls_dataset_npy("x.npy", "y.npy", &data));
    ls_check(ls_run_create(world, data, &options, &run));
    ls_param_spec params[] = { { "w", D } };
    ls_check(ls_space_create(run, &(ls_space_options) { .params = params, .nparams = 1 }, &space));
    float *w = ls_space_values(space), *grad = ls_space_grads(space); /* (D) each */
    while (ls_run_next(run)) {
        while (ls_run_micro_batch(run, &b)) {
            const float *x = b.fields[0], *y = b.fields[1]; /* (count, D), (count) */
            double loss = 0;
            for (int64_t i = 0; i < b.count; i++, x += D) {
                float e = -y[i];
                for (int j = 0; j < D; j++) e += w[j] * x[j];
                for (int j = 0; j < D; j++) grad[j] += 2 * e * x[j] / (float)b.count;
                loss += (double)e * e / (double)b.count;
            }
            ls_space_add(space, NULL, (double)b.count);
            ls_run_log(run, "loss", loss, (double)b.count);
        }
        ls_space_step(space);
    }
    if (ls_world_rank(world) == 0) printf("loss %.17g\n", ls_run_metric(run, "train/loss"));
    ls_check(ls_run_finish(run, NULL));
    ls_dataset_destroy(data);
    return ls_world_finish(world);
}
