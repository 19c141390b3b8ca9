/* Named results, at most a few dozen: a linear search. */
#include <math.h>
#include <string.h>

#include <lockstep/metric.h>

double ls_values_get(const ls_values *values, const char *name)
{
    for (int i = 0; i < values->count; i++)
        if (strcmp(values->items[i].name, name) == 0) return values->items[i].value;
    return NAN;
}
