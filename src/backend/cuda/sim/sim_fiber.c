/* Fibers: a stack each, and a switch of a dozen instructions.
 *
 * swapcontext would ask the kernel for the signal mask at every switch; a block of 256 threads with
 * a few barriers switches thousands of times, so the registers that a call must keep are saved by
 * hand. Stacks are mapped with a guard page below, and touched only as far as they are used. */
#include "backend/cuda/sim/sim_fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cuda/sim/sim_sanitizer.h"
#include "base/memory.h"

#ifdef LS_SIM_ASAN
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 512 << 10 }; /* a report is written on the stack it is about */
#else
enum { STACK_BYTES = 128 << 10 };
#endif

struct sim_fiber {
    void *top;   /* where its registers are while it does not run */
    void *stack; /* its lowest byte, above the guard page; NULL = not known yet */
    size_t nbytes;
    bool mapped; /* by us; else it is the OS thread's own */
    void (*entry)(void *context);
    void *context;
    void *fake_stack; /* the address sanitizer's */
};

/* Keeps the registers that belong to the caller on the stack, the stack pointer in *top, and goes on
 * from the other stack. A new fiber's registers make it call ls__sim_fiber_begin(fiber). */
void ls__sim_fiber_swap(void **top, void *to_top);
void ls__sim_fiber_first(void);
void ls__sim_fiber_begin(sim_fiber *f);

#if defined(__x86_64__)
__asm__(".text\n"
        ".hidden ls__sim_fiber_swap\n"
        ".globl ls__sim_fiber_swap\n"
        ".type ls__sim_fiber_swap, @function\n"
        "ls__sim_fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size ls__sim_fiber_swap, . - ls__sim_fiber_swap\n"
        ".hidden ls__sim_fiber_first\n"
        ".globl ls__sim_fiber_first\n"
        ".type ls__sim_fiber_first, @function\n"
        "ls__sim_fiber_first:\n"
        "    movq %r12, %rdi\n"
        "    call ls__sim_fiber_begin\n"
        "    ud2\n"
        ".size ls__sim_fiber_first, . - ls__sim_fiber_first\n");
/* Counted in words from the saved stack pointer. */
enum { SAVED_FIBER = 3, SAVED_RETURN = 6, SAVED_WORDS = 9 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".hidden ls__sim_fiber_swap\n"
        ".globl ls__sim_fiber_swap\n"
        ".type ls__sim_fiber_swap, %function\n"
        "ls__sim_fiber_swap:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size ls__sim_fiber_swap, . - ls__sim_fiber_swap\n"
        ".hidden ls__sim_fiber_first\n"
        ".globl ls__sim_fiber_first\n"
        ".type ls__sim_fiber_first, %function\n"
        "ls__sim_fiber_first:\n"
        "    mov x0, x19\n"
        "    bl ls__sim_fiber_begin\n"
        "    brk #1\n"
        ".size ls__sim_fiber_first, . - ls__sim_fiber_first\n");
enum { SAVED_FIBER = 0, SAVED_RETURN = 11, SAVED_WORDS = 20 };
#else
#error "the simulated GPU switches stacks on x86-64 and arm64"
#endif

#ifdef LS_SIM_ASAN
static __thread sim_fiber *left; /* the one switched away from */

static void before_switch(sim_fiber *from, const sim_fiber *to)
{
    left = from;
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->nbytes);
}

static void after_switch(sim_fiber *self)
{
    const void *stack;
    size_t nbytes;
    __sanitizer_finish_switch_fiber(self->fake_stack, &stack, &nbytes);
    if (!left->stack) { /* an OS thread's: only now it is told where that is */
        left->stack = (void *)(uintptr_t)stack;
        left->nbytes = nbytes;
    }
}
#else
static void before_switch(sim_fiber *from, const sim_fiber *to)
{
    (void)from, (void)to;
}

static void after_switch(sim_fiber *self)
{
    (void)self;
}
#endif

/* Called by ls__sim_fiber_first, which only the assembler knows. */
__attribute__((used)) void ls__sim_fiber_begin(sim_fiber *f)
{
    after_switch(f);
    f->entry(f->context);
    __builtin_unreachable();
}

sim_fiber *ls__sim_fiber_create(void (*entry)(void *context), void *context)
{
    size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    sim_fiber *f = ls__alloc(1, sizeof(*f));
    if (!f) return NULL;
    char *map = mmap(NULL, guard + STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (map == MAP_FAILED) {
        ls__free(f);
        return NULL;
    }
    mprotect(map, guard, PROT_NONE);
    *f = (sim_fiber) { .stack = map + guard,
                       .nbytes = STACK_BYTES,
                       .mapped = true,
                       .entry = entry,
                       .context = context };
    uintptr_t *words = (uintptr_t *)(map + guard + STACK_BYTES) - SAVED_WORDS;
    words[SAVED_FIBER] = (uintptr_t)f;
    words[SAVED_RETURN] = (uintptr_t)ls__sim_fiber_first;
    f->top = words;
    return f;
}

sim_fiber *ls__sim_fiber_of_thread(void)
{
    return ls__alloc(1, sizeof(sim_fiber));
}

void ls__sim_fiber_destroy(sim_fiber *f)
{
    if (!f) return;
    if (f->mapped) {
        size_t guard = (size_t)sysconf(_SC_PAGESIZE);
        sim_unpoison(f->stack, f->nbytes); /* frames that were dropped */
        munmap((char *)f->stack - guard, guard + f->nbytes);
    }
    ls__free(f);
}

void ls__sim_fiber_switch(sim_fiber *from, sim_fiber *to)
{
    before_switch(from, to);
    ls__sim_fiber_swap(&from->top, to->top);
    after_switch(from);
}
