/* Return addresses as text. */
#ifndef LS_COMM_SITE_H
#define LS_COMM_SITE_H

#include <stddef.h>
#include <stdint.h>

/* "function+0x12", "module+0x1234" or, when nothing is known about it, "0x55...". pid: the process
 * that recorded it. Slow; for reports. */
void ls__site_text(int pid, uint64_t site, char *out, size_t nbytes);

#endif
