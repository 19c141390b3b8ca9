/* Executables: which of them are MPI programs, and mutated ones. */
#include "testing.h"

#include <fcntl.h>

#include "launch/fuzz_elf.c"
#define LS_FUZZ_DRIVER
#include "fuzzing.h"

/* An executable with one segment at address 0x400000, the libraries it needs, and their names. */
typedef struct tiny_elf {
    Elf64_Ehdr head;
    Elf64_Phdr segments[2];
    Elf64_Dyn dynamic[4];
    char strings[40];
} tiny_elf;

static tiny_elf make(const char *library)
{
    tiny_elf e = {
        .head = { .e_ident = { 0x7F, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
                  .e_phoff = offsetof(tiny_elf, segments),
                  .e_phentsize = sizeof(Elf64_Phdr),
                  .e_phnum = 2 },
        .segments = { { .p_type = PT_LOAD, .p_vaddr = 0x400000, .p_filesz = sizeof e },
                      { .p_type = PT_DYNAMIC,
                        .p_offset = offsetof(tiny_elf, dynamic),
                        .p_filesz = sizeof e.dynamic } },
        .dynamic = { { .d_tag = DT_NEEDED, .d_un.d_val = 1 },
                     { .d_tag = DT_NEEDED, .d_un.d_val = 11 },
                     { .d_tag = DT_STRTAB, .d_un.d_ptr = 0x400000 + offsetof(tiny_elf, strings) } },
        .strings = "\0libc.so.6"
    };
    snprintf(e.strings + 11, sizeof e.strings - 11, "%s", library);
    return e;
}

static bool needs_mpi(const char *library)
{
    char found[64];
    tiny_elf e = make(library);
    int fd = memfd_create("elf", MFD_CLOEXEC);
    assert_int_equal(write(fd, &e, sizeof e), sizeof e);
    bool is = ls__elf_needs_mpi(fd, found);
    if (is) assert_string_equal(found, library);
    close(fd);
    return is;
}

static void libraries_of_mpi(void **state)
{
    (void)state;
    assert_true(needs_mpi("libmpi.so.40"));
    assert_true(needs_mpi("libmpich.so.12"));
    assert_true(needs_mpi("libmpifort.so.12"));
    assert_true(needs_mpi("libmpi_cxx.so.40"));
    assert_false(needs_mpi("libmpc.so.3"));
    assert_false(needs_mpi("libm.so.6"));
    assert_false(needs_mpi("libmpiwrapper.so.1"));
}

static void a_program_without(void **state)
{
    (void)state;
    char found[64];
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_false(ls__elf_needs_mpi(fd, found));
    close(fd);
}

static void mutated_executables(void **state)
{
    (void)state;
    tiny_elf e = make("libmpi.so.40");
    fuzz_seed(&e, sizeof e, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(libraries_of_mpi),
                                        cmocka_unit_test(a_program_without),
                                        cmocka_unit_test(mutated_executables) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
