#include "helper_store.h"

#include <stdlib.h>

#include "world/store_client.h"

enum { SIZE_MAX_OF_TESTS = 8 };

struct test_store {
    ls__core *core;
    ls__store *clients[SIZE_MAX_OF_TESTS];
};

test_store *test_store_create(int size)
{
    test_store *store = calloc(1, sizeof *store);
    if (!store || ls__core_create(&store->core) != LS_OK) abort();
    for (int r = 0; r < size; r++)
        if (ls__store_create_direct(store->core, r, &store->clients[r]) != LS_OK) abort();
    return store;
}

void test_store_destroy(test_store *store)
{
    for (int r = 0; r < SIZE_MAX_OF_TESTS; r++) ls__store_destroy(store->clients[r]);
    ls__core_destroy(store->core);
    free(store);
}

ls__store *test_store_client(test_store *store, int rank)
{
    return store->clients[rank];
}
