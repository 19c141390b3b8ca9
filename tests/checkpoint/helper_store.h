/* One store for ranks that are threads of a test. */
#ifndef LS_TEST_HELPER_STORE_H
#define LS_TEST_HELPER_STORE_H

#include "world/store.h"

typedef struct test_store test_store;

test_store *test_store_create(int size);
void test_store_destroy(test_store *store);
ls__store *test_store_client(test_store *store, int rank);

#endif
