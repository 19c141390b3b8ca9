/* The recipe behind `lockstep train image`: a classifier of small images. Also an example of the API:
 * public headers only. */
#ifndef LS_RECIPE_IMAGE_H
#define LS_RECIPE_IMAGE_H

#include <lockstep/lockstep.h>

typedef struct recipe_image {
    const char *data; /* folder with MNIST's four files, or with a sub-folder of images per class */
    const char *model;            /* "mlp", "cnn", "resnet" */
    int64_t classes;              /* 0 = as the folder has, else 10 */
    int64_t image_size, channels; /* of a folder's images; 0 = 64, 3 */
    double val_fraction;          /* of the training images, kept for validation */
    int64_t crop; /* augmentation in training: pixels of padding before a random crop; 0 = none */
    bool flip;    /* and mirror at random */
} recipe_image;

#define RECIPE_IMAGE_DEFAULTS                                                                      \
    {                                                                                              \
        .model = "cnn", .val_fraction = 0.1                                                        \
    }

void recipe_image_step(ls_graph *g, void *user); /* user: the recipe, checked */
/* Numbers that are 0 become what they stand for. */
ls_status recipe_image_check(recipe_image *recipe);

/* classes.txt in a run's folder: the sub-folders by name, written when the run begins; data with other
 * ones is an error, because a label is their number. */
ls_status recipe_image_classes(const recipe_image *recipe, const char *folder, bool begins);

/* A folder of images has no test set: test is NULL. */
typedef struct recipe_image_data {
    ls_dataset *all, *train, *val, *test;
} recipe_image_data;
ls_status recipe_image_open(const recipe_image *recipe, recipe_image_data *out);
void recipe_image_close(recipe_image_data *data);

/* The whole command; main's exit code. */
int recipe_image_train(int argc, char **argv);

#endif
