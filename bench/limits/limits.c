/* What the machine needs at least: a workload's bytes, moved by the shortest C that moves them.
 *
 *   limits put BODY RECORD COUNT WINDOW_MIB DIR   append COUNT records to a fresh mapped log file
 *   limits index COUNT DIR                        put COUNT keys into a fresh mapped index file
 *   limits crc SIZE                               CRC-32 of SIZE bytes, again and again
 *   limits check FILE                             CRC-32 of each body of a log file, in place
 *   limits copy FILE                              the same, and each body copied
 *
 * Prints "NAME NANOSECONDS" lines, a message, a key or a call each.  "put" and "index" begin with a
 * file that does not exist: open, ftruncate, fallocate a window at a time, and every page fault are
 * in the time; "touch" takes the faults one by one, "populate" a window at a time (madvise), and
 * the smaller one is the limit.  There are no locks, no arguments to check, no second thread and
 * no sync.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum {
    POOL = 4096,        /* distinct bodies, taken in turn */
    HEADER_BYTES = 88,  /* TOTALSIZE to BODYLENGTH, IPv4 hosts */
    INDEX_HEADER = 40,
    INDEX_ENTRY = 20,
    HASH_SLOTS = 5000000,
    INDEX_ENTRIES = 20000000,
};

static const int64_t LOG_BYTES = 1LL << 30;

static void fail(const char *what) {
    fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint64_t seed = 88172645463325252ULL;

static uint64_t next_random(void) { /* xorshift64: the same numbers in each run */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void put_i32(char *to, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(to, &value, 4);
}

static void put_i64(char *to, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(to, &value, 8);
}

/* ---- CRC-32, polynomial 0xEDB88320 ------------------------------------------------------- */

static uint32_t table[8][256];

static void make_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        table[0][n] = crc;
    }
    for (int level = 1; level < 8; level++)
        for (int n = 0; n < 256; n++)
            table[level][n] = table[level - 1][n] >> 8 ^ table[0][table[level - 1][n] & 255];
}

static uint32_t crc_by_table(uint32_t crc, const char *from, size_t size) { /* little-endian */
    for (; size >= 8; from += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, from, 8);
        word ^= crc;
        crc = 0;
        for (int at = 0; at < 8; at++)
            crc ^= table[7 - at][word >> 8 * at & 255];
    }
    while (size--)
        crc = crc >> 8 ^ table[0][(crc ^ *from++) & 255];
    return crc;
}

#ifdef __x86_64__
#include <immintrin.h>

#define CLMUL __attribute__((target("pclmul,sse4.1")))
#define WIDE __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))

/* x^n modulo the polynomial, reflected in 33 bits. */
static long long power(int n) {
    uint32_t r = 0x80000000u;
    while (n--)
        r = r >> 1 ^ (r & 1 ? 0xEDB88320u : 0);
    return (long long)r << 1;
}

/* What moves a block of 16 bytes over some bytes of message: [over][half]. */
static long long over16[2], over64[2], over256[2], over4, barrett[2] = {0x1db710641, 0x1f7011641};

static void make_constants(void) {
    over16[0] = power(128 + 32), over16[1] = power(128 - 32);
    over64[0] = power(512 + 32), over64[1] = power(512 - 32);
    over256[0] = power(2048 + 32), over256[1] = power(2048 - 32);
    over4 = power(64);
}

CLMUL static inline __m128i load(const void *from) { return _mm_loadu_si128(from); }

CLMUL static inline __m128i fold(__m128i x, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Take the rest into one lane of 16 bytes and reduce it (Barrett). */
CLMUL static inline uint32_t finish(__m128i a, const char *from, size_t size) {
    const __m128i by16 = load(over16), poly = load(barrett), mask = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i b;
    for (; size >= 16; from += 16, size -= 16)
        a = fold(a, by16, load(from));
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by16, 0x10));
    b = _mm_srli_si128(a, 4);
    a = _mm_and_si128(a, mask);
    a = _mm_xor_si128(_mm_clmulepi64_si128(a, _mm_cvtsi64_si128(over4), 0x00), b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, mask), poly, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, mask), poly, 0x00);
    return crc_by_table((uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1), from, size);
}

/* Fold four lanes of 16 bytes, 64 bytes a step. */
CLMUL static uint32_t crc_by_folding(uint32_t crc, const char *from, size_t size) {
    const __m128i by16 = load(over16), by64 = load(over64);
    __m128i a, b, c, d;
    if (size < 64)
        return crc_by_table(crc, from, size);
    a = _mm_xor_si128(load(from), _mm_cvtsi32_si128((int)crc));
    b = load(from + 16), c = load(from + 32), d = load(from + 48);
    for (from += 64, size -= 64; size >= 64; from += 64, size -= 64) {
        a = fold(a, by64, load(from));
        b = fold(b, by64, load(from + 16));
        c = fold(c, by64, load(from + 32));
        d = fold(d, by64, load(from + 48));
    }
    a = fold(fold(fold(a, by16, b), by16, c), by16, d);
    return finish(a, from, size);
}

WIDE static inline __m512i fold_wide(__m512i x, __m512i by, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

/* Fold four registers of four lanes, 256 bytes a step. */
WIDE static uint32_t crc_wide(uint32_t crc, const char *from, size_t size) {
    const __m512i by64 = _mm512_broadcast_i32x4(load(over64));
    const __m512i by256 = _mm512_broadcast_i32x4(load(over256));
    const __m128i by16 = load(over16);
    __m512i a, b, c, d;
    __m128i last;
    if (size < 256)
        return crc_by_folding(crc, from, size);
    a = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc));
    a = _mm512_xor_si512(_mm512_loadu_si512(from), a);
    b = _mm512_loadu_si512(from + 64), c = _mm512_loadu_si512(from + 128);
    d = _mm512_loadu_si512(from + 192);
    for (from += 256, size -= 256; size >= 256; from += 256, size -= 256) {
        a = fold_wide(a, by256, _mm512_loadu_si512(from));
        b = fold_wide(b, by256, _mm512_loadu_si512(from + 64));
        c = fold_wide(c, by256, _mm512_loadu_si512(from + 128));
        d = fold_wide(d, by256, _mm512_loadu_si512(from + 192));
    }
    a = fold_wide(fold_wide(fold_wide(a, by64, b), by64, c), by64, d);
    for (; size >= 64; from += 64, size -= 64)
        a = fold_wide(a, by64, _mm512_loadu_si512(from));
    last = fold(_mm512_extracti32x4_epi32(a, 0), by16, _mm512_extracti32x4_epi32(a, 1));
    last = fold(last, by16, _mm512_extracti32x4_epi32(a, 2));
    last = fold(last, by16, _mm512_extracti32x4_epi32(a, 3));
    return finish(last, from, size);
}

typedef uint32_t (*crc_function)(uint32_t, const char *, size_t);

static crc_function best_crc(void) {
    make_constants();
    if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
        return crc_by_table;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
        return crc_wide;
    return crc_by_folding;
}
#else
typedef uint32_t (*crc_function)(uint32_t, const char *, size_t);

static crc_function best_crc(void) { return crc_by_table; }
#endif

static crc_function crc_update = crc_by_table;

static uint32_t crc32(const char *from, size_t size) { return ~crc_update(~0u, from, size); }

static void choose_crc(void) {
    char data[700];
    make_table();
    for (size_t at = 0; at < sizeof data; at++)
        data[at] = (char)next_random();
    if (~crc_by_table(~0u, "123456789", 9) != 0xCBF43926) {
        fprintf(stderr, "limits: the CRC-32 table is wrong\n");
        exit(1);
    }
    crc_update = best_crc();
    for (size_t size = 0; size <= sizeof data; size++)
        if (crc32(data, size) != ~crc_by_table(~0u, data, size)) {
            fprintf(stderr, "limits: CRC-32 of %zu bytes is wrong\n", size);
            exit(1);
        }
}

/* ---- a fresh file, mapped ----------------------------------------------------------------- */

struct log_file {
    int fd;
    char *base;
    int64_t size, window, reserved; /* bytes; reserved: blocks that the file has for certain */
    int populate;
    char path[4096];
};

static void log_open(struct log_file *file, const char *dir, int64_t size, int64_t window,
                     int populate) {
    *file = (struct log_file){.size = size, .window = window, .populate = populate};
    snprintf(file->path, sizeof file->path, "%s/limits-%d", dir, getpid());
    file->fd = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file->fd < 0)
        fail(file->path);
    if (ftruncate(file->fd, size))
        fail("ftruncate");
    file->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (file->base == MAP_FAILED)
        fail("mmap");
}

static void log_reserve(struct log_file *file) {
    int64_t more = file->size - file->reserved;
    if (more > file->window)
        more = file->window;
    if (fallocate(file->fd, 0, file->reserved, more))
        fail("fallocate");
    if (file->populate && madvise(file->base + file->reserved, more, MADV_POPULATE_WRITE))
        file->populate = 0; /* an older kernel: touch */
    file->reserved += more;
}

static void log_remove(struct log_file *file) {
    munmap(file->base, file->size);
    close(file->fd);
    unlink(file->path);
}

/* ---- put ---------------------------------------------------------------------------------- */

static double put(int64_t body, int64_t record, int64_t count, int64_t window, const char *dir,
                  int populate) {
    int64_t tail = record - HEADER_BYTES - body; /* topic and properties */
    char *bodies = malloc(POOL * body), *template = calloc(1, record);
    struct log_file file;
    if (tail < 12 || record * count > LOG_BYTES) {
        fprintf(stderr, "limits: %ld records of %ld bytes with bodies of %ld\n", (long)count,
                (long)record, (long)body);
        exit(2);
    }
    for (int64_t at = 0; at < POOL * body; at++)
        bodies[at] = (char)next_random();
    for (int64_t at = 0; at < record; at++)
        template[at] = (char)next_random();
    put_i32(template, (uint32_t)record);
    put_i32(template + 4, 0xDAA320A7);
    put_i32(template + 84, (uint32_t)body);

    int64_t start = now_ns();
    int64_t end = 0;
    log_open(&file, dir, LOG_BYTES, window, populate);
    for (int64_t n = 0; n < count; n++) {
        const char *from = bodies + n % POOL * body;
        char *to = file.base + end;
        int64_t time;
        while (end + record + 8 > file.reserved)
            log_reserve(&file);
        time = now_ns() / 1000000;
        memcpy(to, template, HEADER_BYTES);
        put_i32(to + 8, crc32(from, body) & 0x7FFFFFFF);
        put_i64(to + 20, n);
        put_i64(to + 28, end);
        put_i64(to + 40, time);
        put_i64(to + 56, time);
        memcpy(to + HEADER_BYTES, from, body);
        memcpy(to + HEADER_BYTES + body, template + HEADER_BYTES, tail);
        put_i64(to + record - 8, n); /* a unique key's counter */
        end += record;
        __atomic_store_n(&file.reserved, file.reserved, __ATOMIC_RELEASE); /* publishing */
    }
    double each = (double)(now_ns() - start) / count;
    log_remove(&file);
    free(bodies);
    free(template);
    return each;
}

/* ---- index -------------------------------------------------------------------------------- */

static double put_keys(int64_t count, const char *dir, int populate) {
    enum { KEY = 22 }; /* "bench#order-" and ten digits */
    int64_t size = INDEX_HEADER + 4LL * HASH_SLOTS + (int64_t)INDEX_ENTRY * INDEX_ENTRIES;
    char *keys = malloc(count * KEY + 1);
    struct log_file file;
    if (count >= INDEX_ENTRIES) {
        fprintf(stderr, "limits: %ld keys\n", (long)count);
        exit(2);
    }
    for (int64_t n = 0; n < count; n++)
        sprintf(keys + n * KEY, "bench#order-%010u", (unsigned)(next_random() >> 33));

    int64_t start = now_ns();
    log_open(&file, dir, size, INDEX_HEADER + 4LL * HASH_SLOTS, populate);
    log_reserve(&file);
    file.window = 64LL << 20;
    for (int64_t n = 1; n <= count; n++) {
        const char *key = keys + (n - 1) * KEY;
        int64_t at = INDEX_HEADER + 4LL * HASH_SLOTS + n * INDEX_ENTRY;
        uint32_t hash = 0;
        char *slot;
        while (at + INDEX_ENTRY > file.reserved)
            log_reserve(&file);
        for (int c = 0; c < KEY; c++)
            hash = 31 * hash + (unsigned char)key[c];
        hash = (int32_t)hash < 0 ? -hash : hash;
        slot = file.base + INDEX_HEADER + 4LL * (hash % HASH_SLOTS);
        put_i32(file.base + at, hash);
        put_i64(file.base + at + 4, n * 250);
        put_i32(file.base + at + 12, (uint32_t)(n >> 20));
        memcpy(file.base + at + 16, slot, 4);
        put_i32(slot, (uint32_t)n);
    }
    double each = (double)(now_ns() - start) / count;
    log_remove(&file);
    free(keys);
    return each;
}

/* ---- crc ---------------------------------------------------------------------------------- */

static double crc(int64_t size) {
    char *data = malloc(size);
    int64_t calls = (256 << 20) / (size + 64);
    uint32_t all = 0;
    for (int64_t at = 0; at < size; at++)
        data[at] = (char)next_random();
    int64_t start = now_ns();
    for (int64_t n = 0; n < calls; n++) {
        data[0] = (char)n;
        all ^= crc32(data, size);
    }
    double each = (double)(now_ns() - start) / calls;
    fprintf(stderr, "%s", all == 1 ? " " : ""); /* the result is used */
    free(data);
    return each;
}

/* ---- read --------------------------------------------------------------------------------- */

static uint32_t get_i32(const char *from) {
    uint32_t value;
    memcpy(&value, from, 4);
    return __builtin_bswap32(value);
}

/* The second walk counts: the first one has the pages mapped. */
static double read_log(const char *path, int copied) {
    enum { ROOM = 1 << 20, BODY_LENGTH = 84, BODY_CRC = 8, BLANK = (int)0xCBD43194 };
    int fd = open(path, O_RDONLY);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    char *into = malloc(ROOM);
    int64_t count = 0, taken = 0;
    if (size <= 0 || !into)
        fail(path);
    char *base = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        fail("mmap");
    for (int turn = 0; turn < 2; turn++) {
        int64_t start = now_ns();
        off_t at = 0;
        count = 0;
        while (at + HEADER_BYTES < size) {
            const char *record = base + at;
            uint32_t record_size = get_i32(record), body = get_i32(record + BODY_LENGTH);
            if (record_size == 0 || (int32_t)get_i32(record + 4) == BLANK)
                break;
            if (at + record_size > size || record_size < HEADER_BYTES || body > ROOM / 2
                || HEADER_BYTES + body > record_size
                || (crc32(record + HEADER_BYTES, body) & 0x7FFFFFFF) != get_i32(record + BODY_CRC)) {
                fprintf(stderr, "limits: %s: no record at %lld\n", path, (long long)at);
                exit(1);
            }
            if (copied)
                memcpy(into + (count * body) % (ROOM - body), record + HEADER_BYTES, body);
            at += record_size;
            count++;
        }
        taken = now_ns() - start;
    }
    munmap(base, size);
    close(fd);
    free(into);
    return (double)taken / (count ? count : 1);
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    choose_crc();
    if (!strcmp(verb, "put") && argc == 7) {
        int64_t body = atoll(argv[2]), record = atoll(argv[3]), count = atoll(argv[4]);
        int64_t window = atoll(argv[5]) << 20;
        printf("touch %.2f\n", put(body, record, count, window, argv[6], 0));
        printf("populate %.2f\n", put(body, record, count, window, argv[6], 1));
    } else if (!strcmp(verb, "index") && argc == 4) {
        printf("touch %.2f\n", put_keys(atoll(argv[2]), argv[3], 0));
        printf("populate %.2f\n", put_keys(atoll(argv[2]), argv[3], 1));
    } else if (!strcmp(verb, "crc") && argc == 3) {
        printf("crc %.2f\n", crc(atoll(argv[2])));
    } else if ((!strcmp(verb, "check") || !strcmp(verb, "copy")) && argc == 3) {
        printf("%s %.2f\n", verb, read_log(argv[2], !strcmp(verb, "copy")));
    } else {
        fprintf(stderr, "usage: limits put BODY RECORD COUNT WINDOW_MIB DIR\n"
                        "       limits index COUNT DIR\n"
                        "       limits crc SIZE\n"
                        "       limits check FILE\n"
                        "       limits copy FILE\n");
        return 2;
    }
    return 0;
}
