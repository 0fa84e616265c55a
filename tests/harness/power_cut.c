/* What of each file a power cut could not take: written to the file that POWER_CUT_LOG names.
 *
 * Preloaded (LD_PRELOAD) into a process, it notes at each fsync and fdatasync how long the file was
 * when the sync began, once that is over, and when a file is begun or cut. Nothing is really synced;
 * a sync takes up to 20 ms, as on a disk. Native code of libraries is covered too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum what { BEGUN, CUT, SYNCED };

static void note(enum what what, const struct stat *of) {
    const char *name = getenv("POWER_CUT_LOG");
    if (!name || S_ISDIR(of->st_mode)) return;
    static int (*real)(const char *, int, ...);
    if (!real) real = dlsym(RTLD_NEXT, "open");
    int log = real(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log < 0) return;
    uint64_t row[4] = {what, of->st_dev, of->st_ino, of->st_size};
    if (write(log, row, sizeof row) != sizeof row) abort(); /* rows would be mixed up */
    close(log);
}

static int synced(int fd) {
    struct stat of;
    if (fstat(fd, &of)) return -1;
    usleep((of.st_size ^ of.st_ino) % 20000);
    note(SYNCED, &of);
    return 0;
}

int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

#define CUTTING(function, type)                              \
    int function(int fd, type length) {                      \
        static int (*real)(int, type);                       \
        if (!real) real = dlsym(RTLD_NEXT, #function);       \
        struct stat of;                                      \
        int failed = real(fd, length);                       \
        if (!failed && !fstat(fd, &of)) note(CUT, &of);      \
        return failed;                                       \
    }
CUTTING(ftruncate, off_t)
CUTTING(ftruncate64, off64_t)

static int begun(int fd, int flags) {
    struct stat of;
    if (fd >= 0 && (flags & (O_CREAT | O_TRUNC)) && !fstat(fd, &of) && !of.st_size)
        note(BEGUN, &of);
    return fd;
}

static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPENING(function)                                    \
    int function(const char *path, int flags, ...) {         \
        static int (*real)(const char *, int, ...);          \
        if (!real) real = dlsym(RTLD_NEXT, #function);       \
        va_list more;                                        \
        va_start(more, flags);                               \
        mode_t mode = mode_of(flags, more);                  \
        va_end(more);                                        \
        return begun(real(path, flags, mode), flags);        \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(function)                                 \
    int function(int at, const char *path, int flags, ...) { \
        static int (*real)(int, const char *, int, ...);     \
        if (!real) real = dlsym(RTLD_NEXT, #function);       \
        va_list more;                                        \
        va_start(more, flags);                               \
        mode_t mode = mode_of(flags, more);                  \
        va_end(more);                                        \
        return begun(real(at, path, flags, mode), flags);    \
    }
OPENING_AT(openat)
OPENING_AT(openat64)
