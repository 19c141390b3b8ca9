/* By which of its addresses and interfaces others reach this machine. */
#include "base/address.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include "testing.h"

static void assert_source(const char *host, const char *expected)
{
    struct sockaddr_storage from;
    char text[64];
    int what = -1;
    assert_true(ls__address_towards(host, &from, &what));
    assert_int_equal(what, 0);
    assert_int_equal(getnameinfo((struct sockaddr *)&from, sizeof from, text, sizeof text, NULL, 0,
                                 NI_NUMERICHOST),
                     0);
    assert_string_equal(text, expected);
}

static void test_towards(void **state)
{
    (void)state;
    struct sockaddr_storage from;
    int what;
    assert_source("127.0.0.1", "127.0.0.1");
    assert_source("127.0.0.7", "127.0.0.1");
    assert_false(ls__address_towards("no.such.name.invalid", &from, &what));
    assert_int_not_equal(what, 0);
}

static void test_loopback_is_no_interface(void **state)
{
    (void)state;
    char name[IF_NAMESIZE];
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 b = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
    struct sockaddr_in nobody = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201) };
    assert_false(ls__address_interface_of((struct sockaddr *)&a, name));
    assert_false(ls__address_interface_of((struct sockaddr *)&b, name));
    assert_false(ls__address_interface_of((struct sockaddr *)&nobody, name));
}

/* Each of this machine's own addresses is reached from itself, over the interface that has it. */
static void test_own_addresses(void **state)
{
    (void)state;
    struct ifaddrs *list;
    assert_int_equal(getifaddrs(&list), 0);
    for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
        char text[64], name[IF_NAMESIZE];
        struct sockaddr_storage from;
        int what;
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || i->ifa_flags & IFF_LOOPBACK ||
            !(i->ifa_flags & IFF_UP))
            continue;
        assert_int_equal(getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), text, sizeof text,
                                     NULL, 0, NI_NUMERICHOST),
                         0);
        assert_source(text, text);
        assert_true(ls__address_towards(text, &from, &what));
        assert_true(ls__address_interface_of((struct sockaddr *)&from, name));
        assert_string_equal(name, i->ifa_name);
    }
    freeifaddrs(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_towards),
        cmocka_unit_test(test_loopback_is_no_interface),
        cmocka_unit_test(test_own_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
