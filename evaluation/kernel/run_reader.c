/* One-pass reader of TREC runs, which checks lines in place, looks up documents, and ranks the judged ones.
 *
 * The text is an untrusted upload. Reads stay within bounds because `read_lines` rejects regions that do not end with a
 * newline followed by PADDING readable bytes, every scan stops at a newline, positions are unsigned 64-bit numbers below
 * the buffer's capacity, and lines are stored only if there is room. All memory belongs to Python (see layout.h):
 * nothing here allocates, recurses, has global state, or depends on the locale.
 *
 * Only judged documents need ranks, which are the number of preceding lines plus one, so lines are not sorted. */
#include "layout.h"
#include "ranks.h"
#include "scores.h"
#include "tables.h"
#include "text.h"

/* Functions for Python. No other symbols are exported. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED uint64_t size_of_reading(void);
EXPORTED int has_only_plain_text(const uint8_t *text, uint64_t length);
EXPORTED int read_lines(struct reading *reading, uint64_t stop);
EXPORTED void finish_last_query(struct reading *reading);
EXPORTED int number_queries(struct reading *reading, const uint8_t *text, uint64_t text_bytes, const int64_t *offsets,
                            uint64_t count);
EXPORTED int64_t index_lines(struct reading *reading, uint64_t stop, uint64_t *starts, uint32_t *owners, uint64_t room);
EXPORTED void order_lines(const uint32_t *owners, uint64_t count, uint64_t *places, uint64_t owner_count,
                          uint32_t *order);
EXPORTED uint64_t gather_lines(const uint8_t *text, const uint64_t *starts, const uint32_t *order, uint64_t count,
                               uint64_t *done, uint8_t *target, uint64_t room, uint64_t longest);
EXPORTED int make_keys(const uint8_t *text, uint64_t text_bytes, const int64_t *offsets, uint64_t count, uint64_t seed,
                       struct key *keys);
EXPORTED int64_t insert_ids(const struct ids *ids, uint64_t *slots, const struct key *keys, uint64_t count);
EXPORTED int find_ids(const struct ids *ids, const uint8_t *text, uint64_t text_bytes, const int64_t *offsets,
                      uint64_t count, uint64_t seed, uint8_t *found);

/* Positions of the six fields of a line; `end` is its newline. */
struct fields {
    size_t start, query, query_end, document, document_end, rank, rank_end, score, score_end, tag, tag_end, end;
};

uint64_t size_of_reading(void)
{
    return sizeof(struct reading);
}

int has_only_plain_text(const uint8_t *text, uint64_t length)
{
    return is_plain(text, length);
}

/* Return the start of the field after the one that ends at `position`, mostly after a single space. */
static inline size_t next_field(const uint8_t *text, size_t position)
{
    return text[position] == ' ' && text[position + 1] > ' ' ? position + 1 : field_start(text, position);
}

/* Return whether the field at `position` is the id `current`, so that its end is known. */
static inline bool is_field(const uint8_t *text, size_t position, const uint8_t *current, size_t length, size_t stop)
{
    return length > 0 && length < stop - position && is_space(text[position + length])
        && same_bytes(text + position, current, length);
}

/* Find the fields of the line at `fields->query`, whose query may be the current one. Returns whether there are
 * exactly six. */
static inline bool split_line(const struct reading *reading, struct fields *fields, bool same_query, size_t stop)
{
    const uint8_t *text = reading->text;
    const struct tags *tags = &reading->tags;
    fields->query_end = same_query ? fields->query + reading->current_length : field_end(text, fields->query);
    size_t iteration = next_field(text, fields->query_end);
    fields->document = next_field(text, field_end(text, iteration));
    fields->document_end = field_end(text, fields->document);
    fields->rank = next_field(text, fields->document_end);
    fields->rank_end = field_end(text, fields->rank);
    fields->score = next_field(text, fields->rank_end);
    fields->score_end = field_end(text, fields->score);
    fields->tag = next_field(text, fields->score_end);
    size_t tag_start = tags->start[tags->last], tag_length = tags->start[tags->last + 1] - tag_start;
    fields->tag_end = is_field(text, fields->tag, tags->text + tag_start, tag_length, stop)
        ? fields->tag + tag_length : field_end(text, fields->tag);
    size_t end = field_start(text, fields->tag_end);
    bool complete = fields->tag_end > fields->tag && text[end] == '\n';
    while (text[end] != '\n')
        end = field_start(text, field_end(text, end));
    fields->end = end;
    return complete;
}

/* Return the formal problem of a line, if any. */
static inline enum problem find_problem(const struct reading *reading, const struct fields *fields, bool complete)
{
    size_t length = fields->end - fields->start;
    if (length > reading->longest_line)
        return LINE_LENGTH;
    if (reading->check_encoding && !is_utf8(reading->text + fields->start, length))
        return ENCODING;
    if (!complete)
        return FIELDS;
    if (fields->query_end - fields->query > reading->longest_id
        || fields->document_end - fields->document > reading->longest_id)
        return IDENTIFIER;
    return NO_PROBLEM;
}

/* Parse the score of a line, or take the value from Python; UNDECIDED if Python still has to parse it. */
static inline enum outcome parse_score(struct reading *reading, const struct fields *fields, float *score)
{
    enum outcome outcome = read_score(reading->text, fields->score, fields->score_end, score);
    if (outcome != UNDECIDED)
        return outcome;
    if (!reading->score_given) {
        reading->score_start = fields->score;
        reading->score_end = fields->score_end;
        return UNDECIDED;
    }
    reading->score_given = 0;
    if (!(fabs(reading->given) < INFINITE_FROM))
        return NOT_FINITE;
    *score = (float)reading->given;
    return READ;
}

/* Parse the rank column as an integer, or return -1. It is only compared with the scores. */
static inline int64_t parse_rank(const struct reading *reading, const struct fields *fields)
{
    int64_t rank = 0;
    size_t end = fields->rank_end;
    if (end - fields->rank > 2 && memcmp(reading->text + end - 2, ".0", 2) == 0)
        end -= 2; /* pandas writes ranks like this in columns with missing values */
    for (size_t position = fields->rank; position < end; position++) {
        uint8_t digit = (uint8_t)(reading->text[position] - '0');
        if (digit > 9)
            return -1;
        if (rank < INT64_C(1) << 40)
            rank = rank * 10 + digit;
    }
    return rank;
}

/* Make the query of a line the current one. Returns DONE, or the reason why that is impossible. */
static enum status open_query(struct reading *reading, const struct fields *fields)
{
    struct queries *queries = &reading->queries;
    const uint8_t *id = reading->text + fields->query;
    size_t length = fields->query_end - fields->query;
    int64_t number = find_or_add_query(queries, id, length, reading->seed);
    if (number < 0 || length + PADDING > reading->current_room)
        return TOO_MANY_QUERIES;
    bool known = reading->any_query || (uint64_t)number < reading->known_queries;
    if (known && queries->seen[number])
        return NOT_GROUPED;
    queries->seen[number] = 1;
    memcpy(reading->current, id, length);
    reading->current_length = length;
    reading->query = known ? number : -1;
    reading->descending = 1;
    reading->self_match = -1;
    return DONE;
}

/* Append a line to those of the current query, and compare it with the previous line. */
static inline void add_line(struct reading *reading, const struct fields *fields, float score, uint64_t number)
{
    struct lines *lines = &reading->lines;
    struct line *line = &lines->line[lines->count];
    const uint8_t *id = reading->text + fields->document;
    size_t length = fields->document_end - fields->document;
    int64_t rank = parse_rank(reading, fields), previous_rank = reading->previous_rank;
    line->key = make_key(id, length, reading->seed);
    line->start = fields->document;
    line->length = (uint32_t)length;
    line->number = (uint32_t)number; /* a file with 4 billion lines exceeds all limits */
    score += 0.0F; /* -0 becomes 0 */
    lines->score[lines->count] = score;
    bool disordered = rank < 0;
    if (lines->count > 0) {
        float before = lines->score[lines->count - 1];
        if (score > before) {
            reading->descending = 0;
            disordered |= previous_rank >= 0 && rank > previous_rank;
        } else if (score < before)
            disordered |= previous_rank >= 0 && rank < previous_rank;
    }
    if (disordered)
        note(reading, RANK_ORDER, number);
    reading->previous_rank = rank;
    if (reading->drop_self_matches && length == reading->current_length && memcmp(id, reading->current, length) == 0)
        reading->self_match = (int64_t)lines->count;
    lines->count++;
}

/* Store a tag that differs from that of the previous line, unless there is no room. */
static void store_tag(struct reading *reading, const struct fields *fields, uint64_t number)
{
    struct tags *tags = &reading->tags;
    const uint8_t *tag = reading->text + fields->tag;
    size_t length = fields->tag_end - fields->tag;
    for (uint64_t index = 0; index < tags->count; index++)
        if (tags->start[index + 1] - tags->start[index] == length
            && memcmp(tags->text + tags->start[index], tag, length) == 0) {
            tags->last = index;
            return;
        }
    size_t start = tags->start[tags->count];
    if (tags->count == tags->room || length + PADDING > tags->text_room - start)
        return;
    memcpy(tags->text + start, tag, length);
    tags->last = tags->count++;
    tags->start[tags->count] = start + length;
    note(reading, SEVERAL_TAGS, number);
}

/* Process a line with valid form and score. */
static inline enum status process_line(struct reading *reading, const struct fields *fields, bool same_query, float score,
                                    uint64_t number)
{
    const struct tags *tags = &reading->tags;
    if (!same_query) {
        finish_query(reading);
        enum status status = open_query(reading, fields);
        if (status != DONE)
            return status;
    }
    if (reading->query < 0) {
        note(reading, UNKNOWN_QUERIES, number);
    } else {
        if (reading->lines.count == 0)
            reading->group_start = fields->start;
        add_line(reading, fields, score, number);
    }
    size_t last = tags->start[tags->last], length = tags->start[tags->last + 1] - last;
    if (fields->tag_end - fields->tag != length || !same_bytes(reading->text + fields->tag, tags->text + last, length))
        store_tag(reading, fields, number);
    return DONE;
}

/* Read one line that is not blank and advance, or return the reason why that is impossible. */
static inline enum status read_line(struct reading *reading, struct fields *fields, uint64_t number, size_t stop)
{
    bool same_query = is_field(reading->text, fields->query, reading->current, reading->current_length, stop);
    bool complete = split_line(reading, fields, same_query, stop);
    enum problem problem = find_problem(reading, fields, complete);
    float score = 0;
    if (problem == NO_PROBLEM) {
        enum outcome outcome = parse_score(reading, fields, &score);
        if (outcome == UNDECIDED)
            return NEEDS_SCORE;
        if (outcome != READ)
            problem = SCORE;
    }
    if (number > reading->last_text_line)
        reading->last_text_line = number;
    if (problem != NO_PROBLEM)
        note(reading, problem, number);
    else {
        enum status status = process_line(reading, fields, same_query, score, number);
        if (status != DONE)
            return status;
    }
    reading->line++;
    reading->position = fields->end + 1;
    return DONE;
}

/* Read the lines from `position` to `stop` (after a newline), and finish every query that ends there. Returns DONE, or
 * the reason for stopping at a line; another call continues there. */
int read_lines(struct reading *reading, uint64_t stop)
{
    const uint8_t *text = reading->text;
    enum status status = DONE;
    if (reading->capacity < PADDING || stop == 0 || stop > reading->capacity - PADDING || text[stop - 1] != '\n')
        return REFUSED;
    while (reading->position < stop && status == DONE) {
        if (reading->lines.count == reading->lines.room)
            return NEEDS_ROOM;
        if (reading->order != NULL && reading->line >= reading->order_count)
            return REFUSED;
        uint64_t line = reading->order != NULL ? reading->order[reading->line] : reading->line;
        struct fields fields = {.start = reading->position};
        fields.query = field_start(text, fields.start);
        if (text[fields.query] == '\n') {
            note(reading, BLANK, line + reading->first_number);
            reading->line++;
            reading->position = fields.query + 1;
            continue;
        }
        status = read_line(reading, &fields, line + reading->first_number, stop);
    }
    if (reading->lines.count == 0)
        reading->group_start = reading->position;
    return (int)status;
}

/* Finish the current query at the end of the file. */
void finish_last_query(struct reading *reading)
{
    finish_query(reading);
}

/* --- ids of datasets: id i is `offsets[i] .. offsets[i + 1]`, validated here because it determines lengths */

static bool is_id(const int64_t *offsets, uint64_t number, uint64_t text_bytes)
{
    int64_t start = offsets[number], end = offsets[number + 1];
    return start >= 0 && end >= start && (uint64_t)end <= text_bytes && text_bytes - (uint64_t)end >= PADDING;
}

/* Number the dataset's queries in their order. Returns 0 if there is no room or an offset is wrong. */
int number_queries(struct reading *reading, const uint8_t *text, uint64_t text_bytes, const int64_t *offsets,
                   uint64_t count)
{
    for (uint64_t number = 0; number < count; number++) {
        if (!is_id(offsets, number, text_bytes))
            return 0;
        size_t length = (size_t)(offsets[number + 1] - offsets[number]);
        if (find_or_add_query(&reading->queries, text + offsets[number], length, reading->seed) < 0)
            return 0;
    }
    return 1;
}

/* Compute the keys of ids. Returns 0 if an offset is wrong. */
int make_keys(const uint8_t *text, uint64_t text_bytes, const int64_t *offsets, uint64_t count, uint64_t seed,
              struct key *keys)
{
    for (uint64_t number = 0; number < count; number++) {
        if (!is_id(offsets, number, text_bytes))
            return 0;
        keys[number] = make_key(text + offsets[number], (size_t)(offsets[number + 1] - offsets[number]), seed);
    }
    return 1;
}

/* Add ids to a set. Ids that are longer than a key are already in `long_ids`, with their position in the second word of
 * the key. Returns the number of new ids, or -1 if the set is full or damaged. `slots` are those of `ids`. */
int64_t insert_ids(const struct ids *ids, uint64_t *slots, const struct key *keys, uint64_t count)
{
    int64_t new = 0;
    for (uint64_t number = 0; number < count; number++) {
        const struct key *key = &keys[number];
        size_t length = 0;
        const uint8_t *id = is_long(key->second) ? get_long_id(ids, key->second & ~LONG_ID, &length) : NULL;
        if (is_long(key->second) && id == NULL)
            return -1;
        uint64_t slot = find_slot(ids, key, id, length);
        if (slot == ids->slot_count)
            return -1;
        if (slots[2 * slot] == 0) {
            slots[2 * slot] = key->first;
            slots[2 * slot + 1] = key->second;
            new++;
        }
    }
    return new;
}

/* Set `found[i]` to whether id i is in the set. Returns 0 if an offset is wrong. */
int find_ids(const struct ids *ids, const uint8_t *text, uint64_t text_bytes, const int64_t *offsets, uint64_t count,
             uint64_t seed, uint8_t *found)
{
    for (uint64_t number = 0; number < count; number++) {
        if (!is_id(offsets, number, text_bytes))
            return 0;
        const uint8_t *id = text + offsets[number];
        size_t length = (size_t)(offsets[number + 1] - offsets[number]);
        struct key key = make_key(id, length, seed);
        found[number] = contains_id(ids, &key, id, length);
    }
    return 1;
}

/* --- files whose lines are not grouped by query */

/* Find the start of each line of `text[.. stop]` and the number of its query (0 without a valid one). Returns the number
 * of lines, -1 if there are too many queries, or -2 for more than `room` lines or a missing newline at the end. */
int64_t index_lines(struct reading *reading, uint64_t stop, uint64_t *starts, uint32_t *owners, uint64_t room)
{
    const uint8_t *text = reading->text;
    size_t position = 0;
    uint64_t count = 0;
    if (reading->capacity < PADDING || stop == 0 || stop > reading->capacity - PADDING || text[stop - 1] != '\n')
        return -2;
    for (; position < stop; count++) {
        if (count == room)
            return -2;
        const uint8_t *newline = memchr(text + position, '\n', stop - position);
        size_t query = field_start(text, position), length = field_end(text, query) - query;
        int64_t owner = 0;
        if (length > 0 && length <= reading->longest_id)
            owner = find_or_add_query(&reading->queries, text + query, length, reading->seed);
        if (owner < 0)
            return -1;
        starts[count] = position;
        owners[count] = (uint32_t)owner;
        position = (size_t)(newline - text) + 1;
    }
    starts[count] = position;
    return (int64_t)count;
}

/* Sort line numbers by owner with a counting sort, those of an owner in file order. `places` contains a 0 for every
 * owner and another one. */
void order_lines(const uint32_t *owners, uint64_t count, uint64_t *places, uint64_t owner_count, uint32_t *order)
{
    for (uint64_t line = 0; line < count; line++)
        places[owners[line] + 1]++;
    for (uint64_t owner = 0; owner < owner_count; owner++)
        places[owner + 1] += places[owner];
    for (uint64_t line = 0; line < count; line++)
        order[places[owners[line]]++] = (uint32_t)line;
}

/* Copy the lines `order[*done ..]` to `target`, as many as fit, each truncated to `longest` bytes including its newline.
 * Returns the number of bytes. */
uint64_t gather_lines(const uint8_t *text, const uint64_t *starts, const uint32_t *order, uint64_t count,
                      uint64_t *done, uint8_t *target, uint64_t room, uint64_t longest)
{
    enum { AHEAD = 16 }; /* lines are scattered in memory, so prefetch them */
    uint64_t filled = 0;
    for (; *done < count; ++*done) {
        if (count - *done > AHEAD)
            __builtin_prefetch(text + starts[order[*done + AHEAD]]);
        uint64_t start = starts[order[*done]], length = starts[order[*done] + 1] - start;
        if (length > longest)
            length = longest;
        if (length > room - filled)
            break;
        memcpy(target + filled, text + start, length);
        filled += length;
        target[filled - 1] = '\n';
    }
    return filled;
}
