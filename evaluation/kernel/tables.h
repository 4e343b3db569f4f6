/* Keys and hash tables of ids: open addressing, exact (equal hashes are verified by the bytes), seeded. */
#ifndef RUNBOARD_TABLES_H
#define RUNBOARD_TABLES_H

#include "text.h"

__extension__ typedef unsigned __int128 wide_integer;

/* Multipliers whose bytes are not valid UTF-8, so that no id can equal one and cancel it. */
#define FIRST_MULTIPLIER UINT64_C(0xA0761D6478BD642F)
#define SECOND_MULTIPLIER UINT64_C(0xE7037ED1A0B428DB)

/* In the upper byte of a key's second word: the id is longer than 16 bytes. UTF-8 has no such byte. */
#define LONG_ID (UINT64_C(0xFF) << 56)

/* The halves of the 128-bit product, exclusive-or'd (the mixing step of wyhash). */
static inline uint64_t fold(uint64_t left, uint64_t right)
{
    wide_integer product = (wide_integer)left * right;
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* The key of an id of `length` > 0 bytes with PADDING behind them.
 *
 * For at most 16 bytes the two words are the id itself, padded with zeros, and equal words are equal ids. For longer
 * ones they are its hash and its length under LONG_ID: equal words are verified by the bytes. The first word is never
 * 0, which marks an empty slot. Stored sets of ids depend on every detail of this function. */
static inline struct key key_of(const uint8_t *id, size_t length, uint64_t seed)
{
    struct key key;
    if (length <= 8) {
        key.first = first_bytes(load_word(id), length);
        key.second = 0;
    } else if (length <= 16) {
        key.first = load_word(id);
        key.second = first_bytes(load_word(id + 8), length - 8);
    } else {
        uint64_t mixed = seed;
        for (size_t done = 0; done + 8 < length; done += 8)
            mixed = fold(mixed ^ load_word(id + done), FIRST_MULTIPLIER);
        key.first = fold(mixed ^ load_word(id + length - 8), SECOND_MULTIPLIER ^ length) | 1;
        key.second = LONG_ID | length;
    }
    key.hash = fold(fold(key.first ^ seed, key.second ^ FIRST_MULTIPLIER) ^ seed, SECOND_MULTIPLIER);
    return key;
}

static inline bool is_long(uint64_t second)
{
    return second >= LONG_ID;
}

/* Whether two ids with their keys (of `key_of`) are the same. */
static inline bool same_id(const struct key *left, const uint8_t *left_id, const struct key *right,
                           const uint8_t *right_id)
{
    if (left->first != right->first || left->second != right->second)
        return false;
    return !is_long(left->second) || memcmp(left_id, right_id, (size_t)(left->second & ~LONG_ID)) == 0;
}

/* --- sets of ids */

/* The stored bytes of a long id at `place` and their `length`; NULL where the set is damaged. */
static const uint8_t *long_id_at(const struct ids *ids, uint64_t place, size_t *length)
{
    if (ids->long_bytes < 2 || place > ids->long_bytes - 2)
        return NULL;
    *length = (size_t)ids->long_ids[place] | (size_t)ids->long_ids[place + 1] << 8;
    return *length <= ids->long_bytes - 2 - place ? ids->long_ids + place + 2 : NULL;
}

/* Whether a slot that has the first word of a long id holds that very id. */
static bool holds_long_id(const struct ids *ids, uint64_t second, const uint8_t *id, size_t length)
{
    size_t stored_length = 0;
    const uint8_t *stored = is_long(second) ? long_id_at(ids, second & ~LONG_ID, &stored_length) : NULL;
    return stored != NULL && stored_length == length && memcmp(stored, id, length) == 0;
}

/* The slot that holds an id, or the empty one where it would be; the number of slots if there is neither. */
static inline uint64_t slot_of_id(const struct ids *ids, const struct key *key, const uint8_t *id, size_t length)
{
    uint64_t mask = ids->slot_count - 1, slot = key->hash & mask;
    for (uint64_t probes = 0; probes < ids->slot_count; probes++, slot = (slot + 1) & mask) {
        uint64_t first = ids->slots[2 * slot], second = ids->slots[2 * slot + 1];
        if (first == 0)
            return slot;
        if (first == key->first
            && (is_long(key->second) ? holds_long_id(ids, second, id, length) : second == key->second))
            return slot;
    }
    return ids->slot_count;
}

static inline bool contains_id(const struct ids *ids, const struct key *key, const uint8_t *id, size_t length)
{
    uint64_t slot = slot_of_id(ids, key, id, length);
    return slot < ids->slot_count && ids->slots[2 * slot] != 0;
}

/* --- queries */

/* The number of a query id, a new one if it was not seen before; -1 where there is no room for it. */
static int64_t number_of_query(struct queries *queries, const uint8_t *id, size_t length, uint64_t seed)
{
    struct key key = key_of(id, length, seed);
    uint64_t mask = queries->slot_count - 1, slot = key.hash & mask;
    for (; queries->slots[slot] != 0; slot = (slot + 1) & mask) { /* at most half full */
        uint32_t number = queries->slots[slot] - 1;
        if (same_id(&queries->keys[number], queries->text + queries->start[number], &key, id))
            return number;
    }
    uint64_t number = queries->count;
    if (number >= queries->room || length > queries->text_room - queries->start[number])
        return -1;
    queries->slots[slot] = (uint32_t)number + 1;
    queries->keys[number] = key;
    memcpy(queries->text + queries->start[number], id, length);
    queries->start[number + 1] = queries->start[number] + length;
    queries->count = number + 1;
    return (int64_t)number;
}

#endif
