/* The recipe behind `lockstep train table`: a column of a CSV file from the other columns. Also an
 * example of the API: public headers only. */
#ifndef LS_RECIPE_TABLE_H
#define LS_RECIPE_TABLE_H

#include <lockstep/lockstep.h>

typedef struct recipe_table {
    const char *data, *val_data, *test_data; /* val_data NULL = a tenth of data */
    const char *target, *drop, *categories;  /* as in ls_table_options */
    bool classify;
    int64_t layers, width; /* hidden ones */
    double dropout;
    ls_table_schema *schema;
} recipe_table;

#define RECIPE_TABLE_DEFAULTS                                                                      \
    {                                                                                              \
        .layers = 2, .width = 128                                                                  \
    }

/* --- table_model.c --- */
void recipe_table_step(ls_graph *g, void *user); /* user: the recipe, with its schema */

/* --- table.c --- */
ls_status recipe_table_check(const recipe_table *recipe);
/* The parts for training and validation; all holds both, or is one of them. */
ls_status recipe_table_open(const recipe_table *recipe, ls_dataset **all, ls_dataset **train,
                            ls_dataset **val);
/* table.json in a run's folder. */
ls_status recipe_table_load_schema(const char *folder, ls_table_schema **out);
/* The whole command; main's exit code. */
int recipe_table_train(int argc, char **argv);

#endif
