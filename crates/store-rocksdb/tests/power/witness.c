/* Loaded in front of the C library (LD_PRELOAD): writes down, in the order in which it happened, what a file system must
 * keep over a power cut and what it may lose. It changes nothing about the calls themselves.
 *
 * Each line of POWER_WITNESS:
 *   S inode length                   the file was synced when it was so long (as it was before the sync began)
 *   C folder inode name              a file was made
 *   M folder inode name              a folder was made
 *   R folder name folder name old    a renaming; `old` keeps what stood there before, or is "-"
 *   U folder name old                a name was removed; `old` keeps the file, or is "-"
 *   B inode, then D inode            a folder's sync began, and was done: what came before B is durable
 * Folders are inodes. `old` is a link in the folder POWER_GRAVES, through which the test undoes what was not synced.
 * A name must have no blanks: the store's own names have none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

static atomic_int witness = -2;
static atomic_ulong n_graves;

/* The next one of that name, which is the C library's. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int witness_fd(void) {
    int fd = atomic_load(&witness);
    if (fd != -2) {
        return fd;
    }
    const char *path = getenv("POWER_WITNESS");
    fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    int expected = -2;
    if (!atomic_compare_exchange_strong(&witness, &expected, fd)) {
        if (fd >= 0) {
            syscall(SYS_close, fd);
        }
        return expected;
    }
    return fd;
}

/* One line is one write at the end of the file: lines of several threads do not mix. */
static void say(const char *format, ...) {
    int saved = errno;
    int fd = witness_fd();
    if (fd >= 0) {
        char line[LINE_MAX_BYTES];
        va_list list;
        va_start(list, format);
        int n = vsnprintf(line, sizeof line, format, list);
        va_end(list);
        if (n <= 0 || n >= (int)sizeof line || syscall(SYS_write, fd, line, n) != n) {
            /* A witness that missed something must not go on: the test would prove nothing. */
            abort();
        }
    }
    errno = saved;
}

/* Finds the inode of the folder that holds `path`, and the last part of its name. */
static unsigned long folder_of(int at, const char *path, char *name) {
    char copy[PATH_MAX], other[PATH_MAX];
    struct stat found;
    snprintf(copy, sizeof copy, "%s", path);
    snprintf(other, sizeof other, "%s", path);
    snprintf(name, NAME_MAX + 1, "%s", basename(copy));
    if (fstatat(at, dirname(other), &found, 0) != 0) {
        return 0;
    }
    return found.st_ino;
}

/* Keeps a file by a second name. */
static void keep(int at, const char *path, char *kept) {
    const char *graves = getenv("POWER_GRAVES");
    int saved = errno;
    char to[PATH_MAX];
    snprintf(kept, NAME_MAX + 1, "%d-%lu", (int)getpid(), atomic_fetch_add(&n_graves, 1));
    snprintf(to, sizeof to, "%s/%s", graves ? graves : "", kept);
    if (!graves || linkat(at, path, AT_FDCWD, to, 0) != 0) {
        strcpy(kept, "-");
    }
    errno = saved;
}

static int synced(int fd, int (*sync)(int)) {
    struct stat before;
    if (fstat(fd, &before) != 0) {
        return sync(fd);
    }
    unsigned long inode = before.st_ino;
    if (S_ISDIR(before.st_mode)) {
        say("B %lu\n", inode);
    }
    int result = sync(fd);
    if (result == 0 && S_ISDIR(before.st_mode)) {
        say("D %lu\n", inode);
    } else if (result == 0 && S_ISREG(before.st_mode)) {
        say("S %lu %lld\n", inode, (long long)before.st_size);
    }
    return result;
}

int fsync(int fd) {
    return synced(fd, NEXT(fsync));
}

int fdatasync(int fd) {
    return synced(fd, NEXT(fdatasync));
}

/* sync_file_range is not followed on purpose: it writes no length and no folder down, so it makes nothing durable. */

static int opened(int at, const char *path, int flags, mode_t mode) {
    int is_new = (flags & O_CREAT) && faccessat(at, path, F_OK, 0) != 0;
    /* O_TMPFILE and reads need no note. */
    int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    struct stat found;
    if (fd >= 0 && is_new && fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) {
        char name[NAME_MAX + 1];
        unsigned long folder = folder_of(at, path, name);
        say("C %lu %lu %s\n", folder, (unsigned long)found.st_ino, name);
    }
    return fd;
}

#define MODE_OF(flags)                                                   \
    mode_t mode = 0;                                                     \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {     \
        va_list list;                                                    \
        va_start(list, flags);                                           \
        mode = va_arg(list, mode_t);                                     \
        va_end(list);                                                    \
    }

int open(const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE_OF(flags)
    return opened(at, path, flags | O_LARGEFILE, mode);
}

int rename(const char *from, const char *to) {
    char old_name[NAME_MAX + 1], new_name[NAME_MAX + 1], kept[NAME_MAX + 1];
    unsigned long old_folder = folder_of(AT_FDCWD, from, old_name);
    unsigned long new_folder = folder_of(AT_FDCWD, to, new_name);
    keep(AT_FDCWD, to, kept);
    int result = NEXT(rename)(from, to);
    if (result == 0) {
        say("R %lu %s %lu %s %s\n", old_folder, old_name, new_folder, new_name, kept);
    }
    return result;
}

int unlink(const char *path) {
    char name[NAME_MAX + 1], kept[NAME_MAX + 1];
    unsigned long folder = folder_of(AT_FDCWD, path, name);
    keep(AT_FDCWD, path, kept);
    int result = NEXT(unlink)(path);
    if (result == 0) {
        say("U %lu %s %s\n", folder, name, kept);
    }
    return result;
}

int mkdir(const char *path, mode_t mode) {
    int result = NEXT(mkdir)(path, mode);
    struct stat made;
    if (result == 0 && stat(path, &made) == 0) {
        char name[NAME_MAX + 1];
        unsigned long folder = folder_of(AT_FDCWD, path, name);
        say("M %lu %lu %s\n", folder, (unsigned long)made.st_ino, name);
    }
    return result;
}
