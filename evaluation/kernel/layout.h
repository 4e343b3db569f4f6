/* Structures of the reader. `layout.py` declares the same structures and allocates all arrays: compiled code neither
 * allocates nor frees memory. Pointers are valid as long as Python holds `Reading`.
 *
 * Every array that is read by words (`text`, `query_text`, `current`, `tag_text`) has PADDING readable bytes after its
 * content. Content of an upload ends with a newline before the padding, where every scan stops. */
#ifndef RUNBOARD_LAYOUT_H
#define RUNBOARD_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "positions and pointers must have 64 bits");

enum { PADDING = 16, NAMED_LINES = 5 };

/* Conditions recorded for lines, with a row in `noted` for each. NOTED is the list of `layout.py` in capitals. */
enum problem { NOTED, NOTED_COUNT, NO_PROBLEM };

/* Return values of `read_lines`. REFUSED means that the caller violated a rule of this file and nothing was read. */
enum status { DONE, NEEDS_ROOM, NEEDS_SCORE, NOT_GROUPED, TOO_MANY_QUERIES, REFUSED };

/* Values in place of a grade: judged only for other queries, and not tracked. */
enum { ELSEWHERE = -1, NOT_TRACKED = -2 };

/* Number of occurrences of a problem, and its smallest line numbers, ascending. */
struct noted {
    uint64_t count;
    uint64_t lines[NAMED_LINES];
};

/* An id as two words, and its hash (see `make_key`). */
struct key {
    uint64_t first, second, hash;
};

/* One line of the current query; its document id is `text[start .. start + length]`. */
struct line {
    struct key key;
    uint64_t start;
    uint32_t length, number;
};

/* A set of ids: two words per slot, where the number of slots is a power of two, and the bytes of long ids. */
struct ids {
    const uint64_t *slots;
    uint64_t slot_count;
    const uint8_t *long_ids;
    uint64_t long_bytes;
};

/* All query ids, numbered, those of the dataset first. `slots` contains number + 1, or 0 for empty slots. */
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

/* Judgments. Those of query number q are `offsets[row] .. offsets[row + 1]` for row = `row_of[q]`, if it is >= 0. */
struct judged {
    const int32_t *row_of;
    uint64_t row_count;
    const int64_t *offsets;
    const struct key *keys;
    const int64_t *start;
    const uint8_t *text;
    const int32_t *grades;
};

/* Lines of the current query, with scores in a separate array that is scanned more often, and working space: a hash
 * table, the grade of each line, and lines in order of rank. */
struct lines {
    struct line *line;
    float *score;
    uint64_t room, count;
    uint64_t *table;
    uint64_t table_size;
    int32_t *grade;
    uint32_t *tracked, *scratch, *before;
};

/* Distinct tags in order of appearance: tag i is `text[start[i] .. start[i + 1]]`; `last` is the previous line's. */
struct tags {
    uint8_t *text;
    uint64_t text_room;
    uint64_t *start;
    uint64_t room, count, last;
};

/* Query number, rank (from 1), and grade of every retrieved judged document, grouped by query. */
struct output {
    int32_t *query, *rank, *grade;
    uint64_t room, count;
};

/* The first `depth` documents of every query, best first, if `depth` is not 0: one line per query with its id, a tab,
 * and the document ids separated by spaces. The capacity is that of `text`, because lines of a run are longer. */
struct first {
    uint8_t *text;
    uint64_t room, filled, depth;
};

/* One pass over a run. */
struct reading {
    /* buffer with all lines of the current query, starting at `group_start` */
    const uint8_t *text;
    uint64_t capacity, position, group_start;
    /* the number of a line is `order[line] + first_number` if lines were reordered, otherwise `line + first_number` */
    const uint32_t *order;
    uint64_t order_count, first_number, line, last_text_line;
    /* options */
    uint64_t seed, longest_line, longest_id, depth, elsewhere_depth, known_queries;
    uint64_t drop_self_matches, any_query, check_encoding, check_documents;
    /* the current query: its number or -1, its id, whether scores are descending, and the line of its own id or -1 */
    int64_t query;
    uint8_t *current;
    uint64_t current_room, current_length, descending;
    int64_t self_match, previous_rank, cut_lines;
    /* a score that Python has to parse: its position, and then its value */
    uint64_t score_start, score_end, score_given;
    double given;
    struct noted noted[NOTED_COUNT];
    struct lines lines;
    struct queries queries;
    struct judged judged, excluded; /* excluded documents have no grades */
    struct ids documents, elsewhere;
    struct tags tags;
    struct output output;
    struct first first;
};

#endif
