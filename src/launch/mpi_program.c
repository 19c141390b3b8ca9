/* Whether a program is one of MPI's. Started by us its ranks would find no mpirun, and MPI_Init makes
 * each of them a world of one: N copies of the work, and nothing says so. Two looks, both cheap: at
 * the libraries that the executable names (before anything starts), and at what the process of rank 0
 * has mapped a while later, for Python's mpi4py and for libraries that bring MPI along. */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "launch/launcher_job.h"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OUR_ENCODING ELFDATA2LSB
#else
#define OUR_ENCODING ELFDATA2MSB
#endif

enum { SEGMENTS_MAX = 64, ENTRIES_MAX = 1024, NAME_MAX_BYTES = 64 };

static const double first_look = 1.0, last_look = 60.0; /* seconds after a start */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "libmpi.so.40", "libmpich.so.12", "libmpifort.so.12", "libmpi_cxx.so.40" */
static bool is_mpi(const char *library)
{
    static const char *const names[] = { "libmpi.so",     "libmpich.so",     "libmpi_",
                                         "libmpifort.so", "libmpichfort.so", "libmpicxx.so" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (begins(library, names[i])) return true;
    return false;
}

/* --- the executable --- */

static bool read_at(int fd, uint64_t at, void *out, size_t nbytes)
{
    return at < INT64_MAX && pread(fd, out, nbytes, (off_t)at) == (ssize_t)nbytes;
}

static int read_segments(int fd, Elf64_Phdr segments[SEGMENTS_MAX])
{
    Elf64_Ehdr head;
    if (!read_at(fd, 0, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != OUR_ENCODING ||
        head.e_phentsize != sizeof *segments || head.e_phnum > SEGMENTS_MAX)
        return 0;
    bool whole = read_at(fd, head.e_phoff, segments, head.e_phnum * sizeof *segments);
    return whole ? head.e_phnum : 0;
}

/* Where in the file an address of the loaded program lies; UINT64_MAX = nowhere. */
static uint64_t offset_of(const Elf64_Phdr *segments, int count, uint64_t address)
{
    for (int i = 0; i < count; i++) {
        const Elf64_Phdr *s = &segments[i];
        if (s->p_type == PT_LOAD && address >= s->p_vaddr && address - s->p_vaddr < s->p_filesz)
            return s->p_offset + (address - s->p_vaddr);
    }
    return UINT64_MAX;
}

static bool read_name(int fd, uint64_t at, char out[NAME_MAX_BYTES])
{
    ssize_t n = at < INT64_MAX ? pread(fd, out, NAME_MAX_BYTES - 1, (off_t)at) : -1;
    if (n <= 0) return false;
    out[n] = '\0';
    return true;
}

bool ls__elf_needs_mpi(int fd, char library[64])
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    Elf64_Dyn entry;
    uint64_t needed[ENTRIES_MAX], strings = UINT64_MAX, dynamic = UINT64_MAX, most = 0;
    int n = 0, count = read_segments(fd, segments);
    for (int i = 0; i < count; i++) {
        if (segments[i].p_type != PT_DYNAMIC) continue;
        dynamic = segments[i].p_offset;
        most = segments[i].p_filesz / sizeof entry;
    }
    for (uint64_t i = 0; i < most && i < ENTRIES_MAX; i++) {
        if (!read_at(fd, dynamic + i * sizeof entry, &entry, sizeof entry)) break;
        if (entry.d_tag == DT_NULL) break;
        if (entry.d_tag == DT_NEEDED) needed[n++] = entry.d_un.d_val;
        if (entry.d_tag == DT_STRTAB) strings = offset_of(segments, count, entry.d_un.d_ptr);
    }
    for (int i = 0; i < n && strings != UINT64_MAX; i++)
        if (read_name(fd, strings + needed[i], library) && is_mpi(library)) return true;
    return false;
}

/* --- what is told --- */

static void tell(ls__launcher_job *j, const char *what, const char *library)
{
    const ls__launcher_plan *plan = j->plan;
    ls__log(LS__LOG_WARN,
            "%s (%s): an MPI program. Here each of the %d processes is an MPI world of its own and "
            "does all of the work; start it by mpirun -n %d PROGRAM, which can start programs of "
            "Lockstep, too",
            what, library, plan->size, plan->size);
    ls__events_write(j, "mpi-program", json_pack("{s:s}", "library", library));
    j->told_mpi = true;
}

void ls__mpi_check_program(ls__launcher_job *j)
{
    char library[NAME_MAX_BYTES];
    if (j->plan->size <= 1) return;
    int fd = open(j->plan->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (ls__elf_needs_mpi(fd, library)) tell(j, j->plan->path, library);
    close(fd);
}

/* --- the running process --- */

/* Python's own libraries may bring an MPI that is never asked (PyTorch's), and so may our plugin: there
 * only mpi4py tells. */
static bool maps_mpi(FILE *maps, char library[64])
{
    char *line = NULL;
    size_t room = 0;
    bool found = false, quiet = false, mpi4py = false;
    while (getline(&line, &room, maps) > 0) {
        line[strcspn(line, "\n")] = '\0';
        const char *path = strchr(line, '/');
        const char *name = path ? strrchr(path, '/') + 1 : "";
        if (begins(name, "python") || begins(name, "libpython") || begins(name, "lockstep_"))
            quiet = true;
        if (path && strstr(path, "/mpi4py/MPI.")) mpi4py = true;
        if (!found && is_mpi(name)) {
            snprintf(library, 64, "%s", name);
            found = true;
        }
    }
    free(line);
    if (mpi4py) snprintf(library, 64, "mpi4py");
    return mpi4py || (found && !quiet);
}

double ls__mpi_due(const ls__launcher_job *j)
{
    double next = j->mpi_look > 0 ? j->mpi_look * 2 : first_look; /* imports take a while */
    bool over = j->told_mpi || next > last_look || j->plan->size <= 1;
    return over ? -1 : j->started + next;
}

void ls__mpi_check_process(ls__launcher_job *j)
{
    char path[64], library[NAME_MAX_BYTES], what[64];
    double due = ls__mpi_due(j);
    const ls__child *child = &j->crew.children[0];
    if (due < 0 || ls__now() < due) return;
    j->mpi_look = due - j->started;
    if (child->ended) return;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)child->pid);
    FILE *maps = fopen(path, "re");
    if (!maps) return;
    snprintf(what, sizeof what, "process %d", (int)child->pid);
    if (maps_mpi(maps, library)) tell(j, what, library);
    fclose(maps);
}
