/* What the reader works on. `layout.py` has the same structures, field by field, and allocates every array: the
 * compiled code owns no memory, takes none and frees none. Pointers stay valid while Python holds `Reading`.
 *
 * Every array that is read by words (`text`, `query_text`, `current`, `tag_text`) has PADDING readable bytes behind
 * what is used of it; what comes from an upload ends, before that, in a newline, where every scan stops. */
#ifndef RUNBOARD_LAYOUT_H
#define RUNBOARD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "positions and pointers are taken to have 64 bits");

enum { PADDING = 16, NAMED_LINES = 5 };

/* What may be noted of a line; `noted` has a row for each. NOTED are the names that `layout.py` lists, in capitals. */
enum problem { NOTED, NOTED_COUNT, NO_PROBLEM };

/* Why `read_lines` returned. REFUSED means that the caller broke a rule of this file; nothing was read. */
enum status { DONE, NEEDS_ROOM, NEEDS_SCORE, NOT_GROUPED, TOO_MANY_QUERIES, REFUSED };

/* Instead of a grade: judged for another query only; not wanted at all. */
enum { ELSEWHERE = -1, NOT_TRACKED = -2 };

/* How often a problem was seen, and the smallest line numbers, in order. */
struct noted {
    uint64_t count;
    uint64_t lines[NAMED_LINES];
};

/* An id in two words, and its hash (see `key_of`). */
struct key {
    uint64_t first, second, hash;
};

/* One line of the query at hand; its document id is `text[start .. start + length]`. */
struct line {
    struct key key;
    uint64_t start;
    uint32_t length, number;
};

/* A set of ids: two words per slot, a power of two of slots, and the bytes of ids too long for a slot. */
struct ids {
    const uint64_t *slots;
    uint64_t slot_count;
    const uint8_t *long_ids;
    uint64_t long_bytes;
};

/* Every query id seen, numbered: the dataset's own first. `slots` holds number + 1, 0 where empty. */
struct queries {
    uint32_t *slots;
    uint64_t slot_count;
    struct key *keys;
    uint64_t *start;
    uint8_t *text;
    uint64_t text_room, room, count;
    uint8_t *seen;
    int32_t *retrieved;
};

/* Judgements: those of query number q are `offsets[row] .. offsets[row + 1]` for row = `row_of[q]`, if it is >= 0. */
struct judged {
    const int32_t *row_of;
    uint64_t row_count;
    const int64_t *offsets;
    const struct key *keys;
    const int64_t *start;
    const uint8_t *text;
    const int32_t *grades;
};

/* The lines of the query at hand, their scores apart (these are passed over more often), and working space: a hash table, the grade of each line, lines in order of rank. */
struct lines {
    struct line *line;
    float *score;
    uint64_t room, count;
    uint64_t *table;
    uint64_t table_size;
    int32_t *grade;
    uint32_t *tracked, *scratch, *before;
};

/* The distinct tags in the order seen: tag i is `text[start[i] .. start[i + 1]]`; the line before had `last`. */
struct tags {
    uint8_t *text;
    uint64_t text_room;
    uint64_t *start;
    uint64_t room, count, last;
};

/* (query number, rank, grade) of every judged document retrieved, grouped by query; ranks are 1-based. */
struct output {
    int32_t *query, *rank, *grade;
    uint64_t room, count;
};

/* The first `depth` documents of every query, best first, if `depth` is not 0: a line for each query, which has its id, a
 * tab, and their ids between spaces. There is room for as many bytes as `text` has: lines of a run are longer. */
struct first {
    uint8_t *text;
    uint64_t room, filled, depth;
};

/* One pass over a run. */
struct reading {
    /* the buffer, which holds the whole of the query at hand from `group_start` on */
    const uint8_t *text;
    uint64_t capacity, position, group_start;
    /* `order[line] + first_number` is a line's number where lines were rearranged, else `line + first_number` */
    const uint32_t *order;
    uint64_t order_count, first_number, line, last_text_line;
    /* what is asked for */
    uint64_t seed, longest_line, longest_id, depth, elsewhere_depth, known_queries;
    uint64_t drop_self_matches, any_query, check_encoding, check_documents;
    /* the query at hand: its number or -1, its id, whether scores went down so far, the line of its own id or -1 */
    int64_t query;
    uint8_t *current;
    uint64_t current_room, current_length, descending;
    int64_t self_match, previous_rank, cut_lines;
    /* a score that Python is asked for: where it stands, and then its value */
    uint64_t score_start, score_end, score_given;
    double given;
    struct noted noted[NOTED_COUNT];
    struct lines lines;
    struct queries queries;
    struct judged judged, excluded; /* what is excluded for a query has no grade */
    struct ids documents, elsewhere;
    struct tags tags;
    struct output output;
    struct first first;
};

#endif
