/* The TensorFlow operation that cuts the fields of records out of the blocks in which they arrived, or reads them from
   open files.

     AisTar2tfCut(blocks: N * uint8, files: int64 [K, 10], starts: int64 [F, n], sizes: int64 [F, n])
         -> is_read: bool, fields: F * string [n]

   Row f of `starts` and `sizes` says where the bytes of field f are, for each of n records. A start counts through all
   blocks, and then through all files, as if they stood one after another; a field never spans two of them. A row of
   `files` is a descriptor, and the state that the file had when it was opened (see `File`).

   `is_read` is false if a file cannot be read, or has another state than before. The fields must not be used then.

   Contract: every start and size is compared with the blocks and files before a byte is read, and all strings are
   copies, as nothing keeps the blocks alive afterwards. The operation keeps no state. It may read files in several
   threads, which have ended when it returns. */

#define _POSIX_C_SOURCE 200809L /* for pread and the nanoseconds of a file's times */
#define _FILE_OFFSET_BITS 64

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tf_api.h"

enum { MOST_BLOCKS = 64, OTHER_INPUTS = 3, NANOSECONDS = 1000000000 };
enum { MOST_THREADS = 4, SHARE_BYTES = 1 << 20 }; /* fewer bytes take less time than starting a thread for them */

/* An open descriptor of a file, and its `FileState` (`base/file_state.py`). */
typedef struct {
    int64_t descriptor, device, inode, size, modified, status_changed, mode, owner, group, links;
} File;

/* Bytes that fields are copied from: of a block, or of a file if `data` is NULL. */
typedef struct {
    const uint8_t *data;
    const File *file;
    int64_t begin, end; /* as if all stood one after another */
} Part;

typedef struct {
    TF_Tensor *tensors[MOST_BLOCKS + OTHER_INPUTS];
    int tensor_count;
    Part *parts;
    int64_t part_count;
    const int64_t *starts, *sizes;
    int64_t fields, records;
} Inputs;

/* One field of consecutive records, which one thread copies. */
typedef struct {
    const Inputs *inputs;
    const int64_t *starts, *sizes;
    TensorString *strings;
    int64_t begin, end;
    int is_read;
} Share;

static int fail(TF_Status *status, const char *message) {
    TF_SetStatus(status, TF_INVALID_ARGUMENT, message);
    return 0;
}

/* Lists the blocks and files in `inputs->parts`, which the caller frees. */
static int list_parts(Inputs *inputs, int64_t blocks, TF_Status *status) {
    const TF_Tensor *files = inputs->tensors[blocks];
    if (TF_NumDims(files) != 2 || TF_Dim(files, 1) != sizeof(File) / sizeof(int64_t))
        return fail(status, "files have a row of 10 numbers each");
    int64_t file_count = TF_Dim(files, 0), end = 0;
    inputs->part_count = blocks + file_count;
    inputs->parts = calloc((size_t)inputs->part_count, sizeof(Part));
    if (inputs->parts == NULL) return fail(status, "there is no memory for the list of blocks");
    for (int64_t at = 0; at < inputs->part_count; at++) {
        Part *part = &inputs->parts[at];
        int64_t size;
        if (at < blocks) {
            const TF_Tensor *tensor = inputs->tensors[at];
            if (TF_NumDims(tensor) != 1) return fail(status, "a block is a vector of bytes");
            part->data = TF_TensorData(tensor);
            size = TF_Dim(tensor, 0);
        } else {
            part->file = (const File *)TF_TensorData(files) + (at - blocks);
            size = part->file->size;
        }
        if (size < 0 || size > INT64_MAX - end) return fail(status, "a file has an impossible size");
        part->begin = end;
        part->end = end += size;
    }
    return 1;
}

static int read_inputs(TF_OpKernelContext *context, Inputs *inputs, TF_Status *status) {
    int count = TF_NumInputs(context);
    if (count <= OTHER_INPUTS || count > MOST_BLOCKS + OTHER_INPUTS) return fail(status, "a cut takes 1 to 64 blocks");
    for (int at = 0; at < count; at++) {
        TF_GetInput(context, at, &inputs->tensors[at], status);
        if (TF_GetCode(status) != TF_OK) return 0;
        inputs->tensor_count = at + 1;
    }
    const TF_Tensor *starts = inputs->tensors[count - 2], *sizes = inputs->tensors[count - 1];
    if (TF_NumDims(starts) != 2 || TF_NumDims(sizes) != 2 || TF_Dim(starts, 0) != TF_Dim(sizes, 0) ||
        TF_Dim(starts, 1) != TF_Dim(sizes, 1) || TF_Dim(starts, 0) != TF_NumOutputs(context) - 1)
        return fail(status, "starts and sizes have a row for each field, and are equally long");
    inputs->starts = TF_TensorData(starts);
    inputs->sizes = TF_TensorData(sizes);
    inputs->fields = TF_Dim(starts, 0);
    inputs->records = TF_Dim(starts, 1);
    return list_parts(inputs, count - OTHER_INPUTS, status);
}

/* Returns whether nobody has written to a file. If only `status_changed` and the mode, owner, group or links differ, the
   content is the same. */
static int is_unchanged(const File *file) {
    struct stat now;
    if (fstat((int)file->descriptor, &now) != 0) return 0;
    if ((int64_t)now.st_dev != file->device || (int64_t)now.st_ino != file->inode || now.st_size != file->size ||
        (int64_t)now.st_mtim.tv_sec * NANOSECONDS + now.st_mtim.tv_nsec != file->modified)
        return 0;
    return (int64_t)now.st_ctim.tv_sec * NANOSECONDS + now.st_ctim.tv_nsec == file->status_changed ||
           (int64_t)now.st_mode != file->mode || (int64_t)now.st_uid != file->owner ||
           (int64_t)now.st_gid != file->group || (int64_t)now.st_nlink != file->links;
}

static int are_unchanged(const Inputs *inputs) {
    for (int64_t at = 0; at < inputs->part_count; at++)
        if (inputs->parts[at].file != NULL && !is_unchanged(inputs->parts[at].file)) return 0;
    return 1;
}

/* Copies bytes of a block or file; returns 0 if the file cannot be read. */
static int copy(const Part *part, int64_t offset, char *out, int64_t size) {
    if (part->file == NULL) {
        if (size) memcpy(out, part->data + offset, (size_t)size);
        return 1;
    }
    for (int64_t done = 0; done < size;) {
        ssize_t count = pread((int)part->file->descriptor, out + done, (size_t)(size - done), offset + done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return 0;
        done += count;
    }
    return 1;
}

/* Returns the part in which a field begins. Neighbouring records are usually in the same part, so look there first. */
static const Part *part_at(const Inputs *inputs, const Part *near, int64_t start) {
    if (start >= near->begin && start < near->end) return near;
    const Part *part = inputs->parts, *last = part + inputs->part_count - 1;
    while (part < last && start >= part->end) part++;
    return part;
}

/* Checks one field of all records, and gives each string its size. Returns the sum of the sizes, or -1 after a failure. */
static int64_t size_strings(const Share *all, TF_Status *status) {
    const Part *part = all->inputs->parts;
    int64_t total = 0;
    for (int64_t at = 0; at < all->end; at++) {
        int64_t start = all->starts[at], size = all->sizes[at];
        part = part_at(all->inputs, part, start);
        if (size < 0 || start < part->begin || start > part->end || size > part->end - start) {
            fail(status, "a field is outside of its block");
            return -1;
        }
        if (set_size(&all->strings[at], (size_t)size) == NULL) {
            TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "there is no memory for a field");
            return -1;
        }
        total += size; /* cannot overflow, as there is memory for all of them */
    }
    return total;
}

static void *copy_share(void *given) {
    Share *share = given;
    const Part *part = share->inputs->parts;
    for (int64_t at = share->begin; share->is_read && at < share->end; at++) {
        part = part_at(share->inputs, part, share->starts[at]);
        share->is_read = copy(part, share->starts[at] - part->begin, text_of(&share->strings[at]), share->sizes[at]);
    }
    return NULL;
}

static int64_t threads_for(const Inputs *inputs, int64_t bytes) {
    if (inputs->parts[inputs->part_count - 1].file == NULL || bytes < 2 * SHARE_BYTES) return 1;
    int64_t count = bytes / SHARE_BYTES, cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (count > MOST_THREADS) count = MOST_THREADS;
    if (count > cores) count = cores;
    return count < 1 ? 1 : count;
}

/* Copies one field of all records, in several threads if there is much to read; returns 0 if a file cannot be read. */
static int copy_strings(Share *all, int64_t bytes) {
    int64_t count = threads_for(all->inputs, bytes), end = 0;
    if (count == 1) {
        copy_share(all);
        return all->is_read;
    }
    Share shares[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    int is_running[MOST_THREADS] = {0}, is_read = 1;
    sigset_t signals, before;
    sigfillset(&signals);
    pthread_sigmask(SIG_SETMASK, &signals, &before); /* the new threads must not take the signals of the process */
    for (int64_t at = 0; at < count; at++) {
        shares[at] = *all;
        shares[at].begin = end;
        shares[at].end = end = at + 1 == count ? all->end : all->end / count * (at + 1);
        if (at) is_running[at] = pthread_create(&threads[at], NULL, copy_share, &shares[at]) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int64_t at = 0; at < count; at++) {
        if (is_running[at])
            pthread_join(threads[at], NULL);
        else
            copy_share(&shares[at]); /* the first share, and those for which the system starts no thread */
        is_read = is_read && shares[at].is_read;
    }
    return is_read;
}

/* Cuts one field of all records. Sets `is_read` to 0 if a file cannot be read. */
static int cut_field(TF_OpKernelContext *context, const Inputs *inputs, int field, uint8_t *is_read, TF_Status *status) {
    int64_t records = inputs->records;
    TF_Tensor *output = TF_AllocateOutput(context, field + 1, TF_STRING, &records, 1,
                                          (size_t)records * sizeof(TensorString), status);
    if (TF_GetCode(status) != TF_OK) return 0;
    Share all = {inputs, inputs->starts + field * records, inputs->sizes + field * records, TF_TensorData(output),
                 0, records, 1};
    int64_t bytes = size_strings(&all, status);
    if (bytes >= 0 && *is_read) *is_read = (uint8_t)copy_strings(&all, bytes);
    TF_DeleteTensor(output);
    return bytes >= 0;
}

static int cut(TF_OpKernelContext *context, const Inputs *inputs, TF_Status *status) {
    TF_Tensor *output = TF_AllocateOutput(context, 0, TF_BOOL, NULL, 0, 1, status);
    if (TF_GetCode(status) != TF_OK) return 0;
    uint8_t *is_read = TF_TensorData(output);
    int good = 1;
    *is_read = 1;
    for (int field = 0; good && field < inputs->fields; field++) good = cut_field(context, inputs, field, is_read, status);
    if (good && *is_read) *is_read = (uint8_t)are_unchanged(inputs);
    TF_DeleteTensor(output);
    return good;
}

static void compute(void *kernel, TF_OpKernelContext *context) {
    Inputs inputs;
    TF_Status *status = TF_NewStatus();
    (void)kernel;
    inputs.tensor_count = 0;
    inputs.parts = NULL;
    if (!read_inputs(context, &inputs, status) || !cut(context, &inputs, status))
        TF_OpKernelContext_Failure(context, status);
    free(inputs.parts);
    for (int at = 0; at < inputs.tensor_count; at++) TF_DeleteTensor(inputs.tensors[at]);
    TF_DeleteStatus(status);
}

/* TensorFlow runs this when it loads the library. */
__attribute__((constructor)) static void register_operation(void) {
    TF_Status *status = TF_NewStatus();
    TF_OpDefinitionBuilder *definition = TF_NewOpDefinitionBuilder("AisTar2tfCut");
    TF_OpDefinitionBuilderAddAttr(definition, "N: int >= 1");
    TF_OpDefinitionBuilderAddAttr(definition, "F: int >= 1");
    TF_OpDefinitionBuilderAddInput(definition, "blocks: N * uint8");
    TF_OpDefinitionBuilderAddInput(definition, "files: int64");
    TF_OpDefinitionBuilderAddInput(definition, "starts: int64");
    TF_OpDefinitionBuilderAddInput(definition, "sizes: int64");
    TF_OpDefinitionBuilderAddOutput(definition, "is_read: bool");
    TF_OpDefinitionBuilderAddOutput(definition, "fields: F * string");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, TF_ShapeInferenceContextSetUnknownShape);
    TF_RegisterOpDefinition(definition, status);
    if (TF_GetCode(status) == TF_OK)
        TF_RegisterKernelBuilder("AisTar2tfCut", TF_NewKernelBuilder("AisTar2tfCut", "CPU", NULL, compute, NULL), status);
    TF_DeleteStatus(status);
}
