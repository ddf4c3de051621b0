/* Walks the plain headers of one block of a tar, or of an open file, from each header to the next.

   A header is plain under the same conditions as in `archive/tar_table.py`: a ustar or GNU header with octal numbers
   and a correct checksum, and the type of a file, a link, a device, a directory or a PAX header. A PAX header is read
   if it changes at most the name of the next member. The walk ends before the first header of any other kind, and
   before a member whose body does not end in the block or file. `archive/tar.py` reads what the walk leaves, and raises
   every error. In a file, only the headers are read.

   Contract: the functions read only the bytes that they are given, keep nothing, and allocate nothing. Numbers in
   headers are compared with the bytes that are there before they are used. */

#define _POSIX_C_SOURCE 200809L /* for pread */
#define _FILE_OFFSET_BITS 64

#include "native.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 512, NAME = 100, PREFIX_AT = 345, PREFIX_END = 500, LARGEST_PAX = 8192 };

/* The bytes of a tar, up to `stop`: of a block, or of an open file if `block` is NULL. */
typedef struct {
    const uint8_t *block;
    int file;
    int64_t stop;
} Source;

typedef struct {
    const uint8_t *name, *prefix; /* not terminated; the prefix may be empty */
    int64_t name_size, prefix_size, body_size;
    uint8_t type;
} Header;

/* Returns `size` bytes at a position, which are read into `room` if the source is a file; NULL if they are not there. */
static const uint8_t *bytes_at(const Source *source, int64_t position, int64_t size, uint8_t *room) {
    if (size > source->stop - position) return NULL;
    if (source->block != NULL) return source->block + position;
    for (int64_t done = 0; done < size;) {
        ssize_t count = pread(source->file, room + done, (size_t)(size - done), position + done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return NULL; /* Python reads here again, and raises the error */
        done += count;
    }
    return room;
}

static int64_t length_of(const uint8_t *text, int64_t most) {
    const uint8_t *end = memchr(text, 0, (size_t)most);
    return end == NULL ? most : end - text;
}

/* Bytes 100 to 155 of a header, where mode, uid, gid, size, time and checksum are plain if (byte ^ EXPECTED) & MASK is 0:
   octal digits, with a NUL or a space after them, or both after the checksum. */
#define DIGITS(byte) byte, byte, byte, byte, byte, byte
static const uint8_t EXPECTED[56] = {DIGITS('0'), '0', 0, DIGITS('0'), '0', 0, DIGITS('0'), '0', 0,
                                     DIGITS('0'), '0', '0', '0', '0', '0', 0, DIGITS('0'), '0', '0', '0', '0', '0', 0,
                                     DIGITS('0'), 0, ' '};
static const uint8_t MASK[56] = {DIGITS(0xF8), 0xF8, 0xDF, DIGITS(0xF8), 0xF8, 0xDF, DIGITS(0xF8), 0xF8, 0xDF,
                                 DIGITS(0xF8), 0xF8, 0xF8, 0xF8, 0xF8, 0xF8, 0xDF,
                                 DIGITS(0xF8), 0xF8, 0xF8, 0xF8, 0xF8, 0xF8, 0xDF, DIGITS(0xF8), 0xFF, 0xFF};

static int numbers_are_plain(const uint8_t *raw) {
    uint8_t odd = 0;
    for (int at = 0; at < 56; at++) odd |= (uint8_t)((raw[100 + at] ^ EXPECTED[at]) & MASK[at]);
    return odd == 0;
}

static int64_t octal(const uint8_t *digits, int count) {
    int64_t value = 0;
    for (int at = 0; at < count; at++) value = value * 8 + (digits[at] - '0');
    return value;
}

/* Returns the sum of all bytes of a header. Each of the 16 sums has 32 bytes, and the compiler adds them at once. */
static uint32_t sum_of_bytes(const uint8_t *raw) {
    uint16_t sums[16] = {0};
    uint32_t total = 0;
    for (int at = 0; at < HEADER; at += 16)
        for (int lane = 0; lane < 16; lane++) sums[lane] = (uint16_t)(sums[lane] + raw[at + lane]);
    for (int lane = 0; lane < 16; lane++) total += sums[lane];
    return total;
}

static int checksum_is_right(const uint8_t *raw) {
    uint32_t total = sum_of_bytes(raw) + 8 * ' ';
    for (int at = 148; at < 156; at++) total -= raw[at];
    return (int64_t)total == octal(raw + 148, 6);
}

/* Asks the processor to load a header. It was received by another processor, so that waiting for it takes most of the
   time of a walk. */
static void load_early(const uint8_t *block, int64_t position, int64_t stop) {
    if (position <= stop - HEADER)
        for (int at = 0; at < HEADER; at += 64) __builtin_prefetch(block + position + at);
}

/* Parses a header; returns 0 if it is not plain. */
static int parse(const uint8_t *raw, int64_t member_bytes, Header *found) {
    int is_ustar = memcmp(raw + 257, "ustar\0" "00", 8) == 0 && memcmp(raw + 508, "tar\0", 4) != 0;
    int is_gnu = memcmp(raw + 257, "ustar  \0", 8) == 0 && raw[PREFIX_AT] == 0;
    if (!(is_ustar || is_gnu) || !numbers_are_plain(raw) || !checksum_is_right(raw)) return 0;
    found->type = raw[156];
    int has_body = found->type == '0' || found->type == 'x';
    if (!has_body && (found->type < '1' || found->type > '6')) return 0;
    found->name = raw;
    found->name_size = length_of(raw, NAME);
    static const uint8_t zeros[NAME] = {0};
    if (memcmp(raw + found->name_size, zeros, (size_t)(NAME - found->name_size)) != 0) return 0;
    found->prefix = raw + PREFIX_AT;
    found->prefix_size = length_of(raw + PREFIX_AT, PREFIX_END - PREFIX_AT);
    found->body_size = has_body ? octal(raw + 124, 11) : 0;
    return found->body_size <= member_bytes;
}

static int is_key(const uint8_t *key, int64_t size, const char *expected) {
    return size == (int64_t)strlen(expected) && memcmp(key, expected, (size_t)size) == 0;
}

static int are_digits(const uint8_t *text, int64_t size) {
    for (int64_t at = 0; at < size; at++)
        if (text[at] < '0' || text[at] > '9') return 0;
    return 1;
}

/* An optional minus, digits, and optionally a dot and digits. */
static int is_time(const uint8_t *text, int64_t size) {
    int64_t at = size > 0 && text[0] == '-', digits = at;
    while (at < size && text[at] >= '0' && text[at] <= '9') at++;
    if (at == digits) return 0;
    if (at == size) return 1;
    if (text[at++] != '.' || at == size) return 0;
    while (at < size && text[at] >= '0' && text[at] <= '9') at++;
    return at == size;
}

/* Checks one record of a PAX header, and notes the path that it states. Returns 0 for a record that is left to Python. */
static int read_record(const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t size, Header *changes) {
    if (is_key(key, key_size, "mtime") || is_key(key, key_size, "atime") || is_key(key, key_size, "ctime"))
        return is_time(value, size);
    if (is_key(key, key_size, "uid") || is_key(key, key_size, "gid")) return size < 100 && are_digits(value, size);
    if (is_key(key, key_size, "size")) return 0;
    if (key_size >= 4 && memcmp(key, "GNU.", 4) == 0) return 0;
    int is_path = is_key(key, key_size, "path");
    if (is_path || is_key(key, key_size, "linkpath") || is_key(key, key_size, "uname") || is_key(key, key_size, "gname")) {
        if (memchr(value, 0, (size_t)size) != NULL) return 0;
    } else if (memchr(key, 0, (size_t)key_size) != NULL) {
        return 0;
    }
    if (is_path) {
        changes->name = value;
        changes->name_size = size;
    }
    return 1;
}

/* Reads the records of a PAX header: `<length> <key>=<value>\n`. Returns 0 if the header is left to Python. */
static int read_pax(const uint8_t *body, int64_t size, Header *changes) {
    int64_t at = 0;
    changes->name_size = 0;
    while (at < size) {
        int64_t length = 0, digits = 0;
        while (digits < 10 && at + digits < size && body[at + digits] >= '0' && body[at + digits] <= '9')
            length = length * 10 + (body[at + digits++] - '0');
        if (digits == 0 || digits == 10 || length <= digits + 2 || length > size - at) return 0;
        const uint8_t *key = body + at + digits + 1, *end = body + at + length - 1;
        if (body[at + digits] != ' ' || *end != '\n') return 0;
        const uint8_t *equals = memchr(key, '=', (size_t)(end - key));
        if (equals == NULL || equals == key) return 0;
        if (!read_record(key, equals - key, equals + 1, end - equals - 1, changes)) return 0;
        at += length;
    }
    return 1;
}

static int64_t after_padding(int64_t start, int64_t size) { return start + (size + HEADER - 1) / HEADER * HEADER; }

/* Returns how many bytes a name takes at most, with its prefix, the slash between them, and a NUL. */
static int64_t name_bytes(const Header *header, const Header *changes) {
    return changes->name_size ? changes->name_size + 1 : header->prefix_size + header->name_size + 2;
}

/* Writes the name of a member, with its prefix and a NUL after it; returns its size without the NUL. */
static int64_t write_name(uint8_t *out, const Header *header, const Header *changes) {
    int64_t size = 0;
    const Header *source = changes->name_size ? changes : header;
    if (source == header && header->prefix_size) {
        memcpy(out, header->prefix, (size_t)header->prefix_size);
        size = header->prefix_size;
        out[size++] = '/';
    }
    memcpy(out + size, source->name, (size_t)source->name_size);
    size += source->name_size;
    out[size] = 0;
    return size;
}

/* Notes that the next member ends at `end` or later, and so in a later block. */
static void note_missing(const Source *source, int64_t end, Walked *walked) {
    if (source->block != NULL) walked->missing = end - source->stop;
}

/* Finds members from `start` on, until one begins at `enough` or later. */
static void walk(const Source *source, int64_t start, int64_t enough, int64_t member_bytes, int64_t pax_bytes,
                 Walked *walked) {
    uint8_t header_room[HEADER], pax_room[LARGEST_PAX];
    Header header, changes;
    int64_t position = start, names = 0, before[2] = {start, start};
    walked->count = walked->ignored = walked->missing = 0;
    walked->position = start;
    while (position < enough && walked->count < walked->room) {
        int64_t first = position;
        const uint8_t *raw = bytes_at(source, position, HEADER, header_room);
        if (raw == NULL) note_missing(source, position + HEADER, walked);
        if (raw == NULL || !parse(raw, member_bytes, &header)) break;
        changes.name_size = 0;
        if (header.type == 'x') {
            int64_t body = position + HEADER;
            if (header.body_size > pax_bytes || (source->block == NULL && header.body_size > LARGEST_PAX)) break;
            const uint8_t *pax = bytes_at(source, body, header.body_size, pax_room);
            if (pax == NULL) note_missing(source, body + header.body_size, walked);
            if (pax == NULL || !read_pax(pax, header.body_size, &changes)) break;
            position = after_padding(body, header.body_size);
            raw = bytes_at(source, position, HEADER, header_room);
            if (raw == NULL) note_missing(source, position + HEADER, walked);
            if (raw == NULL || !parse(raw, member_bytes, &header) || header.type == 'x') break;
        }
        int64_t body = position + HEADER;
        if (header.body_size > source->stop - body) {
            note_missing(source, body + header.body_size, walked);
            break;
        }
        if (source->block != NULL) {
            load_early(source->block, after_padding(body, header.body_size), source->stop);
            load_early(source->block, 2 * position - before[0], source->stop); /* the header after next, if sizes repeat */
        }
        before[0] = before[1];
        before[1] = position;
        if (header.type == '0') {
            if (name_bytes(&header, &changes) > walked->name_room - names) break;
            int64_t size = write_name(walked->names + names, &header, &changes);
            walked->offsets[walked->count] = first;
            walked->starts[walked->count] = body;
            walked->sizes[walked->count] = header.body_size;
            walked->name_ends[walked->count++] = names + size;
            names += size + 1;
        } else {
            walked->ignored++;
        }
        walked->position = position = after_padding(body, header.body_size);
    }
    if (position >= source->stop) note_missing(source, position + HEADER, walked);
}

EXPORTED int64_t t2t_version(void) { return 3; }

EXPORTED void t2t_walk(const uint8_t *block, int64_t start, int64_t stop, int64_t member_bytes, int64_t pax_bytes,
                       Walked *walked) {
    Source source = {block, -1, stop};
    walk(&source, start, stop, member_bytes, pax_bytes, walked);
}

EXPORTED void t2t_walk_file(int64_t file, int64_t start, int64_t stop, int64_t enough, int64_t member_bytes,
                            int64_t pax_bytes, Walked *walked) {
    Source source = {NULL, (int)file, stop};
    walk(&source, start, enough, member_bytes, pax_bytes, walked);
}
