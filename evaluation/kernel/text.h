/* Functions on bytes in place: words of eight bytes, fields, equality, order, UTF-8. */
#ifndef RUNBOARD_TEXT_H
#define RUNBOARD_TEXT_H

#include <string.h>

#include "layout.h"

#define EACH_BYTE(value) (UINT64_C(0x0101010101010101) * (value))

/* Load eight bytes in little-endian order. */
static inline uint64_t load_word(const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Return the first `count` bytes of a word, followed by zeros. */
static inline uint64_t first_bytes(uint64_t word, size_t count)
{
    return count >= 8 ? word : word & ((UINT64_C(1) << (8 * count)) - 1);
}

/* Return whether a byte is ASCII white space, as in C's isspace in the C locale. */
static inline bool is_space(uint8_t character)
{
    return character == ' ' || (uint8_t)(character - '\t') < 5;
}

/* Return the first white space at or after `position`. The text must contain a newline, followed by PADDING. */
static inline size_t field_end(const uint8_t *text, size_t position)
{
    for (;;) {
        uint64_t word = load_word(text + position);
        /* the lowest bit set marks the first byte below '!'; subtracting borrows from later bytes only */
        uint64_t low = (word - EACH_BYTE('!')) & ~word & EACH_BYTE(0x80);
        if (low == 0) {
            position += 8;
            continue;
        }
        position += (size_t)__builtin_ctzll(low) / 8;
        if (is_space(text[position]))
            return position;
        position++; /* another control character */
    }
}

/* Return the first byte at or after `position` that is not white space, or the end of the line. */
static inline size_t field_start(const uint8_t *text, size_t position)
{
    while (text[position] != '\n' && is_space(text[position]))
        position++;
    return position;
}

/* Return whether `length` bytes are equal; both sides are followed by PADDING. For short queries and tags this is faster
 * than memcmp. */
static inline bool same_bytes(const uint8_t *left, const uint8_t *right, size_t length)
{
    size_t done = 0;
    for (; done + 8 <= length; done += 8)
        if (load_word(left + done) != load_word(right + done))
            return false;
    return first_bytes(load_word(left + done) ^ load_word(right + done), length - done) == 0;
}

/* Compare two ids in the order of strcmp. */
static inline int compare_bytes(const uint8_t *left, size_t left_length, const uint8_t *right, size_t right_length)
{
    int order = memcmp(left, right, left_length < right_length ? left_length : right_length);
    return order != 0 ? order : (left_length > right_length) - (left_length < right_length);
}

/* Return whether all bytes are ASCII without NUL, so that lines need no further check. */
static bool is_plain(const uint8_t *text, size_t length)
{
    uint64_t found = 0;
    size_t done = 0;
    /* the upper bit is set in bytes that are not ASCII, and in NUL minus one */
    for (; done + 32 <= length; done += 32)
        for (size_t word = 0; word < 32; word += 8) {
            uint64_t bytes = load_word(text + done + word);
            found |= bytes | (bytes - EACH_BYTE(1));
        }
    for (; done < length; done++)
        found |= (uint64_t)(text[done] == 0 || text[done] >= 0x80) << 7;
    return (found & EACH_BYTE(0x80)) == 0;
}

/* Return the length of well-formed UTF-8 sequences (RFC 3629) that start with this byte, or 0, and the bounds of the
 * second byte, which exclude overlong forms, surrogates, and code points above U+10FFFF. */
static size_t sequence_length(uint8_t lead, uint8_t *lowest, uint8_t *highest)
{
    *lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80)
        return lead != 0;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Return whether the bytes are UTF-8 without NUL. */
static bool is_utf8(const uint8_t *text, size_t length)
{
    size_t position = 0;
    while (position < length) {
        uint8_t lowest, highest;
        size_t sequence = sequence_length(text[position], &lowest, &highest);
        if (sequence == 0 || sequence > length - position)
            return false;
        if (sequence > 1 && (text[position + 1] < lowest || text[position + 1] > highest))
            return false;
        for (size_t following = 2; following < sequence; following++)
            if ((text[position + following] & 0xC0) != 0x80)
                return false;
        position += sequence;
    }
    return true;
}

#endif
