/* A classifier of small images, trained on every device there is. */
#include <lockstep/lockstep.h>
#include <stdio.h>

struct config {
    const char *data;
    int64_t hidden;
    double dropout;
};

/* One micro-batch of B samples; the library differentiates and runs it. */
static void mlp(ls_graph *g, void *user)
{
    const struct config *c = user;
    ls_tensor *x = ls_scale(ls_input(g, "image"), 1 / 255.0f, 0); /* (B,1,28,28) */
    ls_tensor *y = ls_input(g, "label");                          /* (B) */
    ls_tensor *h = ls_relu(ls_linear(x, "fc1", c->hidden));       /* (B,hidden) */
    h = ls_dropout(h, "drop", (float)c->dropout);                 /* when training */
    ls_tensor *z = ls_linear(h, "fc2", 10);                       /* (B,10) */
    ls_output(g, "scores", z);
    ls_minimize(g, ls_cross_entropy(z, y), NULL);
    ls_report(g, "accuracy", ls_accuracy(z, y));
}

static ls_dataset *open_data(const char *folder, const char *part)
{
    char images[LS_PATH_MAX], labels[LS_PATH_MAX];
    ls_dataset *data;
    snprintf(images, sizeof images, "%s/%s-images-idx3-ubyte", folder, part); /* or with .gz */
    snprintf(labels, sizeof labels, "%s/%s-labels-idx1-ubyte", folder, part);
    ls_check(ls_dataset_idx(images, labels, NULL, &data));
    return data;
}

int main(int argc, char **argv)
{
    struct config c = { .data = "/usr/share/datasets/fashion-mnist",
                        .hidden = 256,
                        .dropout = 0.1 };
    const ls_flag flags[] = {
        { "data", 's', &c.data, "folder with the four IDX files of (Fashion-)MNIST" },
        { "hidden", 'i', &c.hidden, "width of the hidden layer" },
        { "dropout", 'd', &c.dropout, "part of it that is dropped in training" },
        { 0 },
    };
    ls_world *world;
    ls_model *model;
    ls_run_result run;
    ls_values test;
    ls_check(ls_world_init(
        &argc, &argv,
        &(ls_world_options) { .summary = "Train a small classifier.", .flags = flags }, &world));
    ls_dataset *all = open_data(c.data, "train"), *held_out = open_data(c.data, "t10k"), *train,
               *val;
    ls_check(ls_dataset_split(all, 0.1, 1, &train, &val));
    ls_check(ls_model_create(world, mlp, &c, &model));
    ls_check(ls_fit(model, train, val,
                    &(ls_run_options) {
                        .batch_size = 256,
                        .max_epochs = 8,
                        .optimizer = { .lr = 3e-3 },
                        .schedule = { .kind = LS_SCHEDULE_COSINE, .warmup_steps = 100 },
                        .checkpoint = { .monitor = "val/accuracy" },
                    },
                    &run));
    ls_check(ls_model_load(model, run.best_checkpoint));
    ls_check(ls_evaluate(model, held_out, &test));
    if (ls_world_rank(world) == 0)
        printf("test accuracy %.4f, in %s\n", ls_values_get(&test, "accuracy"), run.folder);
    ls_model_destroy(model);
    ls_dataset_destroy(val);
    ls_dataset_destroy(train);
    ls_dataset_destroy(held_out);
    ls_dataset_destroy(all);
    return ls_world_finish(world);
}
