/* The TensorFlow operation that cuts the fields of records out of the blocks in which they arrived.

     AisTar2tfCut(blocks: N * uint8, starts: int64 [F, n], sizes: int64 [F, n]) -> fields: F * string [n]

   Row f of `starts` and `sizes` says where the bytes of field f are, for each of n records. A start counts through all
   blocks, as if they stood one after another; a field never spans two blocks.

   Contract: every start and size is compared with the blocks before a byte is read, and all strings are copies, as
   nothing keeps the blocks alive afterwards. The operation keeps no state. */

#include "tf_api.h"

enum { MOST_BLOCKS = 64 };

typedef struct {
    const uint8_t *data;
    int64_t begin, end; /* as if the blocks stood one after another */
} Block;

typedef struct {
    TF_Tensor *tensors[MOST_BLOCKS + 2];
    int tensor_count;
    Block blocks[MOST_BLOCKS];
    int block_count;
    const int64_t *starts, *sizes;
    int64_t fields, records;
} Inputs;

static int fail(TF_Status *status, const char *message) {
    TF_SetStatus(status, TF_INVALID_ARGUMENT, message);
    return 0;
}

static int read_inputs(TF_OpKernelContext *context, Inputs *inputs, TF_Status *status) {
    int count = TF_NumInputs(context);
    if (count < 3 || count > MOST_BLOCKS + 2) return fail(status, "a cut takes 1 to 64 blocks");
    for (int at = 0; at < count; at++) {
        TF_GetInput(context, at, &inputs->tensors[at], status);
        if (TF_GetCode(status) != TF_OK) return 0;
        inputs->tensor_count = at + 1;
    }
    int64_t end = 0;
    inputs->block_count = count - 2;
    for (int at = 0; at < inputs->block_count; at++) {
        const TF_Tensor *tensor = inputs->tensors[at];
        if (TF_NumDims(tensor) != 1) return fail(status, "a block is a vector of bytes");
        Block block = {TF_TensorData(tensor), end, end + TF_Dim(tensor, 0)};
        inputs->blocks[at] = block;
        end = block.end;
    }
    const TF_Tensor *starts = inputs->tensors[count - 2], *sizes = inputs->tensors[count - 1];
    if (TF_NumDims(starts) != 2 || TF_NumDims(sizes) != 2 || TF_Dim(starts, 0) != TF_Dim(sizes, 0) ||
        TF_Dim(starts, 1) != TF_Dim(sizes, 1) || TF_Dim(starts, 0) != TF_NumOutputs(context))
        return fail(status, "starts and sizes have a row for each field, and are equally long");
    inputs->starts = TF_TensorData(starts);
    inputs->sizes = TF_TensorData(sizes);
    inputs->fields = TF_Dim(starts, 0);
    inputs->records = TF_Dim(starts, 1);
    return 1;
}

/* Cuts one field of all records. Neighbouring records are usually in the same block. */
static int cut_field(TF_OpKernelContext *context, const Inputs *inputs, int field, TF_Status *status) {
    int64_t records = inputs->records;
    TF_Tensor *output = TF_AllocateOutput(context, field, TF_STRING, &records, 1,
                                          (size_t)records * sizeof(TensorString), status);
    if (TF_GetCode(status) != TF_OK) return 0;
    TensorString *strings = TF_TensorData(output);
    const Block *block = inputs->blocks, *last = block + inputs->block_count;
    int good = 1;
    for (int64_t at = 0; good && at < records; at++) {
        int64_t start = inputs->starts[field * records + at], size = inputs->sizes[field * records + at];
        if (start < block->begin || start >= block->end)
            for (block = inputs->blocks; block < last - 1 && start >= block->end; block++) {
            }
        if (size < 0 || start < block->begin || start > block->end || size > block->end - start)
            good = fail(status, "a field is outside of its block");
        else if (!set_string(&strings[at], block->data + (start - block->begin), (size_t)size)) {
            TF_SetStatus(status, TF_RESOURCE_EXHAUSTED, "there is no memory for a field");
            good = 0;
        }
    }
    TF_DeleteTensor(output);
    return good;
}

static void compute(void *kernel, TF_OpKernelContext *context) {
    Inputs inputs;
    TF_Status *status = TF_NewStatus();
    (void)kernel;
    inputs.tensor_count = 0;
    int good = read_inputs(context, &inputs, status);
    for (int field = 0; good && field < inputs.fields; field++) good = cut_field(context, &inputs, field, status);
    if (!good) TF_OpKernelContext_Failure(context, status);
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
    TF_OpDefinitionBuilderAddInput(definition, "starts: int64");
    TF_OpDefinitionBuilderAddInput(definition, "sizes: int64");
    TF_OpDefinitionBuilderAddOutput(definition, "fields: F * string");
    TF_OpDefinitionBuilderSetShapeInferenceFunction(definition, TF_ShapeInferenceContextSetUnknownShape);
    TF_RegisterOpDefinition(definition, status);
    if (TF_GetCode(status) == TF_OK)
        TF_RegisterKernelBuilder("AisTar2tfCut", TF_NewKernelBuilder("AisTar2tfCut", "CPU", NULL, compute, NULL), status);
    TF_DeleteStatus(status);
}
