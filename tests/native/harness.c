/* Gives each file of the command line to the functions of the native step, in memory of exactly its size, so that the
   sanitizers and valgrind notice every byte that is read or written outside. Also a target for libFuzzer. */

#define _POSIX_C_SOURCE 200809L /* for fileno */

#include "native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *array(int64_t count, size_t size) { return malloc((size_t)(count > 0 ? count : 1) * size); }

static int64_t *copied(const int64_t *numbers, int64_t count) {
    int64_t *copy = array(count, 8);
    memcpy(copy, numbers, (size_t)count * 8);
    return copy;
}

/* Groups members whose arrays have exactly their size, and checks that all numbers are those of the members. */
static void group_all(const Walked *walked, int64_t name_bytes) {
    enum { BASE = 1000, SHIFT = 7, SHARD = 11 };
    int64_t total = walked->count;
    Walked exact = {total, name_bytes, copied(walked->offsets, total), copied(walked->starts, total),
                    copied(walked->sizes, total), copied(walked->name_ends, total), array(name_bytes, 1), total, 0, 0, 0};
    memcpy(exact.names, walked->names, (size_t)name_bytes);
    for (int64_t rule = FIRST_DOT; rule <= LAST_DOT; rule++) {
        int64_t first = total > 3 ? rule : 0;
        Grouped grouped = {array(name_bytes, 1), array(8 * (total - first), 8), 0, 0, 0, 0, 0};
        t2t_group(&exact, first, rule, BASE, SHIFT, SHARD, &grouped);
        int64_t count = grouped.count, width = grouped.width;
        if (count * width >= total - first && total > first) abort(); /* the last record is never among them */
        const int64_t *starts = grouped.numbers + 2 * count, *sizes = starts + (2 + width) * count;
        for (int64_t at = 0; at < count; at++) {
            if (grouped.keys[starts[at] + sizes[at]] != 0 || sizes[count + at] != SHARD) abort();
            for (int64_t field = 0; field < width; field++) {
                int64_t member = first + at * width + field, place = (2 + field) * count + at;
                if (starts[place] != exact.starts[member] + SHIFT || sizes[place] != exact.sizes[member]) abort();
            }
            if (grouped.numbers[at] != BASE + exact.offsets[first + at * width]) abort();
        }
        free(grouped.keys);
        free(grouped.numbers);
    }
    free(exact.offsets);
    free(exact.starts);
    free(exact.sizes);
    free(exact.name_ends);
    free(exact.names);
}

/* A walk of the file finds what a walk of the block found, as far as PAX headers are small. */
static void walk_file(int file, int64_t start, int64_t size, const Walked *expected) {
    int64_t room = expected->room, name_room = expected->name_room;
    Walked walked = {room, name_room, array(room, 8), array(room, 8), array(room, 8), array(room, 8),
                     array(name_room, 1), 0, 0, 0, 0};
    t2t_walk_file(file, start, size, size, 1 << 20, 4096, &walked);
    if (walked.count != expected->count || walked.ignored != expected->ignored || walked.position != expected->position)
        abort();
    size_t bytes = (size_t)walked.count * 8, names = walked.count ? (size_t)walked.name_ends[walked.count - 1] + 1 : 0;
    if (memcmp(walked.offsets, expected->offsets, bytes) || memcmp(walked.starts, expected->starts, bytes) ||
        memcmp(walked.sizes, expected->sizes, bytes) || memcmp(walked.name_ends, expected->name_ends, bytes) ||
        memcmp(walked.names, expected->names, names))
        abort();
    t2t_walk_file(file, start, size, start + 1, 1 << 20, 4096, &walked);
    if (walked.count > 1) abort(); /* the second member begins after `enough` */
    free(walked.offsets);
    free(walked.starts);
    free(walked.sizes);
    free(walked.name_ends);
    free(walked.names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *block = array((int64_t)size, 1);
    memcpy(block, data, size);
    FILE *file = tmpfile();
    if (file == NULL || fwrite(data, 1, size, file) != size || fflush(file) != 0) abort();
    int64_t step = size > 1 ? 1 + data[0] % 3 * 511 : 1;
    for (int64_t start = 0; start <= (int64_t)size && start <= 4096; start += step) {
        int64_t room = ((int64_t)size - start) / 512 + 1, name_room = 64 + room * 8, names = 0;
        Walked walked = {room, name_room, array(room, 8), array(room, 8), array(room, 8), array(room, 8),
                         array(name_room, 1), 0, 0, 0, 0};
        t2t_walk(block, start, (int64_t)size, 1 << 20, 4096, &walked);
        if (walked.missing < 0 || (walked.position >= (int64_t)size && walked.missing == 0)) abort();
        for (int64_t at = 0; at < walked.count; at++) {
            if (walked.starts[at] < start || walked.sizes[at] < 0 || walked.sizes[at] > (int64_t)size - walked.starts[at])
                abort();
            names = walked.name_ends[at] + 1;
        }
        group_all(&walked, names);
        walk_file(fileno(file), start, (int64_t)size, &walked);
        uint8_t *copy = array((int64_t)size, 1);
        int64_t total = 0, count = 0;
        while (count < walked.count && total + walked.sizes[count] <= (int64_t)size) total += walked.sizes[count++];
        t2t_gather(block, walked.starts, walked.sizes, count, copy);
        free(copy);
        free(walked.offsets);
        free(walked.starts);
        free(walked.sizes);
        free(walked.name_ends);
        free(walked.names);
    }
    fclose(file);
    free(block);
    return 0;
}

#ifndef FUZZING
int main(int count, char **paths) {
    for (int at = 1; at < count; at++) {
        FILE *file = fopen(paths[at], "rb");
        if (file == NULL) return 1;
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        rewind(file);
        uint8_t *data = array(size, 1);
        if (fread(data, 1, (size_t)size, file) != (size_t)size) return 1;
        fclose(file);
        LLVMFuzzerTestOneInput(data, (size_t)size);
        free(data);
    }
    return 0;
}
#endif
