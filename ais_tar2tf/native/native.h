/* The functions of the native step that Python calls by ctypes, and their structures (`library.py` has the same). */

#ifndef AIS_TAR2TF_NATIVE_H
#define AIS_TAR2TF_NATIVE_H

#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

/* Returns the version of the functions and structures in this file. `library.py` uses no other version. */
EXPORTED int64_t t2t_version(void);

/* The members of a block or file, and the arrays that hold them. */
typedef struct {
    int64_t room;       /* members for which the arrays have room */
    int64_t name_room;  /* bytes for which `names` has room */
    int64_t *offsets;   /* in the block or file, of the first header that describes the member */
    int64_t *starts;    /* in the block or file, of the body */
    int64_t *sizes;     /* of the body */
    int64_t *name_ends; /* in `names` */
    uint8_t *names;     /* with a NUL after each name */
    int64_t count;
    int64_t ignored;  /* links, devices and directories */
    int64_t position; /* after the padding of the last member; it may lie after the end of the block or file */
    int64_t missing;  /* of the next member: the bytes that a later block has; 0 if the walk ended for another reason */
} Walked;

/* Finds the members of block[start:stop], of which a header begins at `start`, as far as there is room for them. */
EXPORTED void t2t_walk(const uint8_t *block, int64_t start, int64_t stop, int64_t member_bytes, int64_t pax_bytes,
                       Walked *walked);

/* Finds members of an open file in the same way, up to the first that begins at `enough` or later. The headers are read
   from the file, and the bodies are not; all members end before `stop`. */
EXPORTED void t2t_walk_file(int64_t file, int64_t start, int64_t stop, int64_t enough, int64_t member_bytes,
                            int64_t pax_bytes, Walked *walked);

/* Consecutive records with the same fields in the same order.

   `numbers` has 6 + 2 * width rows of `count` numbers each: the offset of each record in the archive; the bytes from
   each record to the next; where each column begins; and how many bytes each column has. The columns are the key (in
   `keys`), the name of the shard, and the fields. */
typedef struct {
    uint8_t *keys;       /* with a NUL after each key; room for as many bytes as the names have */
    int64_t *numbers;    /* room for 8 numbers for each member */
    int64_t key_bytes;
    int64_t width;       /* members of a record */
    int64_t count;       /* records */
    int64_t ascending;   /* 1 if each key is greater than the one before it */
    int64_t rest_is_one; /* 1 if the members after these records have one key */
} Grouped;

enum { FIRST_DOT = 0, LAST_DOT = 1 };

/* Groups the members from number `first` on, by a rule of `records/naming.py`. The last record is never among the
   result, because later members may belong to it. `base` is added to offsets, `shift` to the starts of fields. */
EXPORTED void t2t_group(const Walked *walked, int64_t first, int64_t rule, int64_t base, int64_t shift,
                        int64_t shard_bytes, Grouped *grouped);

/* Copies ranges of a block one after another to `out`. The caller has checked all ranges. */
EXPORTED void t2t_gather(const uint8_t *block, const int64_t *starts, const int64_t *sizes, int64_t count,
                         uint8_t *out);

#endif
