/* Processing of a complete query: duplicates, ties, unknown documents, and ranks of judged documents. */
#ifndef RUNBOARD_RANKS_H
#define RUNBOARD_RANKS_H

#include <math.h>

#include "tables.h"

/* Record a problem, retaining the smallest line numbers in ascending order. */
static void note(struct reading *reading, enum problem problem, uint64_t line)
{
    struct noted *noted = &reading->noted[problem];
    uint64_t kept = noted->count < NAMED_LINES ? noted->count : NAMED_LINES;
    noted->count++;
    if (kept == NAMED_LINES) {
        if (line >= noted->lines[NAMED_LINES - 1])
            return;
        kept--;
    }
    for (; kept > 0 && noted->lines[kept - 1] > line; kept--)
        noted->lines[kept] = noted->lines[kept - 1];
    noted->lines[kept] = line;
}

/* Return whether a line precedes another one in trec_eval's order: by score, then by bytes of the document id, both
 * descending. */
static inline bool precedes(const struct reading *reading, uint64_t number, uint64_t other_number)
{
    const uint8_t *text = reading->text;
    const float *score = reading->lines.score;
    const struct line *line = &reading->lines.line[number], *other = &reading->lines.line[other_number];
    if (score[number] > score[other_number] || score[number] < score[other_number])
        return score[number] > score[other_number];
    return compare_bytes(text + line->start, line->length, text + other->start, other->length) > 0;
}

/* Clear as much of the working table as the lines need, and return its mask. A slot combines the upper half of a hash
 * with line number + 1, so that most comparisons do not access the line. */
static uint64_t clear_table(struct lines *lines)
{
    uint64_t size = 16;
    while (size < 2 * lines->count)
        size *= 2;
    memset(lines->table, 0, size * sizeof *lines->table);
    return size - 1;
}

#define UPPER_HALF (UINT64_MAX << 32)

/* Record every line with the score of an earlier line. */
static void find_ties(struct reading *reading)
{
    struct lines *lines = &reading->lines;
    const struct line *line = lines->line;
    const float *score = lines->score;
    if (reading->descending) { /* equal scores are adjacent */
        for (uint64_t number = 1; number < lines->count; number++)
            if (score[number] == score[number - 1])
                note(reading, TIES, line[number].number);
        return;
    }
    uint64_t mask = clear_table(lines);
    for (uint64_t number = 0; number < lines->count; number++) {
        uint32_t bits;
        memcpy(&bits, &score[number], sizeof bits);
        uint64_t entry = (uint64_t)bits << 32 | (number + 1);
        uint64_t slot = fold(bits ^ reading->seed, SECOND_MULTIPLIER) & mask;
        while (lines->table[slot] != 0 && ((lines->table[slot] ^ entry) & UPPER_HALF) != 0)
            slot = (slot + 1) & mask;
        if (lines->table[slot] != 0)
            note(reading, TIES, line[number].number);
        else
            lines->table[slot] = entry;
    }
}

/* Return the slot of a document in the working table, or the empty slot for it. */
static inline uint64_t find_document_slot(const struct lines *lines, uint64_t mask, const uint8_t *text,
                                        const struct key *key, const uint8_t *id)
{
    uint64_t slot = key->hash & mask;
    for (; lines->table[slot] != 0; slot = (slot + 1) & mask) { /* at most half full */
        if (((lines->table[slot] ^ key->hash) & UPPER_HALF) != 0)
            continue;
        const struct line *other = &lines->line[(lines->table[slot] & ~UPPER_HALF) - 1];
        if (same_id(&other->key, text + other->start, key, id))
            break;
    }
    return slot;
}

/* Add a line to the working table, or record that an earlier line has the same document. */
static inline void find_duplicate(struct reading *reading, uint64_t number, uint64_t mask)
{
    struct lines *lines = &reading->lines;
    const struct line *line = &lines->line[number];
    uint64_t slot = find_document_slot(lines, mask, reading->text, &line->key, reading->text + line->start);
    if (lines->table[slot] != 0)
        note(reading, DUPLICATE, line->number);
    else
        lines->table[slot] = (line->key.hash & UPPER_HALF) | (number + 1);
}

/* Look up the document of every line among earlier lines and in the dataset. Returns the working table's mask.
 *
 * Slots of the dataset are scattered over a large table, so they are prefetched some lines ahead. */
static uint64_t look_up_documents(struct reading *reading)
{
    enum { AHEAD = 24 };
    const struct ids *documents = &reading->documents;
    const struct lines *lines = &reading->lines;
    uint64_t mask = clear_table(&reading->lines);
    for (uint64_t number = 0; number < lines->count; number++) {
        const struct line *line = &lines->line[number];
        find_duplicate(reading, number, mask);
        if (!reading->check_documents)
            continue;
        if (lines->count - number > AHEAD)
            __builtin_prefetch(&documents->slots[2 * (line[AHEAD].key.hash & (documents->slot_count - 1))]);
        if (!contains_id(documents, &line->key, reading->text + line->start, line->length))
            note(reading, UNKNOWN_DOCUMENTS, line->number);
    }
    return mask;
}

/* Score of a line without a rank. It does not occur in runs, and is lower than all others. */
#define LEFT_OUT (-INFINITY)

/* Omit documents that are excluded for the current query, and return their number. */
static uint64_t omit_excluded(struct reading *reading, uint64_t mask)
{
    struct lines *lines = &reading->lines;
    const struct judged *excluded = &reading->excluded;
    uint64_t query = (uint64_t)reading->query, left_out = 0;
    int64_t row = query < excluded->row_count ? excluded->row_of[query] : -1;
    if (row < 0)
        return 0;
    for (int64_t number = excluded->offsets[row]; number < excluded->offsets[row + 1]; number++) {
        const uint8_t *id = excluded->text + excluded->start[number];
        uint64_t entry = lines->table[find_document_slot(lines, mask, reading->text, &excluded->keys[number], id)];
        if (entry == 0)
            continue;
        lines->score[(entry & ~UPPER_HALF) - 1] = LEFT_OUT;
        left_out++;
    }
    return left_out;
}

/* Collect the lines whose ranks are needed, in file order, set `grade` of every line, and return their number. */
static uint64_t track(struct reading *reading, int64_t row, uint64_t mask)
{
    struct lines *lines = &reading->lines;
    const struct judged *judged = &reading->judged;
    for (uint64_t number = 0; number < lines->count; number++)
        lines->grade[number] = NOT_TRACKED;
    for (int64_t number = judged->offsets[row]; number < judged->offsets[row + 1]; number++) {
        const uint8_t *id = judged->text + judged->start[number];
        uint64_t entry = lines->table[find_document_slot(lines, mask, reading->text, &judged->keys[number], id)];
        if (entry != 0)
            lines->grade[(entry & ~UPPER_HALF) - 1] = judged->grades[number];
    }
    uint64_t tracked = 0;
    for (uint64_t number = 0; number < lines->count; number++) {
        const struct line *line = &lines->line[number];
        if (lines->grade[number] == NOT_TRACKED && reading->elsewhere_depth > 0
            && contains_id(&reading->elsewhere, &line->key, reading->text + line->start, line->length))
            lines->grade[number] = ELSEWHERE;
        if (lines->grade[number] != NOT_TRACKED && lines->score[number] != LEFT_OUT)
            lines->tracked[tracked++] = (uint32_t)number;
    }
    return tracked;
}

/* Merge the sorted ranges `source[from .. middle]` and `source[middle .. to]` into `target`. */
static void merge(const struct reading *reading, const uint32_t *source, uint32_t *target, uint64_t from,
                  uint64_t middle, uint64_t to)
{
    uint64_t left = from, right = middle;
    if (middle >= to || !precedes(reading, source[middle], source[middle - 1])) {
        memcpy(target + from, source + from, (to - from) * sizeof *target);
        return;
    }
    for (uint64_t place = from; place < to; place++) {
        bool take_right = right < to && (left == middle || precedes(reading, source[right], source[left]));
        target[place] = source[take_right ? right++ : left++];
    }
}

/* Bottom-up merge sort in trec_eval's order. Ranges that are already sorted, as in most runs, are only copied. */
static void sort_tracked(struct reading *reading, uint64_t tracked)
{
    struct lines *lines = &reading->lines;
    for (uint64_t width = 1; width < tracked; width *= 2) {
        for (uint64_t from = 0; from < tracked; from += 2 * width) {
            uint64_t middle = from + width < tracked ? from + width : tracked;
            uint64_t to = middle + width < tracked ? middle + width : tracked;
            merge(reading, lines->tracked, lines->scratch, from, middle, to);
        }
        uint32_t *sorted = lines->scratch;
        lines->scratch = lines->tracked;
        lines->tracked = sorted;
    }
}

/* Set `before[i]` to the number of lines that precede tracked line i, but not i - 1. */
static void count_before(struct reading *reading, uint64_t tracked)
{
    struct lines *lines = &reading->lines;
    const uint32_t *order = lines->tracked;
    const float *score = lines->score;
    memset(lines->before, 0, (tracked + 1) * sizeof *lines->before);
    uint64_t place = 0; /* number of tracked lines up to the current line, inclusive */
    for (uint64_t number = 0; number < lines->count; number++) {
        uint64_t low = 0, high = tracked;
        /* If scores are descending, the position is that of the previous line or the next one: try these first. */
        if (place < tracked && (order[place] == number || score[number] < score[order[place]]))
            place++;
        if (place > 0 && (order[place - 1] == number || score[number] < score[order[place - 1]]))
            low = place;
        if (place < tracked && score[number] > score[order[place]])
            high = place;
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            if (order[middle] == number || precedes(reading, order[middle], number))
                low = middle + 1;
            else
                high = middle;
        }
        place = low;
        lines->before[place]++;
    }
}

/* Write the ranks of judged documents to `output`. */
static void rank_judged(struct reading *reading, int64_t row, uint64_t mask)
{
    struct lines *lines = &reading->lines;
    struct output *output = &reading->output;
    uint64_t tracked = track(reading, row, mask), rank = 1;
    if (tracked == 0)
        return;
    sort_tracked(reading, tracked);
    count_before(reading, tracked);
    for (uint64_t index = 0; index < tracked; index++) {
        rank += lines->before[index];
        int32_t grade = lines->grade[lines->tracked[index]];
        if (rank > (grade == ELSEWHERE ? reading->elsewhere_depth : reading->depth) || output->count >= output->room)
            continue;
        output->query[output->count] = (int32_t)reading->query;
        output->rank[output->count] = (int32_t)rank;
        output->grade[output->count] = grade;
        output->count++;
    }
}

/* Append bytes and a separator to the list of first documents. */
static void append_first(struct first *first, const uint8_t *bytes, uint64_t length, uint8_t separator)
{
    if (length >= first->room - first->filled)
        return;
    memcpy(first->text + first->filled, bytes, length);
    first->text[first->filled + length] = separator;
    first->filled += length + 1;
}

/* Write the first of the `retrieved` documents of the current query. */
static void write_first(struct reading *reading, uint64_t retrieved)
{
    struct lines *lines = &reading->lines;
    uint64_t last = retrieved < reading->first.depth ? retrieved : reading->first.depth;
    if (last == 0)
        return;
    for (uint64_t number = 0; number < lines->count; number++)
        lines->tracked[number] = (uint32_t)number;
    sort_tracked(reading, lines->count);
    append_first(&reading->first, reading->current, reading->current_length, '\t');
    for (uint64_t index = 0; index < last; index++) {
        const struct line *line = &lines->line[lines->tracked[index]];
        append_first(&reading->first, reading->text + line->start, line->length, index + 1 < last ? ' ' : '\n');
    }
}

/* Check the lines of the current query, rank its judged documents, and discard the lines. */
static void finish_query(struct reading *reading)
{
    struct lines *lines = &reading->lines;
    if (lines->count == 0)
        return;
    find_ties(reading);
    uint64_t mask = look_up_documents(reading);
    uint64_t retrieved = lines->count - omit_excluded(reading, mask);
    write_first(reading, retrieved);
    if (reading->self_match >= 0 && lines->score[reading->self_match] != LEFT_OUT) {
        lines->score[reading->self_match] = LEFT_OUT;
        retrieved--;
    }
    if (retrieved > reading->depth) {
        note(reading, DEPTH, lines->line[reading->depth].number);
        reading->cut_lines += (int64_t)(retrieved - reading->depth);
        retrieved = reading->depth;
    }
    reading->queries.retrieved[reading->query] = (int32_t)retrieved;
    uint64_t query = (uint64_t)reading->query;
    int64_t row = query < reading->judged.row_count ? reading->judged.row_of[query] : -1;
    if (row >= 0)
        rank_judged(reading, row, mask);
    lines->count = 0;
}

#endif
