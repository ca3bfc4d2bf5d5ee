/*
 * A preloaded library that stands between a process and its file system.
 *
 * Recording: every call that changes a file or a directory below RECORD_ROOT is written to RECORD_LOG, in the order in
 * which it happened and with the bytes it wrote, so that a replayer can rebuild the directory as it could stand after a
 * power cut at each call.  What the process writes to the path RECORD_MARKERS is kept as a marker in the same log.
 *
 * Faults: the FAULT_AT-th call below RECORD_ROOT whose letter stands in FAULT_KINDS fails with errno FAULT_ERRNO, and
 * with FAULT_STICKY=1 every later one too.  With FAULT_TORN=1 a failing write leaves the first half of its bytes.  The
 * first failure is told in the file FAULT_REPORT; when that file is missing, the run was a clean one.  A process that
 * has the library loaded can also arm and read it by itself: record_writes_arm and record_writes_failed.
 *
 *   letter  calls
 *   w       write, writev, pwrite, pwritev, pwritev2 (fallocate and posix_fallocate too)
 *   t       ftruncate, truncate
 *   s       fsync, fdatasync
 *   o       open that creates, mkdir
 *   u       unlink, rmdir, rename
 *   r       read, pread
 *
 * One record of the log, little endian, followed by `length` bytes:
 *
 *   0        4        8                16               24               32
 *   +--------+--------+----------------+----------------+----------------+
 *   | letter | length |     inode      |     offset     |     result     |
 *   +--------+--------+----------------+----------------+----------------+
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FD_LIMIT 65536
#define IS_MARKER 2
#define IS_TRACKED 1

struct record {
    uint32_t letter;
    uint32_t length;
    uint64_t inode;
    int64_t offset;
    int64_t result;
};

static unsigned char tracked[FD_LIMIT];
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static char markers[PATH_MAX];
static int log_fd = -1;
static long fault_at;
static long fault_count;
static int fault_errno;
static int fault_sticky;
static int fault_torn;
static char fault_kinds[32];
static char fault_report[PATH_MAX];
static char fault_hit[64];

#define REAL(type, name, ...)                                                     \
    static type (*real)(__VA_ARGS__);                                             \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static void copy_environment(char *into, size_t size, const char *name)
{
    const char *value = getenv(name);
    if (value && strlen(value) < size) strcpy(into, value);
}

__attribute__((constructor)) static void start(void)
{
    const char *value;
    char log_path[PATH_MAX] = "";
    copy_environment(root, sizeof root, "RECORD_ROOT");
    root_length = strlen(root);
    copy_environment(markers, sizeof markers, "RECORD_MARKERS");
    copy_environment(log_path, sizeof log_path, "RECORD_LOG");
    if (root_length && log_path[0]) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd >= 0) {
            /* A high number: the process must not trip over a descriptor that it does not know. */
            log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
            syscall(SYS_close, fd);
        }
        if (log_fd < 0) {
            fprintf(stderr, "record_writes: cannot open the log %s: %s\n", log_path, strerror(errno));
            _exit(99);
        }
    }
    if ((value = getenv("FAULT_AT"))) fault_at = atol(value);
    if ((value = getenv("FAULT_ERRNO"))) fault_errno = atoi(value);
    if ((value = getenv("FAULT_STICKY"))) fault_sticky = atoi(value);
    if ((value = getenv("FAULT_TORN"))) fault_torn = atoi(value);
    copy_environment(fault_kinds, sizeof fault_kinds, "FAULT_KINDS");
    copy_environment(fault_report, sizeof fault_report, "FAULT_REPORT");
}

static void put_all(int fd, const void *data, size_t length)
{
    const char *next = data;
    while (length) {
        ssize_t done = syscall(SYS_write, fd, next, length);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            static const char words[] = "record_writes: cannot write the log\n";
            syscall(SYS_write, 2, words, sizeof words - 1);
            _exit(99);
        }
        next += done;
        length -= (size_t)done;
    }
}

static void note(char letter, uint64_t inode, int64_t offset, int64_t result, const void *data, size_t length)
{
    struct record head = {(uint32_t)letter, (uint32_t)length, inode, offset, result};
    int before = errno;
    if (log_fd < 0) return;
    put_all(log_fd, &head, sizeof head);
    if (length) put_all(log_fd, data, length);
    errno = before;
}

static int watched(int fd)
{
    return fd >= 0 && fd < FD_LIMIT ? tracked[fd] : 0;
}

static uint64_t inode_of(int fd)
{
    struct stat seen;
    return fstat(fd, &seen) == 0 ? (uint64_t)seen.st_ino : 0;
}

/* Returns the path below the root ("" for the root itself), or NULL when it lies elsewhere. */
static const char *below(int directory, const char *path, char *buffer)
{
    if (!root_length || !path) return NULL;
    if (path[0] != '/') {
        char link[64];
        ssize_t got;
        if (directory == AT_FDCWD) {
            if (!getcwd(buffer, PATH_MAX)) return NULL;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
            got = readlink(link, buffer, PATH_MAX - 1);
            if (got < 0) return NULL;
            buffer[got] = 0;
        }
        if (strlen(buffer) + strlen(path) + 2 > PATH_MAX) return NULL;
        strcat(buffer, "/");
        strcat(buffer, path);
    } else {
        if (strlen(path) + 1 > PATH_MAX) return NULL;
        strcpy(buffer, path);
    }
    if (strncmp(buffer, root, root_length)) return NULL;
    if (buffer[root_length] == 0) return buffer + root_length;
    return buffer[root_length] == '/' ? buffer + root_length + 1 : NULL;
}

/* True when this call has to fail; errno is set. */
static int fails(char kind, const char *what)
{
    if (!fault_at || !strchr(fault_kinds, kind)) return 0;
    fault_count++;
    if (fault_count < fault_at || (fault_count > fault_at && !fault_sticky)) return 0;
    if (fault_count == fault_at) snprintf(fault_hit, sizeof fault_hit, "%s", what);
    if (fault_count == fault_at && fault_report[0]) {
        char line[128];
        int length = snprintf(line, sizeof line, "%ld %s\n", fault_count, what);
        int fd = (int)syscall(SYS_openat, AT_FDCWD, fault_report, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd >= 0) {
            put_all(fd, line, (size_t)length);
            syscall(SYS_close, fd);
        }
    }
    errno = fault_errno;
    return 1;
}

/* Arms a fault from now on; `at` 0 disarms. */
void record_writes_arm(long at, const char *kinds, int error, int sticky, int torn)
{
    pthread_mutex_lock(&turn);
    fault_count = 0;
    fault_at = at;
    fault_errno = error;
    fault_sticky = sticky;
    fault_torn = torn;
    snprintf(fault_kinds, sizeof fault_kinds, "%s", kinds);
    fault_hit[0] = 0;
    pthread_mutex_unlock(&turn);
}

/* What the armed fault hit first (the call), or "" when it was not reached. */
const char *record_writes_failed(void)
{
    return fault_hit;
}

static void unsupported(const char *call)
{
    note('X', 0, 0, 0, call, strlen(call));
}

/* ---- opening and closing ---- */

static int open_watched(int directory, const char *path, int flags, mode_t mode)
{
    REAL(int, "openat", int, const char *, int, ...);
    char buffer[PATH_MAX];
    const char *name;
    struct stat seen;
    int fd, created;
    if (markers[0] && path && !strcmp(path, markers)) {
        fd = real(directory, path, flags, mode);
        if (fd >= 0 && fd < FD_LIMIT) tracked[fd] = IS_MARKER;
        return fd;
    }
    name = below(directory, path, buffer);
    if (!name) {
        fd = real(directory, path, flags, mode);
        if (fd >= 0 && fd < FD_LIMIT) tracked[fd] = 0;
        return fd;
    }
    pthread_mutex_lock(&turn);
    created = (flags & O_CREAT) && fstatat(directory, path, &seen, 0) != 0;
    if (created && fails('o', "open")) {
        fd = -1;
    } else {
        fd = real(directory, path, flags, mode);
    }
    if (fd >= 0) {
        if (fd < FD_LIMIT) tracked[fd] = IS_TRACKED;
        if ((flags & O_TMPFILE) == O_TMPFILE) unsupported("O_TMPFILE");
        if ((flags & O_ACCMODE) != O_RDONLY && flags & (O_SYNC | O_DSYNC | O_DIRECT)) unsupported("O_SYNC or O_DIRECT");
        note(created ? 'C' : 'O', inode_of(fd), flags, fd, name, strlen(name));
        if (!created && flags & O_TRUNC && (flags & O_ACCMODE) != O_RDONLY) note('T', inode_of(fd), 0, 0, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return fd;
}

#define MODE_OF(flags, mode)                        \
    mode_t mode = 0;                                \
    if (flags & (O_CREAT | O_TMPFILE)) {            \
        va_list rest;                               \
        va_start(rest, flags);                      \
        mode = va_arg(rest, mode_t);                \
        va_end(rest);                               \
    }

int open(const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE_OF(flags, mode) return open_watched(at, path, flags, mode); }
int __open_2(const char *path, int flags) { return open_watched(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_watched(AT_FDCWD, path, flags, 0); }
int creat(const char *path, mode_t mode) { return open_watched(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_watched(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

int close(int fd)
{
    REAL(int, "close", int);
    if (fd == log_fd && fd >= 0) return 0;
    if (fd >= 0 && fd < FD_LIMIT) tracked[fd] = 0;
    return real(fd);
}

static int duplicate(int from, int to)
{
    if (to >= 0 && to < FD_LIMIT) tracked[to] = (unsigned char)watched(from);
    return to;
}

int dup(int fd) { REAL(int, "dup", int); return duplicate(fd, real(fd)); }
int dup2(int fd, int to) { REAL(int, "dup2", int, int); return duplicate(fd, real(fd, to)); }
int dup3(int fd, int to, int flags) { REAL(int, "dup3", int, int, int); return duplicate(fd, real(fd, to, flags)); }

/* ---- writing ---- */

static ssize_t write_watched(int fd, const void *data, size_t length, off_t offset, const char *what)
{
    uint64_t inode;
    ssize_t done;
    if (tracked[fd] == IS_MARKER) {
        pthread_mutex_lock(&turn);
        note('M', 0, 0, 0, data, length);
        pthread_mutex_unlock(&turn);
        return (ssize_t)length;
    }
    pthread_mutex_lock(&turn);
    inode = inode_of(fd);
    if (offset < 0) {
        struct stat seen;
        int flags = (int)syscall(SYS_fcntl, fd, F_GETFL);
        if (flags & O_APPEND && fstat(fd, &seen) == 0) offset = seen.st_size;
        else offset = lseek(fd, 0, SEEK_CUR);
        lseek(fd, offset, SEEK_SET);
    }
    if (fails('w', what)) {
        int reason = errno;
        if (fault_torn && length > 1) {
            done = syscall(SYS_pwrite64, fd, data, length / 2, offset);
            if (done > 0) note('W', inode, offset, done, data, (size_t)done);
        }
        pthread_mutex_unlock(&turn);
        errno = reason;
        return -1;
    }
    done = syscall(SYS_pwrite64, fd, data, length, offset);
    if (done > 0) note('W', inode, offset, done, data, (size_t)done);
    pthread_mutex_unlock(&turn);
    return done;
}

static ssize_t write_there(int fd, const void *data, size_t length, const char *what)
{
    off_t before = tracked[fd] == IS_MARKER ? 0 : lseek(fd, 0, SEEK_CUR);
    ssize_t done = write_watched(fd, data, length, -1, what);
    if (tracked[fd] != IS_MARKER) {
        int reason = errno;
        if (done > 0) lseek(fd, done, SEEK_CUR);
        else lseek(fd, before, SEEK_SET);
        errno = reason;
    }
    return done;
}

ssize_t write(int fd, const void *data, size_t length)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    return watched(fd) ? write_there(fd, data, length, "write") : real(fd, data, length);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return watched(fd) ? write_watched(fd, data, length, offset, "pwrite") : real(fd, data, length, offset);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

/* The first piece only: a short write, which every caller has to expect. */
ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    if (!watched(fd) || count < 1) return real(fd, pieces, count);
    return write_there(fd, pieces[0].iov_base, pieces[0].iov_len, "writev");
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset)
{
    REAL(ssize_t, "pwritev64", int, const struct iovec *, int, off64_t);
    if (!watched(fd) || count < 1) return real(fd, pieces, count, offset);
    return write_watched(fd, pieces[0].iov_base, pieces[0].iov_len, offset, "pwritev");
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
    return pwritev64(fd, pieces, count, offset);
}

/* All pieces in one call, as CPython makes it where the system has it. */
ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset, int flags)
{
    REAL(ssize_t, "pwritev64v2", int, const struct iovec *, int, off64_t, int);
    size_t length = 0, at = 0;
    ssize_t done;
    char *joined;
    if (!watched(fd) || count < 1) return real(fd, pieces, count, offset, flags);
    for (int i = 0; i < count; i++) length += pieces[i].iov_len;
    joined = malloc(length + 1);
    if (!joined) return -1;
    for (int i = 0; i < count; at += pieces[i++].iov_len) memcpy(joined + at, pieces[i].iov_base, pieces[i].iov_len);
    done = write_watched(fd, joined, length, offset, "pwritev2");
    free(joined);
    return done;
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    return pwritev64v2(fd, pieces, count, offset, flags);
}

/* ---- sizes ---- */

static int resize(int fd, off64_t size, const char *what)
{
    int result;
    pthread_mutex_lock(&turn);
    if (fails('t', what)) {
        result = -1;
    } else {
        result = (int)syscall(SYS_ftruncate, fd, size);
        if (result == 0) note('T', inode_of(fd), size, 0, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return result;
}

int ftruncate64(int fd, off64_t size)
{
    REAL(int, "ftruncate64", int, off64_t);
    return watched(fd) ? resize(fd, size, "ftruncate") : real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *path, off64_t size)
{
    REAL(int, "truncate64", const char *, off64_t);
    char buffer[PATH_MAX];
    int fd, result;
    if (!below(AT_FDCWD, path, buffer)) return real(path, size);
    fd = open_watched(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0) return -1;
    result = resize(fd, size, "truncate");
    close(fd);
    return result;
}

int truncate(const char *path, off_t size) { return truncate64(path, size); }

/* Reserved space reads as zeros; it is a change of size, which counts as a write for the faults. */
static int reserve(int fd, int mode, off64_t offset, off64_t length, const char *what)
{
    struct stat seen;
    int result;
    pthread_mutex_lock(&turn);
    if (fails('w', what)) {
        result = -1;
    } else {
        result = (int)syscall(SYS_fallocate, fd, mode, offset, length);
        if (result == 0) {
            if (mode & ~FALLOC_FL_KEEP_SIZE) unsupported("fallocate that punches or shifts");
            else if (fstat(fd, &seen) == 0) note('T', (uint64_t)seen.st_ino, seen.st_size, 0, NULL, 0);
        }
    }
    pthread_mutex_unlock(&turn);
    return result;
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
    REAL(int, "fallocate64", int, int, off64_t, off64_t);
    return watched(fd) ? reserve(fd, mode, offset, length, "fallocate") : real(fd, mode, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }

int posix_fallocate64(int fd, off64_t offset, off64_t length)
{
    REAL(int, "posix_fallocate64", int, off64_t, off64_t);
    int before = errno, result;
    if (!watched(fd)) return real(fd, offset, length);
    result = reserve(fd, 0, offset, length, "posix_fallocate") == 0 ? 0 : errno;
    errno = before;
    return result;
}

int posix_fallocate(int fd, off_t offset, off_t length) { return posix_fallocate64(fd, offset, length); }

/* ---- syncing ---- */

static int sync_watched(int fd, int (*real)(int), const char *what)
{
    int result;
    pthread_mutex_lock(&turn);
    result = fails('s', what) ? -1 : real(fd);
    note('S', inode_of(fd), 0, result, NULL, 0);
    pthread_mutex_unlock(&turn);
    return result;
}

int fsync(int fd) { REAL(int, "fsync", int); return watched(fd) ? sync_watched(fd, real, "fsync") : real(fd); }
int fdatasync(int fd) { REAL(int, "fdatasync", int); return watched(fd) ? sync_watched(fd, real, "fdatasync") : real(fd); }

/* ---- directories ---- */

static int remove_watched(int directory, const char *path, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    char buffer[PATH_MAX];
    const char *name = below(directory, path, buffer);
    int result;
    if (!name) return real(directory, path, flags);
    pthread_mutex_lock(&turn);
    result = fails('u', "unlink") ? -1 : real(directory, path, flags);
    if (result == 0) note('U', 0, flags, 0, name, strlen(name));
    pthread_mutex_unlock(&turn);
    return result;
}

int unlink(const char *path) { return remove_watched(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return remove_watched(at, path, flags); }
int rmdir(const char *path) { return remove_watched(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path)
{
    struct stat seen;
    if (lstat(path, &seen)) return -1;
    return remove_watched(AT_FDCWD, path, S_ISDIR(seen.st_mode) ? AT_REMOVEDIR : 0);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    REAL(int, "mkdirat", int, const char *, mode_t);
    char buffer[PATH_MAX];
    const char *name = below(at, path, buffer);
    struct stat seen;
    int result;
    if (!name) return real(at, path, mode);
    pthread_mutex_lock(&turn);
    result = fails('o', "mkdir") ? -1 : real(at, path, mode);
    if (result == 0 && fstatat(at, path, &seen, 0) == 0) note('D', (uint64_t)seen.st_ino, 0, 0, name, strlen(name));
    pthread_mutex_unlock(&turn);
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    REAL(int, "renameat", int, const char *, int, const char *);
    char first[PATH_MAX], second[PATH_MAX], both[2 * PATH_MAX];
    const char *old_name = below(from_at, from, first), *new_name = below(to_at, to, second);
    int result;
    if (!old_name && !new_name) return real(from_at, from, to_at, to);
    pthread_mutex_lock(&turn);
    result = fails('u', "rename") ? -1 : real(from_at, from, to_at, to);
    if (result == 0) {
        if (!old_name || !new_name) {
            unsupported("rename into or out of the directory");
        } else {
            size_t length = strlen(old_name) + 1;
            memcpy(both, old_name, length);
            strcpy(both + length, new_name);
            note('R', 0, 0, 0, both, length + strlen(new_name));
        }
    }
    pthread_mutex_unlock(&turn);
    return result;
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

/* ---- reading, for faults only ---- */

ssize_t read(int fd, void *into, size_t length)
{
    REAL(ssize_t, "read", int, void *, size_t);
    if (watched(fd) == IS_TRACKED && fault_at) {
        int failed;
        pthread_mutex_lock(&turn);
        failed = fails('r', "read");
        pthread_mutex_unlock(&turn);
        if (failed) return -1;
    }
    return real(fd, into, length);
}

ssize_t pread64(int fd, void *into, size_t length, off64_t offset)
{
    REAL(ssize_t, "pread64", int, void *, size_t, off64_t);
    if (watched(fd) == IS_TRACKED && fault_at) {
        int failed;
        pthread_mutex_lock(&turn);
        failed = fails('r', "pread");
        pthread_mutex_unlock(&turn);
        if (failed) return -1;
    }
    return real(fd, into, length, offset);
}

ssize_t pread(int fd, void *into, size_t length, off_t offset) { return pread64(fd, into, length, offset); }

/* ---- what the replayer could not follow is said, not passed over ---- */

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
    REAL(void *, "mmap64", void *, size_t, int, int, int, off64_t);
    if (watched(fd) && flags & MAP_SHARED && protection & PROT_WRITE) {
        pthread_mutex_lock(&turn);
        unsupported("a writable shared mapping");
        pthread_mutex_unlock(&turn);
    }
    return real(address, length, protection, flags, fd, offset);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap64(address, length, protection, flags, fd, offset);
}

int link(const char *from, const char *to)
{
    REAL(int, "link", const char *, const char *);
    char buffer[PATH_MAX];
    if (below(AT_FDCWD, to, buffer)) unsupported("link");
    return real(from, to);
}

int symlink(const char *from, const char *to)
{
    REAL(int, "symlink", const char *, const char *);
    char buffer[PATH_MAX];
    if (below(AT_FDCWD, to, buffer)) unsupported("symlink");
    return real(from, to);
}
