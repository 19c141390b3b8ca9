/* One rank in this process, and a folder that goes with it. */
#include "trainer/helper_single.h"

#include "base/file.h"
#include "base/log.h"
#include "world/world_internal.h"

char folder[] = "/tmp/lockstep-trainer-XXXXXX";
ls_world *world;

int begin(void **state)
{
    (void)state;
    ls__log_set_level(LS__LOG_ERROR);
    assert_non_null(mkdtemp(folder));
    assert_ok(ls__world_create_single(&world));
    return 0;
}

int end(void **state)
{
    (void)state;
    assert_int_equal(ls_world_finish(world), 0);
    assert_ok(ls__folder_remove(&ls__fs_posix, folder));
    return 0;
}
