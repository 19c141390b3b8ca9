/* Weights under another program's names: there and back with the same bits, other types, several
 * files, and everything that may be wrong with a file. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "trainer/weights_internal.h"
#include "world/world_internal.h"

enum { FEATURES = 3, BLOCKS = 11, CLASSES = 2, SAMPLES = 8 };

static char folder[] = "/tmp/lockstep-weights-XXXXXX";
static ls_world *world;
static ls_dataset *data;

static const ls_weight_rule rules[] = {
    { "h.*.dense.weight", "block*.fc.weight", true },
    { "h.*.dense.bias", "block*.fc.bias", false },
    { "model.h.*.dense.weight", "block*.fc.weight", true },
    { "out.weight", "head.weight", false },
    { "out.bias", "head.bias", false },
    { "mask.*", NULL, false },
    { 0 },
};

/* --- the model --- */

static void step(ls_graph *g, void *user)
{
    (void)user;
    ls_tensor *x = ls_input(g, "x");
    for (int i = 0; i < BLOCKS; i++)
        x = ls_relu(ls_linear(x, ls_name(g, "block%d.fc", i), FEATURES + 2 * (i % 2)));
    ls_minimize(g, ls_cross_entropy(ls_linear(x, "head", CLASSES), ls_input(g, "label")), NULL);
}

static int64_t length(void *self)
{
    (void)self;
    return SAMPLES;
}

static ls_status read_sample(void *self, int64_t i, ls_rng *rng, void *const *out)
{
    (void)self, (void)rng;
    for (int j = 0; j < FEATURES; j++) ((float *)out[0])[j] = (float)((i * 7 + j) % 5) - 2;
    *(int32_t *)out[1] = (int32_t)(i % CLASSES);
    return LS_OK;
}

static const char *in_folder(const char *name)
{
    static char paths[4][LS_PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, LS_PATH_MAX, "%s/%s", folder, name);
    return path;
}

static ls_model *model_create(void)
{
    ls_model *model;
    assert_ok(ls_model_create(world, step, NULL, &model));
    return model;
}

static void train(const char *ours, const char *there)
{
    ls_model *model = model_create();
    ls_run_options options = { .batch_size = 4, .max_steps = 2, .name = "run", .runs_dir = folder };
    assert_ok(ls_fit(model, data, NULL, &options, NULL));
    assert_ok(ls_model_save(model, in_folder(ours)));
    assert_ok(ls_model_save_as(model, in_folder(there), rules));
    ls_model_destroy(model);
}

static int begin(void **state)
{
    (void)state;
    static const ls_dataset_ops ops = { .length = length, .read = read_sample };
    static const ls_field fields[] = { { "x", LS_DTYPE_F32, 1, { FEATURES } },
                                       { "label", LS_DTYPE_I32, 0, { 0 } } };
    ls__log_set_level(LS__LOG_ERROR);
    assert_ptr_equal(mkdtemp(folder), folder);
    assert_ok(ls__world_create_single(&world));
    assert_ok(ls_dataset_create(&ops, NULL, fields, 2, &data));
    train("ours.safetensors", "there.safetensors");
    return 0;
}

static int end(void **state)
{
    (void)state;
    ls_dataset_destroy(data);
    ls_world_finish(world);
    return ls__folder_remove(&ls__fs_posix, folder) == LS_OK ? 0 : -1;
}

/* --- files --- */

static void write_bytes(const char *name, const void *bytes, size_t nbytes)
{
    assert_ok(ls__file_write_atomic(&ls__fs_posix, in_folder(name), bytes, nbytes));
}

static void write_file(const char *name, const char *header, const void *bytes, size_t nbytes)
{
    char file[4096];
    uint64_t n = strlen(header);
    assert_true(8 + n + nbytes <= sizeof file);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    if (nbytes) memcpy(file + 8 + n, bytes, nbytes);
    write_bytes(name, file, 8 + n + nbytes);
}

static void read_file(const char *name, char **bytes, size_t *nbytes)
{
    assert_ok(ls__file_read(in_folder(name), 1 << 20, bytes, nbytes));
}

static void same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    read_file(a, &x, &n);
    read_file(b, &y, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* Evaluating makes the table, and so puts what was loaded where it belongs. */
static ls_status use(ls_model *model)
{
    ls_values values;
    return ls_evaluate(model, data, &values);
}

/* --- tests --- */

static void test_there_and_back(void **state)
{
    (void)state;
    ls__safetensors file;
    assert_ok(ls__safetensors_open(in_folder("there.safetensors"), &file));
    const ls__safetensor *t = ls__safetensors_find(&file, "h.10.dense.weight");
    assert_non_null(t);
    assert_int_equal(t->shape[0], FEATURES + 2);
    assert_int_equal(t->shape[1], FEATURES);
    assert_null(ls__safetensors_find(&file, "block10.fc.weight"));
    ls__safetensors_free(&file);

    ls_model *model = model_create(); /* placed in a table ... */
    assert_ok(ls_model_load_as(model, in_folder("there.safetensors"), rules));
    assert_ok(use(model));
    assert_ok(ls_model_save(model, in_folder("back.safetensors")));
    ls_model_destroy(model);
    same_files("ours.safetensors", "back.safetensors");

    model = model_create(); /* ... or not */
    assert_ok(ls_model_load(model, in_folder("ours.safetensors")));
    assert_ok(ls_model_save_as(model, in_folder("again.safetensors"), rules));
    ls_model_destroy(model);
    same_files("there.safetensors", "again.safetensors");
}

static void test_transposed_values(void **state)
{
    (void)state;
    static const float values[] = { 1, 2, 3, 4, 5, 6 };
    float out[6];
    write_file("t.safetensors",
               "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", values,
               sizeof values);
    ls__weight_files files;
    assert_ok(ls__weight_files_open(in_folder("t.safetensors"), &files));
    assert_ok(ls__weight_read(&files.files[0], &files.files[0].header.tensors[0], true, out));
    static const float expected[] = { 1, 4, 2, 5, 3, 6 };
    assert_memory_equal(out, expected, sizeof expected);
    ls__weight_files_free(&files);
}

static void check_halves(const char *dtype, const uint16_t *halves, const float *expected, int n)
{
    char header[160];
    float out[8];
    snprintf(header, sizeof header,
             "{\"w\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", dtype, n, 2 * n);
    write_file("half.safetensors", header, halves, 2 * (size_t)n);
    ls__weight_files files;
    assert_ok(ls__weight_files_open(in_folder("half.safetensors"), &files));
    assert_ok(ls__weight_read(&files.files[0], &files.files[0].header.tensors[0], false, out));
    assert_memory_equal(out, expected, (size_t)n * sizeof *expected);
    ls__weight_files_free(&files);
}

static void test_halves(void **state)
{
    (void)state;
    static const uint16_t f16[] = {
        0x3c00, 0xc000, 0x0001, 0x8000, 0x03ff, 0x7c00, 0x7bff, 0x3555
    };
    const float f16_values[] = { 1,           -2,    0x1p-24f,       -0.0f, 0x1.ff8p-15f,
                                 1.0f / 0.0f, 65504, 0.333251953125f };
    static const uint16_t bf16[] = { 0x3f80, 0xc000, 0x0000, 0x3eab };
    static const float bf16_values[] = { 1, -2, 0, 0.333984375f };
    check_halves("F16", f16, f16_values, 8);
    check_halves("BF16", bf16, bf16_values, 4);
}

/* Every tensor of ours in two files behind an index. */
static void test_index(void **state)
{
    (void)state;
    char *bytes;
    size_t nbytes;
    ls_model *model = model_create();
    assert_int_equal(mkdir(in_folder("large"), 0777), 0);
    read_file("there.safetensors", &bytes, &nbytes);
    write_bytes("large/b.safetensors", bytes, nbytes);
    free(bytes);
    write_file("large/a.safetensors",
               "{\"mask.0\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x", 1);
    static const char index[] = "{\"metadata\":{},\"weight_map\":{\"out.bias\":\"b.safetensors\","
                                "\"mask.0\":\"a.safetensors\"}}";
    write_bytes("large/model.safetensors.index.json", index, sizeof index - 1);
    assert_ok(ls_model_load_as(model, in_folder("large"), rules));
    assert_ok(use(model));
    assert_ok(ls_model_save(model, in_folder("back.safetensors")));
    same_files("ours.safetensors", "back.safetensors");

    static const char wrong[] = "{\"weight_map\":{\"out.bias\":\"a.safetensors\"}}";
    write_bytes("large/model.safetensors.index.json", wrong, sizeof wrong - 1);
    assert_fails(ls_model_load_as(model, in_folder("large"), rules), LS_ERR_DATA, "out.bias");
    static const char away[] = "{\"weight_map\":{\"out.bias\":\"../a.safetensors\"}}";
    write_bytes("large/model.safetensors.index.json", away, sizeof away - 1);
    assert_fails(ls_model_load_as(model, in_folder("large"), rules), LS_ERR_DATA, "beside it");
    static const char empty[] = "{\"weight_map\":{}}";
    write_bytes("large/model.safetensors.index.json", empty, sizeof empty - 1);
    assert_fails(ls_model_load_as(model, in_folder("large"), rules), LS_ERR_DATA, "no weight_map");
    static const char missing[] = "{\"weight_map\":{\"out.bias\":\"c.safetensors\"}}";
    write_bytes("large/model.safetensors.index.json", missing, sizeof missing - 1);
    assert_fails(ls_model_load_as(model, in_folder("large"), rules), LS_ERR_IO, "c.safetensors");
    assert_ok(ls_model_save(model, in_folder("back.safetensors"))); /* still has what it had */
    same_files("ours.safetensors", "back.safetensors");
    ls_model_destroy(model);
}

static void fails(const char *name, ls_status code, const char *text)
{
    ls_model *model = model_create();
    ls_status status = ls_model_load_as(model, in_folder(name), rules);
    if (status == LS_OK) status = use(model);
    assert_fails(status, code, text);
    ls_model_destroy(model);
}

static void test_wrong_files(void **state)
{
    (void)state;
    static const float two[2] = { 1, 2 };
    char *bytes;
    size_t nbytes;
    fails("nowhere.safetensors", LS_ERR_DATA, "cannot open");
    assert_int_equal(mkdir(in_folder("empty"), 0777), 0);
    fails("empty", LS_ERR_DATA, "neither model.safetensors");
    write_bytes("empty/pytorch_model.bin", "PK", 2);
    fails("empty", LS_ERR_DATA, "save_file");
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n";
    write_bytes("empty/model.safetensors", pointer, sizeof pointer - 1);
    fails("empty", LS_ERR_DATA, "git lfs pull");
    read_file("there.safetensors", &bytes, &nbytes);
    write_bytes("cut.safetensors", bytes, nbytes - 5);
    fails("cut.safetensors", LS_ERR_DATA, "cut.safetensors");
    free(bytes);

    write_file("unknown.safetensors",
               "{\"wte\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", two, 8);
    fails("unknown.safetensors", LS_ERR_DATA, "wte is not a tensor that this model knows");
    write_file("missing.safetensors",
               "{\"out.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", two, 8);
    fails("missing.safetensors", LS_ERR_CONFIG, "no block0.fc.weight");
    write_file("integers.safetensors",
               "{\"out.bias\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", two, 8);
    fails("integers.safetensors", LS_ERR_UNSUPPORTED, "out.bias is of type I64");
    write_file("flat.safetensors",
               "{\"h.0.dense.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
               two, 8);
    fails("flat.safetensors", LS_ERR_DATA, "a matrix has 2");
    write_file(
        "twice.safetensors",
        "{\"h.0.dense.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
        "\"model.h.0.dense.weight\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}}",
        two, 8);
    fails("twice.safetensors", LS_ERR_DATA, "both for the model's block0.fc.weight");
}

/* A larger model's file, and one whose sizes differ. */
static void test_another_model(void **state)
{
    (void)state;
    static const ls_weight_rule plain[] = { { "block*.fc.weight", "block*.fc.weight", false },
                                            { "block*.fc.bias", "block*.fc.bias", false },
                                            { "head.*", "head.*", false },
                                            { "head.weight", "head.weight", false },
                                            { "head.bias", "head.bias", false },
                                            { "extra", "extra", false },
                                            { 0 } };
    ls__safetensors file;
    assert_ok(ls__safetensors_open(in_folder("ours.safetensors"), &file));
    ls__saved_tensor *tensors = calloc((size_t)file.count + 1, sizeof *tensors);
    float *values = calloc(100000, sizeof *values);
    int64_t at = 0;
    for (int i = 0; i < file.count; i++) {
        tensors[i] = (ls__saved_tensor) { .name = file.tensors[i].name,
                                          .rank = file.tensors[i].rank,
                                          .offset = at };
        memcpy(tensors[i].shape, file.tensors[i].shape, sizeof tensors[i].shape);
        at += ls__weight_elements(tensors[i].rank, tensors[i].shape);
    }
    tensors[file.count] = (ls__saved_tensor) { .name = "extra", .rank = 1, .shape = { 2 } };
    const char *path = in_folder("large.safetensors");
    assert_ok(ls__safetensors_write(&ls__fs_posix, path, tensors, file.count + 1, values));
    ls_model *model = model_create();
    assert_ok(ls_model_load_as(model, path, plain));
    assert_fails(use(model), LS_ERR_CONFIG, "extra");
    ls_model_destroy(model);

    path = in_folder("wide.safetensors");
    for (int i = 0; i < file.count; i++)
        if (strcmp(tensors[i].name, "head.bias") == 0) tensors[i].shape[0] = 7;
    assert_ok(ls__safetensors_write(&ls__fs_posix, path, tensors, file.count, values));
    model = model_create();
    assert_ok(ls_model_load_as(model, path, plain));
    assert_fails(use(model), LS_ERR_CONFIG, "head.bias is (7) in it and (2) here");
    ls_model_destroy(model);
    ls__safetensors_free(&file);
    free(tensors);
    free(values);
}

static void test_save_needs_a_rule(void **state)
{
    (void)state;
    static const ls_weight_rule few[] = { { "out.bias", "head.bias", false }, { 0 } };
    ls_model *model = model_create();
    assert_fails(ls_model_save_as(model, in_folder("x.safetensors"), rules), LS_ERR_ARG,
                 "no weights yet");
    assert_ok(ls_model_load(model, in_folder("ours.safetensors")));
    assert_fails(ls_model_save_as(model, in_folder("x.safetensors"), few), LS_ERR_ARG,
                 "block0.fc.weight");
    assert_false(ls__path_exists(in_folder("x.safetensors")));
    ls_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_transposed_values),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_another_model),
        cmocka_unit_test(test_save_needs_a_rule),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
