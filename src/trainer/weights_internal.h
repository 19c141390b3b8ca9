/* Weights of other programs: their names, and the files they lie in. */
#ifndef LS_TRAINER_WEIGHTS_INTERNAL_H
#define LS_TRAINER_WEIGHTS_INTERNAL_H

#include "checkpoint/checkpoint.h"
#include "trainer/model_internal.h"

enum { LS__WEIGHT_NAME = 256 };

/* --- weight_names.c --- */
/* The first rule that fits a file's name; the name it has in the model, "" = not wanted. NULL = no
 * rule fits. */
const ls_weight_rule *ls__weight_rule_of_file(const ls_weight_rule *rules, const char *name,
                                              char model[LS__WEIGHT_NAME]);
/* The first rule that fits a parameter; its name in the file. NULL = no rule fits. */
const ls_weight_rule *ls__weight_rule_of_model(const ls_weight_rule *rules, const char *name,
                                               char file[LS__WEIGHT_NAME]);

/* --- weight_files.c --- */
/* The safetensors files that path stands for: itself, those of an index (.safetensors.index.json),
 * or, of a folder, model.safetensors or its index. Headers are read and checked. */
typedef struct ls__weight_file {
    char path[LS_PATH_MAX];
    ls__safetensors header;
} ls__weight_file;
typedef struct ls__weight_files {
    ls__weight_file *files;
    int count;
} ls__weight_files;
ls_status ls__weight_files_open(const char *path, ls__weight_files *out);
void ls__weight_files_free(ls__weight_files *files);

/* One tensor's values as f32 (of F32, F16 or BF16), transposed when a matrix lies the other way
 * round. out: (elements of the tensor) */
ls_status ls__weight_read(const ls__weight_file *file, const ls__safetensor *tensor, bool transpose,
                          float *out);
int64_t ls__weight_elements(int rank, const int64_t *shape);

#endif
