/* Decoding: the model's graph for one token per text, run again and again on states that grow.
 *
 * The graph is the step function's own, built to predict with room for `context` tokens in each
 * attention's cache: a token costs one row through the model, not the whole text again. States are
 * the decoder's; the compiled graph is the model's, so a second decoder of the same shape builds
 * nothing. */
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "trainer/model_internal.h"

struct ls_decoder {
    ls_model *model; /* borrowed */
    ls__built *built;
    const ls_tensor *scores; /* (batch,1,V) */
    int64_t batch, context, vocabulary;
    int64_t position;
    void **states;       /* per state of the graph */
    size_t *state_bytes; /* (nstates) */
    int nstates;
    int32_t *positions; /* (batch) the state "position"; NULL where the model asks for none */
};

static ls_status find_scores(ls_decoder *d)
{
    const ls__graph_result *results;
    int n = ls__graph_results(d->built->graph, &results);
    for (int i = 0; i < n; i++)
        if (strcmp(results[i].name, "scores") == 0) d->scores = results[i].values[0];
    if (!d->scores)
        return ls_fail(LS_ERR_ARG,
                       "ls_decoder_create: the step function has no ls_output named \"scores\"");
    int rank = ls_tensor_rank(d->scores);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= ls_tensor_dim(d->scores, i);
    d->vocabulary = rank > 1 ? ls_tensor_dim(d->scores, rank - 1) : 0;
    if (ls_tensor_dtype(d->scores) == LS_DTYPE_F32 && rank > 1 && count == d->batch * d->vocabulary)
        return LS_OK;
    return ls_fail(LS_ERR_SHAPE,
                   "ls_decoder_create: \"scores\" must be f32 (B,T,V), scores of the next token "
                   "for each token");
}

static ls_status make_states(ls_decoder *d)
{
    const ls__graph_state *states;
    d->nstates = ls__graph_states(d->built->graph, &states);
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
    const ls_field tokens = { .name = "tokens", .type = LS_DTYPE_I32, .rank = 1, .shape = { 1 } };
    const ls__graph_options options = { .stage = LS_STAGE_PREDICT,
                                        .batch = d->batch,
                                        .fields = &tokens,
                                        .nfields = 1,
                                        .decode = d->context,
                                        .precision = d->model->precision };
    LS_TRY(ls__model_build_as(d->model, &options, true, &d->built));
    if (!d->model->values)
        return ls_fail(LS_ERR_ARG, "ls_decoder_create: the model has no weights yet; ls_fit or "
                                   "ls_model_load first");
    LS_TRY(find_scores(d));
    return make_states(d);
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

ls_status ls_decoder_step(ls_decoder *decoder, const int32_t *tokens, const float **scores)
{
    *scores = NULL;
    ls_decoder *d = decoder;
    const ls_model *model = d->model;
    if (d->position >= d->context)
        return ls_fail(LS_ERR_ARG,
                       "ls_decoder_step: the text has %lld tokens, as many as the decoder keeps; "
                       "ls_decoder_reset begins another",
                       (long long)d->context);
    for (int64_t i = 0; d->positions && i < d->batch; i++) d->positions[i] = (int32_t)d->position;
    void *fields[] = { (void *)(uintptr_t)tokens }; /* read only */
    ls__run_context context = { .params = model->values,
                                .params_version = model->params_version,
                                .offsets = d->built->offsets,
                                .fields = fields,
                                .states = d->states,
                                .arena = model->arena };
    ls_array out;
    LS_TRY(model->backend->run(d->built->executable, &context));
    LS_TRY(model->backend->read(d->built->executable, &context, d->scores, &out));
    d->position++;
    *scores = out.data;
    return LS_OK;
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
    ls__free(decoder);
}
