/* Faults for the tests: preloaded into a node, it makes the calls that read and write the data folder fail or wait on
 * demand, notes what has become durable, and sets the wall clock forward or back, or has it stand still or drift.
 *
 * FAULTS_FOLDER   the data folder (real path); files elsewhere are never touched
 * FAULTS_TRIGGER  while this file exists, calls fail. It holds "<mode> [part of a path]":
 *                          sync   fsync and fdatasync fail with EIO
 *                          full   everything that needs room fails with ENOSPC
 *                          hang   fsync and fdatasync wait until the file is gone
 *                          slow   fsync and fdatasync take two seconds longer
 *                          read   reads fail with EIO
 *                          drag   reads take a twentieth of a second longer
 *                        With a part of a path, only files whose path contains it are concerned.
 * FAULTS_SYNCS    every successful sync appends "<inode> <size>" here, so that a test can cut the files back to
 *                        what was durable, as a power cut may do.
 * FAULTS_CLOCK    this file holds "<ahead> [<rate> <since>]": the node's wall clock is so many seconds ahead of the
 *                        machine's, and has gone at this rate since that second of the machine: at 0 it stands still.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum mode { NONE, SYNC, FULL, HANG, SLOW, READ, DRAG };
static const char *const MODES[] = {"", "sync", "full", "hang", "slow", "read", "drag"};
#define SLOW_SYNC_MICROS (2 * 1000 * 1000)
#define SLOW_READ_MICROS (50 * 1000)

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The first line of the file that a setting names. Plain system calls: the wrappers below must not call themselves. */
static int first_line(const char *name, char *text, size_t size) {
    const char *path = setting(name);
    if (!path) return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    ssize_t got = syscall(SYS_read, fd, text, size - 1);
    syscall(SYS_close, fd);
    text[got > 0 ? got : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return 1;
}

static enum mode triggered(char *part, size_t part_size) {
    char text[PATH_MAX + 16];
    if (!first_line("FAULTS_TRIGGER", text, sizeof text)) return NONE;
    char *space = strchr(text, ' ');
    snprintf(part, part_size, "%s", space ? space + 1 : "");
    if (space) *space = 0;
    for (enum mode mode = SYNC; mode <= DRAG; mode++)
        if (!strcmp(text, MODES[mode])) return mode;
    return NONE;
}

static int below_folder(const char *path) {
    const char *folder = setting("FAULTS_FOLDER");
    return folder && !strncmp(path, folder, strlen(folder));
}

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

static int path_fails(const char *path, enum mode wanted) {
    char part[PATH_MAX];
    int saved = errno;
    int fails = below_folder(path) && triggered(part, sizeof part) == wanted && strstr(path, part);
    errno = saved;
    return fails;
}

static int fd_fails(int fd, enum mode wanted) {
    char part[PATH_MAX], path[PATH_MAX];
    int saved = errno;
    int fails = triggered(part, sizeof part) == wanted && path_of(fd, path, sizeof path) && below_folder(path) &&
                strstr(path, part);
    errno = saved;
    return fails;
}

/* Notes the size that a sync made durable; `size` was read before it, for what is written meanwhile may be left out. */
static void note_durable(int fd, unsigned long long inode, long long size) {
    char path[PATH_MAX], line[64];
    if (!path_of(fd, path, sizeof path) || !below_folder(path)) return;
    int saved = errno;
    int notes = (int)syscall(SYS_openat, AT_FDCWD, setting("FAULTS_SYNCS"),
                             O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    syscall(SYS_write, notes, line, snprintf(line, sizeof line, "%llu %lld\n", inode, size));
    syscall(SYS_close, notes);
    errno = saved;
}

static int sync_with(int fd, int (*next)(int)) {
    struct stat before;
    if (fd_fails(fd, SYNC)) return errno = EIO, -1;
    while (fd_fails(fd, HANG)) usleep(10 * 1000);
    if (fd_fails(fd, SLOW)) usleep(SLOW_SYNC_MICROS);
    if (!setting("FAULTS_SYNCS") || fstat(fd, &before)) return next(fd);
    int result = next(fd);
    if (result == 0) note_durable(fd, before.st_ino, before.st_size);
    return result;
}

/* Defines a wrapper that fails when there is no room, and else calls the function that it stands before. */
#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define NEEDS_ROOM(type, name, parameters, arguments, fails, failure) \
    type name parameters { \
        NEXT(name); \
        if (fails) return failure; \
        return next arguments; \
    }
#define NO_ROOM (errno = ENOSPC, -1)

int fsync(int fd) { NEXT(fsync); return sync_with(fd, next); }
int fdatasync(int fd) { NEXT(fdatasync); return sync_with(fd, next); }

NEEDS_ROOM(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(int, fallocate, (int fd, int how, off_t at, off_t size), (fd, how, at, size), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(int, fallocate64, (int fd, int how, off64_t at, off64_t size), (fd, how, at, size), fd_fails(fd, FULL), NO_ROOM)
NEEDS_ROOM(int, posix_fallocate, (int fd, off_t at, off_t size), (fd, at, size), fd_fails(fd, FULL), ENOSPC)
NEEDS_ROOM(int, posix_fallocate64, (int fd, off64_t at, off64_t size), (fd, at, size), fd_fails(fd, FULL), ENOSPC)
NEEDS_ROOM(int, mkdir, (const char *path, mode_t rights), (path, rights), path_fails(path, FULL), NO_ROOM)

/* Reads, in the ways that the node and its engine read. */
static int read_fails(int fd) {
    if (fd_fails(fd, DRAG)) usleep(SLOW_READ_MICROS);
    return fd_fails(fd, READ);
}
#define READS(type, name, parameters, arguments, fd, failure) \
    type name parameters { \
        NEXT(name); \
        if (read_fails(fd)) return errno = EIO, failure; \
        return next arguments; \
    }

READS(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size), fd, -1)
READS(ssize_t, readv, (int fd, const struct iovec *parts, int count), (fd, parts, count), fd, -1)
READS(ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at), fd, -1)
READS(ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at), fd, -1)
#undef fread_unlocked
READS(size_t, fread, (void *data, size_t size, size_t count, FILE *file), (data, size, count, file), fileno(file), 0)
READS(size_t, fread_unlocked, (void *data, size_t size, size_t count, FILE *file), (data, size, count, file), fileno(file), 0)

/* Opening needs room only when it makes a file. */
static int makes(const char *path, int flags) { return (flags & O_CREAT) && access(path, F_OK) != 0; }

#define RIGHTS \
    mode_t rights = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        rights = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...) {
    RIGHTS NEXT(open);
    if (makes(path, flags) && path_fails(path, FULL)) return NO_ROOM;
    return next(path, flags, rights);
}

int open64(const char *path, int flags, ...) {
    RIGHTS NEXT(open64);
    if (makes(path, flags) && path_fails(path, FULL)) return NO_ROOM;
    return next(path, flags, rights);
}

int openat(int folder, const char *path, int flags, ...) {
    RIGHTS NEXT(openat);
    if (path[0] == '/' && makes(path, flags) && path_fails(path, FULL)) return NO_ROOM;
    return next(folder, path, flags, rights);
}

int openat64(int folder, const char *path, int flags, ...) {
    RIGHTS NEXT(openat64);
    if (path[0] == '/' && makes(path, flags) && path_fails(path, FULL)) return NO_ROOM;
    return next(folder, path, flags, rights);
}

#define NANOS_PER_SECOND 1000000000LL

static void set_wrong(struct timespec *now) {
    char text[96];
    double ahead = 0, rate = 1, since = 0;
    int saved = errno;
    if (first_line("FAULTS_CLOCK", text, sizeof text)) sscanf(text, "%lf %lf %lf", &ahead, &rate, &since);
    errno = saved;
    /* Seconds with a fraction do not fit into a double at full precision, so only the difference is one. */
    double passed = (double)(now->tv_sec - (time_t)since) - (since - (time_t)since) + now->tv_nsec / 1e9;
    long long nanos = (long long)((ahead + passed * (rate - 1)) * 1e9) + now->tv_nsec;
    long long seconds = nanos / NANOS_PER_SECOND;
    if (nanos % NANOS_PER_SECOND < 0) seconds--;
    now->tv_sec += seconds;
    now->tv_nsec = nanos - seconds * NANOS_PER_SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    NEXT(clock_gettime);
    int result = next(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) set_wrong(now);
    return result;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}
