/* Keys and seeded hash tables of ids, with open addressing and comparison of bytes. */
#ifndef RUNBOARD_TABLES_H
#define RUNBOARD_TABLES_H

#include "text.h"

__extension__ typedef unsigned __int128 wide_integer;

/* Multipliers whose bytes are not valid UTF-8, so that no id can be equal to one and cancel it. */
#define FIRST_MULTIPLIER UINT64_C(0xA0761D6478BD642F)
#define SECOND_MULTIPLIER UINT64_C(0xE7037ED1A0B428DB)

/* Mark of ids longer than 16 bytes in the upper byte of a key's second word, which does not occur in UTF-8. */
#define LONG_ID (UINT64_C(0xFF) << 56)

/* Return the exclusive or of the halves of the 128-bit product (the mixing step of wyhash). */
static inline uint64_t fold(uint64_t left, uint64_t right)
{
    wide_integer product = (wide_integer)left * right;
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* Return the key of an id of `length` > 0 bytes, followed by PADDING.
 *
 * The words of ids up to 16 bytes are the id itself, padded with zeros, so equal words mean equal ids. Those of longer
 * ids are a hash and the length with LONG_ID, so bytes have to be compared as well. The first word is never 0, which
 * marks empty slots. Stored sets of ids depend on every detail of this function. */
static inline struct key make_key(const uint8_t *id, size_t length, uint64_t seed)
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

/* Return whether two ids with their keys (of `make_key`) are equal. */
static inline bool same_id(const struct key *left, const uint8_t *left_id, const struct key *right,
                           const uint8_t *right_id)
{
    if (left->first != right->first || left->second != right->second)
        return false;
    return !is_long(left->second) || memcmp(left_id, right_id, (size_t)(left->second & ~LONG_ID)) == 0;
}

/* --- sets of ids */

/* Return the stored bytes of a long id at `place`, and their `length`; NULL if the set is damaged. */
static const uint8_t *get_long_id(const struct ids *ids, uint64_t place, size_t *length)
{
    if (ids->long_bytes < 2 || place > ids->long_bytes - 2)
        return NULL;
    *length = (size_t)ids->long_ids[place] | (size_t)ids->long_ids[place + 1] << 8;
    return *length <= ids->long_bytes - 2 - place ? ids->long_ids + place + 2 : NULL;
}

/* Return whether a slot with the first word of a long id contains this id. */
static bool holds_long_id(const struct ids *ids, uint64_t second, const uint8_t *id, size_t length)
{
    size_t stored_length = 0;
    const uint8_t *stored = is_long(second) ? get_long_id(ids, second & ~LONG_ID, &stored_length) : NULL;
    return stored != NULL && stored_length == length && memcmp(stored, id, length) == 0;
}

/* Return the slot of an id, or the empty slot for it, or the number of slots if there is neither. */
static inline uint64_t find_slot(const struct ids *ids, const struct key *key, const uint8_t *id, size_t length)
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
    uint64_t slot = find_slot(ids, key, id, length);
    return slot < ids->slot_count && ids->slots[2 * slot] != 0;
}

/* --- queries */

/* Return the number of a query id, adding it if it is new; -1 if there is no room. */
static int64_t find_or_add_query(struct queries *queries, const uint8_t *id, size_t length, uint64_t seed)
{
    struct key key = make_key(id, length, seed);
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
