"""CRC-32 as zlib computes it: running value in, running value out.

P = x^32 + x^26 + x^23 + x^22 + x^16 + x^12 + x^11 + x^10 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1,
bits reflected: the first bit of a message, bit 0 of its first byte, is its highest power of x.

Three kernels compute the same function; the widest one the processor supports is chosen when
the library is loaded, before any thread can call it:
  portable   16 table lookups for 16 bytes; every architecture, either byte order
  clmul      carry-less multiplication, four accumulators of 128 bits (SSE4.1, PCLMULQDQ)
  wide       the same with four accumulators of 512 bits (AVX-512, VPCLMULQDQ)

Folding.  A block X followed by n bits contributes X * x^n to the remainder, as does any Y of 128
bits with Y = X * x^n (mod P).  For X = A * x^64 + B, where A is the first 8 bytes,
Y = A * (x^(n+64) mod P) + B * (x^n mod P): two multiplications of 64 by 32 bits fold X over n
bits of message into the block at that position.  The carry-less product of two reflected numbers
is one bit low, that is, multiplied by x, so the constant for x^n is x^(n-1) mod P.

The constants and tables are computed from P when the library is loaded.
"""
from libc.stdint cimport uint32_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    /* P without x^32, reflected: bit 31 is x^0. */
    #define CRC32_POLY 0xEDB88320u

    /* crc32_table[k][b]: remainder of byte b with k bytes of zeros after it. */
    static uint32_t crc32_table[16][256];

    static void crc32_make_tables(void)
    {
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t r = b;
            for (int bit = 0; bit < 8; bit++)
                r = (r >> 1) ^ (CRC32_POLY & (0u - (r & 1)));
            crc32_table[0][b] = r;
        }
        for (int k = 1; k < 16; k++)
            for (uint32_t b = 0; b < 256; b++) {
                uint32_t r = crc32_table[k - 1][b];
                crc32_table[k][b] = (r >> 8) ^ crc32_table[0][r & 255];
            }
    }

    /* Four bytes, the first one lowest, whatever the machine's byte order. */
    static inline uint32_t crc32_load4(const unsigned char *p)
    {
        return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }

    /* The four bytes of `w`, of which the last one has `k` bytes after it. */
    static inline uint32_t crc32_slice(uint32_t w, int k)
    {
        return crc32_table[k + 3][w & 255] ^ crc32_table[k + 2][w >> 8 & 255]
             ^ crc32_table[k + 1][w >> 16 & 255] ^ crc32_table[k][w >> 24];
    }

    static uint32_t crc32_portable(uint32_t crc, const void *data, size_t length)
    {
        const unsigned char *p = (const unsigned char *)data;
        crc = ~crc;
        for (; length >= 16; p += 16, length -= 16)
            crc = crc32_slice(crc ^ crc32_load4(p), 12) ^ crc32_slice(crc32_load4(p + 4), 8)
                ^ crc32_slice(crc32_load4(p + 8), 4) ^ crc32_slice(crc32_load4(p + 12), 0);
        for (; length >= 4; p += 4, length -= 4)
            crc = crc32_slice(crc ^ crc32_load4(p), 0);
        for (; length; p++, length--)
            crc = (crc >> 8) ^ crc32_table[0][(crc ^ *p) & 255];
        return ~crc;
    }

    static uint32_t (*crc32_chosen)(uint32_t, const void *, size_t) = crc32_portable;
    static int crc32_clmul_there = 0;   /* the processor can run crc32_clmul */
    static int crc32_wide_there = 0;    /* the processor can run crc32_wide */

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    #define CRC32_WIDE_FROM 128   /* bytes from which the wide kernel is faster */
    #define CRC32_TARGET_CLMUL __attribute__((target("sse4.1,pclmul")))
    #define CRC32_TARGET_WIDE __attribute__((target("sse4.1,pclmul,avx512f,vpclmulqdq")))

    /* What moves a block over n bits: x^(n+64) for its first half, x^n for its second. */
    typedef struct { uint64_t first, second; } __attribute__((aligned(16))) Crc32Fold;

    static Crc32Fold crc32_over_16, crc32_over_32, crc32_over_48, crc32_over_64;   /* bytes */
    static Crc32Fold crc32_over_128, crc32_over_192, crc32_over_256;
    static Crc32Fold crc32_to_last_lane[4] __attribute__((aligned(64)));   /* 48, 32, 16 bytes, 0 */
    static uint64_t crc32_times_x96;   /* x^95 mod P, reflected in 32 bits */
    static uint64_t crc32_quotient;    /* floor(x^95 / P), reflected in 64 bits */

    /* x^n mod P, reflected in 32 bits. */
    static uint32_t crc32_power(int n)
    {
        uint32_t r = 0x80000000u;
        while (n-- > 0)
            r = (r >> 1) ^ (CRC32_POLY & (0u - (r & 1)));
        return r;
    }

    /* Left-aligned: x^0 is bit 63, as in the 64-bit halves that are multiplied by it. */
    static Crc32Fold crc32_over_bits(int n)
    {
        Crc32Fold k = {(uint64_t)crc32_power(n + 63) << 32, (uint64_t)crc32_power(n - 1) << 32};
        return k;
    }

    static void crc32_make_constants(void)
    {
        uint32_t r = 0x80000000u;
        crc32_over_16 = crc32_over_bits(128);
        crc32_over_32 = crc32_over_bits(256);
        crc32_over_48 = crc32_over_bits(384);
        crc32_over_64 = crc32_over_bits(512);
        crc32_over_128 = crc32_over_bits(1024);
        crc32_over_192 = crc32_over_bits(1536);
        crc32_over_256 = crc32_over_bits(2048);
        crc32_to_last_lane[0] = crc32_over_48;
        crc32_to_last_lane[1] = crc32_over_32;
        crc32_to_last_lane[2] = crc32_over_16;
        crc32_times_x96 = crc32_power(95);
        /* Long division of x^95 by P: steps 0 to 63 give the quotient's x^63 to x^0. */
        crc32_quotient = 0;
        for (int i = -31; i < 64; i++) {
            if (r & 1)
                crc32_quotient |= (uint64_t)1 << i;
            r = (r >> 1) ^ (CRC32_POLY & (0u - (r & 1)));
        }
    }

    CRC32_TARGET_CLMUL static inline __m128i crc32_load(const unsigned char *p)
    {
        return _mm_loadu_si128((const __m128i *)p);
    }

    CRC32_TARGET_CLMUL static inline __m128i crc32_fold(__m128i x, const Crc32Fold *over)
    {
        __m128i k = _mm_load_si128((const __m128i *)over);
        return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
    }

    CRC32_TARGET_CLMUL static inline __m128i crc32_fold_onto(__m128i x, const Crc32Fold *over,
                                                             __m128i y)
    {
        return _mm_xor_si128(crc32_fold(x, over), y);
    }

    /* x * x^32 mod P, by Barrett's division, which is exact for polynomials.
     *
     * U = A * x^96 + B * x^32 has 96 bits, kept in bits 0 to 95.  The quotient of U by P is
     * floor(floor(U / x^32) * floor(x^95 / P) / x^63), the low half of the second product; only
     * the 32 low powers of its product with P are wanted, which x^32 in P does not reach.  P is
     * shifted by one for the bit that a reflected product loses.
     */
    CRC32_TARGET_CLMUL static inline uint32_t crc32_reduce(__m128i x)
    {
        __m128i k = _mm_set_epi64x((int64_t)crc32_quotient, (int64_t)crc32_times_x96);
        __m128i u = _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_srli_si128(x, 8));
        __m128i q = _mm_clmulepi64_si128(u, k, 0x10);
        __m128i p = _mm_cvtsi64_si128((int64_t)((uint64_t)CRC32_POLY << 1));
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(u, _mm_clmulepi64_si128(q, p, 0x00)), 2);
    }

    /* Byte shifts by r: from [r] on they move to the end, from [16 + r] on to the front. */
    static const unsigned char crc32_shifts[48] __attribute__((aligned(16))) = {
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128};

    /* Remainder of block x with `length` bytes after it; 16 bytes before p are readable.
     *
     * The last r < 16 bytes: x and they are 16 + r bytes of message, cut into one block of the
     * first r of them with zeros in front, and one of the last 16.
     */
    CRC32_TARGET_CLMUL static inline uint32_t crc32_finish(__m128i x, const unsigned char *p,
                                                           size_t length)
    {
        for (; length >= 16; p += 16, length -= 16)
            x = crc32_fold_onto(x, &crc32_over_16, crc32_load(p));
        if (length) {
            __m128i to_front = crc32_load(crc32_shifts + 16 + length);
            __m128i last = _mm_blendv_epi8(_mm_shuffle_epi8(x, to_front),
                                           crc32_load(p + length - 16), to_front);
            x = _mm_shuffle_epi8(x, crc32_load(crc32_shifts + length));
            x = crc32_fold_onto(x, &crc32_over_16, last);
        }
        return ~crc32_reduce(x);
    }

    /* Fewer than 16 bytes; `crc` is the complement of the running value, as inside the kernels.
     *
     * It is added to the first 4 bytes; the sum is one block, padded with zeros in front, which
     * do not change the remainder.
     */
    CRC32_TARGET_CLMUL static inline uint32_t crc32_short(uint32_t crc, const unsigned char *p,
                                                          size_t length)
    {
        uint64_t first, last;
        if (length >= 8) {
            unsigned __int128 block;
            memcpy(&first, p, 8);
            memcpy(&last, p + length - 8, 8);
            block = (unsigned __int128)last << 64;
            if (length > 8)
                block |= first << 8 * (16 - length);
            block ^= (unsigned __int128)crc << 8 * (16 - length);
            return ~crc32_reduce(_mm_set_epi64x((int64_t)(uint64_t)(block >> 64),
                                                (int64_t)(uint64_t)block));
        }
        if (length >= 4) {
            uint32_t a, b;
            memcpy(&a, p, 4);
            memcpy(&b, p + length - 4, 4);
            first = (a | (uint64_t)b << 8 * (length - 4)) ^ crc;
            return ~crc32_reduce(_mm_set_epi64x((int64_t)(first << 8 * (8 - length)), 0));
        }
        for (; length; p++, length--)
            crc = (crc >> 8) ^ crc32_table[0][(crc ^ *p) & 255];
        return ~crc;
    }

    CRC32_TARGET_CLMUL static inline __m128i crc32_begin(uint32_t crc, const unsigned char *p)
    {
        return _mm_xor_si128(crc32_load(p), _mm_cvtsi32_si128((int)crc));
    }

    /* As crc32_update; `inline`, so that the wide kernel has a copy in its own instructions. */
    CRC32_TARGET_CLMUL static inline uint32_t crc32_by_16(uint32_t crc, const void *data,
                                                          size_t length)
    {
        const unsigned char *p = (const unsigned char *)data;
        __m128i a, b, c, d;
        crc = ~crc;
        if (length < 16)
            return crc32_short(crc, p, length);
        a = crc32_begin(crc, p);
        if (length < 64)
            return crc32_finish(a, p + 16, length - 16);
        b = crc32_load(p + 16);
        c = crc32_load(p + 32);
        d = crc32_load(p + 48);
        for (p += 64, length -= 64; length >= 64; p += 64, length -= 64) {
            a = crc32_fold_onto(a, &crc32_over_64, crc32_load(p));
            b = crc32_fold_onto(b, &crc32_over_64, crc32_load(p + 16));
            c = crc32_fold_onto(c, &crc32_over_64, crc32_load(p + 32));
            d = crc32_fold_onto(d, &crc32_over_64, crc32_load(p + 48));
        }
        a = _mm_xor_si128(crc32_fold(a, &crc32_over_48), crc32_fold(b, &crc32_over_32));
        return crc32_finish(_mm_xor_si128(a, crc32_fold_onto(c, &crc32_over_16, d)), p, length);
    }

    CRC32_TARGET_CLMUL static uint32_t crc32_clmul(uint32_t crc, const void *data, size_t length)
    {
        return crc32_by_16(crc, data, length);
    }

    CRC32_TARGET_WIDE static inline __m512i crc32_load_wide(const unsigned char *p)
    {
        return _mm512_loadu_si512((const void *)p);
    }

    CRC32_TARGET_WIDE static inline __m512i crc32_wide_constant(const Crc32Fold *over)
    {
        return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)over));
    }

    /* 0x96 is the sum of three. */
    CRC32_TARGET_WIDE static inline __m512i crc32_fold_wide(__m512i x, __m512i k, __m512i y)
    {
        return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
                                         _mm512_clmulepi64_epi128(x, k, 0x11), y, 0x96);
    }

    CRC32_TARGET_WIDE static uint32_t crc32_wide(uint32_t crc, const void *data, size_t length)
    {
        const unsigned char *p = (const unsigned char *)data;
        __m512i a, b, c, d, k;
        __m128i x;
        if (length < CRC32_WIDE_FROM)
            return crc32_by_16(crc, data, length);
        k = crc32_wide_constant(&crc32_over_64);
        a = _mm512_xor_si512(crc32_load_wide(p),
                             _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
        p += 64;
        length -= 64;
        if (length >= 192) {
            __m512i over_256 = crc32_wide_constant(&crc32_over_256);
            b = crc32_load_wide(p);
            c = crc32_load_wide(p + 64);
            d = crc32_load_wide(p + 128);
            for (p += 192, length -= 192; length >= 256; p += 256, length -= 256) {
                a = crc32_fold_wide(a, over_256, crc32_load_wide(p));
                b = crc32_fold_wide(b, over_256, crc32_load_wide(p + 64));
                c = crc32_fold_wide(c, over_256, crc32_load_wide(p + 128));
                d = crc32_fold_wide(d, over_256, crc32_load_wide(p + 192));
            }
            d = crc32_fold_wide(c, k, d);
            d = crc32_fold_wide(b, crc32_wide_constant(&crc32_over_128), d);
            a = crc32_fold_wide(a, crc32_wide_constant(&crc32_over_192), d);
        }
        for (; length >= 64; p += 64, length -= 64)
            a = crc32_fold_wide(a, k, crc32_load_wide(p));
    /* Fold four blocks into one: the last stays as it is, the others move onto it. */
        d = _mm512_load_si512((const void *)crc32_to_last_lane);
        d = crc32_fold_wide(a, d, _mm512_maskz_mov_epi64(0xC0, a));
        x = _mm_xor_si128(_mm512_castsi512_si128(d), _mm512_extracti32x4_epi32(d, 1));
        x = _mm_xor_si128(x, _mm512_extracti32x4_epi32(d, 2));
        return crc32_finish(_mm_xor_si128(x, _mm512_extracti32x4_epi32(d, 3)), p, length);
    }

    static void crc32_choose(void)
    {
        crc32_make_constants();
        __builtin_cpu_init();
        crc32_clmul_there = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
        crc32_wide_there = crc32_clmul_there && __builtin_cpu_supports("avx512f")
            && __builtin_cpu_supports("vpclmulqdq");
        if (crc32_wide_there)
            crc32_chosen = crc32_wide;
        else if (crc32_clmul_there)
            crc32_chosen = crc32_clmul;
    }
    #else
    static void crc32_choose(void) {}
    #define crc32_clmul crc32_portable
    #define crc32_wide crc32_portable
    #endif

    /* Runs before the first call and before any thread that could make one. */
    __attribute__((constructor)) static void crc32_load_time(void)
    {
        crc32_make_tables();
        crc32_choose();
    }

    static inline uint32_t crc32_update(uint32_t crc, const void *data, size_t length)
    {
        return crc32_chosen(crc, data, length);
    }

    static inline int crc32_has_clmul(void) { return crc32_clmul_there; }
    static inline int crc32_has_wide(void) { return crc32_wide_there; }
    """
    # Running value after `length` bytes at `data`; starts at 0, as in zlib.
    uint32_t crc32_update(uint32_t crc, const void *data, size_t length) noexcept nogil

    # The kernels, for tests.  REQUIRES crc32_has_clmul() or crc32_has_wide() respectively.
    uint32_t crc32_portable(uint32_t crc, const void *data, size_t length) noexcept nogil
    uint32_t crc32_clmul(uint32_t crc, const void *data, size_t length) noexcept nogil
    uint32_t crc32_wide(uint32_t crc, const void *data, size_t length) noexcept nogil
    bint crc32_has_clmul() noexcept nogil
    bint crc32_has_wide() noexcept nogil
