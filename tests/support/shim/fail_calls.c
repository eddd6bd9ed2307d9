/* A library for LD_PRELOAD that makes the n-th call of a kind fail, as the system may at any time.
 *
 *   FAIL_CALL=KIND:N    the N-th call of this kind in a process fails; N counts from 1, including forked processes
 *   FAIL_CALL=KIND:N+   the N-th and all later calls fail
 *   FAIL_COUNT=FILE     every process that ends appends a line "KIND calls" for each kind
 *
 * Kinds, and how they fail: own (memory allocated by the program itself), lib (by its libraries; both ENOMEM), map
 * (mmap, ENOMEM), fork (EAGAIN), thread (pthread_create, EAGAIN), open (open, openat, fopen, opendir: EMFILE), kill
 * (reports success and does nothing, as for a process that is blocked in a system call), lock (flock succeeds, but just before
 * it another process has taken ".part" from the name of the file).
 * With "own" or "lib" and '+', mmap fails too, as if memory were exhausted. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef enum Kind { KIND_OWN, KIND_LIB, KIND_MAP, KIND_FORK, KIND_THREAD, KIND_OPEN, KIND_KILL, KIND_LOCK, KINDS } Kind;

static const char *const names[KINDS] = {"own", "lib", "map", "fork", "thread", "open", "kill", "lock"};
static _Atomic long calls[KINDS];
static long failing[KINDS];
static bool onward[KINDS];
static uintptr_t program_first, program_end;
static bool ready;

/* glibc's own names of what is replaced here; none needs dlsym, which allocates. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

/* The first object is the program. */
static int program_find(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes, (void)context;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        program_first = info->dlpi_addr + part->p_vaddr;
        program_end = program_first + part->p_memsz;
    }
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    const char *order = getenv("FAIL_CALL");
    dl_iterate_phdr(program_find, NULL);
    for (int k = 0; order && k < KINDS; k++) {
        size_t length = strlen(names[k]);
        if (strncmp(order, names[k], length) || order[length] != ':') continue;
        char *end;
        failing[k] = strtol(order + length + 1, &end, 10);
        onward[k] = *end == '+';
    }
}

/* Calls count from main on: what libraries linked into the program do before it (the CUDA runtime registers kernels) is
 * not the program's, and crashes by itself without memory. */
static int (*program_main)(int, char **, char **);

static int main_counted(int argc, char **argv, char **environment)
{
    ready = true;
    return program_main(argc, argv, environment);
}

typedef int (*StartMain)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void),
                         void *);

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    union {
        void *data;
        StartMain function;
    } real = {dlsym(RTLD_NEXT, "__libc_start_main")};
    program_main = main;
    return real.function(main_counted, argc, argv, init, fini, rtld_fini, stack_end);
}

static void counts_write(void)
{
    const char *path = getenv("FAIL_COUNT");
    char text[512];
    int used = 0;
    if (!path) return;
    for (int k = 0; k < KINDS; k++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s %ld\n", names[k], calls[k]);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (fd >= 0 && write(fd, text, (size_t)used) == used) close(fd);
}

__attribute__((destructor)) static void at_exit(void)
{
    counts_write();
}

static bool used_up(Kind kind)
{
    return failing[kind] && onward[kind] && calls[kind] >= failing[kind];
}

static bool fails(Kind kind, int error)
{
    if (!ready) return false;
    long number = atomic_fetch_add(&calls[kind], 1) + 1;
    bool now = number == failing[kind] || (onward[kind] && failing[kind] && number > failing[kind]);
    if (now) errno = error;
    return now;
}

static bool memory_fails(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    return fails(at >= program_first && at < program_end ? KIND_OWN : KIND_LIB, ENOMEM);
}

void *malloc(size_t bytes)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memory_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **made, size_t alignment, size_t bytes)
{
    void *memory = memory_fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
    if (!memory) return ENOMEM;
    *made = memory;
    return 0;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fails(KIND_MAP, ENOMEM) || used_up(KIND_OWN) || used_up(KIND_LIB)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

/* Functions that are not replaced by a system call here are those of the next library. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

pid_t fork(void)
{
    return fails(KIND_FORK, EAGAIN) ? -1 : NEXT(fork)();
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start_at)(void *), void *argument)
{
    return fails(KIND_THREAD, EAGAIN) ? EAGAIN : NEXT(pthread_create)(thread, attributes, start_at, argument);
}

int kill(pid_t process, int number)
{
    return fails(KIND_KILL, 0) ? 0 : (int)syscall(SYS_kill, process, number);
}

/* Gives the open file the name without its ending. */
static void publish(int fd)
{
    char link[64], path[4096], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 5) return;
    path[length] = 0;
    snprintf(name, sizeof name, "%.*s", (int)length - 5, path);
    if (!strcmp(path + length - 5, ".part")) rename(path, name);
}

int flock(int fd, int operation)
{
    if (fails(KIND_LOCK, 0)) publish(fd);
    return (int)syscall(SYS_flock, fd, operation);
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    return fails(KIND_OPEN, EMFILE) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE_OF(flags, mode)                                                                                           \
    do {                                                                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        if ((flags) & (O_CREAT | O_TMPFILE)) (mode) = va_arg(rest, mode_t);                                            \
        va_end(rest);                                                                                                  \
    } while (0)

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    mode_t mode = 0;
    MODE_OF(flags, mode);
    return open_at(folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    return fails(KIND_OPEN, EMFILE) ? NULL : NEXT(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fails(KIND_OPEN, EMFILE) ? NULL : NEXT(fopen64)(path, mode);
}

DIR *opendir(const char *path)
{
    return fails(KIND_OPEN, EMFILE) ? NULL : NEXT(opendir)(path);
}

/* A tower ends this way. */
void _exit(int status)
{
    counts_write();
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}
