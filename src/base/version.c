/* The library's version, from the build. */
#include <lockstep/base.h>

const char *ls_version(void)
{
    return LS_VERSION;
}
