/* What was set: the questions that rooms ask of a parsed command line. */
#include <string.h>

#include "base/check.h"
#include "base/option.h"
#include "base/option_internal.h"

/* NULL when it was not set, or when this program does not know it. */
static const ls__option_value *value_of(const ls__options *o, const char *name,
                                        ls__option_type type, ls__option_type or_type)
{
    const ls__option *option = ls__option_find(o, name, strlen(name));
    if (!option) {
        bool in_table = false;
        for (int i = 0; i < ls__option_table_size; i++)
            in_table |= strcmp(ls__option_table[i].name, name) == 0;
        LS_ASSERT(in_table);
        return NULL;
    }
    LS_ASSERT(option->row.type == type || option->row.type == or_type);
    return option->origin || option->program_default ? &option->value : NULL;
}

bool ls__options_int(const ls__options *o, const char *name, int64_t *value)
{
    const ls__option_value *v = value_of(o, name, LS__OPTION_INT, LS__OPTION_INT);
    if (v) *value = v->i;
    return v != NULL;
}

bool ls__options_double(const ls__options *o, const char *name, double *value)
{
    const ls__option_value *v = value_of(o, name, LS__OPTION_DOUBLE, LS__OPTION_DURATION);
    if (v) *value = v->d;
    return v != NULL;
}

bool ls__options_string(const ls__options *o, const char *name, const char **value)
{
    const ls__option_value *v = value_of(o, name, LS__OPTION_STRING, LS__OPTION_CHOICE);
    if (v) *value = v->s;
    return v != NULL;
}

bool ls__options_bool(const ls__options *o, const char *name, bool *value)
{
    const ls__option_value *v = value_of(o, name, LS__OPTION_BOOL, LS__OPTION_BOOL);
    if (v) *value = v->b;
    return v != NULL;
}

bool ls__options_every(const ls__options *o, const char *name, ls_every *value)
{
    const ls__option_value *v = value_of(o, name, LS__OPTION_EVERY, LS__OPTION_EVERY);
    if (v) *value = v->every;
    return v != NULL;
}

bool ls__options_wants(const ls__options *o, const char *flag)
{
    bool wanted = false;
    return ls__options_bool(o, flag, &wanted) && wanted;
}

const char *ls__options_origin(const ls__options *o, const char *name)
{
    const ls__option *option = ls__option_find(o, name, strlen(name));
    if (!option || option->origin) return option ? option->origin : NULL;
    return option->program_default ? "program" : NULL;
}

const char *ls__options_first_set(const ls__options *o, ls__option_group group)
{
    for (int i = 0; i < o->count; i++)
        if (o->options[i].origin && o->options[i].row.group == group) return o->options[i].row.name;
    return NULL;
}

static json_t *json_value(const ls__option_row *row, const ls__option_value *v)
{
    if (v->none) return json_null();
    switch (row->type) {
    case LS__OPTION_INT:
        return json_integer(v->i);
    case LS__OPTION_DOUBLE:
    case LS__OPTION_DURATION:
        return ls__json_double(v->d);
    case LS__OPTION_BOOL:
        return json_boolean(v->b);
    case LS__OPTION_EVERY:
        return json_string(v->text);
    default:
        return v->s ? json_string(v->s) : json_null();
    }
}

json_t *ls__options_json(const ls__options *o)
{
    json_t *all = json_object();
    for (int i = 0; all && i < o->count; i++) {
        const ls__option *option = &o->options[i];
        if (!option->origin && !option->program_default && !option->flag) continue;
        json_t *value = json_value(&option->row, &option->value);
        if (!value) value = json_string("(not valid UTF-8)");
        const char *origin = ls__options_origin(o, option->row.name);
        json_t *entry =
            json_pack("{s:o,s:s}", "value", value, "origin", origin ? origin : "default");
        if (!entry || json_object_set_new(all, option->row.name, entry) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    if (!all) ls_fail(LS_ERR_MEMORY, "out of memory: could not write the options as JSON");
    return all;
}
