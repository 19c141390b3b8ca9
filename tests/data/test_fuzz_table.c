/* Mutated tables and schemas through the fuzz entry. */
#define LS_FUZZ_DRIVER
#include "fuzz_table.c"

#include "base/log.h"

int main(void)
{
    static const char *const seeds[] = {
        "age,city,job\n1,Kiel,cook\n2.5,\"Bonn, Beuel\",baker\n,,cook\nNA,Ulm,baker\n",
        "\xEF\xBB\xBF"
        "a;b;c\r\n1,5;x;1e3\r\n2,5;\"y \"\"z\"\"\";2\r\n",
        "a\tb\n\"1\n2\"\t3\n4\t5\n\n",
        "t\n1\n2\n3e308\n-0\n",
        "{\"schema\":\"lockstep.table/"
        "1\",\"columns\":[{\"name\":\"a\",\"kind\":\"number\",\"mean\":1.5,"
        "\"deviation\":2.0},{\"name\":\"b\",\"kind\":\"category\",\"values\":[\"x\",\"y\"]},{"
        "\"name\":"
        "\"c\",\"kind\":\"hashed\",\"buckets\":7}],\"target\":{\"name\":\"t\",\"kind\":"
        "\"category\","
        "\"values\":[\"p\",\"q\"]}}",
    };
    ls__log_set_level(LS__LOG_ERROR);
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        fuzz_seed(seeds[i], strlen(seeds[i]), 6000);
    return 0;
}
