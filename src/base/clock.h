#ifndef LS_BASE_CLOCK_H
#define LS_BASE_CLOCK_H

#include <stdint.h>

double ls__now(void);       /* monotonic seconds */
int64_t ls__now_ns(void);   /* monotonic */
double ls__wall_time(void); /* seconds since 1970 */
void ls__sleep_ms(int ms);
/* "2026-12-01T21:34:49Z" */
void ls__wall_text(double wall, char out[32]);

#endif
