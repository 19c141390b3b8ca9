/* From copies of stacks to names of functions, by elfutils' libdwfl: the library reads unwind tables and
 * symbols, we give it registers and memory from the copy. It is opened when it is needed, so that a
 * start does not pay for it. Names come from the files of the program alone: no debug information is
 * looked for, here or over the network. Runs in a process that may be killed. */
#include "launch/stacks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

static void begin_line(const ls__stack_thread *t, ls__text *line)
{
    ls__text_add(line, "thread %d (%s), state %c", (int)t->id, t->name, t->state);
    if (t->waits_in[0]) ls__text_add(line, ", in the kernel's %s", t->waits_in);
}

static void end_line(ls__text *line, int fd)
{
    ls__text_add(line, "\n");
    char *text = ls__text_take(line);
    size_t n = text ? strlen(text) : 0;
    if (n >= LS__STACK_TEXT) { /* one write, one line */
        memcpy(text + LS__STACK_TEXT - 5, "...\n", 5);
        n = LS__STACK_TEXT - 1;
    }
    if (n > 0 && write(fd, text, n) < 0) _exit(1);
    ls__free(text);
}

#ifdef LS_HAVE_LIBDW

#include <dlfcn.h>
#include <elfutils/libdwfl.h>

#define DW_MAP(X)                                                                                  \
    X(dwfl_begin)                                                                                  \
    X(dwfl_linux_proc_find_elf)                                                                    \
    X(dwfl_linux_proc_maps_report)                                                                 \
    X(dwfl_report_end)                                                                             \
    X(dwfl_attach_state)                                                                           \
    X(dwfl_getthread_frames)                                                                       \
    X(dwfl_frame_pc)                                                                               \
    X(dwfl_addrmodule)                                                                             \
    X(dwfl_module_addrname)                                                                        \
    X(dwfl_module_info)                                                                            \
    X(dwfl_thread_state_registers)                                                                 \
    X(dwfl_thread_state_register_pc)

typedef struct dw_library {
#define FIELD(name) __typeof__(name) *name;
    DW_MAP(FIELD)
#undef FIELD
} dw_library;

typedef struct walk {
    const dw_library *lib;
    Dwfl *dwfl;
    Dwfl_Callbacks callbacks;
    const ls__stack_thread *threads, *thread; /* (count); the one that is being walked */
    int count, frames;
    ls__text *line;
} walk;

static bool find_functions(dw_library *lib)
{
    void *handle = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
#define FIND(name)                                                                                 \
    *(void **)&lib->name = dlsym(handle, #name);                                                   \
    if (!lib->name) return false;
    DW_MAP(FIND)
#undef FIND
    return true;
}

static int no_debug_information(Dwfl_Module *module, void **user, const char *name, Dwarf_Addr base,
                                const char *file, const char *link, GElf_Word sum, char **found)
{
    (void)module, (void)user, (void)name, (void)base, (void)file, (void)link, (void)sum;
    (void)found;
    return -1;
}

static pid_t next_thread(Dwfl *dwfl, void *user, void **thread)
{
    (void)dwfl, (void)user, (void)thread;
    return 0; /* they are asked for by number */
}

static bool get_thread(Dwfl *dwfl, pid_t id, void *user, void **thread)
{
    walk *w = user;
    (void)dwfl;
    for (int i = 0; i < w->count; i++) {
        if (w->threads[i].id != id) continue;
        w->thread = &w->threads[i];
        *thread = w;
        return true;
    }
    return false;
}

/* A word of whichever copied stack it is in. */
static bool read_memory(Dwfl *dwfl, Dwarf_Addr at, Dwarf_Word *out, void *user)
{
    walk *w = user;
    (void)dwfl;
    for (int i = 0; i < w->count; i++) {
        const ls__stack_thread *t = &w->threads[i];
        if (at < t->base || at - t->base + sizeof *out > t->nbytes) continue;
        memcpy(out, t->bytes + (at - t->base), sizeof *out);
        return true;
    }
    return false;
}

static bool set_registers(Dwfl_Thread *thread, void *user)
{
    const walk *w = user;
    const struct user_regs_struct *r = &w->thread->registers;
#if defined(__x86_64__)
    /* In DWARF's order (System V ABI for x86-64, figure 3.36). */
    Dwarf_Word words[17] = { r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8,
                             r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip };
    return w->lib->dwfl_thread_state_registers(thread, 0, 17, words);
#elif defined(__aarch64__)
    Dwarf_Word words[32];
    for (int i = 0; i < 31; i++) words[i] = r->regs[i];
    words[31] = r->sp;
    w->lib->dwfl_thread_state_register_pc(thread, r->pc);
    return w->lib->dwfl_thread_state_registers(thread, 0, 32, words);
#else
    (void)thread, (void)w, (void)r;
    return false;
#endif
}

static int on_frame(Dwfl_Frame *frame, void *user)
{
    walk *w = user;
    Dwarf_Addr pc;
    bool exact;
    if (w->frames++ == LS__STACK_FRAMES || !w->lib->dwfl_frame_pc(frame, &pc, &exact))
        return DWARF_CB_ABORT;
    if (!exact) pc--; /* the call, not what follows it */
    Dwfl_Module *module = w->lib->dwfl_addrmodule(w->dwfl, pc);
    const char *name = module ? w->lib->dwfl_module_addrname(module, pc) : NULL;
    const char *file =
        module ? w->lib->dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL) : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    const char *from = w->frames == 1 ? ": " : " < ";
    if (name)
        ls__text_add(w->line, "%s%.100s", from, name);
    else
        ls__text_add(w->line, "%s?%s%.40s", from, file ? " of " : "", slash ? slash + 1 : "");
    return DWARF_CB_OK;
}

static bool open_walk(pid_t pid, const char *maps, walk *w)
{
    static const Dwfl_Thread_Callbacks threads = { .next_thread = next_thread,
                                                   .get_thread = get_thread,
                                                   .memory_read = read_memory,
                                                   .set_initial_registers = set_registers };
    w->callbacks.find_elf = w->lib->dwfl_linux_proc_find_elf;
    w->callbacks.find_debuginfo = no_debug_information;
    w->dwfl = w->lib->dwfl_begin(&w->callbacks);
    FILE *file = fmemopen((void *)maps, strlen(maps), "r");
    return w->dwfl && file && w->lib->dwfl_linux_proc_maps_report(w->dwfl, file) == 0 &&
           w->lib->dwfl_report_end(w->dwfl, NULL, NULL) == 0 &&
           w->lib->dwfl_attach_state(w->dwfl, NULL, pid, &threads, w);
}

void ls__stack_names(pid_t pid, const char *maps, const ls__stack_thread *threads, int count,
                     int fd)
{
    dw_library lib = { 0 };
    walk w = { .lib = &lib, .threads = threads, .count = count };
    bool able = maps && find_functions(&lib);
    able = able && open_walk(pid, maps, &w);
    for (int i = 0; i < count; i++) {
        ls__text line = { 0 };
        begin_line(&threads[i], &line);
        w.line = &line;
        w.frames = 0;
        if (able && threads[i].traced)
            w.lib->dwfl_getthread_frames(w.dwfl, threads[i].id, on_frame, &w);
        end_line(&line, fd);
    }
}

#else

void ls__stack_names(pid_t pid, const char *maps, const ls__stack_thread *threads, int count,
                     int fd)
{
    (void)pid, (void)maps;
    for (int i = 0; i < count; i++) {
        ls__text line = { 0 };
        begin_line(&threads[i], &line);
        end_line(&line, fd);
    }
}

#endif
