/* The recipe behind `lockstep train image`: a classifier of small images. Also an example of the API:
 * public headers only. */
#ifndef LS_RECIPE_IMAGE_H
#define LS_RECIPE_IMAGE_H

#include <lockstep/lockstep.h>

typedef struct recipe_image {
    const char *data;  /* folder with MNIST's four files; NULL = not given */
    const char *model; /* "mlp", "cnn", "resnet" */
    int64_t classes;
    int64_t crop; /* augmentation in training: pixels of padding before a random crop; 0 = none */
    bool flip;    /* and mirror at random */
} recipe_image;

#define RECIPE_IMAGE_DEFAULTS                                                                      \
    {                                                                                              \
        .model = "cnn", .classes = 10                                                              \
    }

ls_status recipe_image_check(const recipe_image *recipe);
void recipe_image_step(ls_graph *g, void *user); /* user: the recipe */
/* part: "train" or "t10k" (the test set). */
ls_status recipe_image_open(const recipe_image *recipe, const char *part, ls_dataset **out);
/* The whole command; main's exit code. */
int recipe_image_train(int argc, char **argv);

#endif
