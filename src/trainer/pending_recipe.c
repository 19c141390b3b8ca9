/* What other files will define: weak, so that theirs count as soon as they are there. */
#include <lockstep/lockstep.h>
#define P return ls_fail(LS_ERR_UNSUPPORTED, "not there yet")
#pragma GCC diagnostic ignored "-Wunused-parameter"
__attribute__((weak)) ls_status ls_dataset_images_with(const char *f, int c, int s,
                                                       const ls_image_options *o, ls_dataset **out)
{
    P;
}
__attribute__((weak)) ls_status ls_dataset_table(const char *p, const ls_table_schema *s,
                                                 ls_dataset **out)
{
    P;
}
__attribute__((weak)) int ls_table_categories(const ls_table_schema *s, const int64_t **z)
{
    return 0;
}
__attribute__((weak)) int64_t ls_table_classes(const ls_table_schema *s)
{
    return 0;
}
__attribute__((weak)) int ls_table_numbers(const ls_table_schema *s)
{
    return 0;
}
__attribute__((weak)) void ls_table_schema_destroy(ls_table_schema *s) {}
__attribute__((weak)) ls_status ls_table_schema_learn(const char *p, const ls_table_options *o,
                                                      ls_table_schema **out)
{
    P;
}
__attribute__((weak)) ls_status ls_table_schema_load(const char *p, ls_table_schema **out)
{
    P;
}
__attribute__((weak)) ls_status ls_table_schema_save(const ls_table_schema *s, const char *p)
{
    P;
}
__attribute__((weak)) void ls_table_target_scale(const ls_table_schema *s, double *m, double *d) {}
__attribute__((weak)) ls_status ls_tokenizer_gpt2(const char *f, ls_tokenizer **out)
{
    P;
}
__attribute__((weak)) ls_status ls_decoder_create(ls_model *m, int64_t b, int64_t c,
                                                  ls_decoder **out)
{
    P;
}
__attribute__((weak)) ls_status ls_decoder_step(ls_decoder *d, const int32_t *t, const float **s)
{
    P;
}
__attribute__((weak)) void ls_decoder_reset(ls_decoder *d) {}
__attribute__((weak)) int64_t ls_decoder_position(const ls_decoder *d)
{
    return 0;
}
__attribute__((weak)) void ls_decoder_destroy(ls_decoder *d) {}
__attribute__((weak)) int32_t ls_sample(const float *s, int64_t c, double t, int64_t k, ls_rng *r)
{
    return 0;
}
