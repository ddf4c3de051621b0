/* Groups members whose names share a key into records, as long as all records have the same fields in the same order.

   The rules are those of `records/naming.py`. Names that are not ASCII, system files, and members without a key or a
   field end the grouping: `records/grouper.py` reads what it leaves, and raises every error.

   Contract: the functions read only the members that a walk found, keep nothing, and allocate nothing. */

#include "native.h"

#include <string.h>

enum { MOST_FIELDS = 64 };

typedef struct {
    const uint8_t *text;
    int64_t size;
} Text;

static Text text_between(const uint8_t *names, int64_t begin, int64_t end) {
    Text found = {names + begin, end - begin};
    return found;
}

static int64_t base_of(Text name) {
    int64_t at = name.size;
    while (at > 0 && name.text[at - 1] != '/') at--;
    return at;
}

static int is_ascii(Text name) {
    uint8_t all = 0;
    for (int64_t at = 0; at < name.size; at++) all |= name.text[at];
    return all < 0x80;
}

/* Returns the size of the key in a name; 0 if the name has no key or no field, or is left to Python. */
static int64_t key_size(Text name, int64_t rule) {
    int64_t base = base_of(name), dot;
    if (rule == FIRST_DOT) {
        for (dot = base; dot < name.size && name.text[dot] != '.'; dot++) {
        }
    } else {
        for (dot = name.size - 1; dot > base && name.text[dot] != '.'; dot--) {
        }
    }
    if (dot <= base || dot >= name.size - 1) return 0;
    if (rule == LAST_DOT && name.text[base] == '.' && name.text[base + 1] == '_') return 0;
    return is_ascii(name) ? dot : 0;
}

static int ends_in(Text suffix, const char *expected) {
    int64_t size = (int64_t)strlen(expected);
    if (suffix.size != size) return 0;
    for (int64_t at = 0; at < size; at++)
        if ((suffix.text[at] | 0x20) != expected[at]) return 0; /* in small or capital letters */
    return 1;
}

static int compare(Text a, Text b) {
    int64_t shorter = a.size < b.size ? a.size : b.size;
    int order = memcmp(a.text, b.text, (size_t)shorter);
    if (order != 0) return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

/* Returns how many names from the first on have its key, and what follows the key in each; 0 if there are too many, or
   if one of them may be a system file. */
static int64_t first_record(const uint8_t *names, const int64_t *ends, int64_t begin, int64_t count, int64_t rule,
                            Text *suffixes) {
    Text key = {NULL, 0};
    int64_t width = 0;
    for (; width < count; width++) {
        Text name = text_between(names, width ? ends[width - 1] + 1 : begin, ends[width]);
        Text other = {name.text, key_size(name, rule)}, suffix = {name.text + other.size, name.size - other.size};
        if (width == 0) key = other;
        if (other.size == 0 || compare(other, key) != 0) return width;
        if (width == MOST_FIELDS || ends_in(suffix, ".db") || ends_in(suffix, ".ini")) return 0;
        suffixes[width] = suffix;
    }
    return width;
}

/* Adds the records that have the same fields as the first one, `suffixes`. */
static void add_records(const uint8_t *names, const int64_t *ends, int64_t begin, int64_t count, int64_t rule,
                        const Text *suffixes, Grouped *grouped) {
    int64_t width = grouped->width;
    Text before = {NULL, 0};
    for (int64_t first = 0; first + width < count; first += width) {
        Text name = text_between(names, first ? ends[first - 1] + 1 : begin, ends[first]);
        Text key = {name.text, name.size - suffixes[0].size};
        if (key.size <= 0 || key_size(name, rule) != key.size) return;
        if (memcmp(key.text + key.size, suffixes[0].text, (size_t)suffixes[0].size) != 0) return;
        for (int64_t at = first + 1; at < first + width; at++) {
            Text other = text_between(names, ends[at - 1] + 1, ends[at]), suffix = suffixes[at - first];
            if (other.size != key.size + suffix.size || memcmp(other.text, key.text, (size_t)key.size) != 0 ||
                memcmp(other.text + key.size, suffix.text, (size_t)suffix.size) != 0)
                return;
        }
        Text next = text_between(names, ends[first + width - 1] + 1, ends[first + width]);
        Text next_key = {next.text, key_size(next, rule)};
        if (next_key.size == 0 || compare(next_key, key) == 0) return;
        if (grouped->count > 0 && compare(before, key) >= 0) grouped->ascending = 0;
        before = key;
        memcpy(grouped->keys + grouped->key_bytes, key.text, (size_t)key.size);
        grouped->key_bytes += key.size;
        grouped->keys[grouped->key_bytes++] = 0;
        grouped->count++;
    }
}

/* Writes the numbers of the records that were added. `suffix_size` is what follows the key in the first name. */
static void write_numbers(const Walked *walked, int64_t first, int64_t name_begin, int64_t suffix_size, int64_t base,
                          int64_t shift, int64_t shard_bytes, Grouped *grouped) {
    int64_t count = grouped->count, width = grouped->width, key_at = 0;
    int64_t *offsets = grouped->numbers, *extents = offsets + count, *starts = extents + count;
    int64_t *sizes = starts + (2 + width) * count;
    for (int64_t record = 0; record < count; record++) {
        int64_t member = first + record * width;
        int64_t name_at = record ? walked->name_ends[member - 1] + 1 : name_begin;
        offsets[record] = base + walked->offsets[member];
        extents[record] = walked->offsets[member + width] - walked->offsets[member];
        starts[record] = key_at;
        sizes[record] = walked->name_ends[member] - name_at - suffix_size;
        key_at += sizes[record] + 1;
        starts[count + record] = 0;
        sizes[count + record] = shard_bytes;
        for (int64_t field = 0; field < width; field++) {
            starts[(2 + field) * count + record] = walked->starts[member + field] + shift;
            sizes[(2 + field) * count + record] = walked->sizes[member + field];
        }
    }
}

EXPORTED void t2t_group(const Walked *walked, int64_t first, int64_t rule, int64_t base, int64_t shift,
                        int64_t shard_bytes, Grouped *grouped) {
    Text suffixes[MOST_FIELDS];
    const int64_t *ends = walked->name_ends + first;
    int64_t begin = first ? ends[-1] + 1 : 0, count = walked->count - first;
    grouped->width = first_record(walked->names, ends, begin, count, rule, suffixes);
    grouped->count = grouped->key_bytes = 0;
    grouped->ascending = 1;
    if (grouped->width) {
        add_records(walked->names, ends, begin, count, rule, suffixes, grouped);
        write_numbers(walked, first, begin, suffixes[0].size, base, shift, shard_bytes, grouped);
    }
    int64_t done = grouped->count * grouped->width, rest = count - done;
    int64_t rest_begin = done ? ends[done - 1] + 1 : begin;
    grouped->rest_is_one = first_record(walked->names, ends + done, rest_begin, rest, rule, suffixes) == rest;
}

EXPORTED void t2t_gather(const uint8_t *block, const int64_t *starts, const int64_t *sizes, int64_t count,
                         uint8_t *out) {
    for (int64_t at = 0; at < count; at++) {
        memcpy(out, block + starts[at], (size_t)sizes[at]);
        out += sizes[at];
    }
}
