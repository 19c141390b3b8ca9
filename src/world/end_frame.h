/* How a job ends, told from machine to machine: an ENDED frame and back. */
#ifndef LS_WORLD_END_FRAME_H
#define LS_WORLD_END_FRAME_H

#include "world/report.h"
#include "world/store_frame.h"

enum { LS__END_FRAME_VALUE = 2048 + 160 };

/* The frame borrows end and value. */
void ls__end_frame(const ls__end *end, char value[LS__END_FRAME_VALUE], ls__frame *out);
/* LS_ERR_DATA: no such frame. size: ranks. */
ls_status ls__end_frame_read(const ls__frame *frame, int size, ls__end *out);

#endif
