/* Parsing of scores as in trec_eval 9.0.8: decimal text to the nearest double, then to the nearest float32. */
#ifndef RUNBOARD_SCORES_H
#define RUNBOARD_SCORES_H

#include "text.h"

/* Result of parsing a score. UNDECIDED: too close to a rounding boundary to be decided here. */
enum outcome { READ, NOT_A_NUMBER, NOT_FINITE, UNDECIDED };

/* Powers of ten up to 10^22 and integers up to 2^53 are exact as doubles. */
enum { HIGHEST_EXACT_POWER = 22, HIGHEST_POWER = 69 };
#define HIGHEST_EXACT_WHOLE (UINT64_C(1) << 53)

static const double powers_of_ten[HIGHEST_POWER + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17,
    1e18, 1e19, 1e20, 1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32, 1e33, 1e34, 1e35,
    1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43, 1e44, 1e45, 1e46, 1e47, 1e48, 1e49, 1e50, 1e51, 1e52, 1e53,
    1e54, 1e55, 1e56, 1e57, 1e58, 1e59, 1e60, 1e61, 1e62, 1e63, 1e64, 1e65, 1e66, 1e67, 1e68, 1e69,
};

/* Limits of the number of digits before the point, beyond which a value is 0 or infinite in float32. */
enum { LOWEST_MAGNITUDE = -46, HIGHEST_MAGNITUDE = 40, MAX_DIGITS = 19 };

/* Smallest double that rounds to infinity, halfway between the largest float32 and the next power of two. */
#define INFINITE_FROM 0x1.ffffffp+127

/* More than twice the relative error of three roundings and of omitting digits after the nineteenth. */
#define SLACK 0x1p-49

/* The value `whole` x 10^`exponent`, or slightly more if nonzero digits were `left_out`. */
struct decimal {
    uint64_t whole;
    int64_t exponent;
    int digits; /* significant digits in `whole` */
    bool seen, left_out;
};

/* Read any number of digits before or after the point, and return their end. */
static size_t read_digits(const uint8_t *text, size_t position, size_t end, bool fraction, struct decimal *decimal)
{
    for (; position < end && (uint8_t)(text[position] - '0') <= 9; position++) {
        uint8_t digit = (uint8_t)(text[position] - '0');
        decimal->seen = true;
        if (decimal->digits < MAX_DIGITS) {
            decimal->whole = decimal->whole * 10 + digit;
            decimal->digits += decimal->whole > 0;
            decimal->exponent -= fraction;
        } else {
            decimal->left_out |= digit > 0;
            decimal->exponent += !fraction;
        }
    }
    return position;
}

/* Read an exponent such as `e-12`, and return its end, or `end + 1` if there is no number after the e. */
static size_t read_exponent(const uint8_t *text, size_t position, size_t end, struct decimal *decimal)
{
    position++;
    bool negative = position < end && text[position] == '-';
    if (position < end && (negative || text[position] == '+'))
        position++;
    if (position == end)
        return end + 1;
    int64_t written = 0;
    for (; position < end && (uint8_t)(text[position] - '0') <= 9; position++)
        if (written < 100000) /* exceeds any double and any length of a line */
            written = written * 10 + (text[position] - '0');
    decimal->exponent += negative ? -written : written;
    return position;
}

/* Round a decimal to the nearest double and then to float32. For exact operands, one division or multiplication is
 * correct (Clinger's fast path). Otherwise the value is known within a few units in the last place of a double, which
 * almost always determines the float32. */
static inline enum outcome round_decimal(const struct decimal *decimal, float *score)
{
    double value = (double)decimal->whole;
    int64_t power = decimal->exponent < 0 ? -decimal->exponent : decimal->exponent;
    if (decimal->exponent < 0)
        value /= powers_of_ten[power];
    else
        value *= powers_of_ten[power];
    if (!decimal->left_out && decimal->whole <= HIGHEST_EXACT_WHOLE && power <= HIGHEST_EXACT_POWER) {
        if (value >= INFINITE_FROM)
            return NOT_FINITE;
        *score = (float)value;
        return READ;
    }
    double lowest = value * (1 - SLACK), highest = value * (1 + SLACK);
    if (highest >= INFINITE_FROM)
        return lowest >= INFINITE_FROM ? NOT_FINITE : UNDECIDED;
    *score = (float)lowest;
    return (float)highest == *score ? READ : UNDECIDED;
}

/* Read a decimal with any number of digits, or with an exponent. */
static enum outcome read_long_score(const uint8_t *text, size_t position, size_t end, float *score)
{
    struct decimal decimal = {0};
    position = read_digits(text, position, end, false, &decimal);
    if (position < end && text[position] == '.')
        position = read_digits(text, position + 1, end, true, &decimal);
    if (!decimal.seen)
        return NOT_A_NUMBER;
    if (position < end && (text[position] | 32) == 'e')
        position = read_exponent(text, position, end, &decimal);
    if (position != end)
        return NOT_A_NUMBER;
    if (decimal.whole == 0 || decimal.digits + decimal.exponent < LOWEST_MAGNITUDE)
        return READ;
    if (decimal.digits + decimal.exponent > HIGHEST_MAGNITUDE)
        return NOT_FINITE;
    return round_decimal(&decimal, score);
}

/* Parse the score in `text[position .. end]`, and return the result of parsing.
 *
 * Grammar: sign? (digits [. digits?] | . digits) ((e|E) sign? digits)?, ASCII only. */
static inline enum outcome read_score(const uint8_t *text, size_t position, size_t end, float *score)
{
    *score = 0;
    bool negative = text[position] == '-';
    if (negative || text[position] == '+')
        position++;
    size_t start = position, point = end, digits = end - start;
    struct decimal decimal = {0};
    if (digits <= MAX_DIGITS) { /* no overflow is possible */
        for (; position < end && (uint8_t)(text[position] - '0') <= 9; position++)
            decimal.whole = decimal.whole * 10 + (uint8_t)(text[position] - '0');
        if (position < end && text[position] == '.') {
            point = position++;
            digits--;
            for (; position < end && (uint8_t)(text[position] - '0') <= 9; position++)
                decimal.whole = decimal.whole * 10 + (uint8_t)(text[position] - '0');
            decimal.exponent = (int64_t)point + 1 - (int64_t)end;
        }
    }
    enum outcome outcome;
    if (position == end && digits > 0)
        outcome = round_decimal(&decimal, score);
    else
        outcome = read_long_score(text, start, end, score);
    if (negative)
        *score = -*score;
    return outcome;
}

#endif
