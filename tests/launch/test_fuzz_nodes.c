/* Mutated host lists, join lines and frames; and what the unmutated ones mean. */
#include "testing.h"

#include "launch/fuzz_nodes.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

static void mutated_texts(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "nn[001-003,7],x,gpu-[1-2]-ib",
        "ha,b*4,10.0.0.7:2,fe80::1",
        "fa slots=4 # c\n\nb\nc:2\n",
        "j10.0.0.1:4711/0123abcd",
        "j[fe80::1]:1/x",
        "t2(x3),1",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        fuzz_seed(seeds[i], strlen(seeds[i]), 2000);
}

static void mutated_frames(void **state)
{
    (void)state;
    ls__bytes bytes = { 0 };
    ls__node_frame frame;
    ls__node_join join = { .node_rank = 1, .size = 4, .port = 4000, .host = "b", .machine = "m" };
    ls__node_place place = { .launcher = 1,
                             .launchers = 2,
                             .node = 1,
                             .nodes = 2,
                             .first_rank = 4,
                             .world_size = 8,
                             .local_size = 4,
                             .port = 29500,
                             .grace_ms = -1,
                             .master_addr = "10.0.0.1",
                             .run_id = "run" };
    ls__end end = { .kind = LS__END_SIGNAL, .rank = 5, .signal = 11, .said = "text" };
    assert_ok(ls__bytes_reserve(&bytes, 1));
    bytes.data[bytes.end++] = 'b';
    ls__node_join_frame(&join, &frame);
    assert_ok(ls__node_frame_append(&bytes, &frame));
    ls__node_place_frame(&place, &frame);
    assert_ok(ls__node_frame_append(&bytes, &frame));
    ls__node_end_frame(LS__NODE_FAILED, &end, "b", 17, &frame);
    assert_ok(ls__node_frame_append(&bytes, &frame));
    fuzz_seed(bytes.data, bytes.end, 4000);
    ls__bytes_free(&bytes);
}

static void assert_names(const char *list, const char *const *names)
{
    ls__hosts hosts;
    int n = 0;
    assert_ok(ls__nodelist_parse(list, &hosts));
    for (; names[n]; n++) {
        assert_true(n < hosts.count);
        assert_string_equal(hosts.hosts[n].name, names[n]);
    }
    assert_int_equal(hosts.count, n);
    ls__hosts_free(&hosts);
}

static void lists_of_slurm(void **state)
{
    (void)state;
    ls__hosts hosts;
    assert_names("n1", (const char *const[]) { "n1", NULL });
    assert_names("n[001-003,7],x",
                 (const char *const[]) { "n001", "n002", "n003", "n7", "x", NULL });
    assert_names("a[9-11]b,c[2]", (const char *const[]) { "a9b", "a10b", "a11b", "c2", NULL });
    assert_fails(ls__nodelist_parse("n[1-", &hosts), LS_ERR_CONFIG, "brackets do not match");
    assert_fails(ls__nodelist_parse("n[3-1]", &hosts), LS_ERR_CONFIG, "no range");
    assert_fails(ls__nodelist_parse("n[1-999999]", &hosts), LS_ERR_CONFIG, "too many nodes");
    assert_fails(ls__nodelist_parse("", &hosts), LS_ERR_CONFIG, "no name of a host");
    assert_fails(ls__nodelist_parse("r[1-2]n[1-2]", &hosts), LS_ERR_CONFIG, "two pairs");
    assert_int_equal(ls__tasks_of("2(x3),1", 0), 2);
    assert_int_equal(ls__tasks_of("2(x3),1", 2), 2);
    assert_int_equal(ls__tasks_of("2(x3),1", 3), 1);
    assert_int_equal(ls__tasks_of("2(x3),1", 4), 0);
}

static void lists_of_hosts(void **state)
{
    (void)state;
    ls__hosts hosts;
    static const char file[] = "# two\na slots=4\n\n  b:2  # and\nc";
    assert_ok(ls__hosts_parse("--hosts", "a,b*4,10.0.0.7:2", &hosts));
    assert_int_equal(hosts.count, 3);
    assert_int_equal(hosts.hosts[0].slots, 0);
    assert_int_equal(hosts.hosts[1].slots, 4);
    assert_string_equal(hosts.hosts[2].name, "10.0.0.7");
    ls__hosts_free(&hosts);
    assert_ok(ls__hostfile_parse("file", file, sizeof file - 1, &hosts));
    assert_int_equal(hosts.count, 3);
    assert_int_equal(hosts.hosts[0].slots, 4);
    assert_int_equal(hosts.hosts[1].slots, 2);
    ls__hosts_free(&hosts);
    assert_fails(ls__hosts_parse("--hosts", "a,,b", &hosts), LS_ERR_CONFIG, "no name of a host");
    assert_fails(ls__hosts_parse("--hosts", "a*0", &hosts), LS_ERR_CONFIG, "from 1 to");
    assert_fails(ls__hosts_parse("--hosts", "-oProxyCommand=x", &hosts), LS_ERR_CONFIG, "no name");
    assert_fails(ls__hosts_parse("--hosts", "a;reboot", &hosts), LS_ERR_CONFIG, "no name");
    assert_fails(ls__hostfile_parse("file", "a cpus=4", 8, &hosts), LS_ERR_CONFIG, "slots=N");
    assert_fails(ls__hostfile_parse("file", "#\n", 2, &hosts), LS_ERR_CONFIG, "no host in it");
}

static void lines_that_join(void **state)
{
    (void)state;
    char host[LS__NODE_NAME_MAX + 1], secret[260];
    int port;
    assert_ok(ls__join_parse("n1.site:4711/abc", host, &port, secret));
    assert_string_equal(host, "n1.site");
    assert_int_equal(port, 4711);
    assert_string_equal(secret, "abc");
    assert_ok(ls__join_parse("[fe80::1]:1/x/y", host, &port, secret));
    assert_string_equal(host, "fe80::1");
    assert_string_equal(secret, "x/y");
    static const char *const wrong[] = { "",           "n1",   "n1:4711", "n1:4711/", "n1:0/x",
                                         "n1:65536/x", ":1/x", "n1:1x/x", "[::1/x",   "n 1:1/x" };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_fails(ls__join_parse(wrong[i], host, &port, secret), LS_ERR_CONFIG, "--join");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_of_slurm),  cmocka_unit_test(lists_of_hosts),
        cmocka_unit_test(lines_that_join), cmocka_unit_test(mutated_texts),
        cmocka_unit_test(mutated_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
