/* Decoding: the model's graph for a few tokens per text, run again and again on states that grow.
 *
 * The graph is the step function's own, built to predict with room for `context` tokens in each
 * attention's cache: a token costs one row through the model, not the whole text again. It exists
 * for one token, the way texts are written, and for more at a time, because a prompt read token by
 * token would fetch all weights for each. States are the decoder's and common to the forms; compiled
 * graphs are the model's, so a second decoder of the same shape builds nothing. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "trainer/model_internal.h"

/* The graph for so many tokens of each text at a time; built when first needed. */
typedef struct form {
    ls__built *built;
    const ls_tensor *scores; /* (batch,T,V) */
} form;

enum { FORMS = 3 };
static const int64_t form_tokens[FORMS] = { 1, 8, 64 };

struct ls_decoder {
    ls_model *model; /* borrowed */
    form forms[FORMS];
    int64_t batch, context, vocabulary;
    int64_t position;
    void **states;       /* per state of the graph */
    size_t *state_bytes; /* (nstates) */
    int nstates;
    int32_t *positions; /* (batch) the state "position"; NULL where the model asks for none */
    int32_t *tokens;    /* (batch,64) those of a form's run */
    float *last;        /* (batch,V) scores behind the last token of several */
};

static ls_status find_scores(ls_decoder *d, form *f, int64_t tokens)
{
    const ls__graph_result *results;
    int n = ls__graph_results(f->built->graph, &results);
    for (int i = 0; i < n; i++)
        if (strcmp(results[i].name, "scores") == 0) f->scores = results[i].values[0];
    if (!f->scores)
        return ls_fail(LS_ERR_ARG,
                       "ls_decoder_create: the step function has no ls_output named \"scores\"");
    int rank = ls_tensor_rank(f->scores);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= ls_tensor_dim(f->scores, i);
    d->vocabulary = rank > 1 ? ls_tensor_dim(f->scores, rank - 1) : 0;
    if (ls_tensor_dtype(f->scores) == LS_DTYPE_F32 && rank > 1 &&
        count == d->batch * tokens * d->vocabulary)
        return LS_OK;
    return ls_fail(LS_ERR_SHAPE,
                   "ls_decoder_create: \"scores\" must be f32 (B,T,V), scores of the next token "
                   "for each token");
}

static ls_status build_form(ls_decoder *d, int which)
{
    form *f = &d->forms[which];
    if (f->scores) return LS_OK;
    int64_t ntokens = form_tokens[which];
    const ls_field tokens = {
        .name = "tokens", .type = LS_DTYPE_I32, .rank = 1, .shape = { ntokens }
    };
    const ls__graph_options options = { .stage = LS_STAGE_PREDICT,
                                        .batch = d->batch,
                                        .fields = &tokens,
                                        .nfields = 1,
                                        .decode = d->context,
                                        .precision = d->model->precision,
                                        .deterministic = d->model->deterministic };
    LS_TRY(ls__model_build_as(d->model, &options, true, &f->built));
    if (!d->model->values)
        return ls_fail(LS_ERR_ARG, "ls_decoder_create: the model has no weights yet; ls_fit or "
                                   "ls_model_load first");
    return find_scores(d, f, ntokens);
}

static ls_status make_states(ls_decoder *d)
{
    const ls__graph_state *states;
    d->nstates = ls__graph_states(d->forms[0].built->graph, &states);
    d->states = ls__alloc((size_t)d->nstates + 1, sizeof *d->states);
    d->state_bytes = ls__alloc((size_t)d->nstates + 1, sizeof *d->state_bytes);
    if (!d->states || !d->state_bytes) return LS_ERR_MEMORY;
    for (int i = 0; i < d->nstates; i++) {
        const ls_tensor *x = states[i].tensor;
        size_t nbytes = ls_dtype_size(ls_tensor_dtype(x));
        for (int k = 0; k < ls_tensor_rank(x); k++) nbytes *= (size_t)ls_tensor_dim(x, k);
        d->states[i] = ls__map(nbytes);
        if (!d->states[i]) return LS_ERR_MEMORY;
        d->state_bytes[i] = nbytes;
        if (strcmp(states[i].name, "position") == 0) d->positions = d->states[i];
    }
    return LS_OK;
}

static ls_status open_decoder(ls_decoder *d)
{
    LS_TRY(build_form(d, 0));
    d->tokens = ls__alloc((size_t)(d->batch * form_tokens[FORMS - 1]), sizeof *d->tokens);
    d->last = ls__alloc((size_t)(d->batch * d->vocabulary), sizeof *d->last);
    return d->tokens && d->last ? make_states(d) : LS_ERR_MEMORY;
}

ls_status ls_decoder_create(ls_model *model, int64_t batch, int64_t context, ls_decoder **out)
{
    *out = NULL;
    if (!model || batch < 1 || context < 1 || context > INT32_MAX)
        return ls_fail(LS_ERR_ARG,
                       "ls_decoder_create: a model, at least one text and at least one token are "
                       "needed, not %lld texts of %lld tokens",
                       (long long)batch, (long long)context);
    ls_decoder *d = ls__alloc(1, sizeof *d);
    if (!d) return LS_ERR_MEMORY;
    d->model = model;
    d->batch = batch;
    d->context = context;
    ls_status status = open_decoder(d);
    if (status != LS_OK) {
        ls_decoder_destroy(d);
        return status;
    }
    *out = d;
    return LS_OK;
}

/* Runs d->tokens, (batch,T), through the form of T tokens. */
static ls_status run_form(ls_decoder *d, int which, const float **scores)
{
    const ls_model *model = d->model;
    const form *f = &d->forms[which];
    int64_t ntokens = form_tokens[which];
    for (int64_t i = 0; d->positions && i < d->batch; i++) d->positions[i] = (int32_t)d->position;
    void *fields[] = { d->tokens };
    ls__run_context context = { .params = model->values,
                                .params_version = model->params_version,
                                .offsets = f->built->offsets,
                                .fields = fields,
                                .states = d->states,
                                .arena = model->arena };
    ls_array out;
    LS_TRY(model->backend->run(f->built->executable, &context));
    LS_TRY(model->backend->read(f->built->executable, &context, f->scores, &out));
    d->position += ntokens;
    const float *all = out.data; /* (batch,T,V) */
    *scores = ntokens == 1 ? all : d->last;
    for (int64_t i = 0; ntokens > 1 && i < d->batch; i++)
        memcpy(d->last + i * d->vocabulary, all + ((i + 1) * ntokens - 1) * d->vocabulary,
               (size_t)d->vocabulary * sizeof *all);
    return LS_OK;
}

/* The next tokens, as many as the largest form takes that is not larger than what is left. */
static ls_status read_some(ls_decoder *d, const int32_t *tokens, int64_t count, int64_t at,
                           const float **scores)
{
    int which = FORMS - 1;
    while (form_tokens[which] > count - at) which--;
    LS_TRY(build_form(d, which));
    for (int64_t i = 0; i < d->batch; i++)
        memcpy(d->tokens + i * form_tokens[which], tokens + i * count + at,
               (size_t)form_tokens[which] * sizeof *tokens);
    return run_form(d, which, scores);
}

ls_status ls_decoder_read(ls_decoder *decoder, const int32_t *tokens, int64_t count,
                          const float **scores)
{
    *scores = NULL;
    ls_decoder *d = decoder;
    int64_t before = d->position;
    ls_status status = LS_OK;
    if (count < 1 || count > d->context - before)
        return ls_fail(LS_ERR_ARG,
                       "%lld more tokens: the text has %lld of the %lld tokens that the decoder "
                       "keeps; ls_decoder_reset begins another",
                       (long long)count, (long long)before, (long long)d->context);
    while (status == LS_OK && d->position < before + count)
        status = read_some(d, tokens, count, d->position - before, scores);
    if (status == LS_OK) return LS_OK;
    *scores = NULL;
    d->position = before;
    return status;
}

ls_status ls_decoder_step(ls_decoder *decoder, const int32_t *tokens, const float **scores)
{
    return ls_decoder_read(decoder, tokens, 1, scores);
}

/* Rows behind the position are never read, so the caches may stay as they are. */
void ls_decoder_reset(ls_decoder *decoder)
{
    decoder->position = 0;
}

int64_t ls_decoder_position(const ls_decoder *decoder)
{
    return decoder->position;
}

int64_t ls_decoder_vocabulary(const ls_decoder *decoder)
{
    return decoder->vocabulary;
}

void ls_decoder_destroy(ls_decoder *decoder)
{
    if (!decoder) return;
    for (int i = 0; i < decoder->nstates && decoder->states; i++)
        ls__unmap(decoder->states[i], decoder->state_bytes[i]);
    ls__free(decoder->states);
    ls__free(decoder->state_bytes);
    ls__free(decoder->tokens);
    ls__free(decoder->last);
    ls__free(decoder);
}
