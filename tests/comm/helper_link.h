/* Links between threads of one process: what an engine would be if the network were memory. */
#ifndef LS_TESTS_HELPER_LINK_H
#define LS_TESTS_HELPER_LINK_H

#include "comm/link.h"

typedef struct exchange_office exchange_office; /* where messages meet */

exchange_office *office_open(int size);
void office_close(exchange_office *office); /* after all links */
ls__link *office_link(exchange_office *office, int rank);

#endif
