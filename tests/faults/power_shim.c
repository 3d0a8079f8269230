/* LD_PRELOAD: remember what of a directory a power cut cannot take.
 *
 * Below RMQ_POWER_ROOT, each range of a file that was synced with success is copied to
 * RMQ_POWER_SHADOW/INODE-BIRTH, as it was before the sync began; and each change and each sync of
 * a directory is a line of RMQ_POWER_SHADOW/operations:
 *
 *     put DIRECTORY NAME KIND ID            a name was made: KIND is f or d
 *     move DIRECTORY NAME DIRECTORY NAME KIND ID
 *     cut DIRECTORY NAME                    a name was removed
 *     held ID                               a file was synced
 *     sync DIRECTORY
 */
#define _GNU_SOURCE
#include <dirent.h>
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
#include <unistd.h>

#define PAGE 4096
#define CHUNK (16 * PAGE)
#define BUCKETS 4096

typedef struct { uint64_t inode; int64_t birth; int directory; } Id;

typedef struct File {
    struct File *next;
    Id id;
    int fd, shadow;              /* the file, and what of it is durable */
    pthread_mutex_t lock;        /* over a sync: an older copy must not follow a newer one */
} File;

typedef struct Mapping {
    struct Mapping *next;
    char *base;
    size_t length;
    off_t offset;
    File *file;
} Mapping;

static char root[PATH_MAX];
static int shadow_directory = -1, operations = -1;
static File *files[BUCKETS];
static Mapping *mappings;
static pthread_mutex_t tables = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t names = PTHREAD_MUTEX_INITIALIZER;  /* over a change and its line */

#define REAL(name) ((__typeof__(&name))real_of(#name))

static void *real_of(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) abort();
    return found;
}

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("RMQ_POWER_ROOT"), *shadow = getenv("RMQ_POWER_SHADOW");
    if (where == NULL || shadow == NULL || realpath(where, root) == NULL) return;
    shadow_directory = REAL(openat)(AT_FDCWD, shadow, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    operations = REAL(openat)(shadow_directory, "operations",
                              O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (operations < 0) abort();
}

static int below(const char *path) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static int fd_below(int fd) {
    char link[64], path[PATH_MAX + 32];
    ssize_t length;
    if (operations < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return below(path);
}

static int id_at(int directory, const char *path, int flags, Id *id) {
    struct statx status;
    if (statx(directory, path, flags, STATX_INO | STATX_BTIME | STATX_TYPE, &status) != 0)
        return -1;
    id->inode = status.stx_ino;
    id->birth = status.stx_btime.tv_sec * INT64_C(1000000000) + status.stx_btime.tv_nsec;
    id->directory = S_ISDIR(status.stx_mode);
    return 0;
}

static void text_of(const Id *id, char *text) {
    sprintf(text, "%llu-%lld", (unsigned long long)id->inode, (long long)id->birth);
}

/* ---- names */

typedef struct { char directory[64]; char name[NAME_MAX + 1]; } Name;

/* 1: the name is below the root, and here is where. */
static int name_of(int at, const char *path, Name *name) {
    char parent[PATH_MAX];
    const char *slash;
    Id id;
    int fd, inside;
    if (operations < 0 || path == NULL || strlen(path) >= PATH_MAX) return 0;
    slash = strrchr(path, '/');
    if (slash == NULL) strcpy(parent, ".");
    else if (slash == path) strcpy(parent, "/");
    else { memcpy(parent, path, slash - path); parent[slash - path] = 0; }
    snprintf(name->name, sizeof name->name, "%s", slash == NULL ? path : slash + 1);
    fd = REAL(openat)(at, parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return 0;
    inside = fd_below(fd) && id_at(fd, "", AT_EMPTY_PATH, &id) == 0;
    close(fd);
    if (inside) text_of(&id, name->directory);
    return inside;
}

static void say(const char *form, ...) {
    char line[2 * PATH_MAX];
    va_list values;
    int length;
    va_start(values, form);
    length = vsnprintf(line, sizeof line, form, values);
    va_end(values);
    if (write(operations, line, length) != length) abort();
}

static void say_put(int at, const char *path, const Name *name) {
    char text[64];
    Id id;
    if (id_at(at, path, AT_SYMLINK_NOFOLLOW, &id) != 0) return;
    text_of(&id, text);
    say("put\t%s\t%s\t%s\t%s\n", name->directory, name->name, id.directory ? "d" : "f", text);
}

/* Run a change of names and say it, with nothing between them. */
#define CHANGE(inside, call, line) do { \
        int result_, number_; \
        if (!(inside)) return call; \
        pthread_mutex_lock(&names); \
        result_ = call; \
        number_ = errno; \
        if (result_ == 0) { line; } \
        pthread_mutex_unlock(&names); \
        errno = number_; \
        return result_; \
    } while (0)

int mkdirat(int at, const char *path, mode_t mode) {
    Name name;
    CHANGE(name_of(at, path, &name), REAL(mkdirat)(at, path, mode), say_put(at, path, &name));
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlinkat(int at, const char *path, int flags) {
    Name name;
    CHANGE(name_of(at, path, &name), REAL(unlinkat)(at, path, flags),
           say("cut\t%s\t%s\n", name.directory, name.name));
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
    int result = unlink(path);
    return result != 0 && errno == EISDIR ? rmdir(path) : result;
}

int linkat(int from_at, const char *from, int at, const char *path, int flags) {
    Name name;
    CHANGE(name_of(at, path, &name), REAL(linkat)(from_at, from, at, path, flags),
           say_put(at, path, &name));
}
int link(const char *from, const char *path) { return linkat(AT_FDCWD, from, AT_FDCWD, path, 0); }

static void say_move(int at, const char *path, const Name *from, const Name *to) {
    char text[64];
    Id id;
    if (id_at(at, path, AT_SYMLINK_NOFOLLOW, &id) != 0) return;
    text_of(&id, text);
    say("move\t%s\t%s\t%s\t%s\t%s\t%s\n", from->directory, from->name, to->directory, to->name,
        id.directory ? "d" : "f", text);
}

int renameat2(int from_at, const char *from, int at, const char *path, unsigned flags) {
    Name old, name;
    CHANGE(name_of(at, path, &name) && name_of(from_at, from, &old),
           REAL(renameat2)(from_at, from, at, path, flags), say_move(at, path, &old, &name));
}
int renameat(int from_at, const char *from, int at, const char *path) {
    return renameat2(from_at, from, at, path, 0);
}
int rename(const char *from, const char *path) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, path, 0);
}

int openat(int at, const char *path, int flags, ...) {
    struct stat status;
    Name name;
    mode_t mode = 0;
    int fd, number, made;
    va_list values;
    va_start(values, flags);
    if (flags & (O_CREAT | __O_TMPFILE)) mode = va_arg(values, mode_t);
    va_end(values);
    if (!(flags & O_CREAT) || !name_of(at, path, &name))
        return REAL(openat)(at, path, flags, mode);
    pthread_mutex_lock(&names);
    made = fstatat(at, path, &status, AT_SYMLINK_NOFOLLOW) != 0;
    fd = REAL(openat)(at, path, flags, mode);
    number = errno;
    if (fd >= 0 && made) say_put(at, path, &name);
    pthread_mutex_unlock(&names);
    errno = number;
    return fd;
}
#define MODE_OF(flags) \
    mode_t mode = 0; \
    va_list values; \
    va_start(values, flags); \
    if (flags & (O_CREAT | __O_TMPFILE)) mode = va_arg(values, mode_t); \
    va_end(values)
int openat64(int at, const char *path, int flags, ...) {
    MODE_OF(flags);
    return openat(at, path, flags, mode);
}
int open(const char *path, int flags, ...) {
    MODE_OF(flags);
    return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE_OF(flags);
    return openat(AT_FDCWD, path, flags, mode);
}

/* ---- bytes */

static File *file_of(int fd) {
    char path[64];
    Id id;
    File *file;
    if (!fd_below(fd) || id_at(fd, "", AT_EMPTY_PATH, &id) != 0 || id.directory) return NULL;
    pthread_mutex_lock(&tables);
    for (file = files[id.inode % BUCKETS]; file != NULL; file = file->next)
        if (file->id.inode == id.inode && file->id.birth == id.birth) break;
    if (file == NULL) {
        file = calloc(1, sizeof *file);
        file->id = id;
        pthread_mutex_init(&file->lock, NULL);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        file->fd = REAL(openat)(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
        text_of(&id, path);
        file->shadow = REAL(openat)(shadow_directory, path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (file->fd < 0 || file->shadow < 0) abort();
        file->next = files[id.inode % BUCKETS];
        files[id.inode % BUCKETS] = file;
    }
    pthread_mutex_unlock(&tables);
    return file;
}

/* The pages of [start, stop) that are not durable yet, as they are now. */
typedef struct { char *bytes; off_t *at; size_t count, room; off_t size; } Pages;

static void take(File *file, off_t start, off_t stop, Pages *pages) {
    char now[CHUNK], durable[CHUNK];
    struct stat status;
    off_t at, page;
    memset(pages, 0, sizeof *pages);
    if (fstat(file->fd, &status) != 0) abort();
    pages->size = status.st_size;
    if (stop > status.st_size) stop = status.st_size;
    for (at = start - start % PAGE; at < stop; at += CHUNK) {
        ssize_t got = pread(file->fd, now, CHUNK, at), had = pread(file->shadow, durable, CHUNK, at);
        if (got < 0 || had < 0) abort();
        memset(now + got, 0, CHUNK - got);
        memset(durable + had, 0, CHUNK - had);
        for (page = 0; page < CHUNK && at + page < stop; page += PAGE) {
            if (memcmp(now + page, durable + page, PAGE) == 0) continue;
            if (pages->count == pages->room) {
                pages->room = pages->room ? 2 * pages->room : 16;
                pages->bytes = realloc(pages->bytes, pages->room * PAGE);
                pages->at = realloc(pages->at, pages->room * sizeof *pages->at);
            }
            memcpy(pages->bytes + pages->count * PAGE, now + page, PAGE);
            pages->at[pages->count++] = at + page;
        }
    }
}

/* The process may be killed anywhere in this: the copy is never longer than the file was. */
static void keep(File *file, Pages *pages) {
    char text[64];
    size_t number;
    if (ftruncate(file->shadow, pages->size) != 0) abort();
    for (number = 0; number < pages->count; number++) {
        off_t at = pages->at[number];
        ssize_t length = pages->size - at < PAGE ? pages->size - at : PAGE;
        if (pwrite(file->shadow, pages->bytes + number * PAGE, length, at) != length) abort();
    }
    text_of(&file->id, text);
    say("held\t%s\n", text);
}

static int synced(File *file, off_t start, off_t stop, int (*sync)(void *), void *what) {
    Pages pages;
    int result, number;
    pthread_mutex_lock(&file->lock);
    take(file, start, stop, &pages);
    result = sync(what);
    number = errno;
    if (result == 0) keep(file, &pages);
    free(pages.bytes);
    free(pages.at);
    pthread_mutex_unlock(&file->lock);
    errno = number;
    return result;
}

void *mmap(void *wanted, size_t length, int protection, int flags, int fd, off_t offset) {
    void *base = REAL(mmap)(wanted, length, protection, flags, fd, offset);
    Mapping *mapping;
    File *file;
    int number = errno;
    if (base == MAP_FAILED || fd < 0 || !(flags & MAP_SHARED) || operations < 0) return base;
    file = file_of(fd);
    if (file != NULL) {
        mapping = calloc(1, sizeof *mapping);
        *mapping = (Mapping){NULL, base, length, offset, file};
        pthread_mutex_lock(&tables);
        mapping->next = mappings;
        mappings = mapping;
        pthread_mutex_unlock(&tables);
    }
    errno = number;
    return base;
}
void *mmap64(void *wanted, size_t length, int protection, int flags, int fd, off_t offset) {
    return mmap(wanted, length, protection, flags, fd, offset);
}

int munmap(void *base, size_t length) {
    Mapping **at, *found = NULL;
    pthread_mutex_lock(&tables);
    for (at = &mappings; *at != NULL; at = &(*at)->next)
        if ((*at)->base == base) { found = *at; *at = found->next; break; }
    pthread_mutex_unlock(&tables);
    free(found);
    return REAL(munmap)(base, length);
}

typedef struct { void *base; size_t length; int flags; } Range;
static int sync_range(void *what) {
    Range *range = what;
    return REAL(msync)(range->base, range->length, range->flags);
}

int msync(void *base, size_t length, int flags) {
    Range range = {base, length, flags};
    Mapping *at;
    File *file = NULL;
    off_t start = 0;
    pthread_mutex_lock(&tables);
    for (at = mappings; at != NULL; at = at->next)
        if ((char *)base >= at->base && (char *)base < at->base + at->length) {
            file = at->file;
            start = at->offset + ((char *)base - at->base);
            break;
        }
    pthread_mutex_unlock(&tables);
    if (file == NULL || !(flags & MS_SYNC)) return sync_range(&range);
    return synced(file, start, start + length, sync_range, &range);
}

static int sync_file(void *what) { return REAL(fsync)(*(int *)what); }

int fsync(int fd) {
    char text[64];
    File *file;
    Id id;
    if (!fd_below(fd) || id_at(fd, "", AT_EMPTY_PATH, &id) != 0) return REAL(fsync)(fd);
    if (id.directory) {
        text_of(&id, text);
        CHANGE(1, REAL(fsync)(fd), say("sync\t%s\n", text));
    }
    file = file_of(fd);
    return synced(file, 0, INT64_MAX - CHUNK, sync_file, &fd);
}
int fdatasync(int fd) { return fsync(fd); }
